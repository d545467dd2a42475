"""A git process: what it is not told, what it does not say, and that it ends."""

from __future__ import annotations

import socket
import subprocess

import pytest

from agent_eval_action.git.repository import Commit, Repository, _without_credentials
from support.repositories import environ


def test_a_secret_in_what_git_says_is_struck_out(tmp_path):
    done = Repository(tmp_path, environ(), secrets=("hunter2",)).run("hunter2")
    assert not done.ok
    assert "'***' is not a git command" in done.err
    assert "hunter2" not in done.err


def test_what_takes_too_long_or_is_not_there_is_a_code(tmp_path):
    assert Repository(tmp_path, {"PATH": str(tmp_path)}).run("version").code == 127
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    slow.chmod(0o755)
    done = Repository(tmp_path, {"PATH": str(tmp_path)}).run("version", timeout=0.2)
    assert (done.ok, done.err) == (False, "git version took too long")


def test_a_remote_that_never_answers_is_left_with_everything_that_speaks_to_it(tmp_path):
    """git starts a helper for HTTP, which inherits our pipes and waits for the server."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections, and says nothing
        url = f"http://127.0.0.1:{server.getsockname()[1]}/owner/repo.git"
        done = Repository(tmp_path, environ(), network=True).run("fetch", url, timeout=2)
        assert (done.ok, done.err) == (False, "git fetch took too long")
        left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        assert url not in left
    assert not Repository(tmp_path / "nowhere", environ()).run("rev-parse", "HEAD").ok
    assert Repository(tmp_path, environ()).run("rev\0parse").code == 126


def test_nothing_of_the_environment_but_what_is_needed_reaches_git(tmp_path):
    spy = tmp_path / "git"
    spy.write_text("#!/bin/sh\n/usr/bin/env\n")
    spy.chmod(0o755)
    given = {"PATH": str(tmp_path), "SECRET_KEY": "x", "GIT_DIR": "/elsewhere", "GIT_EXTERNAL_DIFF": "x", "HOME": "/h"}
    said = Repository(tmp_path, given).run("version").text
    assert "GIT_ALLOW_PROTOCOL=none" in said
    for name in ("SECRET_KEY", "GIT_DIR", "GIT_EXTERNAL_DIFF", "HOME="):
        assert name not in said
    assert "HOME=/h" in Repository(tmp_path, given, network=True).run("version").text


@pytest.mark.parametrize(
    ("url", "plain", "credentials"),
    [
        ("https://u:p%40ss@h/x.git", "https://h/x.git", "u:p@ss"),
        ("https://tok@h/x.git", "https://h/x.git", "tok:"),
        ("https://h/x.git", "https://h/x.git", ""),
        ("ssh://git@h/x.git", "ssh://git@h/x.git", ""),
    ],
)
def test_an_address_is_split_from_its_password(url, plain, credentials):
    assert _without_credentials(url) == (plain, credentials)


def test_a_commit_is_read_by_its_headers_alone():
    text = f"tree {'1' * 40}\nparent {'2' * 40}\nparent x\ncommitter A <a> 17 +0000\n\nparent {'3' * 40}\n"
    commit = Commit.parse("4" * 40, text.encode())
    assert (commit.parents, commit.at) == (("2" * 40,), 17)
