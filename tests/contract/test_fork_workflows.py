"""The workflows of examples/forks hold to what docs/forks.md promises of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "forks" / ".github" / "workflows"
EVALS, POST = (yaml.safe_load((FOLDER / name).read_text()) for name in ("evals.yml", "post-evals.yml"))


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", [EVALS, POST], ids=["evals", "post"])
def test_nothing_is_permitted_on_top_and_actions_are_pinned(workflow):
    assert workflow["permissions"] == {}
    for step in steps(workflow):
        ours = "agent-eval-action" in step["uses"]
        assert ours or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step


def test_the_trusted_one_runs_nothing_of_the_pull_requests():
    assert set(POST[True]) == {"workflow_run"}
    assert not any("checkout" in step["uses"] or "run" in step for step in steps(POST))
    assert POST["jobs"]["post"]["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert POST[True]["workflow_run"]["workflows"] == [EVALS["name"]]


def test_it_is_given_what_the_untrusted_one_leaves():
    left = next(step["with"] for step in steps(EVALS) if "upload-artifact" in step["uses"])
    taken = next(step["with"] for step in steps(POST) if "download-artifact" in step["uses"])
    assert left["name"] == taken["name"]
    assert left["path"].endswith("/results.json")
    assert next(step["with"]["args"] for step in steps(POST) if step["uses"].startswith("docker://")) == (
        f"post {taken['path']}"
    )


def test_the_untrusted_workflow_keeps_no_token_and_fetches_its_base_commit():
    checkout = next(step["with"] for step in steps(EVALS) if "checkout" in step["uses"])
    assert checkout == {"fetch-depth": 2, "persist-credentials": False}
    assert EVALS["jobs"]["evals"]["permissions"] == {"contents": "read", "pull-requests": "write"}
