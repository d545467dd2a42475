"""The command with a fixture of `adk test` beside an agent: nothing is configured or paid, and a change is blocked."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval

AGENT = '''
from google.adk.agents import LlmAgent


def weather(city: str) -> dict:
    """The weather of a city."""
    return {"sky": "clear"}


root_agent = LlmAgent(name="bot", model="gemini-2.5-flash", instruction="Help.", tools=[weather])
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The example of docs/formats.md as a fixture."""
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    section = page[page.index("### `adk_session`") :]
    recorded = section[section.index("```json") + 7 :].partition("```")[0]
    (tmp_path / ".git").mkdir()
    (tmp_path / "bot" / "tests").mkdir(parents=True)
    (tmp_path / "bot" / "__init__.py").write_text("from . import agent\n")
    (tmp_path / "bot" / "agent.py").write_text(AGENT)
    (tmp_path / "bot" / "tests" / "weather.json").write_text(recorded)
    return tmp_path


def run(project: Path, python: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    env = {"PATH": os.environ["PATH"], "HOME": str(project)}
    done = agent_eval("run", "--python", python, *words, cwd=project, env=env)
    return done, json.loads((project / ".agent-eval/out/results.json").read_text())


def test_a_fixture_blocks_a_changed_tool_without_a_key_a_baseline_or_configuration(project, adk213_python):
    done, result = run(project, adk213_python, "--max-calls", "1")
    assert done.returncode == 0, done.stderr
    assert result["totals"]["usage"]["model_calls"] == 0
    assert [info["name"] for info in result["sets"][0]["criteria"]] == ["recorded_events"]
    (project / "bot" / "agent.py").write_text(AGENT.replace('"clear"', '"grey"'))
    done, result = run(project, adk213_python)
    assert done.returncode == 1, done.stderr
    assert 'response.sky is "grey", recorded "clear"' in done.stderr


def test_recordings_are_scored_by_their_events_and_not_by_the_criteria_of_the_agent(project, adk213_python):
    judged = '{"criteria": {"final_response_match_v2": {"threshold": 0.5}}}'
    (project / "judged.json").write_text(judged)
    (project / "agent-eval.yaml").write_text("agent: {path: bot, criteria: judged.json}\n")
    (project / "bot/tests/test_config.json").write_text('{"criteria": {"tool_trajectory_avg_score": 1.0}}')
    done, result = run(project, adk213_python)
    assert done.returncode == 0, done.stderr
    names = [info["name"] for info in result["sets"][0]["criteria"]]
    assert names == ["tool_trajectory_avg_score", "recorded_events"]


def test_a_driver_that_cannot_replay_is_not_given_recordings_and_says_so_where_they_are_named(project):
    (project / "agent-eval.yaml").write_text("agent: {path: bot, driver: python, function: 'bot:x'}\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(project)}
    done = agent_eval("validate", cwd=project, env=env)
    assert (done.returncode, "no eval files" in done.stderr) == (2, True), done.stderr
    done = agent_eval("run", "bot/tests/weather.json", cwd=project, env=env)
    assert (done.returncode, "it replays answers of models" in done.stderr) == (2, True), done.stderr
