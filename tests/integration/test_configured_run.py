"""The command in a workspace with a configuration: what is written there reaches what is checked and run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CASE = {"conversation": [{"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "ho"}]}}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "agent.py").write_text("root_agent = None\n")
        cases = [{"eval_id": case, **CASE} for case in ("one", "two", "three")]
        (tmp_path / name / "x.evalset.json").write_text(json.dumps({"eval_set_id": "x", "eval_cases": cases}))
    (tmp_path / ".git").mkdir()
    return tmp_path


def agent_eval(folder: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("agent-eval")
    return subprocess.run(
        [script, *argv],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_criteria_written_in_the_configuration_are_checked_for_every_agent(folder):
    (folder / "agent-eval.yaml").write_text(
        "agents: [{path: a, criteria: {response_match_score: 0.5}}, b]\ncriteria: {token_usage_v1: null}\n"
    )
    done = agent_eval(folder, "validate")
    assert done.returncode == 0, done.stderr
    assert "agent a in a: 1 eval file" in done.stderr
    (folder / "agent-eval.yaml").write_text("agents: [a, b]\ncriteria:\n  response_mach_score: 0.5\n")
    done = agent_eval(folder, "validate")
    assert done.returncode == 2
    assert "agent-eval.yaml:3" in done.stderr
    assert "response_match_score" in done.stderr


def test_a_rule_for_a_misspelt_criterion_is_no_gate_and_so_an_error(folder):
    (folder / "agent-eval.yaml").write_text("agents: [a, b]\ngate:\n  criteria: {token_usge_v1: {max_rise: 10%}}\n")
    done = agent_eval(folder, "validate")
    assert done.returncode == 2
    assert "agent-eval.yaml:3: gate.criteria: there is no criterion token_usge_v1" in done.stderr
    assert "did you mean `token_usage_v1`?" in done.stderr


def test_the_runners_spelling_of_an_input_reaches_the_command(folder):
    done = agent_eval(folder, "run", **{"INPUT_FAIL-ON": "sometimes"})
    assert done.returncode == 2
    assert 'INPUT_FAIL-ON: must be one of fail, inconclusive, never (got "sometimes")' in done.stderr
