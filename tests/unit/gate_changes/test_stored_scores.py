"""What a change does to the stored scores: lowered, lost and thinned out is said, anything else is not."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import from_result
from agent_eval_action.gate_changes.diff import weakenings
from agent_eval_action.gate_changes.snapshot import Snapshot, sets_of_result
from agent_eval_action.results.findings import FindingCode as C
from support.results import info, run, simple

SUITE = run(simple("a", 1.0, 1.0), simple("b", 0.5, 0.5))


def found(before, after, suite=SUITE):
    base = Snapshot(sets_of_result(suite), baseline=before and from_result(before))
    head = Snapshot(sets_of_result(suite), baseline=after and from_result(after))
    return [(one.code, one.data["scores"], scores(one)) for one in weakenings(base, head)]


def scores(finding):
    """The scores it names: the case, and what was and is stored of it."""
    return [tuple(one[key] for key in ("case", "old", "new") if key in one) for one in finding.data.get("named", ())]


def test_lowered_scores_are_told_the_deepest_fall_first():
    assert found(SUITE, run(simple("a", 0.9, 0.9), simple("b", 0.0, 0.0))) == [
        (C.BASELINE_SCORES_LOWERED, 2, [("b", 0.5, 0.0), ("a", 1.0, 0.9)])
    ]


def test_of_a_criterion_where_lower_is_better_a_rise_loosens():
    tokens = (info(goal="minimize", threshold=None),)
    before, after = (run(simple("a", score), criteria=tokens) for score in (100.0, 150.0))
    assert found(before, after, before) == [(C.BASELINE_SCORES_LOWERED, 1, [("a", 100.0, 150.0)])]
    assert found(after, before, before) == []


def test_a_pair_that_is_gone_or_made_anew_of_another_definition_is_lost():
    assert found(SUITE, run(simple("a", 1.0, 1.0))) == [(C.BASELINE_SCORES_REMOVED, 1, [("b",)])]
    edited = run(simple("a", 1.0, 1.0), simple("b", 0.5, 0.5), criteria=(info(digest="another"),))
    assert found(SUITE, edited) == [(C.BASELINE_SCORES_REMOVED, 2, [("a",), ("b",)])]


def test_fewer_attempts_say_less():
    assert found(SUITE, run(simple("a", 1.0), simple("b", 0.5, 0.5))) == [(C.BASELINE_SCORES_THINNED, 1, [("a", 2, 1)])]


def test_a_file_that_is_gone_is_reported_with_what_is_lost():
    assert found(SUITE, None) == [(C.BASELINE_REMOVED, 2, [])]


@pytest.mark.parametrize(
    "after", [SUITE, run(simple("a", *[1.0] * 9), simple("b", *[0.7] * 9), simple("c", 0.0)), None]
)
def test_what_is_as_it_was_better_or_new_is_no_weakening(after):
    assert found(SUITE if after else None, after) == []


def test_a_case_that_was_edited_is_reported_as_edited_alone():
    edited = run(simple("a", 1.0, 1.0), simple("b", 0.1).model_copy(update={"digest": "edited"}))
    base = Snapshot(sets_of_result(SUITE), baseline=from_result(SUITE))
    head = Snapshot(sets_of_result(edited), baseline=from_result(edited))
    assert [one.code for one in weakenings(base, head)] == [C.CASE_EDITED]
