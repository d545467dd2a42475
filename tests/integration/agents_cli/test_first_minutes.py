"""The README's first five minutes, command by command: from nothing installed to a green run with a baseline."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.gemini_server.client import RunningGemini

ROOT = Path(__file__).parents[3]
BLOCK = re.search(r"## The first five minutes\n.*?```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
COMMANDS = re.findall(r"(?m)^\$ (.*)$", BLOCK[1]) if BLOCK else []
DICE = ROOT / "examples" / "dice"

pytestmark = pytest.mark.exhaustive


def test_the_readme_needs_five_commands_at_most() -> None:
    assert 1 < len(COMMANDS) <= 5
    assert COMMANDS[0] == "pip install agent-eval-action"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with our wheel."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture
def environ(tmp_path: Path, index: Path) -> dict[str, str]:
    """An activated virtual environment in which nothing of ours is installed; what we depend on is."""
    folder = tmp_path / "activated"
    venv.create(folder, with_pip=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(str(next(Path(sys.prefix).glob("lib/python*/site-packages"))) + "\n")
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "VIRTUAL_ENV": str(folder),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_IGNORE_INSTALLED": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def first_minutes(project: Path, environ: Mapping[str, str], python: Path) -> list[str]:
    """Type the commands in a project whose packages are installed; what each said."""
    (project / ".venv").symlink_to(python.parent.parent)
    said = []
    for command in COMMANDS:
        words = ["bash", "-c", command]
        done = subprocess.run(words, cwd=project, env=environ, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said.append(done.stderr)
    assert (project / ".agent-eval" / "baseline.json").is_file()
    assert "Passed" in said[-1]
    return said


def test_a_repository_with_an_agent_and_no_eval_file(
    tmp_path: Path, environ: dict[str, str], adk213_python: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(DICE / "dice_agent", project / "dice_agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(DICE / "requirements.txt", project)
    subprocess.run(["git", "init", "-q", project], check=True)
    said = first_minutes(project, environ, adk213_python)
    assert "evals/dice_agent.evalset.json with 3 cases" in said[1]
    assert "3 of 3 cases pass, as on main" in said[-1]


def test_a_fresh_project_of_agents_cli(
    project: Path, environ: dict[str, str], gemini: RunningGemini, adk213_python: Path
) -> None:
    said = first_minutes(project, environ | gemini.environ, adk213_python)
    assert "basic-dataset.json" in said[1]
    assert "captured" not in said[1]
    assert "3 cases, 3 attempts" in said[-1]
