"""Secrets are taken out of any value, whole and line by line; names under which things are found stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.results.redaction import HIDDEN, Redaction, pieces
from agent_eval_action.results.run_result import Attempt, AttemptError, CriterionScore, ErrorKind, ScoreStatus

KEY = "sk-4f9a1c77"


def redaction(*values: str) -> Redaction:
    made = Redaction()
    made.hide(values)
    return made


def test_longer_values_are_hidden_before_those_they_begin_with() -> None:
    assert redaction("abcdef", "abcdef-ghijkl").text("abcdef-ghijkl abcdef") == f"{HIDDEN} {HIDDEN}"


def test_each_line_of_a_value_is_hidden_and_short_ones_are_not() -> None:
    assert pieces("first line\n{\n  second line  \n}\n") == (
        "first line\n{\n  second line  \n}",
        "first line",
        "second line",
    )
    assert pieces("12345") == pieces("") == pieces(" \n ") == ()


def test_hiding_says_only_what_is_new() -> None:
    made = redaction(KEY)
    assert made.hide([KEY, "another-one"]) == ("another-one",)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_bytes_keep_whatever_else_they_are(before: bytes, after: bytes) -> None:
    made = redaction(KEY)
    data = before + KEY.encode() + after
    assert KEY.encode() not in made.data(data)
    assert made.data(before) == before


def test_a_whole_attempt_loses_it_and_keeps_its_names() -> None:
    attempt = Attempt(
        agent=KEY,
        eval_set="s",
        case=f"case {KEY}",
        repeat=0,
        case_digest="d",
        final_session_state={"deep": [{KEY: [f"x {KEY} y", 1, None, True]}]},
        error=AttemptError(kind=ErrorKind.EXCEPTION, message=f"no {KEY}", traceback=KEY),
    )
    shown = redaction(KEY).value(attempt)
    assert shown.key == attempt.key
    assert shown.final_session_state == {"deep": [{HIDDEN: [f"x {HIDDEN} y", 1, None, True]}]}
    assert shown.error == AttemptError(kind=ErrorKind.EXCEPTION, message=f"no {HIDDEN}", traceback=HIDDEN)
    assert type(shown.error.kind) is ErrorKind


@pytest.mark.parametrize("made", [Redaction(), redaction(KEY)])
def test_what_holds_none_is_the_very_same_object(made: Redaction) -> None:
    attempt = Attempt(agent="a", eval_set="s", case="c", repeat=0, case_digest="d", final_session_state={"k": ["v"]})
    assert made.value(attempt) is attempt


def test_a_users_pattern_counts_too() -> None:
    made = Redaction()
    made.hide_matches(["4111"])
    assert made.value({"card": "4111 1111"}) == {"card": "[redacted] 1111"}


def test_what_is_left_of_a_value_where_a_sentence_was_shortened_is_hidden_too() -> None:
    made = Redaction()
    made.hide(["sk-abcdef0123456789"])
    assert made.text("pay(key=sk-abcdef01…) and sk-abcde…") == "pay(key=***…) and ***…"
    assert made.text("sk-ab… is too short to tell, sk-abcxyz… is another") == (
        "sk-ab… is too short to tell, sk-abcxyz… is another"
    )


def test_what_a_pattern_found_is_hidden_where_it_was_shortened() -> None:
    made = Redaction()
    made.hide_matches([r"\d{4} \d{4} \d{4}"])
    said = {"turns": ["my card is 4111 2222 3333"], "reason": "said 'my card is 4111 22…' (600 characters)"}
    assert made.value(said) == {
        "turns": ["my card is [redacted]"],
        "reason": "said 'my card is ***…' (600 characters)",
    }


def test_a_pattern_that_fits_everything_leaves_what_results_are_read_by() -> None:
    made = Redaction()
    made.hide_matches([r"\S+"])
    attempt = Attempt(agent="a", eval_set="s", case="c", repeat=0, case_digest="d", purpose="rerun")
    score = CriterionScore(criterion="x", status=ScoreStatus.SCORED, score=0.5, reason="because of it", digest="e")
    shown = made.value(attempt.model_copy(update={"scores": (score,)}))
    assert Attempt.model_validate_json(shown.model_dump_json()) == shown
    assert shown.key == attempt.key
    assert shown.purpose == "rerun"
    assert shown.scores[0].digest == "e"
    assert shown.scores[0].reason == "[redacted] [redacted] [redacted]"
