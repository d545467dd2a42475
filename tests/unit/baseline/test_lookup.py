"""Which commit is compared with, and which records are chosen: the pure part."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.stores import RecordQuery, select
from agent_eval_action.git.base_commit import Event, EventKind, expected_reference
from agent_eval_action.git.repository import Commit
from support.records import record

A, B, C, D = (letter * 40 for letter in "abcd")
MERGE = Commit(D, (A, B), 1000)
PULL = Event(EventKind.CHANGE, "refs/pull/1/merge", "main", "main", base_sha=C, head_sha=B)


@pytest.mark.parametrize(
    ("event", "head", "main", "sha", "tip"),
    [
        (PULL, MERGE, None, A, None),
        (Event(EventKind.CHANGE, head_sha=None, base_sha=C), MERGE, None, A, None),
        (PULL, Commit(B, (A,), 1), None, None, C),  # the head itself
        (PULL, Commit(B, (A, C), 1), None, None, C),  # a head that is a merge itself
        (PULL, Commit(D, (A, C), 1), None, C, None),  # a merge of something else: only the event is left
        (Event(EventKind.PRIVILEGED_CHANGE, base_sha=C, head_sha=B), Commit(C, (A,), 1), None, C, None),
        (Event(EventKind.PRIVILEGED_CHANGE, base_sha=C, head_sha=B), MERGE, None, A, None),
        (Event(EventKind.QUEUE, base_sha=C, head_sha=D), MERGE, None, C, None),
        (Event(EventKind.QUEUE, base_sha=C), None, None, C, None),
        (Event(EventKind.PUSH, "refs/heads/main", "main"), Commit(D, (A,), 1), D, A, None),
        (Event(EventKind.PUSH, "refs/heads/main", "main"), MERGE, D, A, None),
        (Event(EventKind.PUSH, "refs/heads/main", "main"), Commit(D), D, None, None),
        (Event(EventKind.PUSH, "refs/heads/feature", "main"), Commit(D, (A,), 1), C, None, C),
        (Event(EventKind.SCHEDULE, "refs/heads/main", "main"), Commit(D, (A,), 1), D, D, None),
        (Event(EventKind.SCHEDULE, "refs/heads/main", "main"), Commit(D, (A,), 1), C, D, None),
        (Event(EventKind.MANUAL, "refs/heads/feature", "main"), Commit(D, (A,), 1), C, None, C),
        (Event(), Commit(D, (A,), 1), C, None, C),
        (Event(), Commit(D, (A,), 1), D, D, None),
        (Event(), Commit(D, (A,), 1), None, D, None),
        (Event(), None, None, None, None),
    ],
)
def test_the_commit_to_compare_with(event, head, main, sha, tip):
    found = expected_reference(event, head, main)
    assert (found.sha, found.tip) == (sha, tip)
    assert found.how


def commits(found):
    return [one.commit for one in found.records]


def test_records_of_ancestors_alone_nearest_first():
    records = [record(sha, at=at) for sha, at in ((C, 3), (A, 1), (D, 4), (B, 2))]
    lookup = RecordQuery(reference=B, ancestors=(B, A), complete=True, at=2)
    assert commits(select(records, lookup)) == [B, A]


def test_of_one_commit_the_newest_run_comes_first():
    old, new = record(A), record(A)
    assert select([old, new], RecordQuery(ancestors=(A,), complete=True)).records == (new, old)


def test_a_cut_history_is_filled_up_by_date_and_that_is_reported():
    records = [record(A, at=1), record(B, at=2), record(C, at=3), record(D, at=4)]
    found = select(records, RecordQuery(reference=C, ancestors=(C,), complete=False, at=3, notes=("noted",)))
    assert commits(found) == [C, B, A]
    assert found.notes[0] == "noted"
    assert "2 of 3 records of main are matched by date" in found.notes[1]


def test_a_record_without_a_date_is_not_guessed_at():
    assert commits(select([record(A)], RecordQuery(ancestors=(C,), at=3))) == []


@pytest.mark.parametrize("complete", [True, False])
def test_no_more_than_the_limit(complete):
    records = [record(sha, at=1) for sha in (A, B, C)]
    assert len(select(records, RecordQuery(ancestors=(A, B, C), complete=complete, at=9, limit=2)).records) == 2
