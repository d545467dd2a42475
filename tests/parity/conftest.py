"""One process of google-adk 2.13 for all parity tests of a test worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.results.evalset import Invocation
from support import adk_program

PROGRAM = Path(__file__).with_name("adk_evaluators.py")


class Adk:
    """Asks google-adk to score turns. ``more``: ``judge`` and ``scenario``, as the program takes them."""

    def __init__(self, ask: adk_program.Ask) -> None:
        self.ask = ask

    def __call__(
        self,
        metric: str,
        criterion: Any,
        expected: Sequence[Invocation] | None,
        actual: Sequence[Invocation],
        **more: Any,
    ) -> dict[str, Any]:
        request = {
            "metric": metric,
            "criterion": criterion,
            "expected": None if expected is None else [_wire(turn) for turn in expected],
            "actual": [_wire(turn) for turn in actual],
            **more,
        }
        return self.ask(request)


def _wire(turn: Invocation) -> dict[str, Any]:
    return turn.model_dump(mode="json", exclude_none=True)


@pytest.fixture(scope="session")
def adk(adk213_python: Path) -> Iterator[Adk]:
    with adk_program.running(adk213_python, PROGRAM) as ask:
        yield Adk(ask)
