"""The README's promises that can be checked: its workflow is valid, its commands and links exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def test_the_workflow_is_one_github_takes(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "workflow.yml"
    path.write_text(block, encoding="utf-8")
    check = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", path]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([line for line in block.splitlines() if not line.startswith("#")]) <= 12


@pytest.mark.parametrize("words", re.findall(r"(?m)^\$ agent-eval ((?:[a-z]+ ?)+)", README))
def test_the_commands_exist(words: str) -> None:
    known = [
        word
        for word in words.split()
        if word in {"run", "baseline", "update", "validate", "compare", "report", "accept", "init", "list", "capture"}
    ]
    done = subprocess.run([BIN / "agent-eval", *known, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert known


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)#]+)", README))
def test_the_links_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


@pytest.mark.parametrize("target", re.findall(r"(?m)^\$ make ([a-z-]+)", README))
def test_the_make_targets_exist(target: str) -> None:
    assert re.search(rf"(?m)^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"))
