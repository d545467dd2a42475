"""Sessions shrink where a model turns them away, and what was turned away is made again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from agent_eval_action.results.transcripts import TranscriptWriter
from agent_eval_action.run.attempt_runner import AttemptRunner
from agent_eval_action.run.base_agents import AgentGroup
from agent_eval_action.run.events import AttemptFinished, AttemptRetried, Event
from agent_eval_action.run.plan import Plan
from support import virtual_time
from support.plan_runner import attempt_runner


@pytest.fixture
def kit(scripted: type[Any]) -> Any:
    """The conftest's builders."""
    return sys.modules[scripted.__module__]


async def made(out: Path, plan: Plan, driver: Any) -> tuple[AttemptRunner, list[Event]]:
    """A runner with ten sessions that has made the plan, and its events."""
    events: list[Event] = []
    with TranscriptWriter(OutputFolder.at(out)) as writer:
        runner = attempt_runner(plan, writer, concurrency=10, retries=2, emit=events.append)
        runner._sessions._most = 10
        await runner.make(plan.attempts(), AgentGroup.start("head", {"bot": driver}))
    return runner, events


@pytest.mark.parametrize(("kind", "size"), [("rate_limited", 7.0), ("unavailable", 10.0)])
def test_an_attempt_that_is_refused_shrinks_the_sessions_and_is_made_again(
    tmp_path: Path, kit: Any, kind: str, size: float
) -> None:
    refused = AttemptError(kind=ErrorKind(kind), message="429")
    driver = kit.Script(lambda _, before: "yes" if before else refused)
    runner, events = virtual_time.run(lambda: made(tmp_path, kit.plan(kit.case("a")), driver))
    (attempt,) = [event.attempt for event in events if isinstance(event, AttemptFinished)]
    assert (attempt.error, attempt.tries) == (None, 2)
    assert [event.error.kind for event in events if isinstance(event, AttemptRetried)] == [refused.kind]
    assert runner._sessions.size == pytest.approx(size)
    assert runner._sessions.taken == 0


@pytest.mark.parametrize(("throttled", "shrinks"), [(0, False), (2, False), (3, True)])
def test_a_session_that_was_mostly_refused_counts_as_well(
    tmp_path: Path, kit: Any, throttled: int, *, shrinks: bool
) -> None:
    """Two turns with a call each: a single refusal is the worker's own rate control at work."""
    driver = kit.Script(lambda *_: "yes", tokens=1, throttled=throttled / 2)
    runner, _ = virtual_time.run(lambda: made(tmp_path, kit.plan(kit.case("a")), driver))
    assert (runner._sessions.size < 10) == shrinks
