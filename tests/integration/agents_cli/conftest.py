"""A project as agents-cli's own scaffold makes it, and a local model that plays its agent and its judge."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import command
from support.gemini_server.client import RunningGemini, running

JUDGED = "expert QA evaluator"
RULES: list[dict[str, Any]] = [
    {
        "when": {"user": f"{JUDGED}[\\s\\S]*do not know"},
        "reply": {"text": json.dumps({"score": 1, "explanation": "It does not answer the question."})},
    },
    {"when": {"user": JUDGED}, "reply": {"text": json.dumps({"score": 5, "explanation": "It answers the question."})}},
    {
        "when": {"user": "weather", "after_tool": None},
        "reply": {"calls": [{"name": "get_weather", "args": {"query": "San Francisco"}}]},
    },
    {"when": {"user": "weather", "after_tool": "get_weather"}, "reply": {"text": "{tool.result}"}},
    {"when": {"user": "capital", "instruction": "geography is secret"}, "reply": {"text": "I do not know."}},
    {"when": {"user": "capital"}, "reply": {"text": "The capital of France is Paris."}},
    {"when": {"user": "Hello"}, "reply": {"text": "I tell the weather and the time."}},
]
"""The agent's answers, and those of the scaffold's judge, ``response_quality.py``."""


@pytest.fixture(scope="session")
def scaffold(agents_cli_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _create(agents_cli_python, tmp_path_factory)


@pytest.fixture(scope="session")
def go_scaffold(agents_cli_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _create(agents_cli_python, tmp_path_factory, "--agent", "adk_go")


def _create(python: Path, tmp_path_factory: pytest.TempPathFactory, *options: str) -> Path:
    """``agents-cli create``, without the ``.env`` that its ``.gitignore`` keeps out of a checkout."""
    folder = tmp_path_factory.mktemp("scaffold")
    tool = python.with_name("agents-cli")
    words = ["create", "shop", "--yes", "--skip-checks", "--prototype", "--deployment-target", "none", *options]
    environ = {**os.environ, "HOME": str(folder), "NO_COLOR": "1"}
    subprocess.run([tool, *words], cwd=folder, env=environ, check=True, capture_output=True, timeout=120)
    (folder / "shop" / ".env").unlink()
    return folder / "shop"


@pytest.fixture
def project(scaffold: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(scaffold, tmp_path / "shop"))


@pytest.fixture(scope="session")
def gemini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGemini]:
    rules = tmp_path_factory.mktemp("model") / "rules.json"
    rules.write_text(json.dumps({"rules": RULES}))
    with running(rules) as server:
        yield server


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def agent_eval(project: Path, gemini: RunningGemini, adk213_python: Path) -> Run:
    """``agent-eval WORDS`` in the project, on google-adk 2.13 and the local model."""

    def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_", "GOOGLE_"))
        }
        return command.agent_eval(
            *words, "--python", str(adk213_python), cwd=project, env=clean | gemini.environ | environ
        )

    return run
