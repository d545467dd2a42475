"""After an interrupt a run has its result within five seconds, whatever is at work. In virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_eval_action.api.evaluation import Evaluation, RunContext
from agent_eval_action.config.loader import resolve
from agent_eval_action.errors import EvalFileError
from agent_eval_action.results.decision import Verdict
from agent_eval_action.results.run_result import Conditions, RunResult, RunStatus
from agent_eval_action.run.orchestrator import RunGate, StopRequest
from support import virtual_time

AT = 7.0
MEASURED = RunResult(started_at="now", status=RunStatus.INTERRUPTED, conditions=Conditions(tool_version="measured"))


async def heeds() -> None:
    await asyncio.sleep(600)


async def ignores() -> None:
    """Like a thread or a process that nobody can stop."""
    for _ in range(600):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)


async def breaks() -> None:
    try:
        await asyncio.sleep(600)
    finally:
        raise OSError("broken off")


def ended(monkeypatch: pytest.MonkeyPatch, folder: Path, work: object, *, measuring: bool) -> tuple[float, RunResult]:
    """When a run that was interrupted at ``AT`` gave its result, and which."""

    async def evaluate(evaluation: Evaluation) -> RunResult:
        if measuring:
            gate = RunGate(evaluation.settings)
            evaluation.measurement = SimpleNamespace(result=lambda *_: MEASURED, gate=gate)
        await work()
        raise AssertionError("nothing ends by itself here")

    async def main() -> tuple[float, RunResult]:
        loop, stop = asyncio.get_running_loop(), StopRequest()
        settings = resolve(flags={}, environ={}, cwd=folder).settings
        loop.call_at(AT, stop.request, RunStatus.INTERRUPTED)
        result = await Evaluation(settings, RunContext({}, lambda _: None, stop)).result()
        at = loop.time()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            while not task.done():
                task.cancel()
                await asyncio.sleep(1)
            await asyncio.gather(task, return_exceptions=True)
        return at, result

    monkeypatch.setattr(Evaluation, "_evaluate", evaluate)
    return virtual_time.run(main)


@pytest.mark.parametrize("measuring", [False, True])
@pytest.mark.parametrize("work", [heeds, ignores, breaks])
def test_the_result_is_there_in_time_and_inconclusive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, work: object, measuring: bool
) -> None:
    at, result = ended(monkeypatch, tmp_path, work, measuring=measuring)
    assert at <= AT + 3.0, "two of the five seconds are for the files"
    assert result.status is RunStatus.INTERRUPTED
    assert result.decision
    assert result.decision.outcome is Verdict.INCONCLUSIVE
    assert (result.conditions.tool_version == "measured") is measuring


def test_what_starts_is_broken_off_at_once_and_what_is_measured_may_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert ended(monkeypatch, tmp_path, heeds, measuring=False)[0] == pytest.approx(AT)
    assert ended(monkeypatch, tmp_path, heeds, measuring=True)[0] > AT


def test_a_refusal_is_still_raised_after_an_interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def refused() -> None:
        await asyncio.sleep(AT + 1)
        raise EvalFileError("it is not clear what to run")

    with pytest.raises(EvalFileError):
        ended(monkeypatch, tmp_path, refused, measuring=True)
