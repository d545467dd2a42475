"""per_turn_user_simulator_quality_v1: the same votes give google-adk's score; each deliberate difference beside ADK."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.criteria.verdicts import SimulatorQuality
from agent_eval_action.llm.client import LlmError, LlmRequest
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus
from support.fenced_texts import texts_in
from support.judging import AWAY, said, scored
from support.scripted_llm import ScriptedLlm

NAME = "per_turn_user_simulator_quality_v1"
RANDOM = settings(
    max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
END = "</finished>"
SCENARIO = {"starting_prompt": "Begin.", "conversation_plan": "Go on, then end."}
ADK_WORDS = {"yes": '{"criteria": [], "is_valid": true}', "no": '{"criteria": [], "is_valid": false}', "": "no idea"}

Votes = Sequence[str]
"""``yes``, ``no``, ``""`` (an answer that cannot be read) per sample."""


def turn(text: str) -> Invocation:
    user, agent = ({"role": role, "parts": [{"text": said}]} for role, said in (("user", text), ("model", "Fine.")))
    return Invocation.model_validate({"user_content": user, "final_response": agent})


def turns_of(first: str, votes: Sequence[Votes]) -> list[Invocation]:
    return [turn(first), *(turn(f"Message {number}") for number in range(1, len(votes)))]


def judge_of(votes: Sequence[Votes]) -> ScriptedLlm:
    """The votes on each later turn, those on the end last."""
    by_message: Mapping[str, Votes] = {f"Message {number}": one for number, one in enumerate(votes[:-1], 1)}

    def answer(request: LlmRequest) -> str | LlmError:
        vote = {**by_message, END: votes[-1]}[texts_in(request)["message"]][request.sample]
        return AWAY if vote == "away" else said(vote) if vote else "no idea"

    return ScriptedLlm(answer)


def ours(first: str, votes: Sequence[Votes], threshold: float) -> CriterionScore:
    options = {"threshold": threshold, "judge_model_options": {"num_samples": len(votes[0])}}
    case = EvalCase.model_validate({"eval_id": "case", "conversation_scenario": SCENARIO})
    return scored(SimulatorQuality.model_validate(options), judge_of(votes), turns_of(first, votes), case=case)


def theirs(adk: Any, first: str, votes: Sequence[Votes], threshold: float, **scenario: Any) -> dict[str, Any]:
    options = {
        "threshold": threshold,
        "judge_model_options": {"judge_model": "scripted-judge", "num_samples": len(votes[0])},
    }
    judge = [ADK_WORDS.get(vote) for one in votes for vote in one]
    found: dict[str, Any] = adk(
        NAME, options, None, turns_of(first, votes), judge=judge, scenario={**SCENARIO, **scenario}
    )
    return found


FIRSTS = st.sampled_from(["Begin.", " Begin.\n", "Begin"])
READABLE = st.sampled_from(["yes", "no"])


@st.composite
def all_votes(draw: st.DrawFn) -> list[list[str]]:
    """Per later turn and for the end; each with at least one vote that can be read."""
    samples = draw(st.integers(1, 6))
    asked = draw(st.integers(1, 4))
    some = st.lists(st.sampled_from(["yes", "no", ""]), min_size=samples, max_size=samples)
    return draw(st.lists(some.filter(any), min_size=asked, max_size=asked))


@RANDOM
@given(FIRSTS, all_votes(), st.sampled_from([0.1, 0.25, 0.5, 2 / 3, 1.0]))
def test_the_same_votes_give_the_same_score(adk, first, votes, threshold):
    found = theirs(adk, first, votes, threshold)
    assert "error" not in found, found
    mine = ours(first, votes, threshold)
    assert mine.score == pytest.approx(found["score"], abs=1e-9)
    assert mine.passed is (found["status"] == "PASSED")
    assert [one.score for one in mine.turns] == [one["score"] for one in found["turns"]]
    assert len(found["asked"]) == sum(map(len, votes))


def test_the_end_is_asked_about_with_the_whole_history(adk):
    found = theirs(adk, "Begin.", [["yes"], ["yes"]], 0.5)
    llm = judge_of([["yes"], ["yes"]])
    case = EvalCase.model_validate({"eval_id": "case", "conversation_scenario": SCENARIO})
    criterion = SimulatorQuality.model_validate({"threshold": 0.5, "judge_model_options": {"num_samples": 1}})
    scored(criterion, llm, turns_of("Begin.", [["yes"], ["yes"]]), case=case)
    mine = [texts_in(request) for request in llm.asked]
    for number, (message, history) in enumerate([("Message 1", ["Begin."]), (END, ["Begin.", "Message 1"])]):
        assert found["asked"][number].endswith(message)
        assert mine[number]["message"] == message
        assert [one["user"] for one in json.loads(mine[number]["history"]) if "user" in one] == history
        assert all(f"user: {one}" in found["asked"][number] for one in history)


@pytest.mark.parametrize(
    "votes",
    [
        pytest.param([["", "", ""], ["yes"] * 3], id="a turn"),
        pytest.param([["yes"] * 3, ["", "", ""]], id="the end"),
    ],
)
def test_a_question_without_a_vote_is_no_score(adk, votes):
    """ADK counts such a turn 0, so that an outage looks like a bad user, and such an end as a good one."""
    assert theirs(adk, "Begin.", votes, 0.5)["score"] is not None
    found = ours("Begin.", votes, 0.5)
    assert (found.status, found.score) == (ScoreStatus.ERROR, None)


def test_one_sample_that_fails_is_left_out(adk):
    """In ADK one failing call voids the whole criterion."""
    votes = [["away", "yes", "yes"], ["yes", "yes", "yes"]]
    assert "error" in theirs(adk, "Begin.", votes, 0.5)
    assert ours("Begin.", votes, 0.5).score == 1


def test_a_wrong_end_counts_whatever_the_threshold(adk):
    """ADK asks whether the end meets the threshold, which 0 does."""
    votes = [["yes"], ["no"]]
    assert theirs(adk, "Begin.", votes, 0.0)["score"] == 1
    assert theirs(adk, "Begin.", votes, 0.1)["score"] == 0.5
    assert ours("Begin.", votes, 0.0).score == ours("Begin.", votes, 0.1).score == 0.5


def test_a_fixed_conversation_is_not_applicable(adk):
    """In ADK the metric raises, and the case can still pass by another."""
    turns = turns_of("Begin.", [["yes"]])
    options = {"threshold": 0.5, "judge_model_options": {"judge_model": "scripted-judge"}}
    assert "conversation_scenario is needed" in adk(NAME, options, None, turns)["error"]
    found = scored(SimulatorQuality(threshold=0.5), ScriptedLlm(lambda _: said("yes")), turns)
    assert found.status is ScoreStatus.NOT_APPLICABLE


@pytest.mark.parametrize("persona", ["EXPERT", "NOVICE", "EVALUATOR"])
def test_the_same_personas_are_known(adk, persona):
    found = theirs(adk, "Begin.", [["yes"]], 0.5, user_persona=persona)
    assert found["score"] == 1
    assert "# Persona Description" in found["asked"][0]
