"""Sessions shrink where a model turns them away, and what was turned away is made again."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from agent_eval_action.llm.rate_limit import AdaptiveSemaphore
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from agent_eval_action.run.attempt_runner import Executor
from support import virtual_time


class Deaf:
    """Nobody listens."""

    def heard(self, turns: Any) -> None:
        pass

    async def forget(self) -> None:
        pass


@pytest.fixture
def kit(scripted: type[Any]) -> Any:
    """The conftest's builders."""
    return sys.modules[scripted.__module__]


@pytest.mark.parametrize(("kind", "size"), [("rate_limited", 7.0), ("unavailable", 10.0)])
def test_an_attempt_that_is_refused_shrinks_the_sessions_and_is_made_again(kit: Any, kind: str, size: float) -> None:
    refused = AttemptError(kind=ErrorKind(kind), message="429")
    driver = kit.Script(lambda _, before: "yes" if before else refused)
    planned = next(iter(kit.plan(kit.case("a")).attempts()))

    async def main() -> tuple[Any, AdaptiveSemaphore]:
        slots, tried = AdaptiveSemaphore(10), []
        slots._most = 10
        executor = Executor(driver, slots, 2, lambda _: None)
        attempt = await executor.make(planned, Deaf(), tried.append)
        assert [one.error and one.error.kind for one in tried] == [refused.kind, None]
        return attempt, slots

    attempt, slots = virtual_time.run(main)
    assert (attempt.error, attempt.tries) == (None, 2)
    assert slots.size == pytest.approx(size)
    assert slots.taken == 0


@pytest.mark.parametrize(("throttled", "shrinks"), [(0, False), (2, False), (3, True)])
def test_a_session_that_was_mostly_refused_counts_as_well(kit: Any, throttled: int, *, shrinks: bool) -> None:
    """Two turns with a call each: the odd refusal is the worker's pace at work."""
    driver = kit.Script(lambda *_: "yes", tokens=1, throttled=throttled / 2)
    planned = next(iter(kit.plan(kit.case("a")).attempts()))

    async def main() -> float:
        slots = AdaptiveSemaphore(10)
        slots._most = 10
        await Executor(driver, slots, 2, lambda _: None).make(planned, Deaf())
        return slots.size

    assert (virtual_time.run(main) < 10) == shrinks
