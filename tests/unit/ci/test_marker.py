"""The comment's marker: what is written is read back, and nothing an agent says is taken for one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.ci.comment import Marker, add_marker, escape_markers, read_marker

GOLDEN = Path(__file__).parents[2] / "golden"
MARKER = Marker(key="eval / run (3.12)", sha="c0ffee", run=7, attempt=2, run_id=70, outcome="fail", state="fail x")


def test_what_is_written_is_read_back():
    body = add_marker(MARKER, "first\n\n```text\nx\n```")
    assert read_marker(body) == MARKER
    assert body.endswith("\n\nfirst\n\n```text\nx\n```\n")


def test_line_ends_of_a_browser_are_read_as_well():
    assert read_marker(add_marker(MARKER, "a\nb").replace("\n", "\r\n")) == MARKER


@given(st.text())
def test_no_text_of_a_comment_makes_another_marker(text):
    forged = text + "\n" + add_marker(replace(MARKER, key="forged"), "x") + text
    body = add_marker(MARKER, forged)
    assert read_marker(body) == MARKER
    assert [read_marker(line) for line in body.split("\n")[1:]] == [None] * body.count("\n")


@given(st.builds(Marker, key=st.text(), outcome=st.text(), run=st.integers(0, 10**12)))
def test_any_marker_stays_on_its_line_and_is_read_back(marker):
    assert read_marker(add_marker(marker, "x")) == marker


@pytest.mark.parametrize("value", ["-->", "--!>", "<!--", "]]>", "\n", '"}'])
def test_no_value_ends_a_marker(value):
    body = add_marker(replace(MARKER, key=f"a{value}b"), "text")
    line, blank, text, _ = body.split("\n")
    assert (line.count("-->"), line.count("<!--"), line.endswith(" -->"), blank, text) == (1, 1, True, "", "text")
    found = read_marker(body)
    assert found is not None
    assert found.key == f"a{value}b"


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "hello",
        "<!-- agent-eval-action:comment -->\nof a file, posted by another action",
        "<!-- agent-eval-action:comment [1] -->",
        "<!-- agent-eval-action:comment {nonsense} -->",
        '<!-- agent-eval-action:comment {"key": 7} -->',
        '<!-- agent-eval-action:comment {"run": 1} -->',
        'text\n<!-- agent-eval-action:comment {"key": "k"} -->',
    ],
)
def test_what_is_not_ours_is_no_comment_of_ours(body):
    assert read_marker(body) is None


def test_values_of_a_marker_edited_by_hand_are_left_out():
    line = '<!-- agent-eval-action:comment {"key": "k", "run": "one", "attempt": true, "more": []} -->'
    assert read_marker(line) == Marker("k")


@pytest.mark.parametrize(
    ("marker", "other", "newer"),
    [
        ({"run": 8, "run_id": 80}, {"run": 7, "run_id": 70}, True),
        ({"run": 7, "run_id": 70}, {"run": 8, "run_id": 80}, False),
        ({"run": 7, "run_id": 70, "attempt": 2}, {"run": 7, "run_id": 70, "attempt": 1}, True),
        ({"run": 7, "run_id": 70}, {"run": 7, "run_id": 70}, False),
        ({"run": 10}, {"run": 9}, True),
        ({"run": 9, "attempt": 3}, {"run": 10}, False),
        # a workflow whose file was renamed counts from 1 again: its first run is not older than the last of before
        ({"run": 500, "run_id": 70}, {"run": 1, "run_id": 80}, False),
        ({"run": 1, "run_id": 80}, {"run": 500, "run_id": 70}, False),
    ],
)
def test_which_of_two_runs_is_newer(marker, other, newer):
    assert Marker(key="k", **marker).is_newer_than(Marker(key="k", **other)) is newer


def test_a_forged_marker_in_a_code_block_is_shown_and_read_by_nobody():
    said = "```text\n<!-- agent-eval-action:comment {} -->\n<!--agent-eval-action:comment {} -->\n<!-- other -->\n```"
    shown = escape_markers(said)
    assert "<!-- agent" not in shown
    assert "<!--agent" not in shown
    assert "<!-- other -->" in shown
