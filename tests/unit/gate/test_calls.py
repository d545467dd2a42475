"""Which tool call changed, in words."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import from_result
from agent_eval_action.gate.calls import against_baseline, against_expected
from agent_eval_action.gate.compare import compare
from agent_eval_action.gate.sentences import Writer
from support.results import QUALITY, attempt, calls, case, run

A, B, C = ("a", {}), ("b", {"x": 1}), ("c", {})


def kept(*turns):
    (record,) = from_result(run(case("a", attempt({QUALITY: 1.0}, *turns)))).records
    return record.trajectory


def plain(*turns):
    return tuple(turn.calls for turn in turns)


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ([calls(A, B)], [calls(A, B)], ""),
        ([calls(A, B)], [calls(A)], "turn 1 b(x=1) is no longer called"),
        ([calls(A)], [calls(A, B)], "turn 1 b(x=1) is new"),
        ([calls(A), calls(B)], [calls(A), calls(("b", {"x": 2}))], "turn 2 b(x=1) → b(x=2)"),
        ([calls(A, C)], [calls(C, A)], "in another place"),
        ([calls(A), calls(B)], [calls(A)], "2 turns in the baseline, 1 now"),
        ([calls(("b", {"x": 1, "y": 2}))], [calls(("b", {"y": 2, "x": 1}))], ""),
    ],
)
def test_the_first_difference_from_the_baseline(then, now, said):
    found = against_baseline(kept(*then), plain(*now))
    assert found == said if not said or said.startswith("turn") else said in found


def test_a_call_kept_in_short_is_not_taken_for_the_one_that_changed():
    long = ("save", {"text": "x" * 3_000})
    before = kept(calls(long, A), calls(B))
    assert before.turns[0][0].args["text"] != long[1]["text"]
    assert against_baseline(before, plain(calls(long, A), calls(C))) == ("turn 2 b(x=1) is no longer called")


def test_the_first_difference_from_what_is_expected():
    assert against_expected(plain(calls(A)), plain(calls(A))) == ""
    assert against_expected(plain(calls(A), calls(B)), plain(calls(A), calls())) == "turn 2 missing call b(x=1)"


def test_the_attempts_with_the_worst_score_are_the_ones_explained():
    before = from_result(run(case("a", attempt({QUALITY: 1.0}, calls(A)))))
    now = run(case("a", *[attempt({QUALITY: 1.0}, calls(A))] * 2, attempt({QUALITY: 0.0}, calls(B), reason="wrong")))
    comparison = compare(before, now)
    (pair,) = comparison.pairs
    said = Writer.of([pair.key], comparison.trajectories).pair(pair)
    assert said == (
        "`a › quality` fell from 1.00 to 0.67 (mean of 3 attempts, 2 met it): wrong; "
        "tool calls changed: turn 1 a() is no longer called"
    )
