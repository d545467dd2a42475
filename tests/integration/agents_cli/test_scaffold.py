"""A project fresh from ``agents-cli create`` in the gate, without a line of configuration."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROMPT = "You are a helpful AI assistant"


def results(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / ".agent-eval/out/results.json").read_text())
    return found


def scores(project: Path) -> dict[str, list[tuple[str, Any]]]:
    """Score or status of each criterion, by case."""
    (measured,) = results(project)["sets"]
    return {
        case["case"]: [
            (score["criterion"], score["score"] if score["score"] is not None else score["status"])
            for attempt in case["attempts"]
            for score in attempt["scores"]
        ]
        for case in measured["cases"]
    }


def test_a_fresh_project_is_measured_by_its_own_metric(project: Path, agent_eval: Any) -> None:
    done = agent_eval("run")
    assert done.returncode == 0, done.stderr
    assert scores(project) == {
        name: [("custom_response_quality", 5.0)] for name in ("greeting", "weather_query", "capital_lookup")
    }


@pytest.mark.exhaustive
def test_pass_regression_and_dropped_case(project: Path, agent_eval: Any) -> None:
    begun = agent_eval("baseline", "update")
    assert begun.returncode == 0, begun.stderr
    passed = agent_eval("run")
    assert passed.returncode == 0, passed.stderr
    agent = project / "app" / "agent.py"
    code = agent.read_text()
    agent.write_text(code.replace(PROMPT, f"All geography is secret. {PROMPT}"))
    blocked = agent_eval("run")
    assert blocked.returncode == 1, blocked.stderr
    blocking = [found["subject"] for found in results(project)["decision"]["findings"] if found["severity"] == "blocks"]
    assert [subject["case"] for subject in blocking] == ["capital_lookup"]
    agent.write_text(code)

    # a metric that fails on one case: agents-cli leaves the case out of its mean and exits 0
    judge = project / "tests" / "eval" / "response_quality.py"
    failing = "def evaluate(instance):\n    assert 'weather' not in str(instance['prompt']), 'no network'\n"
    judge.write_text(judge.read_text().replace("def evaluate(instance):\n", failing))
    unmeasured = agent_eval("run")
    assert unmeasured.returncode == 3, unmeasured.stderr
    assert scores(project)["weather_query"] == [("custom_response_quality", "error")]
    assert scores(project)["capital_lookup"] == [("custom_response_quality", 5.0)]


@pytest.mark.exhaustive
def test_a_change_is_judged_by_the_judge_of_its_base(project: Path, agent_eval: Any) -> None:
    """The change makes the agent worse and lets its judge call everything good."""
    assert agent_eval("baseline", "update").returncode == 0
    base = commit(project, "main")
    agent = project / "app" / "agent.py"
    agent.write_text(agent.read_text().replace(PROMPT, f"All geography is secret. {PROMPT}"))
    (project / "tests/eval/response_quality.py").write_text("def evaluate(instance):\n    return 5\n")
    head = commit(project, "change")
    job = {"CI": "true", "GITLAB_CI": "true", "CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_IID": "1"}
    job |= {"CI_PROJECT_DIR": str(project), "CI_DEFAULT_BRANCH": "main"}
    blocked = agent_eval("run", **job, CI_MERGE_REQUEST_DIFF_BASE_SHA=base, CI_COMMIT_SHA=head)
    assert blocked.returncode == 1, blocked.stderr
    assert scores(project)["capital_lookup"][0] == ("custom_response_quality", 1.0)
    weakened = [finding["code"] for finding in results(project)["decision"]["weakenings"]]
    assert weakened == ["criterion_loosened"]


def commit(project: Path, message: str) -> str:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (
        ["init", "-q", "-b", "main"],
        ["checkout", "-q", "-B", message],
        ["add", "--all"],
        ["commit", "-q", "-m", message],
    ):
        subprocess.run([*git, *words], cwd=project, check=True)
    return subprocess.run(
        [*git, "rev-parse", "HEAD"], cwd=project, check=True, capture_output=True, text=True
    ).stdout.strip()
