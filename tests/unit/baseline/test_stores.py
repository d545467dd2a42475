"""Which store is meant, and what each is made with."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline import STORES
from agent_eval_action.baseline.history_session import store_kind
from agent_eval_action.baseline.records import record_of
from agent_eval_action.baseline.stores import RecordQuery
from agent_eval_action.config.models import BaselineSettings, Settings
from agent_eval_action.git.base_commit import Event
from support.repositories import environ, run_git
from support.results import run, simple

BRANCH, FILE = Event(keeps_branch=True), Event()


@pytest.fixture
def checkout(tmp_path):
    run_git(tmp_path, "init", "--quiet")
    run_git(tmp_path, "remote", "add", "origin", "https://example.com/org/repo")
    return tmp_path


def settings(folder, store="auto"):
    return Settings(
        workspace=folder,
        start=folder,
        baseline=BaselineSettings(path=folder / "baseline.json", store=store),
        out=folder / "out",
        cache_dir=folder / "cache",
    )


def test_on_github_it_is_the_branch_and_elsewhere_the_file(checkout):
    assert store_kind(settings(checkout), environ(), BRANCH) == "branch"
    assert store_kind(settings(checkout), environ(), FILE) == "file"
    assert store_kind(settings(checkout, "branch"), environ(), FILE) == "branch"
    assert store_kind(settings(checkout, "file"), environ(), BRANCH) == "file"
    assert store_kind(settings(checkout, "rerun"), environ(), BRANCH) == "rerun"


def test_a_committed_baseline_is_what_it_was_committed_for(checkout):
    (checkout / "baseline.json").write_text("{}")
    assert store_kind(settings(checkout), environ(), BRANCH) == "file"


def test_without_a_remote_there_is_no_branch_to_keep_anything_on(checkout):
    run_git(checkout, "remote", "remove", "origin")
    assert store_kind(settings(checkout), environ(), BRANCH) == "file"


@pytest.mark.parametrize("name", STORES)
def test_a_store_with_nothing_in_it_says_no_more_than_that(tmp_path, name):
    store = STORES[name].of_settings(settings(tmp_path), environ())
    assert store.records(RecordQuery()).records == ()
    written = store.add(record_of(run(simple("a", 1.0))))
    assert not written.stored
    assert written.note
    assert list(tmp_path.iterdir()) == []
