"""A suite of a user's that imports AgentEvaluator, run by pytest in the user's environment."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from agent_eval_action.testing import AgentEvaluator
from support.agent_evaluator_suites import Suite, old_schema, set_of

PAGE = Path(__file__).parents[3] / "docs" / "pytest.md"
SUITE = """\
import asyncio


@pytest.mark.asyncio
async def test_scores():
    await AgentEvaluator.evaluate("desk_shop", "evals/greeting.test.json", num_runs=1, output_file="out/scores.csv")


@pytest.mark.anyio
async def test_at_once(anyio_backend):
    calls = [AgentEvaluator.evaluate("desk_shop.agent", "evals/greeting.test.json", num_runs=1) for _ in range(2)]
    await asyncio.gather(*calls)


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.asyncio
async def test_price():
    await AgentEvaluator.evaluate(agent_module="desk_shop", eval_dataset_file_path_or_dir="evals/price.test.json")
"""
ADK_SET = """

@pytest.mark.asyncio
async def test_a_set_of_adk():
    from google.adk.evaluation.eval_config import EvalConfig
    from google.adk.evaluation.eval_set import EvalSet
    with open("evals/price.test.json") as file:
        eval_set = EvalSet.model_validate_json(file.read())
    config = EvalConfig(criteria={"tool_trajectory_avg_score": 1.0})
    await AgentEvaluator.evaluate_eval_set("desk_shop", eval_set, eval_config=config, num_runs=1)
    with pytest.raises(AssertionError, match="response_match_score for desk_shop Failed. Expected 0.9, but got 0.0."):
        await AgentEvaluator.evaluate_eval_set("desk_shop", eval_set, criteria={"response_match_score": 0.9})
"""


@pytest.fixture
def project(tmp_path: Path) -> Suite:
    """Of the two eval files the agent meets the first."""
    suite = Suite("desk", tmp_path)
    suite.write_agent()
    suite.write("evals/greeting.test.json", set_of({"polite": [("hello", "You serve everybody", [])]}))
    suite.write("evals/price.test.json", set_of({"dear": [("price fig", "nothing at all", [("price", "fig")])]}))
    suite.write_criteria({"response_match_score": 0.8, "tool_trajectory_avg_score": 1.0})
    [example] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    suite.write("test_desk.py", example + SUITE)
    suite.write("conftest.py", "")  # so that pytest puts the folder on sys.path
    return suite


def run(python: Path | str, project: Suite) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "VIRTUAL_ENV"))}
    command = [str(python), "-W", "ignore", "-m", "pytest", "-p", "no:cacheprovider"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 200}
    done = subprocess.run(command, cwd=project.folder, env=environ, check=False, **pipes)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    return done.stdout


def test_the_agents_environment_lies_beside_it(project: Suite, adk213_python: Path) -> None:
    (project.folder / ".venv").symlink_to(adk213_python.parent.parent)
    output = run(sys.executable, project)
    assert "1 failed, 3 passed" in output, output
    assert "response_match_score for desk_shop Failed. Expected 0.8, but got 0.0." in output
    assert "tool_trajectory_avg_score for desk_shop Failed" not in output
    assert "Summary: `EvalStatus.FAILED` for Metric: `response_match_score`." in output
    with (project.folder / "out" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["eval_id"], row["metric_name"], row["score"]) for row in rows] == [
        ("polite", "response_match_score", "1.0"),
        ("polite", "tool_trajectory_avg_score", "1.0"),
    ]
    assert rows[0]["prompt"] == "hello"
    assert not [*(project.folder / ".agent-eval").glob("evaluator-*")]


@pytest.mark.exhaustive
def test_google_adk_is_installed_beside_it(project: Suite, adk213_python: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "both", symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    theirs = adk213_python.parent.parent / "lib" / version / "site-packages"
    paths = [sysconfig.get_path("purelib"), str(theirs), str(Path(__file__).parents[3] / "src")]
    site = tmp_path / "both" / "lib" / version / "site-packages"
    (site / "both.pth").write_text("\n".join(paths))
    project.write("test_desk.py", (project.folder / "test_desk.py").read_text() + ADK_SET)
    output = run(tmp_path / "both" / "bin" / "python", project)
    assert "1 failed, 4 passed" in output, output


async def test_what_cannot_reach_the_agent_is_refused(project: Suite) -> None:
    with pytest.raises(TypeError, match="artifact_service cannot be given"):
        await AgentEvaluator.evaluate("desk_shop", "evals", artifact_service=object())
    with pytest.raises(ValueError, match="`eval_config` is required"):
        await AgentEvaluator.evaluate_eval_set("desk_shop", set_of({"c": []}))
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_shop'"):
        await AgentEvaluator.evaluate("no_shop", str(project.folder / "evals" / "greeting.test.json"))


def test_a_file_of_the_older_schema_is_written_as_a_new_one(project: Suite) -> None:
    old = project.write("old.test.json", old_schema([("price fig", "3 euros", [("price", "fig")])]))
    session = project.write("sessions/s.json", {"app_name": "shop", "user_id": "u", "state": {"customer": "Ada"}})
    new = project.folder / "new.test.json"
    AgentEvaluator.migrate_eval_data_to_new_schema(str(old), str(new), str(session))
    [case] = json.loads(new.read_text())["eval_cases"]
    assert case["session_input"]["state"] == {"customer": "Ada"}
    assert case["conversation"][0]["intermediate_data"]["tool_uses"] == [{"name": "price", "args": {"item": "fig"}}]
    assert AgentEvaluator.find_config_for_test_file(str(new))["criteria"]["response_match_score"] == 0.8
