"""Which tool call changed."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.gate.findings import difference_from_baseline, difference_from_expected
from support.messages import pair_sentence
from support.records import stored
from support.results import QUALITY, attempt, calls, case, run

A, B, C = ("a", {}), ("b", {"x": 1}), ("c", {})


def kept(*turns):
    (record,) = from_result(run(case("a", attempt({QUALITY: 1.0}, *turns)))).cases
    return record.trajectory


def plain(*turns):
    return tuple(turn.calls for turn in turns)


@pytest.mark.parametrize(
    ("then", "now", "difference"),
    [
        ([calls(A, B)], [calls(A, B)], None),
        ([calls(A, B)], [calls(A)], {"turn": 1, "change": "removed", "old": "b(x=1)"}),
        ([calls(A)], [calls(A, B)], {"turn": 1, "change": "added", "new": "b(x=1)"}),
        (
            [calls(A), calls(B)],
            [calls(A), calls(("b", {"x": 2}))],
            {"turn": 2, "change": "replaced", "old": "b(x=1)", "new": "b(x=2)"},
        ),
        ([calls(A, C)], [calls(C, A)], {"turn": 1, "change": "moved", "old": "a()"}),
        ([calls(A), calls(B)], [calls(A)], {"change": "turns", "old": 2, "new": 1}),
        ([calls(("b", {"x": 1, "y": 2}))], [calls(("b", {"y": 2, "x": 1}))], None),
    ],
)
def test_the_first_difference_from_the_baseline(then, now, difference):
    assert difference_from_baseline(kept(*then), plain(*now)) == difference


def test_a_call_kept_in_short_is_not_taken_for_the_one_that_changed():
    long = ("save", {"text": "x" * 3_000})
    before = kept(calls(long, A), calls(B))
    assert before.turns[0][0].args["text"] != long[1]["text"]
    difference = difference_from_baseline(before, plain(calls(long, A), calls(C)))
    assert difference == {"turn": 2, "change": "removed", "old": "b(x=1)"}


def test_the_first_difference_from_what_is_expected():
    assert difference_from_expected(plain(calls(A)), plain(calls(A))) == ""
    assert difference_from_expected(plain(calls(A), calls(B)), plain(calls(A), calls())) == "turn 2 missing call b(x=1)"


def test_the_attempts_with_the_worst_score_are_the_ones_explained():
    before = from_result(run(case("a", attempt({QUALITY: 1.0}, calls(A)))))
    now = run(case("a", *[attempt({QUALITY: 1.0}, calls(A))] * 2, attempt({QUALITY: 0.0}, calls(B), reason="wrong")))
    (pair,) = decide(compare(stored(before), now), now, Policy()).pairs
    assert pair_sentence(pair) == (
        "`a › quality` passed 1 of 1 times on main and 2 of 3 in the first pass here: likely worse, but too few "
        "runs to be sure: wrong; "
        "tool calls changed: turn 1 a() is no longer called"
    )
