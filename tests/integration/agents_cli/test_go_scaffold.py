"""A Go project fresh from ``agents-cli create``: found with its agent, its dataset and its metrics, and measured."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.loader import resolve
from agent_eval_action.config.walk import GO_SERVER
from agent_eval_action.run.loader import Loader, discover_eval_files


@pytest.fixture
def project(go_scaffold: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(go_scaffold, tmp_path / "shop"))


def test_a_fresh_go_project_is_found_without_configuration(project: Path) -> None:
    discovery = discover_eval_files(resolve(flags={}, environ={}, cwd=project).settings)
    (planned,) = Loader(project).plan(discovery, 1).sets
    assert [item.case.eval_id for item in planned.cases] == ["greeting", "weather_query", "capital_lookup"]
    assert [info.name for info in planned.infos] == ["custom_response_quality"]
    agent = discovery.sets[0].agent
    assert (agent.name, agent.driver, agent.command) == ("app", "adk_server", GO_SERVER)


def test_its_server_is_started_as_agents_cli_starts_it(agents_cli_python: Path) -> None:
    (site,) = agents_cli_python.parents[1].glob("lib/python3*/site-packages")
    text = (site / "google/agents/cli/run/_local_server.py").read_text()
    begin = text.index("def _go_serve_command")
    theirs = text[begin : text.index("LANGUAGE_HANDLERS", begin)]
    words = [word for word in GO_SERVER if word not in {"{port}", "10m"}]
    assert [word for word in words if f'"{word}"' not in theirs] == []


def test_a_driver_that_is_configured_is_kept(project: Path) -> None:
    (project / "agent-eval.yaml").write_text("agent: {path: app, driver: a2a, url: 'http://127.0.0.1:8000'}\n")
    (found,) = discover_eval_files(resolve(flags={}, environ={}, cwd=project).settings).sets
    assert (found.agent.driver, found.agent.command) == ("a2a", None)


AGENT = """
from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


class Fixed(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        asked = llm_request.contents[-1].parts[0].text or ""
        text = "ANSWER" if "capital" in asked else "I tell the weather."
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


root_agent = Agent(name="shop", model=Fixed(model="fixed"))
"""


@pytest.mark.exhaustive
def test_it_is_measured_by_its_own_metric_and_a_worse_answer_shows(
    project: Path, agent_eval: Any, adk213_python: Path, tmp_path: Path
) -> None:
    """Where there is no Go, its command is played by google-adk's server, which speaks the same REST."""
    served = tmp_path / "served" / "app"
    served.mkdir(parents=True)
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    server = f"{adk213_python.with_name('adk')} api_server --port $2 {served.parent}"
    go.write_text(f'#!/bin/sh\nwhile [ "$1" != --port ]; do shift; done\nexec {server}\n')
    go.chmod(0o755)
    scores = []
    for answer in ("The capital of France is Paris.", "I do not know."):
        (served / "agent.py").write_text(AGENT.replace("ANSWER", answer))
        done = agent_eval("run", PATH=f"{go.parent}:{os.environ['PATH']}")
        (measured,) = json.loads((project / ".agent-eval/out/results.json").read_text())["sets"]
        assert done.returncode in {0, 1}, done.stderr
        scores.append({case["case"]: case["attempts"][0]["scores"][0]["score"] for case in measured["cases"]})
    fine = {"greeting": 5.0, "weather_query": 5.0, "capital_lookup": 5.0}
    assert scores == [fine, fine | {"capital_lookup": 1.0}]
