"""What a job is to do, row by row of docs/events.md, and with payloads that make no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_eval_action.ci import Job, detect
from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.github_actions import read_job
from agent_eval_action.errors import UsageError
from agent_eval_action.git.base_commit import EventKind

ROOT = Path(__file__).resolve().parents[3]
EVENTS = ROOT / "tests" / "support" / "github_events"
HEAD = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
BASE = "e5bd3914e2e596debea16f433f57875b5b90bcd6"
MERGE = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d"
PULL = ChangeRequest("octo-org/Hello-World", 2)


def environ(name: str, **more: str) -> dict[str, str]:
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": name,
        "GITHUB_REPOSITORY": "octo-org/Hello-World",
        "GITHUB_SHA": MERGE,
        "GITHUB_REF": "refs/pull/2/merge",
        "GITHUB_ACTOR": "octocat",
        "GITHUB_WORKFLOW": "Evals",
        "GITHUB_WORKFLOW_REF": "octo-org/Hello-World/.github/workflows/evals.yml@refs/pull/2/merge",
        "GITHUB_JOB": "evals",
        "GITHUB_RUN_ID": "30433642",
        "GITHUB_RUN_NUMBER": "562",
        "GITHUB_RUN_ATTEMPT": "2",
        **more,
    }


def job_here(given: dict[str, str]) -> Job:
    return detect(given).job(given)


def payload(file: str) -> object:
    return json.loads((EVENTS / f"{file}.json").read_text())


def job(name: str, file: str = "", **more: str) -> Job:
    return read_job(environ(name, **more), payload(file or name))


ROWS = {
    "`pull_request`": ("pull_request", "pull_request", EventKind.CHANGE),
    "`pull_request` from a fork": ("pull_request", "pull_request_fork", EventKind.CHANGE),
    "`pull_request` of Dependabot": ("pull_request", "pull_request_dependabot", EventKind.CHANGE),
    "`pull_request_review`": ("pull_request_review", "pull_request_review", EventKind.CHANGE),
    "`pull_request_target`": ("pull_request_target", "pull_request_target", EventKind.PRIVILEGED_CHANGE),
    "`merge_group`": ("merge_group", "merge_group", EventKind.QUEUE),
    "`push`": ("push", "push", EventKind.PUSH),
    "`schedule`": ("schedule", "schedule", EventKind.SCHEDULE),
    "`workflow_dispatch`": ("workflow_dispatch", "workflow_dispatch", EventKind.MANUAL),
    "`workflow_run`": ("workflow_run", "workflow_run", EventKind.FOLLOW_UP),
    "`workflow_run` after a fork's run": ("workflow_run", "workflow_run_fork", EventKind.FOLLOW_UP),
    "everything else": ("release", "release", EventKind.OTHER),
}


def documented() -> dict[str, list[str]]:
    lines = (ROOT / "docs" / "events.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {first: rest for first, *rest in cells[2:]}


def test_every_row_of_the_table_is_tested():
    assert list(documented()) == list(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_table(row):
    name, file, kind = ROWS[row]
    compared, comments, credentials, skipped = documented()[row]
    found = job(name, file)
    assert found.event.kind is kind
    assert ("refused" in compared) == bool(found.refusal)
    assert (comments == "yes") == (found.change_request is not None and not found.withheld)
    assert (found.change_request is not None) == (comments != "no")
    assert credentials.startswith("not measured") == found.may_lack_credentials
    assert credentials.endswith("not red") == bool(found.withheld)
    assert (skipped == "yes") == found.event.is_change


CHANGES = {
    "pull_request",
    "pull_request_target",
    "pull_request_review",
    "pull_request_review_comment",
    "merge_group",
}


@pytest.mark.parametrize("name", [*sorted(CHANGES), "push", "schedule", "workflow_dispatch", "workflow_run", "release"])
def test_every_event_of_a_change_is_one_for_the_gate_the_skipping_and_the_history_alike(name):
    found = read_job(environ(name), None)
    assert found.event.is_change == (name in CHANGES)


def test_a_pull_request_has_all_a_comment_needs():
    found = job("pull_request")
    assert found.change_request == PULL
    assert (found.commit, found.event.base_sha, found.event.sha) == (HEAD, BASE, MERGE)
    assert (found.run_id, found.run_number, found.run_attempt) == (30433642, 562, 2)
    assert found.definition == ".github/workflows/evals.yml"
    assert found.key == "Evals / evals"
    assert not found.refusal
    assert not found.withheld


def test_the_results_of_a_queue_or_a_push_are_of_the_commit_that_was_run():
    assert job("merge_group").commit == HEAD
    assert job("push").commit == MERGE
    assert job("push").change_request is None


def test_legs_of_a_matrix_are_distinguished_whatever_the_order_of_its_values():
    one = job("pull_request", INPUT_MATRIX='{"python": "3.12", "agent": "booking"}')
    same = job("pull_request", INPUT_MATRIX='{"agent": "booking", "python": "3.12"}')
    other = job("pull_request", INPUT_MATRIX='{"agent": "support", "python": "3.12"}')
    assert one.key == same.key == "Evals / evals (booking, 3.12)"
    assert other.key != one.key
    assert job("pull_request", INPUT_MATRIX="null").key == "Evals / evals"
    assert job("pull_request", INPUT_MATRIX="[" * 5_000).leg == ""


def test_a_fork_whose_repository_is_gone_is_still_a_fork():
    assert job("pull_request", "pull_request_deleted_fork").withheld


def test_a_rerun_by_a_person_gives_dependabot_no_secrets_and_a_persons_push_does():
    rerun = job("pull_request", "pull_request_dependabot", GITHUB_ACTOR="dependabot[bot]")
    assert "Dependabot" in rerun.withheld
    pushed = payload("pull_request_dependabot")
    pushed["sender"] = {"login": "octocat"}
    assert not read_job(environ("pull_request"), pushed).withheld


@pytest.mark.parametrize(
    ("name", "file"), [("pull_request_target", "pull_request_target"), ("workflow_run", "workflow_run_fork")]
)
def test_a_strangers_code_is_run_with_secrets_only_when_asked_for_by_name(name, file):
    found = job(name, file)
    with pytest.raises(UsageError, match="secrets") as raised:
        found.refuse(allowed=False)
    assert "docs/forks.md" in raised.value.hint
    assert raised.value.exit_code == 2
    assert "secrets" in found.refuse(allowed=True)


def test_other_events_are_run_without_a_word():
    assert job("pull_request").refuse(allowed=False) == ""
    assert job("workflow_run").refuse(allowed=False) == ""


def test_a_run_before_of_a_repository_that_is_not_named_is_refused():
    said = payload("workflow_run")
    said["workflow_run"]["head_repository"] = None
    assert read_job(environ("workflow_run"), said).refusal
    assert read_job(environ("workflow_run"), None).refusal


NONSENSE = [
    None,
    [],
    "x",
    7,
    {"pull_request": 7},
    {"pull_request": []},
    {"pull_request": {"number": -1}},
    {"pull_request": {"number": True}},
    {"pull_request": {"number": "2"}},
    {"pull_request": {"number": 10**30}},
    {"pull_request": {"head": {"sha": "--upload-pack=x"}, "base": None}},
    {"repository": "x", "sender": 3},
]


@pytest.mark.parametrize("said", NONSENSE, ids=str)
@pytest.mark.parametrize("name", ["pull_request", "pull_request_target", "workflow_run", "merge_group", "", "é" * 99])
def test_a_payload_that_makes_no_sense_names_no_pull_request_and_raises_nothing(name, said):
    found = read_job(environ(name), said)
    assert found.change_request is None or said == {"pull_request": {"number": "2"}}
    assert found.event.head_sha is None


@pytest.mark.parametrize("name", ["../../x", "octo-org", "a/b/c", "", "octo org/x", "octo-org/Hello\nWorld"])
def test_a_repository_that_is_none_is_nowhere_to_comment(name):
    found = job("pull_request", GITHUB_REPOSITORY=name)
    assert (found.change_request, found.definition) == (None, "")


@pytest.mark.parametrize(
    "ref", ["other/repo/.github/workflows/x.yml@main", "octo-org/Hello-World/../../etc/x@main", "@"]
)
def test_the_workflow_of_another_repository_is_no_file_of_this_one(ref):
    assert job("pull_request", GITHUB_WORKFLOW_REF=ref).definition == ""


def test_numbers_that_are_none_are_nought():
    found = job("push", GITHUB_RUN_ID="٣", GITHUB_RUN_NUMBER="9" * 40, GITHUB_RUN_ATTEMPT="-1")
    assert (found.run_id, found.run_number, found.run_attempt) == (0, 0, 0)


def test_names_are_one_line_of_bounded_length():
    found = job("push", GITHUB_WORKFLOW="a\n::error::b" + "x" * 999, GITHUB_JOB="")
    assert "\n" not in found.key
    assert len(found.key) <= 200


def test_a_huge_payload_is_read(tmp_path):
    said = payload("pull_request")
    said["pull_request"]["body"] = "x" * 20_000_000
    said["deep"] = json.loads("[" * 200 + "]" * 200)
    file = tmp_path / "event.json"
    file.write_text(json.dumps(said))
    assert job_here(environ("pull_request", GITHUB_EVENT_PATH=str(file))).change_request == PULL


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\0", '{"pull_request": NaN}'])
def test_a_file_that_cannot_be_read_says_nothing(tmp_path, text):
    file = tmp_path / "event.json"
    file.write_text(text)
    found = job_here(environ("pull_request", GITHUB_EVENT_PATH=str(file)))
    assert (found.event.kind, found.change_request) == (EventKind.CHANGE, None)
    gone = job_here(environ("pull_request", GITHUB_EVENT_PATH=str(tmp_path / "gone.json")))
    assert gone.change_request is None


def test_outside_of_actions_there_is_no_job():
    assert job_here({**environ("pull_request_target"), "GITHUB_ACTIONS": ""}) == Job()
    assert not detect({}).is_running({})


def test_a_repository_of_an_enterprise_managed_user_gets_its_comment() -> None:
    found = job("pull_request", GITHUB_REPOSITORY="octocat_acme/Hello-World")
    assert found.change_request == ChangeRequest("octocat_acme/Hello-World", 2)
