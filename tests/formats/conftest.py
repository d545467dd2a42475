"""google-adk's own loaders, in their own process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("adk_loaders.py")


@dataclass
class AdkLoaders:
    """What google-adk 2.13 makes of a file."""

    process: subprocess.Popen[str]

    def __call__(self, path: Path) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"path": str(path)}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "google-adk's process ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def loaded(self, path: Path) -> list[dict[str, Any]]:
        """The set as each of the two loaders that accept the file has it."""
        return [one["set"] for one in self(path).values() if "set" in one]


@pytest.fixture(scope="session")
def adk_loaders(adk213_python: Path) -> Iterator[AdkLoaders]:
    command = [str(adk213_python), "-X", "utf8", str(PROGRAM)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        yield AdkLoaders(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
