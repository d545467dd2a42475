"""examples/dice in a real git repository: main, a branch with a change, and the command run on it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.command import COMMAND, agent_eval

ROOT = Path(__file__).resolve().parents[3]
MADE_BY_RUNNING = shutil.ignore_patterns("cache", "out", "__pycache__", ".adk", ".venv")


@dataclass
class Ended:
    """A run of the command that is over."""

    code: int
    said: str
    out: Path

    @property
    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "results.json").read_text())
        return found

    def case(self, name: str) -> dict[str, Any]:
        return next(case for one in self.results["sets"] for case in one["cases"] if case["case"] == name)

    def counts(self) -> tuple[int, int, int]:
        totals = self.results["totals"]
        return totals["attempts"], totals.get("extra", 0), totals.get("control", 0)

    def extra(self) -> dict[str, int]:
        """Attempts beyond the first pass, by case."""
        cases = [case for one in self.results["sets"] for case in one["cases"]]
        counts = {
            case["case"]: sum(attempt.get("purpose", "first") != "first" for attempt in case["attempts"])
            for case in cases
        }
        return {name: count for name, count in counts.items() if count}


@dataclass
class Dice:
    """The repository. ``marker`` is a file that changed agents look at, as ``MARKER``."""

    folder: Path
    python: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def marker(self) -> Path:
        return self.folder.parent / "marker"

    def git(self, *args: str) -> str:
        done = subprocess.run(
            ["git", *args], cwd=self.folder, env=git_environ(), capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def branch(self) -> None:
        self.git("checkout", "-q", "-b", "change")

    def change(self, code: str) -> None:
        """Put code at the beginning of the tool that rolls a die."""
        tools = self.folder / "dice_agent" / "tools.py"
        text = tools.read_text().replace(
            "import random\n", "import asyncio\nimport os\nimport pathlib\nimport random\nimport time\n"
        )
        text = text.replace("def roll_die(", "async def roll_die(")
        text = text.replace("\n\n\n", f"\nMARKER = pathlib.Path({str(self.marker)!r})\n\n\n", 1)
        tools.write_text(text.replace("    if sides < MIN_SIDES:\n", code + "    if sides < MIN_SIDES:\n"))

    def words(self, *more: str) -> list[str]:
        return ["run", "--python", str(self.python), "--workers", "1", *more]

    def start(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [COMMAND, *self.words(*more)],
            cwd=self.folder,
            env=self._environ(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *more: str) -> Ended:
        done = agent_eval(*self.words(*more), cwd=self.folder, env=self._environ())
        return Ended(done.returncode, done.stderr, self.out)

    @property
    def out(self) -> Path:
        return self.folder / ".agent-eval" / "out"

    def trees(self) -> list[str]:
        """What is left of the base commit's files."""
        place = self.folder / ".agent-eval" / "cache" / "base"
        return [path.name for path in place.iterdir() if path.is_dir()] if place.is_dir() else []

    def fingerprint(self) -> dict[str, str]:
        """Every byte of the working tree and of .git, but for what the command keeps for itself."""
        found = {}
        for folder, folders, names in os.walk(self.folder):
            if ".agent-eval" in folders:
                folders.remove(".agent-eval")
            for name in (n for n in names if not n.endswith(".pyc")):
                path = Path(folder) / name
                text = str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
                found[path.relative_to(self.folder).as_posix()] = f"{path.lstat().st_mode:o} {text}"
        return found

    def _environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_"))}
        return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **self.environ}


def git_environ() -> Mapping[str, str]:
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "a"), ("EMAIL", "a@b.c"))
    }
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **who}


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[Path], Dice]:
    def make(python: Path) -> Dice:
        folder = tmp_path / "dice"
        shutil.copytree(ROOT / "examples" / "dice", folder, ignore=MADE_BY_RUNNING)
        config = folder / "agent-eval.yaml"
        config.write_text(config.read_text().replace("on: case", "on: regression"))
        dice = Dice(folder, python)
        dice.git("init", "-q", "-b", "main", ".")
        dice.commit("main")
        return dice

    return make


@pytest.fixture
def dice(repository: Callable[[Path], Dice], adk213_python: Path) -> Dice:
    return repository(adk213_python)
