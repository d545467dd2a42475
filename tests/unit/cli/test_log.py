"""Untrusted text in a log: it issues no command, moves no cursor, and stays on its line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.cli.log import terminal

COMMAND = re.compile(r"(?m)^\s*::|##\[")


@pytest.mark.parametrize(
    "text",
    [
        "::set-output name=x::y",
        "  ::error::no",
        "ok\r::add-mask::y",
        "##[add-mask]secret",
        "a ##[error]b",
        "###[group]",
        "\x1b[31m::error::x",
        "\u202e::warning::x",
    ],
)
def test_no_workflow_command_survives(text: str) -> None:
    assert not COMMAND.search(terminal(text))
    assert not COMMAND.search(terminal(text, lines=True))


@given(st.text())
def test_every_message_is_one_line_without_control_characters(text: str) -> None:
    shown = terminal(text)
    assert not COMMAND.search(shown)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", shown)
    shown.encode("utf-8")  # raises on what no log can take


@given(st.text(alphabet="x \n\r:#[]", max_size=400))
def test_with_lines_no_line_is_a_command(text: str) -> None:
    assert not COMMAND.search(terminal(text, lines=True))


def test_plain_text_is_left_alone() -> None:
    assert terminal("roll_die(sides=17) → 5: 日本語 ok") == "roll_die(sides=17) → 5: 日本語 ok"


def test_long_text_is_cut() -> None:
    assert len(terminal("x" * 10_000_000, 100)) == 100
