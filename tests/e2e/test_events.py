"""The action's container on each kind of event, with the event's real payload, against a strict local GitHub."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options

from agent_eval_action.ci.comment import read_marker
from support import runner_log
from support.github_server import client

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]

PAYLOADS = Path(__file__).resolve().parents[1] / "support" / "github_events"
REPO, PULL = "octo-org/Hello-World", 2
COMMENTS = f"/repos/{REPO}/issues/{PULL}/comments"
READS_ONLY = "ghs_reads_only"
OUTPUTS = ["verdict", "reason", "pass-rate", "regressions", "cost", "results", "junit", "comment", "report"]
LOGGED = {"add-mask", "group", "endgroup", "debug", "notice", "warning", "error"}  # what cannot change a job
NEEDS = "issues=write; pull_requests=write"
HEAD = "6dcb09b5b57875f334f61aebed695e2e4193db5e"  # of the payloads
BASE = "e5bd3914e2e596debea16f433f57875b5b90bcd6"
MERGE, MAIN = "refs/pull/2/merge", "refs/heads/main"


@dataclass(frozen=True)
class Event:
    """An event, and what the action does on it.

    ``comment``: "made"; "refused" for a token that may only read; "" where GitHub is asked for nothing.
    ``refused``: what is said where nothing is run at all.
    """

    name: str
    ref: str = MAIN
    comment: str = ""
    refused: str = ""
    actor: str = "octocat"


EVENTS = {
    "pull_request": Event("pull_request", MERGE, comment="made"),
    "pull_request_fork": Event("pull_request", MERGE, comment="refused"),
    "pull_request_dependabot": Event("pull_request", MERGE, comment="refused", actor="dependabot[bot]"),
    "pull_request_target": Event("pull_request_target", refused="code of a pull request must not be run there"),
    "merge_group": Event("merge_group", f"refs/heads/gh-readonly-queue/main/pr-2-{BASE}"),
    "push": Event("push"),
    "schedule": Event("schedule"),
    "workflow_dispatch": Event("workflow_dispatch"),
    "workflow_run": Event("workflow_run"),
    "workflow_run_fork": Event("workflow_run", refused="a fork's code must not be run here"),
}

# The log shows the beginning of an answer, comment and summary more of it.
HOSTILE = """
::set-output name=verdict::pass
##[set-env name=PATH;]/evil @everyone <script>alert(1)</script> | a | b |
````
~~~
</code></pre></td></table></details>
| c | d |
| --- | --- |
<img src="https://evil.example/x.png"> ![x](https://evil.example/y.png) <!-- #1
<!-- agent-eval-action:end -->
<!-- agent-eval-action:section {"v":1,"key":"forged"} -->
"""
TAKEN_OVER = f"""

HOSTILE = {HOSTILE!r}
_honest = answer
print(HOSTILE)


def answer(asked, *given):
    return _honest(asked, *given) + (HOSTILE if list(asked.dice) == [6] else "")
"""


class Page(HTMLParser):
    """Rendered Markdown: its tables cell by cell, its tags, and the text outside of code."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: set[str] = set()
        self.tables: list[list[list[str]]] = []
        self.text = self.loose = ""
        self.feed(cmarkgfm.github_flavored_markdown_to_html(markdown, options=Options.CMARK_OPT_UNSAFE))
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - the parser's
        self.tags.add(tag)
        if tag != "wbr":  # it has no end
            self.stack.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if not {"code", "pre"} & set(self.stack):
            self.loose += data
        if {"td", "th"} & set(self.stack):
            self.tables[-1][-1][-1] += data


@pytest.fixture
def github():
    """It knows the repository of the payloads, and a token that may only read; nothing unexpected is asked of it."""
    with client.running() as server:
        server.put(repo=REPO, tokens={READS_ONLY: {"comments": "read"}})
        yield server


def on(job, github, file: str, event: Event, *, run: int = 562):
    """The job as the event starts it. The container shares the host's network, on which the local GitHub listens."""
    for folder in ("_github_home", "_github_workflow", "_runner_file_commands"):
        (job.temp / folder).mkdir(parents=True)
    for command in ("set_output_x", "step_summary_x"):
        (job.temp / "_runner_file_commands" / command).touch()
    # the base of the payload is a commit that there is: without one nothing is decided about a change
    payload = (PAYLOADS / f"{file}.json").read_text().replace(BASE, commit(job))
    (job.temp / "_github_workflow" / "event.json").write_text(payload)
    give(job.temp, job.workspace)
    environ = {
        **github.environ,
        "RUNNER_JOB_ENV": "NO_PROXY no_proxy",
        "INPUT_GITHUB-TOKEN": READS_ONLY if event.comment == "refused" else github.token,
        "INPUT_MATRIX": "null",
        "GITHUB_EVENT_NAME": event.name,
        "GITHUB_REF": event.ref,
        "GITHUB_REPOSITORY": REPO,
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_SHA": commit(job),
        "GITHUB_ACTOR": event.actor,
        "GITHUB_WORKFLOW": "Evals",
        "GITHUB_WORKFLOW_REF": f"{REPO}/.github/workflows/evals.yml@{event.ref}",
        "GITHUB_JOB": "evals",
        "GITHUB_RUN_ID": str(30433642 + run),
        "GITHUB_RUN_NUMBER": str(run),
        "GITHUB_RUN_ATTEMPT": "1",
    }
    return replace(job, engine=replace(job.engine, options=("--network=host",)), environ=environ)


def give(folder: Path, like: Path) -> None:
    """Make the folder belong to the owner of the other, as all the runner makes does; takes root where it is new."""
    stat = like.stat()
    if folder.stat().st_uid != stat.st_uid:
        subprocess.run(["chown", "-R", f"{stat.st_uid}:{stat.st_gid}", str(folder)], check=True)


def commit(job) -> str:
    argv = ["git", "-c", "safe.directory=*", "-C", str(job.workspace), "rev-parse", "HEAD"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def started(job) -> tuple[int, str, list[runner_log.Command]]:
    """Exit code, all that was printed, and the commands the runner takes from it; none can change the job."""
    done = job.run()
    printed = done.stdout + done.stderr
    commands = runner_log.commands(done.stdout.encode()) + runner_log.commands(done.stderr.encode())
    assert {one.name for one in commands} <= LOGGED, printed
    assert "Traceback" not in printed
    return done.returncode, printed, commands


def warnings(commands: list[runner_log.Command]) -> list[str]:
    return [one.message for one in commands if one.name == "warning"]


def foreign(job) -> list[Path]:
    """What does not belong to the workspace's owner."""
    owner = job.workspace.stat().st_uid
    folders = (job.workspace, job.temp)
    return [path for folder in folders for path in folder.rglob("*") if path.lstat().st_uid != owner]


def summary(job) -> str:
    return (job.temp / "_runner_file_commands" / "step_summary_x").read_text()


def criteria(markdown: str) -> dict[str, dict[str, str]]:
    """The table of criteria: by criterion its cells by their heading; that of the verdict's sign is empty."""
    headings, *rows = next(table for table in Page(markdown).tables if "Criterion" in table[0])
    cells = [dict(zip(headings, row, strict=True)) for row in rows]
    return {cell["Criterion"]: cell for cell in cells}


def assert_table_of_a_pass(markdown: str) -> None:
    rows = criteria(markdown)
    assert list(rows) == ["response_match_score", "tool_trajectory_avg_score"], rows
    for name, row in rows.items():
        assert (row.get("Mean") or row["main → here"]).endswith("1.00"), name
        assert row[""] == "✅", name


def assert_passed(job) -> None:
    outputs = job.outputs()
    assert list(outputs) == OUTPUTS
    assert (outputs["verdict"], outputs["pass-rate"], outputs["regressions"]) == ("pass", "1.0000", "0")
    for name in ("results", "junit", "comment", "report"):
        assert (job.workspace / outputs[name]).stat().st_size > 0
    assert json.loads((job.out / "results.json").read_text())["decision"]["outcome"] == "pass"
    assert_table_of_a_pass(summary(job))


def assert_refused(job, why: str, commands: list[runner_log.Command]) -> None:
    (error,) = [one.message for one in commands if one.name == "error"]
    assert why in error
    assert why in Page(summary(job)).text
    assert not job.out.exists(), "nothing was run"
    assert job.outputs() == {}


@pytest.mark.parametrize("file", EVENTS)
def test_an_event(job, github, file):
    event = EVENTS[file]
    job = on(job, github, file, event)
    code, printed, commands = started(job)
    assert foreign(job) == []
    if event.refused:
        assert code == 2, printed
        assert_refused(job, event.refused, commands)
        assert github.said() == []
        return
    assert code == 0, printed
    assert_passed(job)
    assert not warnings(commands), "also where GitHub withholds the right to write, which is nobody's fault"
    made = github.comments(PULL, REPO)
    if event.comment == "made":
        (comment,) = made
        marker = read_marker(comment["body"])
        assert (marker.key, marker.sha, marker.run, marker.outcome) == ("Evals / evals", HEAD, 562, "pass")
        assert_table_of_a_pass(comment["body"])
    elif event.comment == "refused":
        assert made == []
        assert github.said().count(f"POST {COMMENTS}") == 1
        (line,) = [line for line in printed.splitlines() if line.startswith("comment: ")]
        assert NEEDS in line
        assert "GitHub gives" in line
    else:
        assert github.said() == []


def test_a_token_that_may_not_comment_is_a_warning_that_names_the_permission(job, github):
    job = on(job, github, "pull_request", EVENTS["pull_request"])
    job.environ["INPUT_GITHUB-TOKEN"] = READS_ONLY
    code, printed, commands = started(job)
    assert code == 0, printed
    assert job.outputs()["verdict"] == "pass"
    (warned,) = warnings(commands)
    assert "permissions: pull-requests: write" in warned
    assert github.comments(PULL, REPO) == []
    assert foreign(job) == []


def test_what_a_hostile_agent_says_does_nothing_in_the_comment_the_summary_and_the_log(job, github):
    """Its run finds the comment of the run before, and edits it."""
    first = on(job, github, "pull_request", EVENTS["pull_request"])
    assert started(first)[0] == 0
    (before,) = github.comments(PULL, REPO)
    wording = job.workspace / "dice_agent" / "wording.py"
    wording.write_text(wording.read_text() + TAKEN_OVER)
    shutil.rmtree(job.temp)  # a step's own
    second = on(job, github, "pull_request", EVENTS["pull_request"], run=563)
    code, printed, _ = started(second)
    assert code == 1, printed
    assert "##[set-env" not in printed
    outputs = second.outputs()
    assert list(outputs) == OUTPUTS
    assert (outputs["verdict"], outputs["regressions"]) == ("fail", "1")
    (after,) = github.comments(PULL, REPO)
    assert after["id"] == before["id"]
    assert after["body"].count("<!-- agent-eval-action:") == 1
    for markdown in (after["body"], summary(second)):
        page = Page(markdown)
        assert "alert(1)" in page.text, "what it said is shown"
        assert not {"script", "img"} & page.tags
        assert all(len(row) == len(table[0]) for table in page.tables for row in table)
        assert not [row for table in page.tables for row in table if "c" in row]
        assert list(criteria(markdown)) == ["response_match_score", "tool_trajectory_avg_score"]
        assert criteria(markdown)["response_match_score"][""] == "❌"
        assert not re.search(r"@\w|#\d|https?://evil", page.loose)
    assert foreign(second) == []
