"""Retries over real clients: how often a server is asked, when, and what is said in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent_eval_action.config.models import LlmOptions
from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.budget import Meter
from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest
from agent_eval_action.llm.providers.google import GoogleProvider
from agent_eval_action.llm.providers.openai import OpenAiProvider
from agent_eval_action.llm.retries import Retrying
from agent_eval_action.llm.router import LlmStack
from support.gemini_server.faults import Fault
from support.gemini_server.server import GeminiServer
from support.openai_server import faults as openai_faults
from support.openai_server.server import OpenAiServer

from .conftest import ANSWER, ask

Kind = LlmErrorKind


class Clock:
    """Waits that take no time and are remembered."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def around(self, llm: Llm, jitter: Callable[[], float] = lambda: 1.0) -> Retrying:
        return Retrying(llm, sleep=self.sleep, jitter=jitter)


@pytest.fixture
def clock() -> Clock:
    return Clock()


PASSING = [
    Fault(code=408),
    Fault(code=429),
    Fault(code=500),
    Fault(code=503),
    Fault(kind="reset"),
    Fault(kind="truncated"),
    Fault(kind="invalid_json"),
    Fault(kind="empty_candidates"),
    Fault(kind="max_tokens"),
    Fault(kind="only_thoughts"),
]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: f"{fault.kind}-{fault.code}")
async def test_what_passes_is_asked_again(
    google: GoogleProvider, gemini: GeminiServer, clock: Clock, fault: Fault
) -> None:
    gemini.faults = [Fault(kind=fault.kind, code=fault.code, times=2)]
    reply = await clock.around(google).generate(ask())
    assert isinstance(reply, LlmReply), reply
    assert (reply.text, gemini.seen.calls) == (ANSWER, 3)
    assert clock.waits == [1.0, 2.0]


LASTING = [Fault(code=400), Fault(code=401), Fault(code=403), Fault(code=404), Fault(kind="blocked")]


@pytest.mark.parametrize("fault", LASTING, ids=lambda fault: f"{fault.kind}-{fault.code}")
async def test_what_lasts_is_asked_once(
    google: GoogleProvider, gemini: GeminiServer, clock: Clock, fault: Fault
) -> None:
    gemini.faults = [Fault(kind=fault.kind, code=fault.code)]
    error = await clock.around(google).generate(ask())
    assert isinstance(error, LlmError)
    assert (gemini.seen.calls, clock.waits) == (1, [])


async def test_waits_as_long_as_the_header_and_retry_info_say(
    google: GoogleProvider, gemini: GeminiServer, clock: Clock
) -> None:
    gemini.faults = [Fault(code=429, retry_after=20, times=1), Fault(code=429, retry_info="33s", times=1)]
    reply = await clock.around(google, jitter=lambda: 0.0).generate(ask())
    assert isinstance(reply, LlmReply)
    assert clock.waits == [20.0, 33.0]


async def test_a_wait_longer_than_the_deadline_ends_at_once(
    google: GoogleProvider, gemini: GeminiServer, clock: Clock
) -> None:
    gemini.faults = [Fault(code=429, retry_info="600s")]
    error = await clock.around(google).generate(ask())
    assert isinstance(error, LlmError)
    assert error.kind is Kind.RATE_LIMITED
    assert "it asks to wait 600 s, and 120 s are left of llm.retry_deadline" in error.message
    assert (gemini.seen.calls, clock.waits) == (1, [])


async def test_an_outage_ends_at_the_deadline(google: GoogleProvider, gemini: GeminiServer, clock: Clock) -> None:
    gemini.faults = [Fault(code=503)]
    error = await clock.around(google).generate(ask())
    assert isinstance(error, LlmError)
    assert error.kind is Kind.UNAVAILABLE
    assert clock.waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]  # 91 s; another 30 s would pass 120 s
    assert gemini.seen.calls == 8
    assert error.message.endswith("Fault 503; given up after 120 s (llm.retry_deadline)")


