"""The control in the container: the base commit's agent beside the change's, of a checkout that another user owns."""

from __future__ import annotations

import json

import pytest

from support.adk_server_program import SERVES_WORSE, write_agent
from support.container import Job, dice_checkout
from support.dice_job import BREAK, ONE, commit, git, merged

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def main(job):
    """A main whose cases block when they are worse than before, whatever their threshold."""
    config = job.workspace / "agent-eval.yaml"
    config.write_text(config.read_text().replace("threshold_on: case", "threshold_on: regression"))
    commit(job)
    return job


def controlled(job) -> tuple[dict, dict]:
    results = json.loads((job.out / "results.json").read_text())
    (case,) = [case for one in results["sets"] for case in one["cases"] if case.get("control")]
    assert case["case"] == ONE
    return results, case


def test_a_broken_case_is_confirmed_by_the_base_commits_agent(main):
    git(main, "checkout", "--quiet", "-b", "change")
    commit(main, BREAK)
    base = merged(main)
    done = main.run()
    assert done.returncode == 1, done.stdout + done.stderr
    results, case = controlled(main)
    assert results["base"]["commit"] == base
    assert [one.get("purpose", "first") for one in case["attempts"]] == ["first", "rerun", "control", "control"]
    assert {score["score"] for one in case["control"] for score in one["scores"]} == {1.0}
    assert not list((main.workspace / ".agent-eval" / "cache" / "base").glob("*/")), "its files are gone again"


def test_what_main_has_broken_already_does_not_block(main):
    commit(main, BREAK)
    git(main, "checkout", "--quiet", "-b", "change")
    commit(main)
    base = merged(main)
    done = main.run()
    assert done.returncode == 0, done.stdout + done.stderr
    results, case = controlled(main)
    assert results["base"]["commit"] == base
    assert len(case["control"]) == 3
    assert "already broken on main" in done.stdout + done.stderr


def test_a_worse_server_is_confirmed_by_the_base_commits_server(engine, image, tmp_path):
    """Both are started by their commit's command, side by side, each as a user of its own."""
    job = Job(engine, image, dice_checkout(tmp_path / "ws"), tmp_path / "temp")
    write_agent(job.workspace, "/usr/local/bin/python3")
    git(job, "add", "--all")
    commit(job)
    git(job, "checkout", "--quiet", "-b", "change")
    (job.workspace / "greeter" / "server.py").write_text(SERVES_WORSE)
    commit(job)
    merged(job)
    job.environ["INPUT_BASELINE-STORE"] = "rerun"
    done = job.run()
    assert done.returncode == 1, done.stdout + done.stderr
    _, case = controlled(job)
    assert {score["score"] for one in case["control"] for score in one["scores"]} == {1.0}
