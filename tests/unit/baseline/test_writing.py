"""Which runs become records, and what of them is withheld."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace

import pytest

from agent_eval_action.baseline.history_session import regressed, why_not_recorded
from agent_eval_action.ci import detect
from agent_eval_action.git.base_commit import Event, EventKind
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import ChangeKind, Decision, PairChange, Verdict
from agent_eval_action.results.run_result import RunStatus
from support.results import run, simple

HEAD, OTHER = "a" * 40, "b" * 40
PUSH = Event(EventKind.PUSH, "refs/heads/main", "main", sha=HEAD)


def result(outcome=Verdict.PASS, status=RunStatus.COMPLETE):
    made = run(simple("a", 1.0))
    decision = Decision(outcome=outcome, reasons=()) if outcome else None
    return made.model_copy(update={"decision": decision, "status": status})


@pytest.mark.parametrize("outcome", [Verdict.PASS, Verdict.FAIL, Verdict.COLLECTING])
def test_a_run_of_main_is_recorded_whatever_it_found(outcome):
    assert why_not_recorded(PUSH, result(outcome), HEAD) is None


@pytest.mark.parametrize("kind", [EventKind.SCHEDULE, EventKind.MANUAL])
def test_scheduled_and_manual_runs_of_main_are_recorded_too(kind):
    assert why_not_recorded(dataclasses.replace(PUSH, kind=kind), result(), HEAD) is None


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Event(), "in CI"),
        (dataclasses.replace(PUSH, kind=EventKind.CHANGE, name="pull_request"), "not merged"),
        (dataclasses.replace(PUSH, kind=EventKind.PRIVILEGED_CHANGE, name="pull_request_target"), "not merged"),
        (dataclasses.replace(PUSH, kind=EventKind.QUEUE, name="merge_group"), "not merged"),
        (dataclasses.replace(PUSH, fork=True), "not merged"),
        (dataclasses.replace(PUSH, kind=EventKind.OTHER, name="issue_comment"), "issue_comment"),
        (dataclasses.replace(PUSH, kind=EventKind.FOLLOW_UP, name="workflow_run"), "workflow_run"),
        (dataclasses.replace(PUSH, ref="refs/heads/feature"), "refs/heads/feature"),
        (dataclasses.replace(PUSH, ref="refs/tags/main"), "refs/tags/main"),
        (dataclasses.replace(PUSH, default_branch=""), "no default branch"),
        (dataclasses.replace(PUSH, sha=OTHER), "not the one this run is of"),
    ],
)
def test_other_runs_are_not(event, why):
    assert why in why_not_recorded(event, result(), HEAD)


def test_an_inconclusive_unfinished_or_undecided_run_is_not():
    assert "inconclusive" in why_not_recorded(PUSH, result(Verdict.INCONCLUSIVE), HEAD)
    assert "inconclusive" in why_not_recorded(PUSH, result(None), HEAD)
    assert "not complete" in why_not_recorded(PUSH, result(status=RunStatus.TIMED_OUT), HEAD)
    assert why_not_recorded(PUSH, result(), None)


def test_only_pairs_confirmed_worse_are_withheld_whatever_blocks():
    def pair(case, kind, blocking, confirmed):
        return PairChange(
            agent="bot", eval_set="set", case=case, criterion="q", kind=kind, blocking=blocking, confirmed=confirmed
        )

    pairs = (
        pair("worse", ChangeKind.WORSE, True, True),
        pair("newly", ChangeKind.NEWLY_FAILING, False, True),
        pair("noise", ChangeKind.WORSE, False, False),
        pair("by its threshold", ChangeKind.NEWLY_FAILING, True, False),
        pair("always", ChangeKind.STILL_FAILING, True, False),
        pair("new", ChangeKind.FAILING, True, False),
    )
    decision = Decision(outcome=Verdict.FAIL, reasons=(), pairs=pairs)
    assert regressed(decision) == ((CaseKey("bot", "set", "worse"), "q"), (CaseKey("bot", "set", "newly"), "q"))


def event_of(environ):
    return detect(environ).job(environ).event


def github(tmp_path, name, payload, **more):
    path = tmp_path / "event.json"
    path.write_text(payload if isinstance(payload, str) else json.dumps(payload))
    return {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(path), **more}


def pull(head_repo):
    return {
        "repository": {"default_branch": "trunk"},
        "pull_request": {"base": {"sha": HEAD, "repo": {"id": 1}}, "head": {"sha": OTHER, "repo": head_repo}},
    }


@pytest.mark.parametrize(("head_repo", "fork"), [({"id": 1}, False), ({"id": 2}, True), (None, True)])
def test_a_pull_request(tmp_path, head_repo, fork):
    event = event_of(github(tmp_path, "pull_request", pull(head_repo), GITHUB_BASE_REF="trunk"))
    expected = Event(
        EventKind.CHANGE, "", "trunk", "trunk", HEAD, OTHER, fork=fork, keeps_branch=True, name="pull_request"
    )
    assert event == replace(expected, clone_hint="actions/checkout: fetch-depth: {}")


def test_a_merge_queue(tmp_path):
    group = {"base_sha": HEAD, "head_sha": OTHER, "base_ref": "refs/heads/main"}
    event = event_of(github(tmp_path, "merge_group", {"merge_group": group}))
    assert (event.base_sha, event.head_sha, event.base_ref, event.is_change) == (HEAD, OTHER, "main", True)


@pytest.mark.parametrize(
    "payload", ["", "[", "[]", '"x"', '{"pull_request": 7}', '{"repository": {"default_branch": 1}}']
)
def test_an_event_that_makes_no_sense_says_nothing(tmp_path, payload):
    event = event_of(github(tmp_path, "push", payload, GITHUB_SHA="--upload-pack=x"))
    assert (event.default_branch, event.base_sha, event.sha) == ("", None, None)


def test_outside_of_actions_there_is_no_event(tmp_path):
    assert event_of({**github(tmp_path, "push", {}), "GITHUB_ACTIONS": ""}) == Event()
