"""While agents run the checkout is asked nothing: what they may have written there must decide nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.git.repository import Repository, agents_running


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "file").write_text("text")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    return Repository(tmp_path, os.environ)


def test_names_and_configuration_are_a_defect_then(repository):
    with agents_running():
        with pytest.raises(AssertionError, match="rev-parse"):
            repository.resolve("HEAD")
        with pytest.raises(AssertionError, match="config"):
            repository.setting("--get", "remote.origin.url")
    assert repository.resolve("HEAD") is not None


def test_objects_may_be_read_by_their_own_names(repository):
    commit = repository.resolve("HEAD")
    with agents_running():
        (entry,) = repository.entries(commit)
        assert (entry.name, repository.blobs([entry.oid])) == ("file", {entry.oid: b"text"})
