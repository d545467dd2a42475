"""What a change does to the stored scores: lowered, lost and thinned out is said, anything else is not."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import from_result
from agent_eval_action.gate_changes.diff import weakenings
from agent_eval_action.gate_changes.snapshot import Snapshot, sets_of_result
from support.messages import sentence
from support.results import info, run, simple

SUITE = run(simple("a", 1.0, 1.0), simple("b", 0.5, 0.5))


def reasons(before, after, suite=SUITE):
    base = Snapshot(sets_of_result(suite), baseline=before and from_result(before))
    head = Snapshot(sets_of_result(suite), baseline=after and from_result(after))
    return [sentence(one) for one in weakenings(base, head)]


def test_lowered_scores_are_told_the_deepest_fall_first():
    assert reasons(SUITE, run(simple("a", 0.9, 0.9), simple("b", 0.0, 0.0))) == [
        "the stored baseline is loosened for 2 scores: `b › quality` 0.50 → 0.00, `a › quality` 1.00 → 0.90"
    ]


def test_of_a_criterion_where_lower_is_better_a_rise_loosens():
    tokens = (info(goal="minimize", threshold=None),)
    before, after = (run(simple("a", score), criteria=tokens) for score in (100.0, 150.0))
    assert "100 → 150" in reasons(before, after, before)[0]
    assert reasons(after, before, before) == []


def test_a_pair_that_is_gone_or_made_anew_of_another_definition_is_lost():
    assert reasons(SUITE, run(simple("a", 1.0, 1.0))) == ["the stored baseline loses 1 score: `b › quality`"]
    edited = run(simple("a", 1.0, 1.0), simple("b", 0.5, 0.5), criteria=(info(digest="another"),))
    assert reasons(SUITE, edited) == ["the stored baseline loses 2 scores: `a › quality`, `b › quality`"]


def test_fewer_attempts_say_less():
    assert reasons(SUITE, run(simple("a", 1.0), simple("b", 0.5, 0.5))) == [
        "the stored baseline rests on fewer attempts for 1 score: `a › quality` 2 → 1"
    ]


def test_a_file_that_is_gone_is_told_with_what_is_lost():
    (reason,) = reasons(SUITE, None)
    assert reason == "the stored baseline was removed, or cannot be read any more: 2 scores of main are lost"


@pytest.mark.parametrize(
    "after", [SUITE, run(simple("a", *[1.0] * 9), simple("b", *[0.7] * 9), simple("c", 0.0)), None]
)
def test_what_is_as_it_was_better_or_new_is_no_weakening(after):
    assert reasons(SUITE if after else None, after) == []


def test_a_case_that_was_edited_is_told_as_that_alone():
    edited = run(simple("a", 1.0, 1.0), simple("b", 0.1).model_copy(update={"digest": "edited"}))
    base = Snapshot(sets_of_result(SUITE), baseline=from_result(SUITE))
    head = Snapshot(sets_of_result(edited), baseline=from_result(edited))
    (reason,) = [sentence(one) for one in weakenings(base, head)]
    assert "was edited" in reason
