"""While agents run the checkout is asked nothing: what they may have written there must decide nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.git import Repository, agents_begin, agents_end


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "file").write_text("text")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    return Repository(tmp_path, os.environ)


def test_names_and_configuration_are_a_defect_then(repository):
    agents_begin()
    try:
        with pytest.raises(AssertionError, match="rev-parse"):
            repository.resolve("HEAD")
        with pytest.raises(AssertionError, match="config"):
            repository.config("--get", "remote.origin.url")
    finally:
        agents_end()
    assert repository.resolve("HEAD") is not None


def test_objects_may_be_read_by_their_own_names(repository):
    commit = repository.resolve("HEAD")
    assert commit is not None
    agents_begin()
    try:
        assert repository.file(commit, "file", 100) == b"text"
    finally:
        agents_end()
