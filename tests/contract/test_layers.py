"""Imports point down; a module without a floor is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The copy's src comes before the installed package.
LINT = """
import sys
from importlinter.cli import lint_imports_command
sys.path.insert(0, "src")
sys.argv = ["lint-imports", "--no-cache"]
lint_imports_command()
"""


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", LINT], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_tree_keeps_its_contracts(tree):
    done = lint(tree)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("errors.py", "from agent_eval_action import results"),
        ("gate/extra.py", "from agent_eval_action import reports"),
        ("formats/extra.py", "from agent_eval_action import config"),
        ("reports/extra.py", "from agent_eval_action import ci"),
        ("environments/extra.py", "from agent_eval_action import worker"),
        ("worker/extra.py", "from agent_eval_action import results"),
        ("llm/extra.py", "from agent_eval_action.worker import agent_eval_worker_rate"),
        ("llm/rate_limit.py", "from agent_eval_action.worker import agent_eval_worker_errors"),
        ("stray.py", "x = 1"),
    ],
)
def test_a_break_is_found(tree, file, line):
    target = tree / "src" / "agent_eval_action" / file
    with target.open("a") as source:
        source.write(f"\n{line}\n")
    done = lint(tree)
    assert done.returncode == 1, done.stdout
    assert re.search(r"BROKEN|Missing layers|not listed as a layer", done.stdout + done.stderr), done.stdout
