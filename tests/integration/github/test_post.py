"""``agent-eval post`` against the local GitHub: the right pull request, and nothing of a stranger's obeyed."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval

TESTS = Path(__file__).parents[2]
EVENTS = TESTS / "support" / "github_events"
REPO = "octo-org/Hello-World"
HEAD = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
OTHER = "1" * 40
UNVERIFIED = "These numbers are not verified"


def results(scenario: str = "regressed", **conditions: Any) -> dict[str, Any]:
    found = json.loads((TESTS / "golden" / scenario / "results.json").read_text())
    found["conditions"] |= {"change": HEAD, "commit": OTHER, **conditions}
    return found


def pull(number: int, **more: Any) -> dict[str, Any]:
    head = {
        "sha": HEAD,
        "ref": "changes",
        "label": "stranger:changes",
        "repo": {"id": 990011223, "full_name": "stranger/x"},
    }
    base = {"sha": OTHER, "ref": "main", "repo": {"id": 186853002, "full_name": REPO}}
    made = {"number": number, "state": "open", "head": head, "base": base}
    for side, fields in more.items():
        made[side] = {**made[side], **fields} if isinstance(fields, dict) else fields
    return made


class Trusted:
    """The folder and job of the second workflow."""

    def __init__(self, root: Path, server: Any) -> None:
        self.root, self.server = root, server
        self.event = json.loads((EVENTS / "workflow_run_fork.json").read_text())
        self.file = root / "results.json"

    def __call__(self, given: Any = None, *words: str, event: str = "workflow_run", **more: str) -> tuple[int, str]:
        if given is not None:
            self.file.write_text(given if isinstance(given, str) else json.dumps(given))
        payload = self.root / "event.json"
        payload.write_text(json.dumps(self.event))
        kept = ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "TMPDIR")
        clean = {name: value for name, value in os.environ.items() if name in kept}
        job = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(payload),
            "GITHUB_REPOSITORY": REPO,
            "GITHUB_WORKSPACE": str(self.root),
            "GITHUB_TOKEN": self.server.token,
        }
        environ = {**clean, **self.server.environ, **job, **more}
        done = agent_eval("post", *(words or [str(self.file)]), cwd=self.root, env=environ)
        return done.returncode, done.stdout + done.stderr

    def comments(self, number: int = 2) -> list[str]:
        return [one["body"] for one in self.server.comments(number, REPO)]

    def silent(self) -> bool:
        """Whether GitHub was left alone."""
        return not any(
            said.startswith(("POST", "PATCH", "DELETE")) for said in self.server.said() if "graphql" not in said
        )


@pytest.fixture
def post(tmp_path: Path, server: Any) -> Trusted:
    server.put(repo=REPO, pulls=[pull(2)])
    return Trusted(tmp_path, server)


def test_a_forks_results_are_posted_where_the_run_was_of_and_called_unverified(post: Trusted) -> None:
    code, log = post(results())
    assert code == 0, log
    body = post.comments()[0]
    assert UNVERIFIED in body
    assert HEAD in body
    assert "got worse" in body


def test_a_second_run_edits_the_comment_and_an_older_one_does_not(post: Trusted) -> None:
    post(results())
    post.event["workflow_run"] |= {"run_attempt": 2}
    assert post(results("passed"))[0] == 0
    newer = post.comments()
    assert len(newer) == 1
    assert "no case got worse" in newer[0]
    post.event["workflow_run"] |= {"run_attempt": 1}
    assert post(results())[0] == 0
    assert post.comments() == newer


def test_only_pull_requests_whose_head_and_base_are_the_runs_get_it(post: Trusted) -> None:
    ours = {"repo": {"id": 186853002, "full_name": REPO}}
    others = [
        pull(3, head={"sha": OTHER}),
        pull(4, head={"repo": {"id": 5, "full_name": "stranger/y"}}),
        pull(5, head={"repo": None}),
        pull(6, base={"repo": {"id": 5, "full_name": "x/y"}}),
        pull(7, state="closed"),
        pull(8, head=ours),
        pull(9),
    ]
    post.server.put(repo=REPO, pulls=others)
    code, log = post(results())
    assert code == 0, log
    assert [number for number in range(2, 10) if post.comments(number)] == [2, 9]


def test_a_branch_that_moved_on_gets_nothing(post: Trusted) -> None:
    post.server.put(repo=REPO, pulls=[pull(2, head={"sha": OTHER})])
    code, log = post(results())
    assert code == 0
    assert "nothing is posted" in log
    assert post.silent()


@pytest.mark.parametrize("field", [{"event": "push"}, {"head_repository": None}])
def test_a_run_that_is_of_no_pull_request_posts_nothing(post: Trusted, field: dict[str, Any]) -> None:
    post.event["workflow_run"] |= field
    code, log = post(results())
    assert code == 0
    assert "nothing is posted" in log
    assert post.server.said() == []


@pytest.mark.parametrize("named", [{"change": OTHER}, {"change": None}, {"change": "--x", "commit": HEAD}])
def test_results_of_another_commit_are_refused(post: Trusted, named: dict[str, Any]) -> None:
    code, log = post(results(**named))
    assert code == 2
    assert "nothing is posted" in log
    assert post.silent()


def test_a_verdict_that_does_not_follow_is_refused(post: Trusted) -> None:
    forged = results()
    forged["decision"]["outcome"] = "pass"
    code, log = post(forged)
    assert code == 2
    assert "contradict themselves" in log
    assert post.silent()


def test_the_repositorys_own_are_not_called_unverified(post: Trusted) -> None:
    ours = json.loads((EVENTS / "workflow_run.json").read_text())["workflow_run"]["head_repository"]
    post.event["workflow_run"]["head_repository"] = ours
    post.server.put(repo=REPO, pulls=[pull(2, head={"repo": ours, "label": "octo-org:changes"})])
    assert post(results())[0] == 0
    assert UNVERIFIED not in post.comments()[0]


def test_no_command_line_of_a_strangers_is_shown(post: Trusted) -> None:
    assert post(results(arguments=["--python", "./evil"]))[0] == 0
    assert "evil" not in post.comments()[0]


def test_words_of_a_stranger_close_nothing_and_forge_no_marker(post: Trusted) -> None:
    given = results("hostile")
    words = " <!-- agent-eval-action:comment {} --> @everyone </details> ![x](https://evil.example)"
    given["decision"]["reasons"].append({"code": "text", "severity": "blocks", "data": {"text": words}})
    code, log = post(given)
    assert code == 0, log
    body = post.comments()[0]
    assert body.count("<!-- agent-eval-action:") == 1
    assert "@everyone" not in body
    assert "![x](" not in body


def test_a_configuration_that_came_with_the_artifact_is_not_read(post: Trusted) -> None:
    (post.root / "agent-eval.yaml").write_text("comment: off\nagent: nowhere\n")
    assert post(results())[0] == 0
    assert len(post.comments()) == 1


def test_the_artifacts_zip_and_a_folder_are_read_too(post: Trusted) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("junit.xml", "<x/>")
        archive.writestr("results.json", json.dumps(results()))
    (post.root / "artifact.zip").write_bytes(packed.getvalue())
    assert post(None, "artifact.zip")[0] == 0
    folder = post.root / "artifact" / "out"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(results()))
    assert post(None, "artifact")[0] == 0
    assert len(post.comments()) == 1


@pytest.mark.parametrize("event", ["pull_request_target", "push", ""])
def test_elsewhere_it_is_refused(post: Trusted, event: str) -> None:
    code, log = post(results(), event=event)
    assert code == 2
    assert "belongs on pull_request or workflow_run" in log


def test_a_later_step_of_the_run_links_the_comment_to_the_published_page(post: Trusted) -> None:
    post.event = json.loads((EVENTS / "pull_request.json").read_text())
    page = f"https://github.com/{REPO}/actions/runs/7/artifacts/1234"
    code, log = post(results(), str(post.file), "--report-url", page, event="pull_request", GITHUB_RUN_ID="7")
    assert code == 0, log
    (body,) = post.comments()
    assert f"[full report]({page})" in body
    assert f"[This case in the full report]({page}#/case/dice/basics/roll_then_prime)" in body
    assert UNVERIFIED not in body
    code, log = post(results(), str(post.file), "--report-url", 'javascript:"](x)', event="pull_request")
    assert code == 0, log
    assert "](javascript" not in post.comments()[0]
    assert "#/case/" not in post.comments()[0]
    code, log = post(results(change=OTHER), event="pull_request")
    assert code == 2
    assert "nothing is posted" in log


def test_a_token_that_may_not_comment_is_an_error_that_names_the_permission(post: Trusted) -> None:
    reader = {"ghs_reads": {"comments": "read"}}
    post.server.put(repo=REPO, tokens=reader)
    code, log = post(results(), GITHUB_TOKEN=next(iter(reader)))
    assert code == 3
    assert "pull-requests: write" in log
    assert "Traceback" not in log


def test_without_a_token_it_says_which_line_is_missing(post: Trusted) -> None:
    code, log = post(results(), GITHUB_TOKEN="")
    assert code == 2
    assert "GITHUB_TOKEN: ${{ github.token }}" in log
