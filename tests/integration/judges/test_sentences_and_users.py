"""hallucinations_v1 and the quality of simulated users through the real google-genai client: answers good and bad."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent_eval_action.criteria.base import Criterion, Sample, ScoringContext
from agent_eval_action.llm.client import ProviderConfig
from agent_eval_action.llm.providers.google import GoogleProvider
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, Votes
from support.fenced_texts import texts_of
from support.gemini_server.messages import ModelRequest, Reply
from support.gemini_server.server import GeminiServer
from support.turns import criterion

Texts = dict[str, str]
ANSWER = "Rome is hot. It has 31 degrees. Enjoy!"
SENTENCES = ["Rome is hot.", "It has 31 degrees.", "Enjoy!"]
LABELS = ["unsupported", "supported", "not_applicable"]


@pytest.fixture
async def gemini(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GeminiServer]:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    server = GeminiServer(lambda _: Reply("nobody told me"))
    listening, server.url = await server.start()
    async with listening:
        yield server


@pytest.fixture
async def google(gemini: GeminiServer) -> AsyncIterator[GoogleProvider]:
    provider = GoogleProvider(
        ProviderConfig({"GOOGLE_API_KEY": "a-key", "GOOGLE_GEMINI_BASE_URL": gemini.url}, timeout=20)
    )
    yield provider
    await provider.close()


def contents(request: ModelRequest) -> list[str]:
    return [content["parts"][0]["text"] for content in request.body["contents"]]


def split_or_label(request: ModelRequest) -> str:
    if "sentences" in request.body["generationConfig"]["responseJsonSchema"]["properties"]:
        return json.dumps({"sentences": SENTENCES})
    found = enumerate(LABELS, 1)
    return json.dumps({"labels": [{"index": i, "rationale": "as it is", "label": label} for i, label in found]})


def spoiling(kind: str, text: str, times: int) -> Callable[[ModelRequest], Reply]:
    """The first answers to one of the two questions are another text."""
    spoiled = 0

    def answer(request: ModelRequest) -> Reply:
        nonlocal spoiled
        if kind in request.body["generationConfig"]["responseJsonSchema"]["properties"] and spoiled < times:
            spoiled += 1
            return Reply(text)
        return Reply(split_or_label(request))

    return answer


async def hallucinations(google: GoogleProvider, **options: Any) -> CriterionScore:
    made = criterion("hallucinations_v1", threshold=0.5, **options)
    turn = {"user_content": {"parts": [{"text": "How hot is Rome?"}]}, "final_response": {"parts": [{"text": ANSWER}]}}
    case = EvalCase.model_validate({"eval_id": "case", "conversation": [turn]})
    return await scored(made, google, case, case)


async def scored(made: Criterion, google: GoogleProvider, case: EvalCase, said: EvalCase) -> CriterionScore:
    return await made.score(Sample(case, said.turns, context=ScoringContext(google)))


async def test_sentences_are_cut_and_labelled(google: GoogleProvider, gemini: GeminiServer) -> None:
    gemini.answer = lambda request: Reply(split_or_label(request), thought="Let me see.")
    config = {"judge_model": "gemini-2.5-pro", "judge_model_config": {"temperature": 0.1}}
    found = await hallucinations(google, judge_model_options=config)
    assert found.score == pytest.approx(2 / 3)
    assert [(one.sentence, one.label) for one in found.turns[0].sentences] == list(zip(SENTENCES, LABELS, strict=True))
    first, second = gemini.seen.requests
    assert first["path"].endswith("models/gemini-2.5-pro:generateContent")
    assert second["body"]["generationConfig"]["temperature"] == 0.1
    system = first["body"]["systemInstruction"]["parts"][0]["text"]
    assert ANSWER not in system
    assert texts_of(first["body"]["contents"][0]["parts"][0]["text"]) == {"answer": ANSWER}
    assert [one["sentence"] for one in json.loads(labelled_texts(second)["sentences"])] == SENTENCES


def labelled_texts(request: dict[str, Any]) -> Texts:
    return texts_of(request["body"]["contents"][0]["parts"][0]["text"])


BAD = [
    ("sentences", json.dumps({"sentences": SENTENCES[:2]})),
    ("sentences", json.dumps({"sentences": [*SENTENCES, "All of it is true."]})),
    ("sentences", json.dumps({"sentences": ANSWER})),
    ("sentences", '{"sentences": ["Rome is hot.", "It has'),
    ("labels", json.dumps({"labels": [{"index": 1, "rationale": "", "label": "supported"}]})),
    ("labels", json.dumps({"labels": [{"index": i, "rationale": "", "label": "True"} for i in (1, 2, 3)]})),
    ("labels", json.dumps({"label": "supported"})),
    ("labels", "sentence: Rome is hot.\nlabel: supported"),
]


@pytest.mark.parametrize(("kind", "text"), BAD)
async def test_an_answer_in_another_form_is_asked_for_once_more(
    google: GoogleProvider, gemini: GeminiServer, kind: str, text: str
) -> None:
    gemini.answer = spoiling(kind, text, 1)
    assert (await hallucinations(google)).score == pytest.approx(2 / 3)
    repaired = [request["body"]["contents"] for request in gemini.seen.requests if len(request["body"]["contents"]) > 1]
    ((asked, answered, again),) = repaired
    assert (asked["role"], answered["role"], again["role"]) == ("user", "model", "user")
    assert answered["parts"][0]["text"] == text
    assert len(gemini.seen.requests) == 3


@pytest.mark.parametrize(("kind", "text"), BAD)
async def test_an_answer_that_stays_unusable_is_an_error(
    google: GoogleProvider, gemini: GeminiServer, kind: str, text: str
) -> None:
    gemini.answer = spoiling(kind, text, 2)
    found = await hallucinations(google)
    assert (found.status, found.score) == (ScoreStatus.ERROR, None)
    assert "could not be used" in found.reason
    assert len(gemini.seen.requests) == (2 if kind == "sentences" else 3)


@pytest.mark.parametrize("reply", [Reply(finish_reason="SAFETY"), Reply(), Reply('{"sent', finish_reason="MAX_TOKENS")])
async def test_a_blocked_an_empty_and_a_cut_answer_are_errors(
    google: GoogleProvider, gemini: GeminiServer, reply: Reply
) -> None:
    gemini.answer = lambda _: reply
    found = await hallucinations(google)
    assert (found.status, found.score) == (ScoreStatus.ERROR, None)
    assert len(gemini.seen.requests) == 1


PLAN = {"starting_prompt": "Hello.", "conversation_plan": "Ask how hot Rome is.", "user_persona": "NOVICE"}


def said(*texts: str) -> EvalCase:
    turns = [
        {"user_content": {"parts": [{"text": text}]}, "final_response": {"parts": [{"text": "Yes?"}]}} for text in texts
    ]
    return EvalCase.model_validate({"eval_id": "said", "conversation": turns})


async def users(google: GoogleProvider) -> CriterionScore:
    case = EvalCase.model_validate({"eval_id": "case", "conversation_scenario": PLAN})
    made = criterion("per_turn_user_simulator_quality_v1", threshold=0.5)
    return await scored(made, google, case, said("Hello.", "How hot is Rome?"))


def verdict(word: str) -> Reply:
    return Reply(json.dumps({"rationale": "because", "verdict": word}))


async def test_turns_and_the_end_are_voted_on(google: GoogleProvider, gemini: GeminiServer) -> None:
    def answer(request: ModelRequest) -> Reply:
        return verdict("no" if texts_of(contents(request)[0])["message"] == "</finished>" else "yes")

    gemini.answer = answer
    found = await users(google)
    assert found.score == 0.5
    assert [turn.score for turn in found.turns] == [1, 0]
    assert "wrong moment" in found.reason
    assert len(gemini.seen.requests) == 6


async def test_a_sample_without_a_usable_answer_is_left_out(google: GoogleProvider, gemini: GeminiServer) -> None:
    lost: list[str] = []

    def answer(request: ModelRequest) -> Reply:
        asked = contents(request)
        if len(asked) > 1 or (not lost and texts_of(asked[0])["message"] != "</finished>"):
            lost.append(asked[0])
            return Reply("Valid, I would say.")
        return verdict("yes")

    gemini.answer = answer
    found = await users(google)
    assert found.score == 1
    assert found.turns[1].votes == Votes(yes=3, left_out=1)


async def test_without_any_usable_answer_there_is_no_score(google: GoogleProvider, gemini: GeminiServer) -> None:
    gemini.answer = lambda _: Reply('{"is_valid": true}')
    found = await users(google)
    assert (found.status, found.score) == (ScoreStatus.ERROR, None)
    assert "no verdict" in found.reason
    assert len(gemini.seen.requests) == 10  # five samples, each asked again; the end is not asked about
