"""tool_trajectory_avg_score: reasons, match types, thresholds, and what has no score. Its numbers: tests/parity."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_eval_action.criteria.base import Sample
from agent_eval_action.results.evalset import ConversationScenario, EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus
from support.turns import call, criterion, score, turn

NAME = "tool_trajectory_avg_score"
A, B, C = call("a"), call("b", x=1), call("c")


def scored(expected: list[dict[str, Any]], actual: list[dict[str, Any]], **options: Any) -> CriterionScore:
    return score(criterion(NAME, threshold=1, **options), [turn("", *expected)], [turn("", *actual)])


@pytest.mark.parametrize(
    ("options", "expected", "actual", "reason"),
    [
        ({}, [B], [call("b", x=2)], "turn 1: expected b(x=1), got b(x=2)"),
        ({}, [A, B, C], [A, C], "turn 1: missing call b(x=1)"),
        ({}, [A], [A, B], "turn 1: extra call b(x=1)"),
        ({}, [A, B], [B, A], "turn 1: out of order: a() was expected as call 1, came as call 2"),
        ({}, [], [A], "turn 1: extra call a()"),
        ({"match_type": 1}, [A, B], [C, A, C], "turn 1: missing call b(x=1)"),
        ({"match_type": 1}, [A, B], [B, C, A], "turn 1: out of order: a() was expected as call 1, came as call 3"),
        ({"match_type": "ANY_ORDER"}, [A, A, B], [B, C, A], "turn 1: missing call a()"),
        ({"match_type": "unordered"}, [A, B], [B, A, C], "turn 1: extra call c()"),
        ({"ignore_args": True}, [B, C], [call("b", x=2)], "turn 1: missing call c"),
    ],
)  # fmt: skip
def test_the_reason_of_a_zero_is_the_difference_that_counts(options, expected, actual, reason):
    found = scored(expected, actual, **options)
    assert (found.score, found.passed, found.reason) == (0, False, reason)


@pytest.mark.parametrize(
    ("options", "expected", "actual", "reason"),
    [
        ({}, [A, B], [A, B], "turn 1: all 2 expected calls made"),
        ({}, [], [], "turn 1: no call expected, none made"),
        ({"matchType": "any order"}, [], [A], "turn 1: no call expected, 1 made"),
        ({"match_type": 2}, [A, B], [B, C, A], "turn 1: all 2 expected calls made, and 1 other"),
        ({"match_type": "UNORDERED"}, [A, B], [B, A], "turn 1: all 2 expected calls made"),
        ({"ignoreArgs": True}, [B], [call("b", x=2)], "turn 1: the expected call made"),
    ],
)
def test_the_reason_of_a_one(options, expected, actual, reason):
    found = scored(expected, actual, **options)
    assert (found.score, found.passed, found.reason) == (1, True, reason)


def test_the_case_is_the_mean_of_its_turns_and_tells_of_those_that_lost():
    found = score(criterion(NAME, threshold=0.5), [turn("", A), turn("", B)], [turn("", A), turn("", C)])
    assert (found.score, found.passed) == (0.5, True)
    assert found.reason == "turn 2: missing call b(x=1); extra call c()"
    assert [(one.turn, one.score) for one in found.turns] == [(0, 1), (1, 0)]


def test_many_differences_are_counted_and_huge_arguments_cut():
    bulk = [call("write", body="x" * 5_000_000, page=number) for number in range(5)]
    turns = [turn("", *bulk) for _ in range(5)]
    found = score(criterion(NAME, threshold=1), turns, [turn("")] * 5)
    assert len(found.reason) < 2_000
    assert "and 1 more difference" in found.reason
    assert found.reason.endswith("; and 2 more turns")


@pytest.mark.parametrize("made", [0, 1, 3])
def test_a_conversation_of_another_length_has_no_score(made):
    found = score(criterion(NAME, threshold=1), [turn("", A)] * 2, [turn("", A)] * made)
    assert (found.status, found.score, found.passed) == (ScoreStatus.ERROR, None, None)
    assert found.reason == f"the agent made {made} of the 2 turns of the case"


def test_a_simulated_conversation_has_no_reference():
    scenario = ConversationScenario(starting_prompt="hi", conversation_plan="ask")
    sample = Sample(EvalCase(eval_id="s", conversation_scenario=scenario), (turn("hello"),))
    found = asyncio.run(criterion(NAME, threshold=1).score(sample))
    assert (found.status, found.score) == (ScoreStatus.NOT_APPLICABLE, None)
    assert "simulated" in found.reason


def test_arguments_too_deep_to_compare_are_an_error_and_no_crash():
    def deep(end: int) -> Invocation:
        made = turn("", call("f", x=[end]))
        args = made.tool_calls()[0].args or {}
        for _ in range(20_000):
            args["x"] = [args["x"]]
        return made

    found = score(criterion(NAME, threshold=1), [deep(1)], [deep(2)])
    assert found.status is ScoreStatus.ERROR
    assert "nested too deeply" in found.reason
