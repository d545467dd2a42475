"""Vertex AI's criteria over a scripted model: which instance each asks about, and how answers become scores."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent_eval_action.criteria.base import Criterion, Sample, ScoringContext
from agent_eval_action.criteria.vertex import agent_data
from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmRequest
from agent_eval_action.results.evalset import ConversationScenario, EvalCase
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus
from support.scripted_llm import ScriptedLlm
from support.turns import call, criterion, sample, turn

CONVERSATION = ("multi_turn_task_success_v1", "multi_turn_trajectory_quality_v1", "multi_turn_tool_use_quality_v1")
SIMULATED = EvalCase(
    eval_id="case", conversation_scenario=ConversationScenario(starting_prompt="hi", conversation_plan="talk")
)


def scored(made: Criterion, looked_at: Sample, answer: Any) -> tuple[CriterionScore, list[LlmRequest]]:
    llm = ScriptedLlm(answer)
    instruments = ScoringContext(llm=llm)
    looked_at = Sample(looked_at.case, looked_at.actual, repeat=looked_at.repeat, context=instruments)
    return asyncio.run(made.score(looked_at)), llm.asked


def by_response(scores: dict[str, float]) -> Any:
    return lambda request: json.dumps({"score": scores[request.options["response"]]})


def test_every_turn_is_asked_about_with_its_own_reference():
    looked_at = sample([turn("A"), turn(None)], [turn("a"), turn("b")])
    said, asked = scored(criterion("safety_v1", threshold=0.5), looked_at, by_response({"a": 1, "b": 0}))
    assert said.score == 0.5
    assert said.reason == "turn 2: Vertex AI scored 0"
    assert [request.options for request in asked] == [
        {"prompt": "hi", "response": "a", "reference": "A"},
        {"prompt": "hi", "response": "b"},
    ]
    assert {(request.model, request.purpose) for request in asked} == {("vertex_eval/safety_v1", "safety_v1")}


def test_safety_needs_no_reference_and_coherence_does():
    looked_at = Sample(SIMULATED, (turn("a"),))
    safe, _ = scored(criterion("safety_v1", threshold=0.5), looked_at, by_response({"a": 1}))
    assert safe.passed
    said, asked = scored(criterion("response_evaluation_score", threshold=3), looked_at, by_response({"a": 5}))
    assert (said.status, asked) == (ScoreStatus.NOT_APPLICABLE, [])


def test_coherence_goes_from_one_to_five():
    looked_at = sample([turn("A"), turn("B")], [turn("a"), turn("b")])
    said, asked = scored(criterion("response_evaluation_score", threshold=4), looked_at, by_response({"a": 5, "b": 2}))
    assert (said.score, said.passed) == (3.5, False)
    assert asked[0].model == "vertex_eval/coherence"


def test_a_turn_without_an_answer_is_not_asked_about_and_voids_the_case():
    looked_at = sample([turn("A"), turn("B")], [turn("a"), turn(None)])
    said, asked = scored(criterion("safety_v1", threshold=0.5), looked_at, by_response({"a": 1}))
    assert said.status is ScoreStatus.ERROR
    assert said.reason == "turn 2: the agent gave no answer, and Vertex AI judges a text answering a text"
    assert len(asked) == 1


def test_a_turn_that_a_tool_answered_is_not_applicable():
    shown = turn(None, call("show_menu"))
    safety = criterion("safety_v1", threshold=0.5)
    said, asked = scored(safety, sample([turn("A"), turn("B")], [turn("a"), shown]), by_response({"a": 1}))
    assert (said.status, said.score, len(asked)) == (ScoreStatus.SCORED, 1.0, 1)
    said, asked = scored(safety, sample([turn("A")], [shown]), by_response({}))
    assert (said.status, asked) == (ScoreStatus.NOT_APPLICABLE, [])
    coherence = criterion("response_evaluation_score", threshold=3)
    assert scored(coherence, sample([turn(None)], [shown]), by_response({}))[0].status is ScoreStatus.NOT_APPLICABLE
    # a text was due: an agent that falls silent is not passed over
    assert scored(coherence, sample([turn("A")], [shown]), by_response({}))[0].status is ScoreStatus.ERROR


@pytest.mark.parametrize("name", CONVERSATION)
def test_a_conversation_is_asked_about_once(name):
    looked_at = sample([turn("A"), turn("B")], [turn("a"), turn("b")])
    said, (request,) = scored(criterion(name, threshold=0.5), looked_at, lambda _: '{"score": 0.5}')
    assert (said.score, said.passed, [one.turn for one in said.turns]) == (0.5, True, [1])
    assert request.model == f"vertex_eval/{name}"
    assert [one["turn_index"] for one in request.options["agent_data"]["turns"]] == [0, 1]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (LlmError(LlmErrorKind.UNAVAILABLE, "Vertex AI is away"), "Vertex AI is away"),
        ('{"score": null}', "cannot be read"),
        ('{"score": true}', "cannot be read"),
        ('{"score": "1"}', "cannot be read"),
        ('{"score": NaN}', "cannot be read"),
        ("[]", "cannot be read"),
        ("yes", "cannot be read"),
        ('{"score": 1, "rubrics": [3]}', "cannot be read"),
        ('{"score": 1.01}', "goes from 0 to 1"),
    ],
)
@pytest.mark.parametrize("name", ["safety_v1", "multi_turn_task_success_v1"])
def test_what_is_no_score_is_an_error(name, answer, told):
    said, _ = scored(criterion(name, threshold=0.5), sample([turn("A")], [turn("a")]), lambda _: answer)
    assert (said.status, said.score, said.passed) == (ScoreStatus.ERROR, None, None)
    assert told in said.reason


def test_no_model_is_an_error():
    for name in ("safety_v1", *CONVERSATION):
        said = asyncio.run(criterion(name, threshold=0.5).score(sample([turn("A")], [turn("a")])))
        assert said.status is ScoreStatus.ERROR
        assert "no model" in said.reason


def test_a_conversation_has_all_that_happened_in_it():
    declared = {"function_declarations": [{"name": "weather"}]}
    agent = {"name": "root", "instructions": "be kind", "tool_declarations": [declared, {"name": "bare_function"}]}
    turns = [
        turn("a", call("weather", at="Köln"), app_details={"agent_details": {"root": agent}}, invocation_id="1"),
        turn(None, app_details={"agent_details": {"root": {**agent, "instructions": "another"}}}),
    ]
    said = agent_data(turns)
    tools = [declared, {"function_declarations": [{"name": "bare_function"}]}]
    assert said["agents"] == {"root": {"agent_id": "root", "instruction": "be kind", "tools": tools}}
    user = {"author": "user", "content": {"role": "user", "parts": [{"text": "hi"}]}}
    called = {"role": "model", "parts": [{"function_call": {"name": "weather", "args": {"at": "Köln"}}}]}
    answered = {"role": "model", "parts": [{"text": "a"}]}
    assert said["turns"][0]["events"] == [
        user,
        {"author": "agent", "content": called},
        {"author": "agent", "content": answered},
    ]
    assert said["turns"][1]["events"] == [user, {"author": "agent"}]


def test_the_repeat_is_in_the_question():
    looked_at = Sample(EvalCase(eval_id="c", conversation=(turn("A"),)), (turn("a"),), repeat=3)
    _, (request,) = scored(criterion("safety_v1", threshold=0.5), looked_at, lambda _: LlmReply('{"score": 1}'))
    assert request.repeat == 3
