"""Samples of one question in one request: what is sent, who gets which candidate, and models that give only one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.models import LlmOptions
from agent_eval_action.criteria.judge import Judge, JudgeModelOptions, Question, VerdictAnswer, vote
from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.budget import Meter
from agent_eval_action.llm.client import LlmErrorKind, LlmReply
from agent_eval_action.llm.router import LlmStack
from support.gemini_server.faults import Fault
from support.gemini_server.messages import ModelRequest, Reply
from support.gemini_server.server import GeminiServer
from support.model_server.faults import RateLimit
from support.openai_server.faults import Fault as OpenAiFault
from support.openai_server.messages import ChatReply
from support.openai_server.server import OpenAiServer

from .conftest import KEY, ask, never_answer


def numbered(candidate: int) -> str:
    return json.dumps({"verdict": candidate == 0, "number": candidate})


@pytest.fixture(autouse=True)
def _numbered(gemini: GeminiServer, openai: OpenAiServer) -> None:
    """Each candidate says its number."""
    gemini.answer = lambda request: Reply(numbered(request.candidate))
    openai.answer = lambda request: ChatReply(numbered(request.candidate))


@pytest.fixture
async def llm(gemini: GeminiServer, openai: OpenAiServer, tmp_path: Path):
    environ = {
        "GOOGLE_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": gemini.url,
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{openai.url}/v1",
    }
    stack = LlmStack(LlmOptions(), environ, cache=OutputFolder.at(tmp_path), read_cache=True, meter=Meter())
    yield stack
    await stack.close()


async def votes(llm: LlmStack, samples: int, first: int = 0, **fields: Any) -> list[Any]:
    """The replies to samples that are asked for at once: their texts, or the errors."""
    asked = (llm.generate(ask(sample=first + n, **fields)) for n in range(samples))
    return [reply.text if isinstance(reply, LlmReply) else reply for reply in await asyncio.gather(*asked)]


def wanted(requests: Sequence[dict[str, Any]]) -> list[int]:
    """How many candidates each request wants."""
    settings = (sent["body"].get("generationConfig") or {} for sent in requests)
    return [config.get("candidateCount", 1) for config in settings]


async def test_samples_that_are_asked_for_at_once_are_one_request(llm: LlmStack, gemini: GeminiServer) -> None:
    assert await votes(llm, 3) == [numbered(0), numbered(1), numbered(2)]
    assert wanted(gemini.seen.requests) == [3]
    [use] = llm.meter.uses()
    assert (use.calls, use.failed) == (1, 0)
    alone = await llm.generate(ask(repeat=1))
    assert isinstance(alone, LlmReply)
    assert use.input_tokens == alone.usage.input_tokens, "the prompt is paid for once"
    assert use.output_tokens == 3 * alone.usage.output_tokens


async def test_each_candidate_is_kept_as_its_own_sample(llm: LlmStack, gemini: GeminiServer) -> None:
    first = await votes(llm, 3)
    assert await votes(llm, 3) == first
    assert await votes(llm, 2, first=2) == [first[2], numbered(0)], "sample 3 is new, and asked for alone"
    assert wanted(gemini.seen.requests) == [3, 1]


async def test_a_vote_that_was_lost_is_not_lost_from_the_cache(llm: LlmStack, gemini: GeminiServer) -> None:
    question = Question("You judge.", "Is it so?", VerdictAnswer, "1", lambda answer: answer)
    judge = Judge(llm, JudgeModelOptions(num_samples=1), "match")
    gemini.answer = lambda _: Reply('{"verdict": "perhaps"}')
    assert (await vote(judge, question)).verdict is None
    gemini.answer = lambda _: Reply('{"rationale": "It is.", "verdict": "yes"}')
    assert (await vote(judge, question)).verdict
    assert (await vote(judge, question)).verdict
    assert gemini.seen.answered == 3, "the question, asked again in vain, and asked again"


async def test_other_questions_are_other_requests(llm: LlmStack, gemini: GeminiServer) -> None:
    same = {"text": "Is it so?", "options": {"temperature": 1}}
    other = [{"text": "And so?"}, {"repeat": 1}, {"options": {"temperature": 0}}, {"system": "You doubt."}]
    asked = [ask(**same), ask(**same | {"sample": 1}), ask(**same), *(ask(**same | fields) for fields in other)]
    await asyncio.gather(*(llm.generate(request) for request in asked))
    assert sorted(wanted(gemini.seen.requests)) == [1, 1, 1, 1, 1, 2], "nor is the same sample asked for twice in one"


async def test_more_than_a_request_may_want_are_several(llm: LlmStack, gemini: GeminiServer) -> None:
    assert len(await votes(llm, 19)) == 19
    assert sorted(wanted(gemini.seen.requests)) == [3, 8, 8]


async def test_a_model_that_gives_one_is_asked_for_one(llm: LlmStack, gemini: GeminiServer) -> None:
    for text in ("Is it so?", "And so?"):
        assert await votes(llm, 3, text=text, model="gemini-3-pro") == [numbered(0)] * 3
    assert wanted(gemini.seen.requests) == [3, 1, 1, 1, 1, 1, 1]
    [use] = llm.meter.uses()
    assert (use.calls, use.failed) == (6, 0), "a form that is refused is no call that failed"


@pytest.mark.parametrize(
    ("lacks", "ignores"), [({"n"}, False), (set(), True), ({"n", "json_schema", "json_object"}, False)]
)
async def test_a_server_that_gives_one_is_asked_for_one(
    llm: LlmStack, openai: OpenAiServer, lacks: set[str], ignores: bool
) -> None:
    openai.lacks, openai.ignores_n = frozenset(lacks), ignores
    for text in ("Is it so?", "And so?"):
        assert await votes(llm, 3, text=text, model="openai/gpt-4.1-mini") == [numbered(0)] * 3
    assert openai.seen.answered == 6
    assert sum("n" in sent["body"] for sent in openai.seen.requests) == 1 + len(lacks - {"n"})


async def test_a_server_that_gives_several_is_asked_once(llm: LlmStack, openai: OpenAiServer) -> None:
    assert await votes(llm, 3, model="openai/gpt-4.1-mini") == [numbered(0), numbered(1), numbered(2)]
    assert [sent["body"]["n"] for sent in openai.seen.requests] == [3]


async def test_a_refused_request_is_refused_for_what_is_wrong_with_it(llm: LlmStack, openai: OpenAiServer) -> None:
    openai.faults = [OpenAiFault(code=400, message="The prompt is too long.")]
    said = await votes(llm, 3, model="openai/gpt-4.1-mini")
    assert {reply.kind for reply in said} == {LlmErrorKind.REFUSED}
    assert all("too long" in reply.message for reply in said)


async def test_a_candidate_that_is_cut_is_asked_for_again_alone(llm: LlmStack, gemini: GeminiServer) -> None:
    def answer(request: ModelRequest) -> Reply:
        cut = request.candidates > 1 and request.candidate == 1
        return Reply(numbered(request.candidate), finish_reason="MAX_TOKENS" if cut else "STOP")

    gemini.answer = answer
    assert await votes(llm, 3) == [numbered(0), numbered(2), numbered(0)]
    assert wanted(gemini.seen.requests) == [3, 1]
    await votes(llm, 3, text="And so?")
    assert wanted(gemini.seen.requests) == [3, 1, 3, 1], "it gives several all the same"


async def test_an_error_is_that_of_all(llm: LlmStack, gemini: GeminiServer) -> None:
    gemini.faults = [Fault(code=403)]
    said = await votes(llm, 3)
    assert [reply.kind for reply in said] == [LlmErrorKind.REFUSED] * 3
    assert gemini.seen.calls == 1


async def test_what_blocked_one_answer_is_no_reason_to_give_up_the_others(llm: LlmStack, gemini: GeminiServer) -> None:
    gemini.faults = [Fault("blocked", times=2)]
    said = await votes(llm, 3)
    assert sorted(isinstance(reply, str) for reply in said) == [False, True, True]
    assert wanted(gemini.seen.requests) == [3, 1, 1, 1]


async def test_a_server_that_breaks_on_several_is_asked_for_one(llm: LlmStack, openai: OpenAiServer) -> None:
    openai.faults = [OpenAiFault(code=500, times=1)]
    assert await votes(llm, 3, model="openai/gpt-4.1-mini") == [numbered(0)] * 3
    assert [sent["body"].get("n", 1) for sent in openai.seen.requests] == [3, 1, 1, 1]


async def test_a_server_that_is_late_with_several_is_asked_for_one(gemini: GeminiServer) -> None:
    async def hold(request: ModelRequest) -> None:
        if request.candidates > 1:
            await asyncio.sleep(600)

    gemini.hold = hold
    environ = {"GOOGLE_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": gemini.url}
    llm = LlmStack(LlmOptions(timeout_s=1), environ, cache=None, read_cache=False, meter=Meter())
    for text in ("Is it so?", "And so?"):
        assert await votes(llm, 3, text=text) == [numbered(0)] * 3
    assert wanted(gemini.seen.requests) == [3, 1, 1, 1, 1, 1, 1]
    [use] = llm.meter.uses()
    assert (use.calls, use.failed) == (7, 1), "the server may have worked for it"
    await llm.close()


async def test_one_late_answer_does_not_make_every_further_vote_a_call(llm: LlmStack, gemini: GeminiServer) -> None:
    await votes(llm, 3)
    gemini.faults = [Fault(code=504, times=1)]
    assert await votes(llm, 3, text="And so?") == [numbered(0)] * 3
    assert await votes(llm, 3, text="And now?") == [numbered(0), numbered(1), numbered(2)]
    assert wanted(gemini.seen.requests) == [3, 3, 1, 1, 1, 3]


async def test_a_storm_of_429_loses_no_sample(llm: LlmStack, gemini: GeminiServer) -> None:
    gemini.limit = RateLimit(20)
    said = await asyncio.gather(*(votes(llm, 3, text=f"Is it {n}?") for n in range(30)))
    assert all(each == [numbered(0), numbered(1), numbered(2)] for each in said)
    assert gemini.seen.answered == 30


async def test_whoever_is_cancelled_takes_nobody_along(llm: LlmStack, gemini: GeminiServer) -> None:
    arrived, answering = asyncio.Event(), asyncio.Event()

    async def hold(_: Any) -> None:
        arrived.set()
        await answering.wait()

    gemini.hold = hold
    first, second = (asyncio.create_task(llm.generate(ask(sample=n, purpose="match"))) for n in range(2))
    await arrived.wait()
    first.cancel()
    answering.set()
    reply = await second
    assert isinstance(reply, LlmReply)
    assert reply.text == numbered(1)
    assert first.cancelled()


async def test_what_all_gave_up_is_counted(llm: LlmStack, gemini: GeminiServer) -> None:
    arrived = never_answer(gemini)
    asking = [asyncio.create_task(llm.generate(ask(sample=n, purpose="match"))) for n in range(3)]
    await arrived.wait()
    for task in asking:
        task.cancel()
    done = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in done)
    [use] = llm.meter.uses()
    assert (use.calls, use.failed) == (1, 1)
    assert llm.meter.reserved.calls == 0
