"""The token of a CI's job goes to that CI's own server, and nowhere else."""

from __future__ import annotations

import base64

import pytest

from agent_eval_action.git.repository import remote_of
from support.repositories import environ, repository, run_git

GITHUB = {"GITHUB_TOKEN": "job-token"}
GITLAB = {"CI_JOB_TOKEN": "job-token", "CI_SERVER_URL": "https://gitlab.example"}


@pytest.mark.parametrize(
    ("url", "variables", "user"),
    [
        ("https://github.com/org/repo", GITHUB, "x-access-token"),
        ("https://gitlab.example/org/repo.git", GITLAB, "gitlab-ci-token"),
        ("https://gitlab.example.evil.example/org/repo", GITLAB, None),
        ("http://gitlab.example/org/repo", GITLAB, None),
        ("https://github.com/org/repo", GITLAB, None),
        ("https://gitlab.example/org/repo", GITHUB, None),
        ("https://gitlab.example/org/repo", {"CI_JOB_TOKEN": "job-token"}, None),
        ("ssh://git@gitlab.example/org/repo", GITLAB, None),
    ],
)
def test_a_jobs_token_is_given_to_its_own_server_alone(tmp_path, url, variables, user):
    run_git(tmp_path, "init", "--quiet")
    run_git(tmp_path, "remote", "add", "origin", url)
    remote = remote_of(repository(tmp_path), "origin", environ(**variables))
    assert remote is not None
    words = base64.b64decode(remote.header.rpartition(" ")[2]).decode() if remote.header else ""
    assert words == (f"{user}:job-token" if user else "")
    assert ("job-token" in remote.secrets) == bool(user)
