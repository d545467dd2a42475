"""examples/dice as a user runs it: by our command and by ADK's own, made worse, and with a model over the network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.gemini_server import client

ROOT = Path(__file__).resolve().parents[2]
DICE = ROOT / "examples" / "dice"
BIN = Path(sys.executable).parent

MADE_BY_RUNNING = shutil.ignore_patterns("cache", "out", "__pycache__", ".adk", ".venv")


@pytest.fixture
def dice(tmp_path: Path) -> Path:
    folder = tmp_path / "dice"
    shutil.copytree(DICE, folder, ignore=MADE_BY_RUNNING)
    return folder


def run(argv: list[Any], cwd: Path, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in argv],
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )


def decision(dice: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dice / ".agent-eval" / "out" / "results.json").read_text())["decision"]
    return found


def agent_eval_passes(dice: Path, python: Path) -> None:
    ended = run([BIN / "agent-eval", "run", "--python", python], dice)
    assert ended.returncode == 0, ended.stdout
    found = decision(dice)
    assert found["outcome"] == "pass"
    assert len(found["pairs"]) == 26, "13 cases, two criteria"
    # The committed baseline is of these cases and these criteria: everything is compared with it.
    assert {pair["kind"] for pair in found["pairs"]} == {"same"}


def test_passes_on_adk_2(dice: Path, adk213_python: Path) -> None:
    agent_eval_passes(dice, adk213_python)


@pytest.mark.adk110
def test_passes_on_adk_1(dice: Path, adk110_python: Path) -> None:
    agent_eval_passes(dice, adk110_python)


@pytest.mark.exhaustive
def test_passes_adk_eval_with_the_same_criteria(dice: Path, adk213_python: Path) -> None:
    argv = [adk213_python.parent / "adk", "eval", "dice_agent", "evals/dice.evalset.json"]
    ended = run([*argv, "--config_file_path", "evals/test_config.json"], dice)
    assert ended.returncode == 0, ended.stdout
    assert "Tests passed: 12" in ended.stdout
    assert "Tests failed: 0" in ended.stdout


@pytest.mark.exhaustive
def test_its_older_file_passes_adks_evaluator(dice: Path, adk213_python: Path) -> None:
    program = (
        "import asyncio; from google.adk.evaluation.agent_evaluator import AgentEvaluator as A;"
        "asyncio.run(A.evaluate('dice_agent', 'evals/smoke.test.json', num_runs=1)); print('held')"
    )
    ended = run([adk213_python, "-c", program], dice)
    assert ended.returncode == 0, ended.stdout
    assert "held" in ended.stdout


def test_made_worse_it_is_blocked_for_the_call_that_went_missing(dice: Path, adk213_python: Path) -> None:
    patched = run(["git", "apply", "regression/answer-from-memory.patch"], dice)
    assert patched.returncode == 0, patched.stdout
    ended = run([BIN / "agent-eval", "run", "--python", adk213_python], dice)
    assert ended.returncode == 1, ended.stdout
    assert "roll_then_check" in ended.stdout
    assert "missing call check_prime(numbers=[8])" in ended.stdout
    worse = {pair["case"] for pair in decision(dice)["pairs"] if pair["kind"] == "newly_failing"}
    assert worse == {
        "which_are_prime",
        "roll_then_check",
        "two_turns_is_it_prime",
        "roll_three_and_check_them",
        "smoke",
    }
    assert "check_prime" in (dice / ".agent-eval" / "out" / "comment.md").read_text()


@pytest.mark.exhaustive
def test_one_variable_swaps_the_rules_for_gemini(dice: Path, adk213_python: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    calls = {"calls": [{"name": "roll_die", "args": {"sides": 6}}]}
    text = {"text": "The 6-sided die shows {tool.result}."}
    rules.write_text(
        json.dumps({"rules": [{"when": {"after_tool": None}, "reply": calls}, {"when": {}, "reply": text}]})
    )
    with client.running(rules) as gemini:
        environ = {**gemini.environ, "DICE_MODEL": "gemini-2.5-flash"}
        argv = [BIN / "agent-eval", "run", "evals/dice.evalset.json:roll_one_die", "--python", adk213_python]
        ended = run(argv, dice, environ)
        seen = gemini.seen()
    assert ended.returncode == 0, ended.stdout
    assert [request["path"] for request in seen["requests"]] == ["/v1beta/models/gemini-2.5-flash:generateContent"] * 2
    instruction = seen["requests"][0]["body"]["systemInstruction"]["parts"][0]["text"]
    assert "call roll_die with its number of sides" in instruction


def test_its_files_are_valid(dice: Path) -> None:
    workflow = dice / ".github" / "workflows" / "agent-eval.yml"
    for argv in (
        ["agent-eval", "validate"],
        ["check-jsonschema", "--schemafile", ROOT / "schema" / "agent-eval.schema.json", "agent-eval.yaml"],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", workflow],
        ["zizmor", "--offline", "--no-progress", "--pedantic", workflow],
    ):
        ended = run([BIN / argv[0], *argv[1:]], dice)
        assert ended.returncode == 0, ended.stdout


def test_its_environment_is_pinned_by_hash_without_an_address(dice: Path) -> None:
    wanted = (dice / "requirements.in").read_text().split()
    lock = (dice / "requirements.txt").read_text()
    pins = [line.split()[0] for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert set(wanted) <= set(pins)
    assert all("==" in pin for pin in pins)
    assert lock.count("--hash=sha256:") >= len(pins)
    assert "://" not in lock
