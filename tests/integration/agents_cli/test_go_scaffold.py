"""A Go project fresh from ``agents-cli create``: found with its agent, its dataset and its metrics."""

from __future__ import annotations

import shutil
from pathlib import Path

from agent_eval_action.api.evaluation import discover_eval_files
from agent_eval_action.config.loader import resolve
from agent_eval_action.config.walk import GO_SERVER
from agent_eval_action.run.loader import Loader


def test_a_fresh_go_project_is_found_without_configuration(go_scaffold: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(go_scaffold, tmp_path / "shop"))
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


def test_a_driver_that_is_configured_is_kept(go_scaffold: Path, tmp_path: Path) -> None:
    project = Path(shutil.copytree(go_scaffold, tmp_path / "shop"))
    (project / "agent-eval.yaml").write_text("agent: {path: app, driver: a2a, url: 'http://127.0.0.1:8000'}\n")
    (found,) = discover_eval_files(resolve(flags={}, environ={}, cwd=project).settings).sets
    assert (found.agent.driver, found.agent.command) == ("a2a", None)
