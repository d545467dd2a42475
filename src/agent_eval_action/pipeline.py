"""The loop: make attempts side by side, score each as it arrives, keep what is finished, stop when told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from agent_eval_action.agents.base import AgentDriver
from agent_eval_action.model.result import AgentConditions, Attempt, AttemptError, RunStatus
from agent_eval_action.run.collect import Collector
from agent_eval_action.run.events import AttemptFinished, Event, Notice, PhaseStarted, RunPlanned
from agent_eval_action.run.execute import Executor
from agent_eval_action.run.plan import Plan, PlannedAttempt
from agent_eval_action.run.resume import Earlier
from agent_eval_action.run.scoring import score_attempt
from agent_eval_action.run.transcripts import TranscriptWriter

_STOP_GRACE_S = 2.0


@dataclass
class Stop:
    """Why and whether the run is to end early. ``request`` may be called from a signal handler of the loop."""

    status: RunStatus = RunStatus.COMPLETE
    _event: asyncio.Event = field(default_factory=asyncio.Event)

    def request(self, status: RunStatus) -> None:
        """End the run; the first reason stays."""
        if not self._event.is_set():
            self.status = status
            self._event.set()

    async def wait(self) -> None:
        """Return when a stop was requested."""
        await self._event.wait()

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._event.is_set()


@dataclass(frozen=True)
class Limits:
    """Bounds of a run. ``max_time`` in seconds from the start of the pipeline; None: no bound."""

    concurrency: int = 32
    retries: int = 2
    max_time: float | None = None


@dataclass
class Pipeline:
    """One run over a plan. ``drivers`` and what their ``start`` will say, by agent name.

    ``scoring_ready`` is done when the criteria's slow imports are: agents need not wait for them.
    """

    plan: Plan
    drivers: Mapping[str, AgentDriver]
    starts: Mapping[str, asyncio.Task[AgentConditions | AttemptError]]
    scoring_ready: asyncio.Task[None]
    writer: TranscriptWriter
    limits: Limits
    emit: Callable[[Event], None]
    stop: Stop
    collector: Collector = field(init=False)

    def __post_init__(self) -> None:
        self.collector = Collector(self.plan)

    async def run(self, kept: Earlier) -> float:
        """Make and score every attempt of the plan. Returns seconds taken; results are in ``collector``."""
        began = time.monotonic()
        attempts = sum(1 for _ in self.plan.attempts())
        self.emit(PhaseStarted("run", f"{self.plan.cases} cases, {attempts} attempts"))
        self.emit(RunPlanned(attempts=attempts, cases=self.plan.cases, kept=len(kept)))
        work = asyncio.create_task(self._work(kept))
        stopped = asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait({work, stopped}, timeout=self.limits.max_time, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.stop.request(RunStatus.TIMED_OUT)
                self.emit(Notice(f"stopping: the run {_WORDS[self.stop.status]}", level="warning"))
        finally:
            await _cancel(stopped)
            await _cancel(work)
        return time.monotonic() - began

    async def _work(self, kept: Earlier) -> None:
        """A fixed number of workers over one iterator: memory does not grow with the size of the suite."""
        slots = asyncio.Semaphore(self.limits.concurrency)
        executors = {
            name: Executor(driver, slots, self.limits.retries, self.emit) for name, driver in self.drivers.items()
        }
        queue = self.plan.attempts()
        async with asyncio.TaskGroup() as group:
            # more workers than sessions: an attempt being scored must not hold a session's place
            for _ in range(self.limits.concurrency * 2):
                group.create_task(self._worker(queue, executors, kept))

    async def _worker(self, queue: Iterator[PlannedAttempt], executors: Mapping[str, Executor], kept: Earlier) -> None:
        for planned in queue:
            attempt = kept.get(planned.key) or await self._make(planned, executors)
            await asyncio.shield(self.scoring_ready)
            scored = await score_attempt(planned, attempt)
            self.writer.append(scored)
            self.collector.add(scored)
            self.emit(AttemptFinished(scored))

    async def _make(self, planned: PlannedAttempt, executors: Mapping[str, Executor]) -> Attempt:
        started = await asyncio.shield(self.starts[planned.key.agent])
        if not isinstance(started, AttemptError):
            return await executors[planned.key.agent].make(planned)
        key = planned.key
        return Attempt(
            agent=key.agent,
            eval_set=key.eval_set,
            case=key.case,
            repeat=key.repeat,
            arm=key.arm,
            case_digest=planned.digest,
            error=started,
        )


_WORDS = {
    RunStatus.TIMED_OUT: "reached its max_time",
    RunStatus.INTERRUPTED: "was interrupted",
    RunStatus.COMPLETE: "is complete",
}


async def _cancel(task: asyncio.Task[None]) -> None:
    """End a task; what it raised on its own is raised here, what the cancelling causes is not."""
    if not task.done():
        task.cancel()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(_settled(task)), _STOP_GRACE_S)
        return
    if not task.cancelled() and (error := task.exception()) is not None:
        raise _unwrapped(error)


async def _settled(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})


def _unwrapped(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):  # all workers meet the same full disk: one of them says it
        error = error.exceptions[0]
    return error
