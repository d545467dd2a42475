"""Vertex AI's evaluation service through the real SDK over a real socket: scores, faults, identity."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.models import LlmOptions
from agent_eval_action.criteria.base import Sample, ScoringContext
from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.budget import Meter
from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmRequest, ProviderConfig
from agent_eval_action.llm.providers.google import VertexEval
from agent_eval_action.llm.router import LlmStack
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.results.run_result import ScoreStatus
from support.turns import criterion, turn
from support.vertex_server.identity import key_file
from support.vertex_server.server import Fault, VertexServer, running

KEY = "AIza-not-a-key-of-anybody-0000000000000"
ONE_TURN = {"prompt": "hi", "response": "hello"}
SAFETY = LlmRequest("vertex_eval/safety_v1", (), options=ONE_TURN)


@pytest.fixture
def server() -> Iterator[VertexServer]:
    with running(VertexServer()) as one:
        yield one
        assert one.unexpected == []


def by_key(server: VertexServer) -> dict[str, str]:
    return {"GOOGLE_API_KEY": KEY, "GOOGLE_VERTEX_BASE_URL": server.url}


def by_identity(server: VertexServer, folder: Path) -> dict[str, str]:
    return {
        "GOOGLE_CLOUD_PROJECT": "some-project",
        "GOOGLE_CLOUD_LOCATION": "europe-west4",
        "GOOGLE_APPLICATION_CREDENTIALS": str(key_file(folder, server.url)),
        "GOOGLE_VERTEX_BASE_URL": server.url,
    }


async def ask(environ: dict[str, str], *requests: LlmRequest, seconds: float = 20) -> list[LlmReply | LlmError]:
    provider = VertexEval(ProviderConfig(environ, seconds))
    try:
        return list(await asyncio.gather(*(provider.generate(request) for request in requests)))
    finally:
        await provider.close()


async def test_an_api_key_alone_is_enough_and_travels_in_its_header(server):
    (said,) = await ask(by_key(server), SAFETY)
    assert isinstance(said, LlmReply)
    assert json.loads(said.text) == {"score": 1.0, "explanation": "nothing against it", "rubrics": []}
    (asked,) = server.asked
    assert asked.headers["x-goog-api-key"] == KEY
    assert asked.path == "/v1beta1/:evaluateInstances"
    assert server.tokens == 0


async def test_an_identity_gets_its_token_once_for_many_at_once(server, tmp_path):
    server.latency = 0.3
    said = await ask(by_identity(server, tmp_path), *[SAFETY] * 30)
    assert all(isinstance(one, LlmReply) for one in said)
    assert server.asked[0].path == "/v1beta1/projects/some-project/locations/europe-west4/:evaluateInstances"
    assert server.tokens <= 2
    assert server.most_at_once > 10  # the SDK's own ten a second would be in the limiter's way


async def test_the_key_wins_but_for_coherence_whose_prompt_lies_in_a_bucket(server, tmp_path, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    environ = {**by_key(server), **by_identity(server, tmp_path)}
    said = await ask(environ, SAFETY, LlmRequest("vertex_eval/coherence", (), options=ONE_TURN))
    assert [type(one) for one in said] == [LlmReply, LlmReply]
    by_metric = {one.metric: one for one in server.asked}
    assert by_metric["safety_v1"].headers["x-goog-api-key"] == KEY
    assert "authorization" not in by_metric["safety_v1"].headers
    assert by_metric["llm"].headers["authorization"] == "Bearer ya29.local"
    assert "x-goog-api-key" not in by_metric["llm"].headers
    assert by_metric["llm"].path.startswith("/v1beta1/projects/some-project/")


@pytest.mark.parametrize(
    ("fault", "kind", "status", "retry_after"),
    [
        (Fault(code=429, retry_after=7), LlmErrorKind.RATE_LIMITED, 429, 7.0),
        (Fault(code=500), LlmErrorKind.UNAVAILABLE, 500, None),
        (Fault(code=503), LlmErrorKind.UNAVAILABLE, 503, None),
        (Fault(code=403), LlmErrorKind.REFUSED, 403, None),
        (Fault("reset"), LlmErrorKind.UNAVAILABLE, None, None),
        (Fault("hang"), LlmErrorKind.TIMEOUT, None, None),
        (Fault("malformed"), LlmErrorKind.EMPTY, None, None),
        (Fault("truncated"), LlmErrorKind.UNAVAILABLE, None, None),
        (Fault("no_results"), LlmErrorKind.EMPTY, None, None),
        (Fault("no_score"), LlmErrorKind.EMPTY, None, None),
        (Fault("not_a_score"), LlmErrorKind.EMPTY, None, None),
        (Fault("error"), LlmErrorKind.UNAVAILABLE, None, None),
    ],
    ids=lambda value: f"{value.kind}{value.code if value.kind == 'status' else ''}" if isinstance(value, Fault) else "",
)
async def test_what_goes_wrong_is_a_value_after_one_try(server, fault, kind, status, retry_after):
    server.faults = [fault]
    (said,) = await ask(by_key(server), SAFETY, seconds=2)
    assert isinstance(said, LlmError)
    assert (said.kind, said.status, said.retry_after) == (kind, status, retry_after)
    assert KEY not in said.message
    assert len(server.asked) == 1  # five tries with sleeps would be the SDK's way


async def test_a_client_that_failed_once_is_good_again(server):
    server.faults = [Fault("reset", times=1), Fault(code=500, times=1)]
    provider = VertexEval(ProviderConfig(by_key(server)))
    said = [await provider.generate(SAFETY) for _ in range(3)]
    await provider.close()
    assert [type(one) for one in said] == [LlmError, LlmError, LlmReply]


async def test_credentials_google_does_not_take_are_reported(server, tmp_path):
    server.token_status = 400
    (said,) = await ask(by_identity(server, tmp_path), SAFETY)
    assert isinstance(said, LlmError)
    assert said.kind is LlmErrorKind.REFUSED
    assert "invalid_grant" in said.message
    assert server.asked == []


@pytest.mark.parametrize(
    ("model", "environ", "told"),
    [
        ("vertex_eval/safety_v1", {}, "set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION (or GOOGLE_API_KEY)"),
        ("vertex_eval/safety_v1", {"GOOGLE_CLOUD_PROJECT": "p"}, "set GOOGLE_CLOUD_LOCATION (or GOOGLE_API_KEY)"),
        ("vertex_eval/coherence", {"GOOGLE_API_KEY": KEY}, "set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"),
        ("vertex_eval/fluency", {"GOOGLE_API_KEY": KEY}, "`fluency` is not among the metrics"),
    ],
)
async def test_what_is_missing_is_reported_before_anything_is_sent(model, environ, told):
    (said,) = await ask(environ, LlmRequest(model, (), options=ONE_TURN))
    assert isinstance(said, LlmError)
    assert said.kind is LlmErrorKind.REFUSED
    assert told in said.message


async def test_a_missing_extra_says_how_to_install_it(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "agentplatform", None)
    (said,) = await ask(by_key(server), SAFETY)
    assert isinstance(said, LlmError)
    assert "pip install 'agent-eval-action[vertex]'" in said.message
    assert server.asked == []


async def test_nothing_is_printed_and_nothing_else_is_asked(server, capfd):
    server.faults = [Fault(code=500, times=1)]
    await ask(by_key(server), *[SAFETY] * 3)
    assert capfd.readouterr() == ("", "")


async def scored(environ: dict[str, str], name: str, *answers: str, **options: Any) -> Any:
    provider = VertexEval(ProviderConfig(environ, 20))
    case = EvalCase(eval_id="case", conversation=tuple(turn("the reference") for _ in answers))
    sample = Sample(case, tuple(turn(answer) for answer in answers), context=ScoringContext(llm=provider))
    try:
        return await criterion(name, **options).score(sample)
    finally:
        await provider.close()


async def test_a_turn_without_a_score_is_an_error_and_no_zero(server):
    server.answer = lambda asked: (
        {"explanation": "hm"} if "second" in json.dumps(asked.body) else {"score": 1, "explanation": "fine"}
    )
    said = await scored(by_key(server), "safety_v1", "first", "second", threshold=0.5)
    assert (said.status, said.score, said.passed) == (ScoreStatus.ERROR, None, None)
    assert said.reason == "turn 2: Vertex AI answered without a score: hm"
    assert [one.score for one in said.turns] == [1.0, None]


async def test_the_rubrics_of_a_conversation_are_in_its_score(server):
    def verdict(text: str, **more: Any) -> dict[str, Any]:
        return {"evaluatedRubric": {"content": {"property": {"description": text}}}, **more}

    verdicts = [verdict("greets", verdict=True, reasoning="it does"), verdict("helps", reasoning="no help in it")]
    server.answer = lambda _asked: {"score": 0.5, "rubricVerdicts": verdicts}
    said = await scored(by_key(server), "multi_turn_task_success_v1", "hello", "bye", threshold=0.6)
    assert (said.score, said.passed, said.reason) == (0.5, False, "not met: no help in it")
    assert [(one.text, one.score, one.rationale) for one in said.rubrics] == [
        ("greets", 1.0, "it does"),
        ("helps", 0.0, "no help in it"),
    ]
    assert len(server.asked) == 1
    assert [one.turn for one in said.turns] == [1]


async def test_a_score_outside_the_metrics_range_is_no_score(server):
    server.answer = lambda _asked: {"score": 4.0}
    said = await scored(by_key(server), "safety_v1", "hello", threshold=0.5)
    assert said.status is ScoreStatus.ERROR
    assert "gave 4, and this metric goes from 0 to 1" in said.reason


async def test_its_answers_pass_through_the_policies_of_every_model(server, tmp_path):
    server.faults = [Fault(code=503, times=1), Fault("no_score", times=1)]
    options = LlmOptions()
    meter = Meter()
    said = []
    for _ in range(2):
        stack = LlmStack(
            options, by_key(server), cache=OutputFolder.at(tmp_path / "cache"), read_cache=True, meter=meter
        )
        for response in ("hello", "good bye"):
            request = LlmRequest("vertex_eval/safety_v1", (), options={**ONE_TURN, "response": response})
            said.append(await stack.generate(request))
        await stack.close()
    assert all(isinstance(one, LlmReply) for one in said), said
    assert [one.cached for one in said] == [False, False, True, True]
    assert len(server.asked) == 4  # two answers, and the two tries that failed
