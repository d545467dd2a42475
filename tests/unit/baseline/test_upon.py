"""The one commit a change is put upon: what the control runs, and whose rules and cases hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_eval_action.git.base_commit import CheckoutBase, Event, EventKind, Reference, commit_behind, resolve_base
from agent_eval_action.git.repository import Commit
from support.repositories import Origin, repository, run_git

A, B, D = (letter * 40 for letter in "abd")
HEAD = Commit(D, (A,), 1)
THERE, ITSELF = Reference(A, "said"), Reference(D, "said")


@pytest.mark.parametrize(
    ("upon", "control", "known", "rules"),
    [
        (CheckoutBase(THERE, HEAD, known_main=True), A, A, A),  # a change: whatever its history is of
        (CheckoutBase(THERE, HEAD, of_main=True, known_main=True), A, A, D),  # a push to main: its rules are main's
        (CheckoutBase(ITSELF, HEAD, of_main=True, known_main=True), A, B, D),  # a schedule on main
        (CheckoutBase(ITSELF, HEAD, known_main=True), A, B, D),  # main on a laptop: the working tree is the change
        (CheckoutBase(ITSELF, HEAD), None, B, None),  # no branch is known: the commit before may be the change's own
        (CheckoutBase(ITSELF, Commit(D), known_main=True), None, B, D),  # the first commit
        (CheckoutBase(Reference(None, "unknown"), HEAD), None, None, None),
        (CheckoutBase(Reference(B, "the event's"), None), B, B, B),  # nothing is checked out
    ],
)
def test_which_commit_it_is(upon, control, known, rules):
    assert (upon.control(), upon.control(B), upon.rules) == (control, known, rules)


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """One for all tests here: none changes what another reads."""
    return Origin(tmp_path_factory.mktemp("upon"))


@pytest.fixture(scope="module")
def commits(origin):
    """Five commits of main; a pull request from the third, merged onto the fourth; and a queue's commit."""
    main = [origin.commit(f"main{number}") for number in range(5)]
    origin.branch("feature", main[2])
    head = origin.commit("feature", branch="feature")
    merge = origin.merge(main[3], head, "refs/pull/7/merge")
    queue = origin.merge(main[4], head, "refs/heads/gh-readonly-queue/main/pr-7")
    return {"main": main, "head": head, "merge": merge, "queue": queue}


def pull(commits):
    # what the event says is older than what was merged onto
    older, head = commits["main"][1], commits["head"]
    return Event(EventKind.CHANGE, "refs/pull/7/merge", "main", "main", base_sha=older, head_sha=head)


DEPTHS = pytest.mark.parametrize("depth", [["--depth=1"], ["--depth=2"], []])


@DEPTHS
def test_a_merge_commit_of_a_pull_request_is_based_on_its_first_parent(origin, commits, depth):
    work = origin.clone("work", *depth, ref="refs/pull/7/merge")
    upon = resolve_base(repository(work), pull(commits))
    assert upon.control() == upon.control(commits["main"][0]) == upon.rules == commits["main"][3]


@DEPTHS
def test_a_head_that_is_checked_out_itself_is_based_on_where_it_left_main(origin, commits, depth):
    work = origin.clone("work", *depth, ref="refs/heads/feature")
    event = replace(pull(commits), base_sha=commits["main"][4])
    upon = resolve_base(repository(work), event)
    assert upon.control() == upon.rules == commits["main"][2]


@DEPTHS
def test_a_merge_queue_is_based_on_the_groups_base(origin, commits, depth):
    work = origin.clone("work", *depth, ref="refs/heads/gh-readonly-queue/main/pr-7")
    ref = "refs/heads/gh-readonly-queue/main/pr-7"
    # a group of several: what is below this commit is another pull request's, not main
    event = Event(EventKind.QUEUE, ref, "main", "main", base_sha=commits["main"][2], head_sha=commits["queue"])
    upon = resolve_base(repository(work), event)
    assert upon.control() == upon.rules == commits["main"][2]


def test_a_detached_head_on_a_laptop_is_based_on_where_it_left_main(origin, commits):
    work = origin.clone("work")
    run_git(work, "checkout", "--quiet", "--detach", commits["head"])
    upon = resolve_base(repository(work), Event())
    assert upon.control() == upon.rules == commits["main"][2]


def test_a_branch_that_took_main_in_is_based_on_what_it_took(origin, commits):
    work = origin.clone("work")
    run_git(work, "checkout", "--quiet", "--detach", commits["head"])
    run_git(work, "merge", "--quiet", "--no-ff", "-m", "main into the branch", commits["main"][4])
    assert resolve_base(repository(work), Event()).control() == commits["main"][4], (
        "its first parent is the change's own"
    )


def test_main_itself_is_held_against_the_commit_of_its_history_else_the_one_before(origin, commits):
    work = origin.clone("work")
    for event in (Event(), Event(EventKind.SCHEDULE, "refs/heads/main", "main")):
        upon = resolve_base(repository(work), event)
        assert upon.rules == commits["main"][4]
        assert (upon.control(), upon.control(commits["main"][1])) == (commits["main"][3], commits["main"][1])
    pushed = resolve_base(repository(work), Event(EventKind.PUSH, "refs/heads/main", "main"))
    assert pushed.control(commits["main"][1]) == commits["main"][3], "the event says what was pushed upon"
    assert pushed.rules == commits["main"][4]


def test_a_shallow_clone_of_a_branch_that_nothing_names_is_not_guessed_at(origin):
    work = origin.clone("work", "--depth=1", ref="refs/heads/feature")
    upon = resolve_base(repository(work), Event())
    assert (upon.control(), upon.rules) == (None, None)


def test_without_a_payload_a_pull_request_is_based_on_where_it_left_its_target(origin, commits):
    work = origin.clone("work")
    run_git(work, "checkout", "--quiet", "--detach", commits["head"])
    upon = resolve_base(repository(work), Event(EventKind.CHANGE, "refs/pull/7/head", base_ref="main"))
    assert upon.control() == commits["main"][2]


def test_outside_of_git_nothing_is_known(tmp_path):
    upon = resolve_base(repository(tmp_path), Event())
    assert (upon.control(), upon.rules) == (None, None)


def test_a_history_of_another_commit_is_not_behind(origin, commits):
    work = origin.clone("work")
    head = Commit(commits["main"][4])
    for known, found in (
        (commits["main"][1], commits["main"][1]),
        (commits["head"], None),
        ("f" * 40, None),
        ("x", None),
    ):
        assert commit_behind(repository(work), known, head) == found
