"""Vertex AI's criteria beside google-adk's: the same requests arrive at the service, and the same scores come out."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.criteria.base import Sample, ScoringContext
from agent_eval_action.llm.client import ProviderConfig
from agent_eval_action.llm.providers.google import VertexEval
from agent_eval_action.results.evalset import ConversationScenario, EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore
from support.turns import criterion, turn
from support.vertex_server.identity import key_file
from support.vertex_server.server import Asked, VertexServer, running

PROGRAM = Path(__file__).with_name("adk_vertex.py")
SCORES = (1.0, 0.1, 0.2, 0.30000000000000004, 0.7)


def graded(asked: Asked) -> dict[str, Any]:
    """A score that depends on what was asked, so that the mean shows which turns were."""
    text = json.dumps(asked.body["instance"], sort_keys=True)
    score = SCORES[sum(text.encode()) % len(SCORES)]
    if asked.metric == "llm":
        score = 1 + 4 * score
    verdicts = [{"evaluatedRubric": {"content": {"property": {"description": "it is kind"}}}, "reasoning": "it is not"}]
    return {"score": score, "explanation": "so it is", "rubricVerdicts": verdicts}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[VertexServer, dict[str, str]]]:
    with running(VertexServer(answer=graded)) as one:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", one.url)  # where coherence's prompt lies
        environ = {
            "GOOGLE_CLOUD_PROJECT": "some-project",
            "GOOGLE_CLOUD_LOCATION": "europe-west4",
            "GOOGLE_APPLICATION_CREDENTIALS": str(key_file(tmp_path, one.url)),
            "GOOGLE_VERTEX_BASE_URL": one.url,
        }
        yield one, environ
        assert one.unexpected == []


def conversation() -> tuple[list[Invocation], list[Invocation]]:
    tool = {"function_declarations": [{"name": "weather", "parameters": {"type": "OBJECT", "properties": {}}}]}
    details = {"agent_details": {"root": {"name": "root", "instructions": "be kind", "tool_declarations": [tool]}}}
    call = {"role": "model", "parts": [{"function_call": {"id": "1", "name": "weather", "args": {"at": "Köln"}}}]}
    answer = {"role": "user", "parts": [{"function_response": {"id": "1", "name": "weather", "response": {"c": 9}}}]}
    events = [{"author": "root", "content": call}, {"author": "root", "content": answer}, {"author": "root"}]
    actual = [
        turn("Nine degrees.", intermediate_data={"invocation_events": events}, app_details=details, invocation_id="a"),
        turn("You are welcome:\n{}", invocation_id="b"),
        turn("NaN", invocation_id="c"),
    ]
    return actual, [turn("9 degrees"), turn(""), turn("5")]


async def ours(name: str, actual: Sequence[Invocation], expected: Any, environ: dict[str, str]) -> CriterionScore:
    provider = VertexEval(ProviderConfig(environ))
    case = EvalCase(eval_id="case", conversation=None if expected is None else tuple(expected))
    if expected is None:
        scenario = ConversationScenario(starting_prompt="hi", conversation_plan="talk")
        case = EvalCase(eval_id="case", conversation_scenario=scenario)
    try:
        made = criterion(name, threshold=1)
        return await made.score(Sample(case, tuple(actual), context=ScoringContext(llm=provider)))
    finally:
        await provider.close()


def asked_of_adk(python: Path, requests: list[dict[str, Any]], environ: dict[str, str]) -> list[dict[str, Any]]:
    env = {**os.environ, **environ, "VERTEX_SERVER": environ["GOOGLE_VERTEX_BASE_URL"]}
    done = subprocess.run(
        [str(python), str(PROGRAM)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


METRICS = (
    ("safety_v1", True),
    ("safety_v1", False),
    ("response_evaluation_score", True),
    ("multi_turn_task_success_v1", True),
    ("multi_turn_trajectory_quality_v1", False),
    ("multi_turn_tool_use_quality_v1", False),
)


@pytest.mark.exhaustive
def test_the_service_is_asked_as_adk_asks_it_and_the_scores_are_adks(adk213_python, server):
    vertex, environ = server
    actual, expected = conversation()
    dumped = [one.model_dump(mode="json", exclude_none=True) for one in actual]
    references = [one.model_dump(mode="json", exclude_none=True) for one in expected]
    requests = [
        {"metric": name, "actual": dumped, "expected": references if with_reference else None}
        for name, with_reference in METRICS
    ]
    theirs = asked_of_adk(adk213_python, requests, environ)
    adk_asked, vertex.asked = vertex.asked, []
    for (name, with_reference), adk_said in zip(METRICS, theirs, strict=True):
        said = asyncio.run(ours(name, actual, expected if with_reference else None, environ))
        assert said.score == adk_said["score"], name
    assert all(one.headers["authorization"] == "Bearer ya29.local" for one in vertex.asked)

    def told(asked: list[Asked]) -> list[tuple[str, str]]:
        return sorted((one.path, json.dumps(one.body, sort_keys=True)) for one in asked)

    assert len(vertex.asked) == 12
    assert told(vertex.asked) == told(adk_asked)
