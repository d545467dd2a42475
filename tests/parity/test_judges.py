"""Given the same verdicts of a judge, our scores of the judged criteria equal google-adk's.

Its evaluators vote and take means; only the model behind them is ours, and it answers in the text format they read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.llm.client import LlmRequest
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore
from support.fenced_texts import texts_in
from support.judging import rubric, said, scored, verdicts
from support.scripted_llm import ScriptedLlm
from support.turns import criterion, turn

RANDOM = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
THRESHOLDS = st.sampled_from([0.0, 1 / 3, 0.5, 2 / 3, 0.8, 1.0])
MATCH = "final_response_match_v2"
FINAL = "rubric_based_final_response_quality_v1"
TOOLS = "rubric_based_tool_use_quality_v1"
CONVERSATION = "rubric_based_multi_turn_trajectory_quality_v1"
TYPES = {FINAL: "FINAL_RESPONSE_QUALITY", TOOLS: "TOOL_USE_QUALITY", CONVERSATION: "TRAJECTORY_QUALITY"}

Outcome = bool | None
"""What one sample says; None: nothing that can be used."""


def options(samples: int, threshold: float, **more: Any) -> dict[str, Any]:
    judge = {"judge_model": "scripted-judge", "num_samples": samples}
    return {"threshold": threshold, "judge_model_options": judge, **more}


def asking(number: int, **fields: Any) -> Invocation:
    return turn(f"answer {number}", user_content={"role": "user", "parts": [{"text": str(number)}]}, **fields)


def same(ours: CriterionScore, theirs: dict[str, Any]) -> None:
    assert "error" not in theirs, theirs
    assert ours.score == theirs["score"], "to the last bit"
    assert ours.passed is (theirs["status"] == "PASSED")
    assert ours.reason


@st.composite
def votes(draw: st.DrawFn, samples: int) -> list[Outcome]:
    """A sequence with at least one vote: without any, we differ (see test_judge_differences.py)."""
    drawn = draw(st.lists(st.sampled_from([True, False, True, False, None]), min_size=samples, max_size=samples))
    if set(drawn) == {None}:
        drawn[draw(st.integers(0, samples - 1))] = draw(st.booleans())
    return drawn


@st.composite
def ballots(draw: st.DrawFn) -> list[list[Outcome]]:
    """Votes by turn and sample."""
    samples = draw(st.integers(1, 7))
    return draw(st.lists(votes(samples), min_size=1, max_size=4))


def label(outcome: Outcome) -> str:
    word = {True: "valid", False: "invalid", None: "hard to say"}[outcome]
    return json.dumps({"reasoning": "so", "is_the_agent_response_valid": word}, indent=1)


@settings(RANDOM, max_examples=300)
@given(ballots(), THRESHOLDS)
def test_final_response_match(adk, table, threshold):
    turns = [asking(number) for number in range(len(table))]
    samples = len(table[0])

    def reply(request: LlmRequest) -> str:
        outcome = table[int(texts_in(request)["user_prompt"])][request.sample]
        return "no idea" if outcome is None else said("yes" if outcome else "no")

    ours = scored(criterion(MATCH, **options(samples, threshold)), ScriptedLlm(reply), turns)
    theirs = adk(MATCH, options(samples, threshold), turns, turns, judge=[label(one) for row in table for one in row])
    same(ours, theirs)
    assert [one.score for one in ours.turns] == [one["score"] for one in theirs["turns"]]


TEXTS = st.lists(st.sampled_from(["", "one", "two\nlines", "{braces}", "ü"]), max_size=3)


@RANDOM
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=2), st.booleans(), st.booleans())
def test_the_texts_that_are_compared(adk, sides, whole, by_hand):
    """Final and intermediate responses of both sides are put together as in google-adk."""

    def made(before: list[str], parts: list[str]) -> Invocation:
        said_before: dict[str, Any] = (
            {"intermediate_responses": [["agent", [{"text": text}]] for text in before]}
            if by_hand
            else {"invocation_events": [{"author": "a", "content": {"parts": [{"text": text}]}} for text in before]}
        )
        return turn(final_response={"parts": [{"text": part} for part in parts]}, intermediate_data=said_before)

    expected, actual = (made(*side) for side in sides)
    llm = ScriptedLlm(lambda _: said("yes"))
    asked = options(1, 0.5, include_intermediate_responses_in_final=whole)
    scored(criterion(MATCH, **asked), llm, [actual], case=EvalCase(eval_id="case", conversation=(expected,)))
    texts = texts_in(llm.asked[0])
    [theirs] = adk(MATCH, asked, [expected], [actual], judge=[label(True)])["asked"]
    assert (
        f'"User prompt": {texts["user_prompt"]},\n  "Agent response": {texts["answer"]},\n'
        f'  "Reference response": {texts["reference"]},\n'
    ) in theirs


@st.composite
def tables(draw: st.DrawFn) -> list[list[list[Outcome]]]:
    """Verdicts by turn, rubric and sample."""
    samples, rubrics = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    of_turn = st.lists(votes(samples), min_size=rubrics, max_size=rubrics)
    return draw(st.lists(of_turn, min_size=1, max_size=3))


def rated(outcomes: Sequence[Outcome], rubrics: Sequence[dict[str, Any]]) -> str:
    """An answer on rubrics in google-adk's text format."""
    word = {True: "yes", False: "no", None: "unclear"}
    return "\n".join(
        f"ID: {one['rubric_id']}\nProperty: {one['rubric_content']['text_property']}\n"
        f"Evidence: none\nRationale: so\nVerdict: {word[outcome]}\n"
        for one, outcome in zip(rubrics, outcomes, strict=True)
    )


def replies(table: list[list[list[Outcome]]], *, last: bool) -> Callable[[LlmRequest], str]:
    word = {True: "yes", False: "no", None: None}

    def reply(request: LlmRequest) -> str:
        number = len(table) - 1 if last else int(texts_in(request)["user_prompt"])
        return verdicts(*(word[row[request.sample]] for row in table[number]))

    return reply


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("name", [FINAL, TOOLS, CONVERSATION])
def test_rubrics(adk, name):
    @RANDOM
    @given(tables(), st.integers(0, 4), THRESHOLDS)
    def check(table: list[list[list[Outcome]]], own: int, threshold: float) -> None:
        last = name == CONVERSATION
        samples = len(table[0][0])
        every = [rubric(f"r{number}", type=TYPES[name]) for number in range(len(table[0]))]
        mine, of_case = every[:own], every[own:]
        made = options(samples, threshold, rubrics=mine)
        turns = [asking(number) for number in range(len(table))]
        case = EvalCase.model_validate({"eval_id": "case", "conversation": turns, "rubrics": of_case})
        ours = scored(criterion(name, **made), ScriptedLlm(replies(table, last=last)), turns, case=case)
        # google-adk copies the rubrics of the case into every turn before it evaluates.
        theirs_turns = [asking(number, rubrics=of_case) for number in range(len(table))]
        judged = table[-1:] if last else table
        answers = [rated([row[sample] for row in rows], every) for rows in judged for sample in range(samples)]
        theirs = adk(name, made, None, theirs_turns, judge=answers)
        same(ours, theirs)
        assert {one.rubric_id: one.score for one in ours.rubrics} == theirs["rubrics"]
        of_turns = theirs["turns"][-1:] if last else theirs["turns"]
        assert [one.score for one in ours.turns] == [one["score"] for one in of_turns]
        assert [{each.rubric_id: each.score for each in one.rubrics} for one in ours.turns] == [
            one["rubrics"] for one in of_turns
        ]

    check()
