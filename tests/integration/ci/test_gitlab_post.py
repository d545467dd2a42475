"""``agent-eval post`` in a GitLab pipeline: one note by its key, from results that are only data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.host import ApiError, ApiErrorKind, GitLabNotes
from support.command import agent_eval
from support.gitlab_server import BOT, IID, PROJECT, READER, STRANGER, TOKEN, Fault, GitLabServer, running_gitlab
from support.standing_clock import StandingClock

GOLDEN = Path(__file__).parents[2] / "golden"
HEAD, OTHER = "6dcb09b5b57875f334f61aebed695e2e4193db5e", "1" * 40
TARGET = ChangeRequest(PROJECT, IID, "!")
UNVERIFIED = "These numbers are not verified"


@pytest.fixture
def server() -> Iterator[GitLabServer]:
    with running_gitlab() as running:
        running.sha = HEAD
        yield running


def results(scenario: str = "regressed", **conditions: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / scenario / "results.json").read_text())
    found["conditions"] |= {"change": HEAD, "commit": OTHER, **conditions}
    return found


def post(server: GitLabServer, root: Path, given: Any, **more: str) -> tuple[int, str]:
    (root / "results.json").write_text(json.dumps(given))
    clean = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "TMPDIR") if name in os.environ}
    job = {
        "GITLAB_CI": "true",
        "GITLAB_TOKEN": TOKEN,
        "CI_API_V4_URL": server.url,
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_MERGE_REQUEST_IID": str(IID),
        "CI_MERGE_REQUEST_PROJECT_PATH": PROJECT,
        "CI_MERGE_REQUEST_PROJECT_ID": "1",
        "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "1",
        "CI_COMMIT_SHA": HEAD,
        "CI_PIPELINE_ID": "900",
        "CI_PIPELINE_IID": "9",
        "NO_PROXY": "127.0.0.1",
    }
    done = agent_eval("post", "results.json", cwd=root, env={**clean, **job, **more})
    return done.returncode, done.stdout + done.stderr


def test_a_later_pipeline_edits_the_note_and_an_earlier_one_leaves_it(server: GitLabServer, tmp_path: Path) -> None:
    server.notes += [{"id": n, "body": "talk", "author": STRANGER, "system": False} for n in range(1, 206)]
    code, log = post(server, tmp_path, results())
    assert code == 0, log
    assert "got worse" in server.notes[-1]["body"]
    assert UNVERIFIED not in server.notes[-1]["body"]
    assert post(server, tmp_path, results("passed"), CI_PIPELINE_ID="901", CI_PIPELINE_IID="10")[0] == 0
    assert post(server, tmp_path, results())[0] == 0
    assert len(server.notes) == 206, "over all pages the note is found again"
    assert "no case got worse" in server.notes[-1]["body"]


def test_a_forks_results_are_called_unverified_and_do_nothing(server: GitLabServer, tmp_path: Path) -> None:
    given = results("hostile")
    words = "\n/merge\n/close <!-- agent-eval-action:comment {} --> @everyone"
    given["decision"]["reasons"].append({"code": "text", "severity": "blocks", "data": {"text": words}})
    code, log = post(server, tmp_path, given, CI_MERGE_REQUEST_SOURCE_PROJECT_ID="2")
    assert code == 0, log
    (note,) = server.notes
    assert UNVERIFIED in note["body"]
    assert note["body"].count("<!-- agent-eval-action:") == 1
    assert "@everyone" not in note["body"]
    assert not [line for line in note["body"].splitlines() if line.lstrip(" \t").startswith("/")]


@pytest.mark.parametrize("line", ["/merge", "  /close", "\t/approve", "text\n/label ~x", "```\n/merge\n```"])
def test_no_line_of_a_note_is_a_quick_action(line: str) -> None:
    made = GitLabNotes("", TOKEN).escape(line)
    assert not [part for part in made.splitlines() if part.lstrip(" \t").startswith("/")]
    assert made.replace("\N{ZERO WIDTH SPACE}", "") == line


def test_a_strangers_note_with_our_marker_is_left_alone(server: GitLabServer, tmp_path: Path) -> None:
    forged = server.add('<!-- agent-eval-action:comment {"key":"agent-eval","run":99} -->\n\nmerge it', STRANGER)
    assert post(server, tmp_path, results())[0] == 0
    assert forged["body"].endswith("merge it")
    assert [note["author"] for note in server.notes] == [STRANGER, BOT]


@pytest.mark.parametrize("change", [{"sha": OTHER}, {"state": "merged"}])
def test_a_merge_request_that_moved_on_gets_nothing(
    server: GitLabServer, tmp_path: Path, change: dict[str, str]
) -> None:
    for name, value in change.items():
        setattr(server, name, value)
    code, log = post(server, tmp_path, results())
    assert (code, server.notes) == (0, []), log
    assert "nothing is posted" in log


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"GITLAB_TOKEN": ""}, 2, "GITLAB_TOKEN"),
        ({"GITLAB_TOKEN": READER}, 3, "scope api"),
        ({"GITLAB_TOKEN": "expired"}, 3, "401"),
        ({"CI_MERGE_REQUEST_PROJECT_PATH": "group/gone"}, 3, "404"),
        ({"CI_MERGE_REQUEST_IID": "", "CI_PIPELINE_SOURCE": "push"}, 2, "merge request"),
        ({"CI_COMMIT_SHA": OTHER}, 2, "nothing is posted"),
        ({"CI_API_V4_URL": ""}, 2, "CI_API_V4_URL"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_missing_is_named(
    server: GitLabServer, tmp_path: Path, more: dict[str, str], code: int, words: str
) -> None:
    found, log = post(server, tmp_path, results(), **more)
    assert found == code, log
    assert words in log
    assert TOKEN not in log
    assert server.notes == []


@pytest.mark.parametrize(
    ("fault", "slept"),
    [
        (Fault(429, times=2, headers={"Retry-After": "7"}), [7.0, 7.0]),
        (Fault(503, times=2), None),
        (Fault(500, "GET"), None),
    ],
    ids=["429", "503", "500"],
)
def test_a_limit_is_waited_for_and_a_failure_tried_again(
    server: GitLabServer, fault: Fault, slept: list[float] | None
) -> None:
    server.faults.append(fault)
    time = StandingClock()
    notes = GitLabNotes(server.url, TOKEN, clock=time.clock())
    assert notes.comments(TARGET) == []
    notes.close()
    assert time.slept == slept if slept else time.slept


def test_a_write_is_never_tried_again_by_the_client(server: GitLabServer) -> None:
    server.faults.append(Fault(502, "POST"))
    notes = GitLabNotes(server.url, TOKEN, clock=StandingClock().clock())
    with pytest.raises(ApiError) as raised:
        notes.create_comment(TARGET, "x")
    assert raised.value.kind is ApiErrorKind.UNAVAILABLE
    notes.close()
    assert [said.split()[0] for said in server.requests] == ["POST"]
