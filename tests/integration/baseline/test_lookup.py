"""Which records a run finds, in the checkouts that CI really makes."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.history_session import look_up
from agent_eval_action.git.base_commit import Event, EventKind
from agent_eval_action.git.repository import remote_of
from support.records import record, store_at
from support.repositories import Origin, environ, fingerprint, repository, run_git


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """One for all tests here: none changes what another reads."""
    return Origin(tmp_path_factory.mktemp("lookup"))


@pytest.fixture(scope="module")
def history(origin):
    """Five commits of main, each with a record; a pull request from the third, merged onto the fourth."""
    shas = [origin.commit(f"main{number}") for number in range(5)]
    origin.branch("feature", shas[2])
    head = origin.commit("feature", branch="feature")
    merge = origin.merge(shas[3], head, "refs/pull/7/merge")
    writer = store_at(origin.clone("writer"))
    for place, sha in enumerate((*shas, head)):
        own = repository(writer.repository.folder).commit(sha)
        assert writer.add(record(sha, at=own.at if own else None, withheld=(), parents=())).stored, place
    return shas, head, merge


def found(path, event, *, network=True):
    own = repository(path)
    remote = remote_of(own, "origin", environ()) if network else None
    lookup = look_up(own, event, remote)
    return lookup, [one.commit for one in store_at(path).records(lookup).records]


def pull(shas, head):
    # what the event says is older than what was merged onto
    hint = "actions/checkout: fetch-depth: {}"
    return Event(
        EventKind.CHANGE, "refs/pull/7/merge", "main", "main", base_sha=shas[1], head_sha=head, clone_hint=hint
    )


@pytest.mark.parametrize("depth", [["--depth=1"], ["--depth=2"], []])
def test_a_merge_commit_is_compared_with_its_first_parent(origin, history, depth):
    shas, head, _ = history
    work = origin.clone("work", *depth, ref="refs/pull/7/merge")
    before = fingerprint(work)
    lookup, commits = found(work, pull(shas, head))
    assert lookup.reference == shas[3]
    assert lookup.complete
    assert commits == shas[3::-1], "neither main's newest commit nor the pull request's own"
    assert fingerprint(work) == before


def test_without_a_network_a_shallow_clone_is_matched_by_date_and_says_so(origin, history):
    shas, head, _ = history
    work = origin.clone("work", "--depth=1", ref="refs/pull/7/merge")
    lookup = look_up(repository(work), pull(shas, head), None)
    assert (lookup.reference, lookup.complete) == (shas[3], False)
    everything = store_at(work).records(lookup)
    assert everything.records[0].commit == shas[3], "its own name is known even where its object is not"
    assert any("matched by date" in note and "fetch-depth: 0" in note for note in everything.notes)


@pytest.mark.parametrize("depth", [["--depth=1"], []])
def test_the_head_itself_is_compared_with_the_merge_base(origin, history, depth):
    shas, head, _ = history
    work = origin.clone("work", *depth, ref="refs/heads/feature")
    event = Event(EventKind.CHANGE, "refs/pull/7/merge", "main", "main", base_sha=shas[4], head_sha=head)
    lookup, commits = found(work, event)
    assert lookup.reference == shas[2]
    assert commits == shas[2::-1]


def test_a_head_that_is_a_merge_of_main_is_not_taken_for_the_merge_commit(origin, history):
    shas, head, _ = history
    updated = origin.merge(head, shas[3], "refs/heads/updated")
    work = origin.clone("work", "--depth=1", ref="refs/heads/updated")
    event = Event(EventKind.CHANGE, "refs/pull/8/merge", "main", "main", base_sha=shas[4], head_sha=updated)
    lookup, commits = found(work, event)
    assert lookup.reference == shas[3]
    assert commits == shas[3::-1]


def test_a_merge_queue_is_compared_with_its_base(origin, history):
    shas, head, _ = history
    origin.merge(shas[4], head, "refs/heads/gh-readonly-queue/main/pr-7")
    work = origin.clone("work", "--depth=1", ref="refs/heads/gh-readonly-queue/main/pr-7")
    event = Event(EventKind.QUEUE, "refs/heads/gh-readonly-queue/main/pr-7", "main", "main", base_sha=shas[4])
    lookup, commits = found(work, event)
    assert lookup.reference == shas[4]
    assert commits == shas[::-1]


def test_a_push_to_main_is_compared_with_what_was_before_it(origin, history):
    shas, _, _ = history
    work = origin.clone("work", "--depth=1", ref="refs/heads/main")
    lookup, commits = found(work, Event(EventKind.PUSH, "refs/heads/main", "main"))
    assert lookup.reference == shas[3]
    assert commits == shas[3::-1]


def test_a_scheduled_run_of_main_is_compared_with_main_itself(origin, history):
    shas, _, _ = history
    work = origin.clone("work", "--depth=1", ref="refs/heads/main")
    _, commits = found(work, Event(EventKind.SCHEDULE, "refs/heads/main", "main"))
    assert commits == shas[::-1]


def test_a_branch_on_a_laptop_is_compared_with_where_it_left_main(origin, history):
    shas, head, _ = history
    work = origin.clone("work")
    run_git(work, "checkout", "--quiet", "--detach", head)
    lookup, commits = found(work, Event())
    assert lookup.reference == shas[2]
    assert commits == shas[2::-1]


def test_the_limit_takes_the_nearest(origin, history):
    shas, head, _ = history
    work = origin.clone("work", ref="refs/pull/7/merge")
    lookup = look_up(repository(work), pull(shas, head), None, limit=2)
    assert [one.commit for one in store_at(work).records(lookup).records] == [shas[3], shas[2]]


def test_a_fork_without_a_right_to_write_still_reads(origin, history):
    shas, head, _ = history
    work = origin.clone("work", "--depth=1", ref="refs/pull/7/merge")
    hook = origin.path / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    try:
        _, commits = found(work, pull(shas, head))
    finally:
        hook.unlink()
    assert commits == shas[3::-1]


def test_a_folder_without_a_commit_says_that_it_knows_nothing(tmp_path):
    run_git(tmp_path, "init", "--quiet")
    lookup = look_up(repository(tmp_path), Event(), None)
    assert lookup.reference is None
    assert "is not known" in lookup.notes[0]
