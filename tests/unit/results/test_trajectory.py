"""diff_calls: what it calls missing, extra, different, moved, and that it accounts for every call."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action.results.decision import CallBrief
from agent_eval_action.results.evalset import FunctionCall
from agent_eval_action.results.trajectory import call_key, diff_calls


def calls(text: str) -> list[FunctionCall]:
    """``"a b:2"``: call a without args, call b with x=2."""
    made = []
    for word in text.split():
        name, _, x = word.partition(":")
        made.append(FunctionCall(name=name, args={"x": x} if x else None))
    return made


def brief(call: Any) -> str | None:
    return call and f"{call.name}:{(call.args or {}).get('x', '')}".rstrip(":")


def shown(expected: str, actual: str, **options: bool) -> list[str]:
    found = diff_calls(calls(expected), calls(actual), **options)
    return [f"{d.kind} {brief(d.expected)} {brief(d.actual)}" for d in found]


@pytest.mark.parametrize(
    ("expected", "actual", "differences"),
    [
        ("", "", []),
        ("a b c", "a b c", []),
        ("a b c", "a c", ["missing b None"]),
        ("a c", "a b c", ["extra None b"]),
        ("a", "b a c", ["extra None b", "extra None c"]),
        ("", "a", ["extra None a"]),
        ("a", "", ["missing a None"]),
        ("a:17", "a:16", ["different a:17 a:16"]),
        ("a b", "b a", ["moved a a"]),
        ("a b", "c d", ["missing a None", "missing b None", "extra None c", "extra None d"]),
        ("a b c", "a x:1 c", ["missing b None", "extra None x:1"]),
        ("roll:1 check:1", "roll:1 roll:1 check:1", ["extra None roll:1"]),
        ("get:a put:a get:b put:b", "get:a put:a get:c put:c", ["different get:b get:c", "different put:b put:c"]),
        ("a a b", "a b", ["missing a None"]),
        ("login get:1 get:2 logout", "login get:2 get:1 logout", ["moved get:1 get:1"]),
        ("a:1 b", "b a:2", ["different a:1 a:2"]),
        ("a:1 m a:2", "a:3 m a:4", ["different a:1 a:3", "different a:2 a:4"]),
        ("a:1 m a:2", "m a:3", ["missing a:1 None", "different a:2 a:3"]),
    ],
)  # fmt: skip
def test_examples(expected, actual, differences):
    assert shown(expected, actual) == differences


def test_names_alone_when_args_are_ignored():
    assert shown("a:1 b:1", "a:2", ignore_args=True) == ["missing b:1 None"]


def test_equality_is_pythons_but_absent_args_are_empty():
    def call(args: Any) -> CallBrief:
        return CallBrief(name="f", args=args)

    assert not diff_calls([FunctionCall(name="f")], [call({})])
    assert not diff_calls([call({"x": [1, {"y": 1.0}]})], [call({"x": [True, {"y": 1}]})])
    assert diff_calls([call({"x": "1"})], [call({"x": 1})])
    assert diff_calls([call({"x": []})], [call({"x": {}})])
    assert diff_calls([call({"x": None})], [call({})])


KEYS = st.lists(st.sampled_from(["a", "a:1", "a:2", "b", "b:1", "c", "d"]), max_size=12)


def accounts(expected: list[FunctionCall], actual: list[FunctionCall]) -> None:
    """Each call is in one difference at most, and what is in none is the same sequence on both sides."""
    found = diff_calls(expected, actual)
    want = [d.expected_index for d in found if d.expected_index is not None]
    got = [d.actual_index for d in found if d.actual_index is not None]
    assert len(set(want)) == len(want)
    assert len(set(got)) == len(got)
    rest = [call_key(one) for i, one in enumerate(expected) if i not in set(want)]
    assert rest == [call_key(one) for j, one in enumerate(actual) if j not in set(got)]
    for difference in found:
        if difference.kind == "moved":
            assert call_key(difference.expected) == call_key(difference.actual)  # type: ignore[arg-type] # a moved call has both
        if difference.kind == "different":
            assert brief(difference.expected) != brief(difference.actual)
    assert (not found) is ([*map(call_key, expected)] == [*map(call_key, actual)])


@settings(deadline=None, derandomize=True, max_examples=300, database=None)
@given(KEYS, KEYS)
def test_every_call_is_accounted_for(expected, actual):
    accounts(calls(" ".join(expected)), calls(" ".join(actual)))


@settings(deadline=None, derandomize=True, max_examples=200, database=None)
@given(KEYS, KEYS)
def test_as_few_calls_differ_as_can_be(expected, actual):
    @cache
    def common(i: int, j: int) -> int:
        if i == len(expected) or j == len(actual):
            return 0
        if expected[i] == actual[j]:
            return 1 + common(i + 1, j + 1)
        return max(common(i + 1, j), common(i, j + 1))

    found = diff_calls(calls(" ".join(expected)), calls(" ".join(actual)))
    assert sum(d.expected is not None for d in found) == len(expected) - common(0, 0)


@pytest.mark.exhaustive(after=2)
@pytest.mark.parametrize("kinds", [3, 10**6, 1, 50])
def test_thousands_of_calls(kinds):
    """A table of all pairs would have tens of millions of cells."""
    dice = random.Random(kinds)  # noqa: S311 - a test that can be repeated
    expected = [FunctionCall(name="f", args={"x": dice.randrange(kinds)}) for _ in range(5000)]
    actual = [one for one in expected if dice.random() > 0.1]
    actual[100], actual[4000] = actual[4000], actual[100]
    actual += [FunctionCall(name="g")]
    accounts(expected, actual)
    found = [d.kind for d in diff_calls(expected, actual)]
    assert {"missing", "extra"} <= {*found}
    if kinds == 10**6:
        assert found.count("moved") < 50, "two calls that changed places are told as two, not as thousands"
