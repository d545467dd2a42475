"""A project fresh from ``agents-cli create`` in the gate, without a line of configuration."""

from __future__ import annotations

import json
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
