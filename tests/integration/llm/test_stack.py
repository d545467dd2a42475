"""All policies around a real client and a real server: each does its part, in the order that was meant."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agent_eval_action.config.models import LlmOptions
from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.budget import Meter, SpendingLimits
from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply
from agent_eval_action.llm.router import LlmStack
from support.gemini_server.faults import Fault
from support.gemini_server.server import GeminiServer
from support.model_server.faults import RateLimit

from .conftest import ANSWER, KEY, ask, never_answer


def opened(
    gemini: GeminiServer, folder: Path, *, read: bool = True, calls: int | None = None, **options: Any
) -> LlmStack:
    environ = {"GOOGLE_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": gemini.url}
    return LlmStack(
        LlmOptions(**options),
        environ,
        cache=OutputFolder.at(folder),
        read_cache=read,
        meter=Meter(SpendingLimits(calls)),
    )


async def test_a_second_run_asks_nothing(gemini: GeminiServer, tmp_path: Path) -> None:
    for run in (1, 2):
        llm = opened(gemini, tmp_path)
        replies = await asyncio.gather(*(llm.generate(ask(sample=n, purpose="match")) for n in range(5)))
        await llm.close()
        assert [getattr(reply, "text", reply) for reply in replies] == [ANSWER] * 5
        assert gemini.seen.calls == 1
        use = llm.meter.uses()[0]
        assert (use.calls, use.cached) == ((1, 0) if run == 1 else (0, 5))
    writing = opened(gemini, tmp_path, read=False)
    await writing.generate(ask())
    off = opened(gemini, tmp_path, cache=False)
    await off.generate(ask())
    assert gemini.seen.calls == 3
    await writing.close()
    await off.close()


async def test_another_server_is_another_model(gemini: GeminiServer, tmp_path: Path) -> None:
    first = opened(gemini, tmp_path)
    await first.generate(ask())
    moved = LlmStack(
        LlmOptions(),
        {"GOOGLE_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": gemini.url + "/"},
        cache=OutputFolder.at(tmp_path),
        read_cache=True,
        meter=Meter(),
    )
    await moved.generate(ask())
    assert gemini.seen.calls == 2
    await first.close()
    await moved.close()


async def test_what_is_kept_is_answered_when_the_budget_is_spent(gemini: GeminiServer, tmp_path: Path) -> None:
    llm = opened(gemini, tmp_path, calls=1)
    assert isinstance(await llm.generate(ask(sample=0)), LlmReply)
    again, refused = await llm.generate(ask(sample=0)), await llm.generate(ask(sample=1))
    await llm.close()
    assert isinstance(again, LlmReply)
    assert again.cached
    assert isinstance(refused, LlmError)
    assert refused.kind is LlmErrorKind.BUDGET
    assert gemini.seen.calls == 1


async def test_a_storm_of_429_loses_no_question(gemini: GeminiServer, tmp_path: Path) -> None:
    gemini.limit = RateLimit(20)
    llm = opened(gemini, tmp_path)
    replies = await asyncio.gather(*(llm.generate(ask(repeat=n)) for n in range(60)))
    await llm.close()
    assert all(isinstance(reply, LlmReply) for reply in replies)
    assert gemini.seen.answered == 60
    assert gemini.seen.calls <= 60 + 48, "the first burst is all that is wasted, and few are asked twice after it"
    assert llm.rated.limiter(ask().model).refusals == gemini.seen.calls - 60


async def test_who_waits_to_ask_again_holds_no_place(gemini: GeminiServer, tmp_path: Path) -> None:
    gemini.faults = [Fault(code=503, times=1, user="first", retry_after=0.5)]
    llm = opened(gemini, tmp_path, concurrency=1)
    done: list[str] = []

    async def one(text: str) -> None:
        await llm.generate(ask(text))
        done.append(text)

    await asyncio.gather(one("first"), one("second"))
    await llm.close()
    assert done == ["second", "first"]


async def test_what_is_given_up_on_the_wire_is_counted(gemini: GeminiServer, tmp_path: Path) -> None:
    arrived = never_answer(gemini)
    llm = opened(gemini, tmp_path, concurrency=1)
    asking = [asyncio.create_task(llm.generate(ask(repeat=n, purpose="match"))) for n in range(2)]
    await arrived.wait()
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await llm.close()
    (use,) = llm.meter.uses()
    assert (use.purpose, use.calls, use.failed, use.calls_without_usage) == ("match", 1, 1, 1)
