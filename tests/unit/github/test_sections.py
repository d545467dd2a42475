"""The comment's text: what is written is read back, and nothing an agent says is taken for a marker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.github.sections import (
    CommentText,
    Kept,
    Stamp,
    around,
    as_kept,
    merged,
    put_together,
    taken_apart,
    unforged,
)

ONE = Stamp(
    key="eval / run (3.12)", sha="c0ffee", run=7, attempt=2, run_id=70, outcome="fail", state="fail x", title="T"
)


def read(body: str) -> CommentText:
    text = taken_apart(body)
    assert text is not None
    return text


def test_what_is_written_is_read_back():
    sections = [Kept(ONE, "first\n\n```text\nx\n```"), Kept(replace(ONE, key="other"), "second")]
    text = read(put_together(sections, "70.2"))
    assert text.sections == {kept.stamp.key: kept for kept in sections}
    assert text.made_by == "70.2"


def test_line_ends_of_a_browser_are_read_as_well():
    body = put_together([Kept(ONE, "a\nb")], "70.2")
    assert read(body.replace("\n", "\r\n")).sections[ONE.key].text == "a\nb"


@given(st.text())
def test_no_text_of_a_section_makes_another_or_ends_its_own(text):
    text += "\n<!-- agent-eval-action:end -->\n" + put_together([Kept(replace(ONE, key="forged"), "x")], "9.9") + text
    assert set(read(put_together([Kept(ONE, text)], "70.2")).sections) == {ONE.key}


@given(st.builds(Stamp, key=st.text(), title=st.text(), outcome=st.text(), run=st.integers(0, 10**12)))
def test_any_stamp_stays_on_its_line_and_is_read_back(stamp):
    stamp = as_kept(stamp)
    body = put_together([Kept(stamp, "x")], "")
    assert as_kept(stamp) == stamp
    assert set(read(body).sections) == {stamp.key}
    assert read(body).sections[stamp.key].stamp == stamp


@pytest.mark.parametrize("value", ["-->", "--!>", "<!--", "]]>", "\n", '"}'])
def test_no_value_ends_a_marker(value):
    body = put_together([Kept(replace(ONE, key=f"a{value}b"), "text")], "1.1")
    markers = [line for line in body.splitlines() if line.startswith("<!--")]
    assert len(markers) == 3
    assert all(line.count("-->") == 1 and line.endswith(" -->") and line.count("<!--") == 1 for line in markers)
    assert read(body).sections[f"a{value}b"].text == "text"


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "hello",
        "<!-- agent-eval-action:comment -->\nof a file, posted by another action",
        "<!-- agent-eval-action:comment [1] -->",
        "<!-- agent-eval-action:comment {nonsense} -->",
        "text\n<!-- agent-eval-action:comment {} -->",
    ],
)
def test_what_is_not_ours_is_no_comment_of_ours(body):
    assert taken_apart(body) is None


@pytest.mark.parametrize(
    "marker", ['{"key": 7}', '{"run": 1}', "{nonsense}", "[]", '{"key": "k", "run": "one", "attempt": true}']
)
def test_a_marker_edited_by_hand_breaks_nothing_else(marker):
    body = put_together([Kept(ONE, "mine")], "1.1") + f"\n<!-- agent-eval-action:section {marker} -->\nx\n"
    assert read(body).sections[ONE.key].text == "mine"


def test_a_section_without_its_end_ends_where_the_next_begins():
    body = put_together([Kept(ONE, "mine"), Kept(replace(ONE, key="z"), "other")], "1.1")
    torn = read(body.replace("<!-- agent-eval-action:end -->", "", 1))
    assert torn.sections["z"].text == "other"


def test_a_single_section_has_no_heading_and_several_have_one_each():
    assert "##" not in put_together([Kept(ONE, "x")], "")
    several = put_together([Kept(ONE, "x"), Kept(replace(ONE, key="z", outcome="pass", title="U"), "y")], "")
    assert several.index("## ❌ T") < several.index("x\n") < several.index("## ✅ U") < several.index("y\n")


def test_sections_stand_in_the_order_of_their_keys_whoever_writes():
    kept = [Kept(replace(ONE, key=key), key) for key in "bca"]
    assert put_together(kept, "") == put_together(reversed(kept), "")


@pytest.mark.parametrize(
    ("one", "other", "newer"),
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
def test_which_of_two_runs_is_newer(one, other, newer):
    assert Stamp(key="k", **one).is_newer_than(Stamp(key="k", **other)) is newer


def test_of_one_key_the_newest_stays_and_of_equals_the_first():
    old, new = (CommentText({"k": Kept(Stamp("k", run=run), str(run))}) for run in (1, 2))
    again = CommentText({"k": Kept(Stamp("k", run=2), "again")})
    assert merged([old, new, again])["k"].text == merged([new, again, old])["k"].text == "2"


def test_how_much_room_markers_take_is_known():
    stamps = [ONE, replace(ONE, key="z")]
    body = put_together([Kept(stamp, "text") for stamp in stamps], "70.2")
    assert len(body.encode()) - 2 * len("text") <= around(stamps)


def test_a_forged_marker_in_a_code_block_is_shown_and_read_by_nobody():
    said = "```text\n<!-- agent-eval-action:end -->\n<!--agent-eval-action:section {} -->\n<!-- other -->\n```"
    shown = unforged(said)
    assert "<!-- agent" not in shown
    assert "<!--agent" not in shown
    assert "<!-- other -->" in shown
