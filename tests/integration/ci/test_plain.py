"""Changes under GitLab, Azure, Bitbucket and Jenkins, in the checkouts these make: no change judges itself."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.ci import detect
from agent_eval_action.git.base_commit import resolve_base
from agent_eval_action.git.repository import Repository
from support.command import agent_eval
from support.recorded_repository import RecordedRepository
from support.repositories import environ as clean_environ
from support.repositories import run_git

MAIN_RULE, OWN_RULE = 0.9, 0.0
MR = "refs/merge-requests/7/head"


@dataclass
class Hosted:
    """A bare repository with a main branch that went on, and a change whose agent got worse and whose rule allows it.

    ``fork_point``: where the change left main; ``tip``: main as it is; ``head``: the change; ``merge``: both merged.
    """

    root: Path
    bare: Path
    fork_point: str
    tip: str
    head: str
    merge: str

    @property
    def url(self) -> str:
        return f"file://{self.bare}"

    def checkout(self, ref: str, *options: str) -> Path:
        """A checkout as a runner makes it: one ref, and no branch of the remote."""
        work = self.root / "work"
        work.mkdir()
        run_git(work, "init", "--quiet", "--initial-branch=job")
        run_git(work, "remote", "add", "origin", self.url)
        run_git(work, "fetch", "--quiet", *options, "origin", ref)
        run_git(work, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        return work


def rule(repository: RecordedRepository, threshold: float) -> None:
    repository.write("test_config.json", json.dumps({"criteria": {"response_match_score": threshold}}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Hosted:
    root = tmp_path_factory.mktemp("hosted")
    own = root / "own"
    own.mkdir()
    repository = RecordedRepository(own)
    rule(repository, MAIN_RULE)
    repository.commit()
    fork_point = run_git(own, "rev-parse", "HEAD")
    run_git(own, "checkout", "--quiet", "-b", "change")
    rule(repository, OWN_RULE)
    attempts = own / "recording" / "attempts.jsonl"
    attempts.write_text(attempts.read_text().replace('"hello there"', '"go away"'))
    repository.commit()
    head = run_git(own, "rev-parse", "HEAD")
    run_git(own, "checkout", "--quiet", "main")
    repository.write("README.md", "main went on\n")
    repository.commit()
    tip = run_git(own, "rev-parse", "HEAD")
    run_git(own, "merge", "--quiet", "--no-ff", "-m", "merge", "change")
    merge = run_git(own, "rev-parse", "HEAD")
    run_git(own, "reset", "--quiet", "--hard", tip)
    bare = root / "origin.git"
    run_git(root, "clone", "--quiet", "--bare", str(own), str(bare))
    run_git(bare, "config", "uploadpack.allowAnySHA1InWant", "true")
    for ref, sha in ((MR, head), ("refs/pull/7/merge", merge)):
        run_git(bare, "update-ref", ref, sha)
    return Hosted(root, bare, fork_point, tip, head, merge)


@pytest.fixture
def hosted(made: Hosted, tmp_path: Path) -> Hosted:
    return Hosted(tmp_path, made.bare, made.fork_point, made.tip, made.head, made.merge)


GITLAB = {
    "GITLAB_CI": "true",
    "CI_PIPELINE_SOURCE": "merge_request_event",
    "CI_MERGE_REQUEST_IID": "7",
    "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    "CI_MERGE_REQUEST_PROJECT_PATH": "org/repo",
    "CI_DEFAULT_BRANCH": "main",
}


def gitlab(hosted: Hosted) -> tuple[Path, dict[str, str], str]:
    work = hosted.checkout(MR, "--depth=20")
    # GitLab keeps this value when the target branch of the merge request is changed: it may be the change's own
    lie = {"CI_COMMIT_SHA": hosted.head, "CI_MERGE_REQUEST_DIFF_BASE_SHA": hosted.head}
    return work, GITLAB | lie, hosted.fork_point


def gitlab_merged_results(hosted: Hosted) -> tuple[Path, dict[str, str], str]:
    work = hosted.checkout("refs/pull/7/merge", "--depth=1")
    shas = {"CI_COMMIT_SHA": hosted.merge, "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": hosted.head}
    return work, GITLAB | shas, hosted.tip


def azure(hosted: Hosted) -> tuple[Path, dict[str, str], str]:
    return (
        hosted.checkout("refs/pull/7/merge", "--depth=1"),
        {
            "TF_BUILD": "True",
            "BUILD_REASON": "PullRequest",
            "BUILD_SOURCEBRANCH": "refs/pull/7/merge",
            "BUILD_SOURCEVERSION": hosted.merge,
            "SYSTEM_PULLREQUEST_PULLREQUESTID": "7",
            "SYSTEM_PULLREQUEST_SOURCECOMMITID": hosted.head,
            "SYSTEM_PULLREQUEST_TARGETBRANCH": "refs/heads/main",
        },
        hosted.tip,
    )


def bitbucket(hosted: Hosted) -> tuple[Path, dict[str, str], str]:
    work = hosted.checkout("refs/heads/change")
    run_git(work, "fetch", "--quiet", "origin", "main")
    run_git(work, "merge", "--quiet", "--no-ff", "-m", "main into the change", "FETCH_HEAD")
    return (
        work,
        {
            "BITBUCKET_BUILD_NUMBER": "12",
            "BITBUCKET_PR_ID": "7",
            "BITBUCKET_PR_DESTINATION_BRANCH": "main",
            "BITBUCKET_BRANCH": "change",
            "BITBUCKET_COMMIT": hosted.head,
        },
        hosted.tip,
    )


def jenkins(hosted: Hosted) -> tuple[Path, dict[str, str], str]:
    work = hosted.checkout(MR)
    run_git(work, "fetch", "--quiet", "origin", "main:refs/remotes/origin/main")
    run_git(work, "merge", "--quiet", "--no-ff", "-m", "target into head", "refs/remotes/origin/main")
    return (
        work,
        {
            "JENKINS_URL": "https://jenkins.example/",
            "JOB_NAME": "bot/PR-7",
            "BRANCH_NAME": "PR-7",
            "CHANGE_ID": "7",
            "CHANGE_TARGET": "main",
        },
        hosted.tip,
    )


MAKERS = [gitlab, gitlab_merged_results, azure, bitbucket, jenkins]
Maker = Callable[[Hosted], tuple[Path, dict[str, str], str]]
OF_CI = ("INPUT_", "GITHUB_", "CI_", "GITLAB_", "TF_BUILD", "BUILD_", "SYSTEM_", "BITBUCKET_", "JENKINS_", "CHANGE_")


def run(work: Path, environ: dict[str, str], *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OF_CI)}
    done = agent_eval("run", *words, cwd=work, env={**clean, **environ, "CI": "true"})
    results = work / ".agent-eval" / "out" / "results.json"
    return done, json.loads(results.read_text()) if results.is_file() else {}


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_change_is_judged_by_the_rules_of_the_commit_it_is_based_on(hosted: Hosted, make: Maker) -> None:
    work, environ, base = make(hosted)
    done, results = run(work, environ)
    log = done.stdout + done.stderr
    assert results, log
    (criterion,) = results["sets"][0]["criteria"]
    assert criterion["threshold"] == MAIN_RULE, log
    assert results["decision"]["outcome"] == "fail", log
    assert done.returncode == 1
    event = detect(environ).job(environ).event
    assert resolve_base(Repository(work, clean_environ()), event).rules == base


def test_a_base_that_cannot_be_read_is_inconclusive(hosted: Hosted) -> None:
    work, environ, _ = gitlab(hosted)
    run_git(work, "remote", "set-url", "origin", f"file://{hosted.root}/nowhere.git")
    done, results = run(work, environ)
    assert done.returncode == 3, done.stderr
    assert results["decision"]["outcome"] == "inconclusive"
    assert "the rules of the base commit hold" in done.stderr
    assert results["sets"] == []


def test_a_branch_that_is_no_merge_request_is_judged_by_what_is_checked_out(hosted: Hosted) -> None:
    work = hosted.checkout("refs/heads/change")
    environ = {"GITLAB_CI": "true", "CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "change"}
    done, results = run(work, environ | {"CI_DEFAULT_BRANCH": "main", "CI_COMMIT_SHA": hosted.head})
    assert results["sets"][0]["criteria"][0]["threshold"] == OWN_RULE, done.stderr
    assert done.returncode == 0, done.stderr


def test_commands_of_azures_log_are_broken_in_what_an_agent_says(hosted: Hosted) -> None:
    work, environ, _ = azure(hosted)
    attempts = work / "recording" / "attempts.jsonl"
    attempts.write_text(attempts.read_text().replace("go away", "##vso[task.setvariable variable=PATH]/evil"))
    done, results = run(work, environ)
    assert results["decision"]["outcome"] == "fail"
    assert "##vso[" not in done.stdout + done.stderr
