"""Calls and differences in words: what they say, and that they stay short whatever a call holds."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eval_action.results.evalset import FunctionCall
from agent_eval_action.results.trajectory import diff_calls, explain, explain_args, format_call, format_value


def call(name: str, **args: Any) -> FunctionCall:
    return FunctionCall(name=name, args=args)


def said(expected: list[FunctionCall], actual: list[FunctionCall]) -> list[str]:
    return [explain(difference) for difference in diff_calls(expected, actual)]


def test_a_difference_names_the_calls_with_their_arguments():
    assert said([call("roll_die", sides=17)], [call("roll_die", sides=16)]) == [
        "expected roll_die(sides=17), got roll_die(sides=16)"
    ]
    assert said([call("a")], [call("b", x="ü", y=None)]) == ["missing call a()", 'extra call b(x="ü", y=null)']
    assert said([call("a"), call("b")], [call("b"), call("a")]) == [
        "out of order: a() was expected as call 1, came as call 2"
    ]


def test_long_calls_show_only_the_arguments_that_differ():
    guests = [{"name": f"guest {number}", "age": 30} for number in range(20)]
    older = [*guests[:7], {"name": "guest 7", "age": 31}, *guests[8:]]
    (text,) = said([call("book", guests=guests, seat="1A")], [call("book", guests=older, meal="fish")])
    assert (
        text
        == 'book: guests[7].age expected 30, got 31; seat expected "1A", got nothing; meal expected nothing, got "fish"'
    )


def test_long_texts_are_shown_where_they_part():
    lead = "x" * 9_000_000
    (text,) = said([call("write", body=lead + "left")], [call("write", body=lead + "right")])
    assert text == 'write: body expected …"xxxxxxxxxxleft", got …"xxxxxxxxxxright"'


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000_000,
        list(range(1_000_000)),
        {str(number): "y" * 100 for number in range(100_000)},
        {"k" * 10_000_000: 1},
        nested(50_000),
        10**50_000,
        b"bytes" * 1_000_000,
        float("inf"),
        "\x00\x1b[31m\n" * 100,
    ],
    ids=["text", "list", "mapping", "key", "nested", "number", "bytes", "infinity", "control"],
)
def test_no_value_makes_a_long_or_a_broken_line(value):
    for text in (format_value(value), format_call(FunctionCall(name="n" * 10_000, args={"a": value}))):
        assert len(text) <= 120
        assert text.isprintable()


def test_no_difference_is_long():
    many = {f"key {number}" * 50: number for number in range(5_000)}
    other = {key: number + 1 for key, number in many.items()}
    text = explain_args(many, other)
    assert len(text) < 800
    assert text.endswith("; and more")
