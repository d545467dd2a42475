"""Examples of agents and files that are not ADK's: each passes against its baseline, and its regression is blocked."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MADE_BY_RUNNING = shutil.ignore_patterns("cache", "out", "__pycache__", ".venv")


def run(folder: Path, python: Path) -> tuple[int, dict[str, Any]]:
    done = agent_eval("run", "--python", python, cwd=folder)
    results = json.loads((folder / ".agent-eval" / "out" / "results.json").read_text())
    return done.returncode, results["decision"]


def copy(name: str, to: Path) -> Path:
    folder = Path(shutil.copytree(EXAMPLES / name, to / name, ignore=MADE_BY_RUNNING))
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


def changed(decision: dict[str, Any]) -> set[str]:
    return {pair["case"] for pair in decision["pairs"] if pair["kind"] != "same"}


@pytest.mark.exhaustive
def test_langgraph(tmp_path: Path, peers_python: Path) -> None:
    folder = copy("langgraph", tmp_path)
    code, decision = run(folder, peers_python)
    assert (code, decision["outcome"]) == (0, "pass")
    assert {pair["kind"] for pair in decision["pairs"]} == {"same"}
    subprocess.run(["git", "apply", "regression/refund-at-once.patch"], cwd=folder, check=True)
    code, decision = run(folder, peers_python)
    assert (code, decision["outcome"]) == (1, "fail")
    assert changed(decision) == {"refund_delivered", "refund_not_delivered", "two_turns"}


def test_agents_cli(tmp_path: Path, adk213_python: Path) -> None:
    folder = copy("agents-cli", tmp_path)
    code, decision = run(folder, adk213_python)
    assert (code, decision["outcome"]) == (0, "pass")
    assert {pair["kind"] for pair in decision["pairs"]} == {"same"}
    subprocess.run(["git", "apply", "regression/one-traveller.patch"], cwd=folder, check=True)
    code, decision = run(folder, adk213_python)
    assert (code, decision["outcome"]) == (1, "fail")
    assert changed(decision) == {"price_of_two", "price_of_three", "price_after_departure"}
