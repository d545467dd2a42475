"""Which files a run finds, reads and refuses by name; what it says of counts; what it does not write."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import command

ADK_CRITERIA = {"criteria": {"response_match_score": 0.4}}
AGENTS_CLI = {"eval_cases": [{"eval_case_id": "a", "prompt": {"role": "user", "parts": [{"text": "hi"}]}}]}


def eval_set(name: str = "a") -> dict[str, Any]:
    user = {"role": "user", "parts": [{"text": "hi"}]}
    return {"eval_set_id": "s", "eval_cases": [{"eval_id": name, "conversation": [{"user_content": user}]}]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The layout that Google's project templates make, without eval files."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "agent.py").write_text("from google.adk.agents import Agent\nroot_agent = Agent(name='x')\n")
    (tmp_path / "tests" / "eval").mkdir(parents=True)
    return tmp_path


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def agent_eval(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_", "GOOGLE_"))}
    return command.agent_eval(*words, cwd=folder, env=clean | environ)


def test_the_layout_of_googles_templates_is_found_with_its_criteria(project: Path) -> None:
    write(project / "tests/eval/evalsets/basic.json", eval_set())
    write(project / "tests/eval/evalsets/notes.json", {"unrelated": True})
    write(project / "tests/eval/eval_config.json", ADK_CRITERIA)
    done = agent_eval(project, "validate")
    assert done.returncode == 0, done.stderr
    assert "agent app in app (discovered): 1 eval file" in done.stderr
    assert "ADK's defaults apply" not in done.stderr
    assert "1 file checked, 0 errors, 0 warnings" in done.stderr


def test_eval_config_beside_the_eval_file_is_read_and_adks_own_name_wins(project: Path) -> None:
    write(project / "evals/basic.evalset.json", eval_set())
    write(project / "evals/eval_config.json", {"criteria": {"no_such_criterion": 1}})
    done = agent_eval(project, "validate")
    assert done.returncode == 2
    assert "evals/eval_config.json:1: unknown criterion `no_such_criterion`" in done.stderr
    assert done.stderr.rstrip().endswith("1 error")
    write(project / "evals/test_config.json", ADK_CRITERIA)
    assert agent_eval(project, "validate").returncode == 0


def test_a_named_folder_is_searched_by_what_its_files_hold(project: Path, adk213_python: Path) -> None:
    write(project / "checks/deep/basic.json", eval_set())
    write(project / "checks/deep/package.json", {"name": "x"})
    done = agent_eval(project, "run", "-v", "checks", "--python", str(adk213_python))
    assert "agent app in app (discovered): 1 eval file" in done.stderr
    assert "run: 1 case, 1 attempt\n" in done.stderr


def test_datasets_of_agents_cli_are_found_with_their_metrics(project: Path) -> None:
    write(project / "tests/eval/datasets/basic-dataset.json", AGENTS_CLI)
    write(project / "tests/eval/datasets/notes.json", {"unrelated": True})
    (project / "tests/eval/eval_config.yaml").write_text("metrics_to_run: [rouge_1, no_such_metric]\n")
    done = agent_eval(project, "validate")
    assert done.returncode == 2
    assert "tests/eval/eval_config.yaml:1: Vertex AI has no metric `no_such_metric`" in done.stderr
    (project / "tests/eval/eval_config.yaml").write_text("metrics_to_run: [rouge_1]\n")
    for words in ((), (".",), ("tests/eval/datasets/basic-dataset.json",)):
        done = agent_eval(project, "validate", *words)
        assert done.returncode == 0, done.stderr
    assert "agent app in app (discovered): 1 eval file" in agent_eval(project, "validate").stderr
    write(project / "datasets/elsewhere.json", AGENTS_CLI)
    assert "agent app in app (discovered): 1 eval file" in agent_eval(project, "validate").stderr


@pytest.mark.parametrize("file", ["basic.metrics.json", "test_config.json"])
def test_metrics_of_trpc_agent_are_the_criteria_of_the_eval_set_beside_them(project: Path, file: str) -> None:
    write(project / "evals/basic.evalset.json", eval_set())
    write(project / "evals" / file, [{"metricName": "tool_trajectory_avg_score", "threshold": 1}])
    done = agent_eval(project, "validate")
    assert done.returncode == 0, done.stderr
    assert f"evals/{file}:1: the results of tool calls are not compared" in done.stderr.replace("warning: ", "")
    write(project / "evals" / file, {"metrics": [{"metric_name": "m", "threshold": 1}], "num_runs": 1})
    for words in ((), (f"evals/{file}",)):
        done = agent_eval(project, "validate", *words)
        assert done.returncode == 2
        assert f"evals/{file}:1: m: is not measured in this version" in done.stderr


def test_without_a_measurement_nothing_is_stored_and_no_resume_is_offered(project: Path, adk213_python: Path) -> None:
    write(project / "evals/basic.evalset.json", eval_set())
    (project / "app" / "agent.py").write_text("from google.adk.agents import Agent\nroot_agent = Agent(name='x'\n")
    (project / "app" / "__init__.py").write_text("")
    done = agent_eval(project, "baseline", "update", "--agent", "app", "--python", str(adk213_python))
    assert done.returncode == 3, done.stderr
    assert "nothing was measured, so .agent-eval/baseline.json is not written" in done.stderr
    assert not (project / ".agent-eval" / "baseline.json").exists()
    done = agent_eval(project, "run", "--agent", "app", "--python", str(adk213_python))
    assert done.returncode in {1, 3}, done.stderr
    assert "--resume" not in done.stderr
