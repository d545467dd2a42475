"""One process of google-adk 2.13 for all parity tests of a test worker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.model.evalset import Invocation

PROGRAM = Path(__file__).with_name("adk_evaluators.py")


class Adk:
    """Asks google-adk to score turns. ``more``: ``judge`` and ``scenario``, as the program takes them."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def __call__(
        self,
        metric: str,
        criterion: Any,
        expected: Sequence[Invocation] | None,
        actual: Sequence[Invocation],
        **more: Any,
    ) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {
            "metric": metric,
            "criterion": criterion,
            "expected": None if expected is None else [_wire(turn) for turn in expected],
            "actual": [_wire(turn) for turn in actual],
            **more,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "google-adk's process ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


def _wire(turn: Invocation) -> dict[str, Any]:
    return turn.model_dump(mode="json", exclude_none=True)


@pytest.fixture(scope="session")
def adk(adk213_python: Path) -> Iterator[Adk]:
    command = [str(adk213_python), "-X", "utf8", str(PROGRAM)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        yield Adk(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
