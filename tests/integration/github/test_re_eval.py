"""``/re-eval``: the workflow of examples/on-demand on payloads of GitHub, its script against the local GitHub."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.github_server.client import RunningGitHub, running

ROOT = Path(__file__).resolve().parents[3]
WORKFLOW = yaml.safe_load((ROOT / "examples/on-demand/.github/workflows/re-eval.yml").read_text())
EVENT = json.loads((ROOT / "tests/support/github_events/issue_comment.json").read_text())
((JOB,), (STEP,)) = WORKFLOW["jobs"].values(), WORKFLOW["jobs"]["re-eval"]["steps"]
EVALS = yaml.safe_load((ROOT / "examples/on-demand/.github/workflows/evals.yml").read_text())
HEAD = "7" * 40
needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "curl", "jq"))),
    reason="bash, curl or jq is not here",
)


def changed(**values: Any) -> dict[str, Any]:
    """The payload with other values, by ``issue__state`` and the like."""
    event = copy.deepcopy(EVENT)
    for path, value in values.items():
        *folders, name = path.split("__")
        place = event
        for folder in folders:
            place = place[folder]
        place[name] = value
    return event


def value_of(expression: str, event: dict[str, Any]) -> Any:
    """A GitHub expression of comparisons and functions, with Python's operators in the place of GitHub's."""

    def look_up(path: str) -> Any:
        found: Any = {"event": event, "token": "ghs_local"}
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def folded(value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    python = re.sub(r"github((?:\.[a-z_]+)+)", lambda found: f"look_up({found[1][1:]!r})", expression)
    python = re.sub(r"(look_up\('[a-z_.]+'\)) == ('[^']*')", r"folded(\1) == folded(\2)", python)
    names = {
        "look_up": look_up,
        "folded": folded,
        "fromJSON": json.loads,
        "startsWith": lambda text, start: str(text or "").lower().startswith(start.lower()),
        "contains": lambda found, item: item in found,
    }
    return eval(python.replace("&&", "and").replace("||", "or"), {"__builtins__": {}}, names)  # noqa: S307 - our own file


def starts(**values: Any) -> bool:
    return bool(value_of(JOB["if"], changed(**values)))


@pytest.mark.parametrize("body", ["/re-eval", "/RE-EVAL", "/re-eval please, the model was down"])
@pytest.mark.parametrize("association", ["OWNER", "MEMBER", "COLLABORATOR"])
def test_it_starts_for_collaborators(body: str, association: str) -> None:
    assert starts(comment__body=body, comment__author_association=association)


@pytest.mark.parametrize(
    "values",
    [
        {"comment__author_association": "CONTRIBUTOR"},
        {"comment__author_association": "FIRST_TIME_CONTRIBUTOR"},
        {"comment__author_association": "NONE"},
        {"issue__state": "closed"},
        {"issue__pull_request": None},
        {"comment__body": "/re-evaluate"},
        {"comment__body": "please /re-eval"},
        {"comment__body": "> /re-eval"},
        {"comment__body": ""},
    ],
    ids=str,
)
def test_it_does_not_start_otherwise(values: dict[str, Any]) -> None:
    assert not starts(**values)


def test_nothing_that_a_person_writes_reaches_the_script() -> None:
    assert "${{" not in STEP["run"]
    said = {name: re.findall(r"\${{ (.*?) }}", str(value)) for name, value in STEP["env"].items()}
    assert said["ACTOR"] == ["github.event.comment.user.login"], "letters, digits and hyphens"
    assert said["NUMBER"] == ["github.event.issue.number"]
    used = " ".join(expression for found in said.values() for expression in found)
    assert not re.search("body|title|ref|label", used)
    assert "uses" not in STEP
    assert JOB["permissions"] == {"actions": "write", "pull-requests": "read"}
    assert WORKFLOW["permissions"] == {}


@pytest.fixture
def github() -> Iterator[RunningGitHub]:
    with running() as server:
        server.put(
            pulls=[{"number": 2, "state": "open", "head": {"ref": "topic", "sha": HEAD}}],
            permissions={"octo-lead": "write", "octo-admin": "admin"},
        )
        yield server


def run_of(number: int, *, status: str = "completed", **fields: Any) -> dict[str, Any]:
    path = ".github/workflows/evals.yml"
    return {"id": number, "status": status, "event": "pull_request", "head_sha": HEAD, "path": path, **fields}


def script(github: RunningGitHub, event: dict[str, Any] = EVENT) -> subprocess.CompletedProcess[str]:
    """Run the step as the runner does, on an event."""
    expression = re.compile(r"\${{ (.*?) }}")
    own = {
        name: expression.sub(lambda found: str(value_of(found[1], event)), str(value))
        for name, value in STEP["env"].items()
    }
    environ = {"PATH": os.environ["PATH"], **github.environ, "GITHUB_REPOSITORY": github.repo, **own}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEP["run"]]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def reruns(github: RunningGitHub) -> list[str]:
    return [said for said in github.said() if said.endswith("/rerun")]


@needs_tools
def test_the_newest_run_of_the_newest_commit_runs_again(github: RunningGitHub) -> None:
    older = run_of(99, head_sha="6" * 40)
    elsewhere = [run_of(90, path=".github/workflows/lint.yml"), run_of(91, event="push")]
    github.put(runs=[older, run_of(70), run_of(71), *elsewhere])
    done = script(github)
    assert done.returncode == 0, done.stderr
    assert reruns(github) == ["POST /repos/org/repo/actions/runs/71/rerun"]
    assert f"::notice::runs again: 71 of {HEAD}" in done.stdout


@needs_tools
@pytest.mark.parametrize("login", ["octo-reader", "renovate[bot]"])
def test_who_may_not_write_runs_nothing(github: RunningGitHub, login: str) -> None:
    github.put(runs=[run_of(71)])
    done = script(github, changed(comment__user={"login": login}))
    assert done.returncode == 0, "a failed run would hang on main's newest commit"
    assert "may not write to this repository" in done.stdout
    assert reruns(github) == []


@needs_tools
@pytest.mark.parametrize("runs", [[], [run_of(71, status="in_progress")]])
def test_without_a_finished_run_nothing_is_started(github: RunningGitHub, runs: list[dict[str, Any]]) -> None:
    github.put(runs=runs)
    done = script(github)
    assert done.returncode == 0, done.stderr
    assert ("still running" if runs else "there is no run of evals.yml") in done.stdout
    assert reruns(github) == []


@needs_tools
def test_a_refusal_of_github_is_shown_and_fails_the_step(github: RunningGitHub) -> None:
    github.configure(faults=[{"on": "POST .*/rerun", "kind": "permission"}])
    github.put(runs=[run_of(71)])
    done = script(github)
    assert done.returncode != 0
    assert "403" in done.stderr


@pytest.mark.parametrize(("result", "code"), [("success", 0), ("failure", 1), ("skipped", 1), ("cancelled", 1)])
def test_the_job_to_require_is_red_until_a_labelled_pull_request_passed(result: str, code: int) -> None:
    job = EVALS["jobs"]["evaluated"]
    assert (job["if"], job["needs"]) == ("always()", "evals")
    (step,) = job["steps"]
    done = subprocess.run(["bash", "-e", "-c", step["run"]], env={**os.environ, "RESULT": result}, check=False)
    assert done.returncode == code
    assert STEP["env"]["WORKFLOW"] == "evals.yml"