async def test_empty_answers_are_asked_three_times(google: GoogleProvider, gemini: GeminiServer, clock: Clock) -> None:
    gemini.faults = [Fault(kind="max_tokens")]
    error = await clock.around(google).generate(ask())
    assert isinstance(error, LlmError)
    assert error.kind is Kind.EMPTY
    assert error.message.endswith("thinking_config (3 times)")
    assert gemini.seen.calls == 3


async def test_tokens_of_cut_answers_are_counted(google: GoogleProvider, gemini: GeminiServer, clock: Clock) -> None:
    once = await google.generate(ask())
    gemini.faults = [Fault(kind="max_tokens", times=2)]
    after = await clock.around(google).generate(ask())
    assert isinstance(once, LlmReply)
    assert isinstance(after, LlmReply)
    assert after.usage.input_tokens == 3 * once.usage.input_tokens
    assert after.usage.output_tokens > once.usage.output_tokens


@dataclass
class OneSlot:
    """A limiter of one place that remembers what it was told."""

    inner: Llm
    told: list[LlmErrorKind] = field(default_factory=list)
    slot: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        async with self.slot:
            said = await self.inner.generate(request)
        if isinstance(said, LlmError):
            self.told.append(said.kind)
        return said


async def test_every_429_reaches_the_limiter_and_no_wait_holds_its_slot(
    google: GoogleProvider, gemini: GeminiServer
) -> None:
    limiter = OneSlot(google)
    held: list[bool] = []

    async def sleep(_seconds: float) -> None:
        held.append(limiter.slot.locked())

    gemini.faults = [Fault(code=429, times=3)]
    reply = await Retrying(limiter, sleep=sleep).generate(ask())
    assert isinstance(reply, LlmReply)
    assert limiter.told == [Kind.RATE_LIMITED] * 3
    assert held == [False] * 3


OPENAI = [
    ({"code": 429, "retry_after": 9}, [10.0]),
    ({"code": 500}, [1.0]),
    ({"kind": "reset"}, [1.0]),
    ({"kind": "truncated"}, [1.0]),
    ({"kind": "empty_text"}, [1.0]),
    ({"kind": "length"}, [1.0]),
]


@pytest.mark.parametrize(("fault", "waits"), OPENAI)
async def test_openais_wire_too(
    compat: OpenAiProvider, openai: OpenAiServer, clock: Clock, fault: dict[str, object], waits: list[float]
) -> None:
    openai.faults = [openai_faults.Fault(times=1, **fault)]
    reply = await clock.around(compat).generate(ask(model="openai/m"))
    assert isinstance(reply, LlmReply), reply
    assert clock.waits == waits
    assert openai.seen.calls == 2


async def test_the_whole_stack_is_warmed_up_and_rides_out_a_storm(
    gemini: GeminiServer, openai: OpenAiServer, tmp_path: Path
) -> None:
    gemini.faults = [Fault(code=500, every=3, times=5)]
    environ = {"GOOGLE_API_KEY": "k" * 12, "GOOGLE_GEMINI_BASE_URL": gemini.url}
    options = LlmOptions(openai_base_url=f"{openai.url}/v1")
    stack = LlmStack(options, environ, cache=OutputFolder.at(tmp_path), read_cache=True, meter=Meter())
    assert await stack.warm_up(["gemini-2.5-flash", "openai/m"]) == {}
    assert gemini.seen.calls == openai.seen.calls == 0
    asked = [ask(f"number {n}", model=model) for n in range(10) for model in ("gemini-2.5-flash", "openai/m")]
    replies = await asyncio.gather(*(stack.generate(request) for request in asked))
    await stack.close()
    assert {getattr(reply, "text", reply) for reply in replies} == {ANSWER}
    assert (gemini.seen.answered, openai.seen.answered) == (10, 10)
    assert gemini.seen.calls == 15
