"""Differences of a turn: three sides, each said once."""

from __future__ import annotations

from typing import Any

from agent_eval_action.reports.differences import turn_diffs
from agent_eval_action.results.decision import CallBrief, TurnBrief
from agent_eval_action.results.history import short_call


def call(name: str, **args: Any) -> CallBrief:
    return CallBrief(name=name, args=args)


def turn(*calls: CallBrief, response: str = "") -> TurnBrief:
    return TurnBrief(user="hello", calls=calls, response=response)


A, B, C = call("a", x=1), call("b"), call("c")


def shown(expected: list[TurnBrief], baseline: list[TurnBrief], actual: list[TurnBrief]) -> list[tuple[str, str]]:
    return [
        (hunk.title, " ".join(f"{sign}{text}" for sign, text in hunk.lines))
        for diff in turn_diffs(expected, baseline, actual)
        for hunk in diff.hunks
    ]


def test_equal_turns_are_not_shown() -> None:
    assert shown([turn(A)], [turn(A)], [turn(A)]) == []


def test_a_missing_an_extra_a_different_and_a_moved_call() -> None:
    title = "tool calls: - expected, + this run"
    assert shown([turn(A, B)], [], [turn(A)]) == [(title, " a(x=1) -b()")]
    assert shown([turn(A)], [], [turn(A, B)]) == [(title, " a(x=1) +b()")]
    assert shown([turn(A, B)], [], [turn(call("a", x=2), B)]) == [(title, "-a(x=1) +a(x=2)  b()")]
    assert shown([turn(A, B)], [], [turn(B, A)]) == [(title, "-a(x=1)  b() +a(x=1)")]


def test_a_baseline_as_expected_needs_no_second_difference() -> None:
    assert shown([turn(A)], [turn(A)], [turn(B)]) == [
        ("tool calls: - expected, + this run (the baseline's were as expected)", "-a(x=1) +b()")
    ]


def test_a_baseline_with_the_same_call_is_mentioned() -> None:
    assert shown([turn(A)], [turn(B)], [turn(B)]) == [
        ("tool calls: - expected, + this run (the baseline's were the same)", "-a(x=1) +b()")
    ]


def test_a_baseline_of_its_own_is_a_second_difference() -> None:
    assert shown([turn(A)], [turn(C)], [turn(B)]) == [
        ("tool calls: - expected, + this run", "-a(x=1) +b()"),
        ("tool calls: - baseline, + this run", "-c() +b()"),
    ]


def test_calls_that_became_right_are_said_to_be() -> None:
    assert shown([turn(A)], [turn(B)], [turn(A)]) == [
        ("tool calls: - baseline, + this run (now as expected)", "-b() +a(x=1)")
    ]


def test_a_case_that_names_no_calls_is_compared_with_its_baseline_only() -> None:
    assert shown([turn(response="x")], [turn(A)], [turn(A, response="x")]) == []
    titles = [title for title, _ in shown([turn(response="x")], [turn(A)], [turn(B, response="x")])]
    assert "tool calls: - baseline, + this run" in titles


def test_a_call_the_baseline_keeps_in_short_is_the_same_call() -> None:
    long = call("a", text="x" * 500)
    assert shown([], [turn(short_call(long))], [turn(long)]) == []
    assert shown([turn(long)], [turn(short_call(long))], [turn(long)]) == []


def test_answers_are_shown_line_by_line_when_a_reference_differs() -> None:
    assert shown([turn(response="17\nprime")], [], [turn(response="")]) == [
        ("answer: - expected, + this run", "-17 -prime +(no answer)")
    ]
    assert shown([turn(response="")], [], [turn(response="anything")]) == []


def test_turns_that_are_not_there_are_differences_too() -> None:
    assert [d.number for d in turn_diffs([turn(A), turn(B)], [], [turn(A)])] == [2]
    assert [d.number for d in turn_diffs([turn(A)], [], [turn(A), turn(B)])] == [2]


def test_long_stretches_are_shortened_around_what_differs() -> None:
    many = [call("f", n=n) for n in range(50)]
    ((_, text),) = shown([turn(*many)], [], [turn(*many[:25], B, *many[25:])])
    assert text == " … 23 the same  f(n=23)  f(n=24) +b()  f(n=25)  f(n=26)  … 23 the same"


def test_a_flood_of_differences_is_bounded() -> None:
    ((_, text),) = shown([turn()], [], [turn(*(call("f", n=n) for n in range(500)))])
    assert text.endswith("… 420 more")
