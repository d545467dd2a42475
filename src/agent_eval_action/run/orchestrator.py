"""Run the plan once, then whatever the gate requests, until it stops or a limit is reached."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

from agent_eval_action.gate.next_step import Run, Step, Stop
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.run_result import (
    Base,
    Conditions,
    ErrorKind,
    Phase,
    Purpose,
    RunResult,
    RunStatus,
)
from agent_eval_action.run.attempt_runner import AttemptRunner, interleave
from agent_eval_action.run.base_agents import AgentGroup, LazyBaseAgents, unavailable_fields
from agent_eval_action.run.events import AgentStarting, Notice, RerunsPlanned, RunPlanned
from agent_eval_action.run.plan import Plan, PlannedAttempt

_CANCEL_GRACE_S: Final = 2.0
BASE_AGENT: Final = "main's agent"
"""The progress display's name for the base commit's agents."""
_ENDINGS: Final = {
    RunStatus.TIMED_OUT: "reached its max_time",
    RunStatus.INTERRUPTED: "was interrupted",
    RunStatus.LIMITED: "met a limit",
    RunStatus.INCOMPLETE: "lacks shards",
    RunStatus.COMPLETE: "is complete",
}


@dataclass
class StopRequest:
    """Whether a run should end early, and why. ``request`` may be called from a signal handler of the event loop.

    The first request sets ``requested`` and ``status``; every interrupt sets ``interrupted``, even a later one.
    """

    status: RunStatus = RunStatus.COMPLETE
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    requested: asyncio.Event = field(default_factory=asyncio.Event)

    def request(self, status: RunStatus) -> None:
        """End the run."""
        if status is RunStatus.INTERRUPTED:
            self.interrupted.set()
        if not self.requested.is_set():
            self.status = status
            self.requested.set()


class NextStep(Protocol):
    """Returns the next step after everything measured so far. ``control``: whether the base's agent can be run."""

    def __call__(self, result: RunResult, *, control: bool) -> Step: ...


@dataclass
class Orchestrator:
    """Runs a plan within the run's limits: the first pass, the re-runs and the control.

    ``conditions``: the run's, without its agents, which are only known after their start. ``next_step`` None: no
    re-runs. ``base_agents`` None: no control. ``base_passes``: how often the base commit's agent runs every case beside
    the first pass, as the baseline. ``max_time`` and ``stall_timeout`` (the time without any answer) are in seconds;
    None: no limit. ``only``: a step that replaces everything else. ``first_pass`` False: other jobs have made it, with
    the control described by ``base``.
    """

    plan: Plan
    head: AgentGroup
    runner: AttemptRunner
    stop: StopRequest
    conditions: Conditions
    max_time: float | None = None
    stall_timeout: float | None = None
    next_step: NextStep | None = None
    base_agents: LazyBaseAgents | None = None
    base_passes: int = 0
    only: Run | None = None
    first_pass: bool = True
    base: Base | None = None
    _cut_short: str = field(default="", init=False)
    _first_pass_done: bool = field(default=False, init=False)
    _started: float = field(default=0.0, init=False)
    _phases: list[Phase] = field(default_factory=list, init=False)

    async def run(self) -> None:
        """Run and score everything; ``result`` returns the scores so far, even during the run."""
        self._started = asyncio.get_running_loop().time()
        for start in self.head.starts.values():
            start.add_done_callback(lambda _: self.runner.stall.record_progress())
        try:
            await self._run_until_stopped()
            await self._record_missing_control()
        finally:
            if self.base_agents is not None:
                await self.base_agents.stop()

    def result(self, started_at: str = "", seconds: float = 0.0) -> RunResult:
        """Return the run so far, without a decision."""
        # of an agent's conditions, those that other jobs of the run recorded count
        agents = {agent.agent: agent for agent in (*self.head.conditions(), *self.conditions.agents)}
        return self.runner.collector.result(
            self.runner.meter,
            seconds,
            started_at=started_at,
            status=self.stop.status,
            conditions=self.conditions.model_copy(update={"agents": tuple(agents.values())}),
            base=self.base,
            cut_short=self._cut_short,
            phases=tuple(self._phases),
        )

    async def _run_until_stopped(self) -> None:
        steps = asyncio.create_task(self._run_steps())
        stopped = asyncio.create_task(self.stop.requested.wait())
        stalled = asyncio.create_task(self._wait_for_stall())
        try:
            await asyncio.wait((steps, stopped, stalled), timeout=self.max_time, return_when=asyncio.FIRST_COMPLETED)
            if not steps.done():
                self._end_early(stalled.result() if stalled.done() else "")
        finally:
            for task in (stopped, stalled, steps):
                await _cancel(task)

    async def _wait_for_stall(self) -> str:
        def starting() -> bool:  # environments and imports have time limits of their own
            return self.head.starting or (self.base_agents is not None and self.base_agents.starting)

        if self.stall_timeout is None:
            await asyncio.Event().wait()
            return ""
        return await self.runner.stall.wait_for_stall(self.stall_timeout, excused=starting)

    def _end_early(self, stalled: str) -> None:
        """End at a limit. A cut first pass leaves cases unmeasured; cut re-runs leave doubts, which the gate weighs."""
        if not self.stop.requested.is_set() and self._first_pass_done:
            self._cut_short = stalled or f"max_time of {self.max_time:g} s was reached"
            self._warn(f"stopping: {self._cut_short}; the verdict stands on what there is")
        elif not self.stop.requested.is_set() and stalled:
            self._stop_at_limit(stalled)
        else:
            self.stop.request(RunStatus.TIMED_OUT)
            self._warn(f"stopping: the run {_ENDINGS[self.stop.status]}")

    async def _run_steps(self) -> None:
        meter, collector = self.runner.meter, self.runner.collector
        if self.only is not None:
            await self._take(self.only, control=self.base_agents is not None)
            return
        async with asyncio.TaskGroup() as tasks:
            if self.first_pass:
                tasks.create_task(self._run_first_pass())
            if self.first_pass and self.base_passes:
                # the base commit's agent runs every case too, under the same conditions
                every_case = dict.fromkeys((case for case, _ in self.plan.digests()), self.base_passes)
                why = "the base commit's agent runs everything, as the baseline"
                tasks.create_task(self._run_base(every_case, why))
        exhausted = meter.exhausted_reason()
        if self.first_pass and self.base_passes and exhausted and not self.stop.requested.is_set():
            self._stop_at_limit(f"{exhausted} while the base commit's agent ran as the baseline")
        self._first_pass_done = True
        control = self.base_agents is not None and not self.base_passes
        while self.next_step is not None and not self.stop.requested.is_set() and not self._cut_short:
            step = await asyncio.to_thread(self._ask, self.next_step, control=control)  # slow for large suites
            if isinstance(step, Stop):
                self._cut_short = step.reason if step.limited else ""
                return
            if exhausted := meter.exhausted_reason():  # a limit matters only if the gate requests more
                self._end_reruns(exhausted)
                return
            scores = collector.score_count()
            control = await self._take(step, control=control)
            stuck = collector.score_count() == scores and step.purpose != "control"
            if stuck and not self._cut_short and not meter.exhausted_reason():
                self._end_reruns("what was run again could not be measured")  # else the gate requests it forever

    def _ask(self, next_step: NextStep, *, control: bool) -> Step:
        return next_step(self.result(), control=control)

    async def _take(self, step: Run, *, control: bool) -> bool:
        """Make the attempts of a step; return whether the base's agent can still be run."""
        if step.purpose == "control":
            runs, head_runs = dict(step.attempts), dict(step.interleaved)
            return await self._run_base(runs, step.why, head_runs, errors_answer=step.errors_answer)
        await self._rerun(step, control=control)
        return control

    async def _run_first_pass(self) -> None:
        attempts = list(self.plan.attempts())
        kept = sum(planned.key in self.runner.previous for planned in attempts)
        self.runner.emit(RunPlanned(attempts=len(attempts), cases=self.plan.cases, kept=kept))
        await self._make("first", attempts, self.head)
        if next(self.runner.collector.unmade(), None) is not None:
            self._stop_at_limit(self.runner.meter.exhausted_reason())

    async def _rerun(self, step: Run, *, control: bool) -> None:
        wanted = {case: count for case, count in step.attempts if case.agent not in self.head.replay_only}
        attempts = self._plan_attempts(wanted, step.purpose, self.head)
        if not attempts:
            self._cut_short = "a recording cannot be run again"
            return
        self.runner.emit(RerunsPlanned(len(attempts), step.purpose, step.why))
        agents = frozenset(planned.key.agent for planned in attempts)
        if control and self.base_agents is not None and self.base_agents.open(agents):
            # the start overlaps the re-runs; no attempt is made before the gate requests one
            self.runner.emit(AgentStarting(BASE_AGENT, "starts beside, in case a control is needed"))
        await self._make(step.purpose, attempts, self.head)

    async def _run_base(
        self,
        wanted: Mapping[CaseKey, int],
        why: str,
        head_runs: Mapping[CaseKey, int] = MappingProxyType({}),
        *,
        errors_answer: bool = False,
    ) -> bool:
        """Run the base commit's agent, interleaved with this change's, so that drift affects both sides equally.

        ``errors_answer``: errors of the base's agent count as answers, and do not end its use. Returns whether the
        base's agent can be run again.
        """
        if self.base_agents is None:
            return False
        agents = frozenset(case.agent for case in wanted)
        self.base_agents.open(agents)
        if not self.base_agents.ready(agents):
            self.runner.emit(AgentStarting(BASE_AGENT, "starts"))
        group = await self.base_agents.group(agents)
        failed = await group.start_errors()
        self.runner.stall.record_progress()
        runnable = group.drivers.keys() - failed.keys()
        attempts = self._plan_attempts(
            {case: runs for case, runs in wanted.items() if case.agent in runnable}, "control", group
        )
        if attempts:
            excluded = failed.keys() | group.missing.keys() | self.head.replay_only
            own = {case: runs for case, runs in head_runs.items() if case.agent not in excluded}
            head_attempts = self._plan_attempts(own, "control", self.head)
            self.runner.emit(RerunsPlanned(len(attempts) + len(head_attempts), "control", why))
            await self._make("control", interleave(attempts, head_attempts), group, self.head)
        lacking, head_lacks = (
            {name for name, error in errors.items() if error.kind is ErrorKind.CREDENTIALS}
            for errors in (failed, await self.head.start_errors())
        )
        broken = {} if errors_answer else self.runner.collector.base_errors()
        broken |= {name: error for name, error in failed.items() if name not in lacking & head_lacks}
        commit = group.commit[:10]
        reasons = {name: f"the agent of {commit} could not be run: {error.message}" for name, error in broken.items()}
        self._record_run(group, lacking, {**group.missing, **reasons})
        return self.base is None or not self.base.unavailable

    def _record_run(self, group: AgentGroup, lacking: Iterable[str], unavailable: Mapping[str, str]) -> None:
        """Add these agents of the base commit to those of earlier controls, with those that could not be run."""
        base = self.base or Base()
        agents = {agent.agent: agent for agent in (*base.agents, *group.conditions())}
        self.base = base.model_copy(
            update={
                "commit": group.commit or None,
                "agents": tuple(agents.values()),
                "lacking": tuple(sorted({*base.lacking, *lacking})),
                "absent": tuple(sorted({*base.absent, *group.absent})),
                **unavailable_fields({**unavailable, **base.unavailable_agents}, self._runnable_agents),
            }
        )
        rest = "has no baseline" if self.base_passes else "verdict stands on history"
        if self.base.unavailable:
            self._warn(f"no control: {self.base.unavailable}; {'it' if self.base_passes else 'the'} {rest}")
            return
        for name, why in unavailable.items():
            if name not in base.unavailable_agents:
                self._warn(f"no control of {name}: {why}; {'it' if self.base_passes else 'its'} {rest}")

    @property
    def _runnable_agents(self) -> set[str]:
        return {planned.agent for planned in self.plan.sets} - self.head.replay_only

    async def _record_missing_control(self) -> None:
        """After an early end, record that a control was possible: without it the run neither fails nor passes."""
        if self.base is not None or self.base_agents is None or not (self._cut_short or self.stop.requested.is_set()):
            return
        opened = await self.base_agents.opened()
        if opened.missing:
            self.base = Base(commit=opened.commit or None, **unavailable_fields(opened.missing, self._runnable_agents))
        elif self.base_agents.commit:
            self.base = Base(commit=self.base_agents.commit)

    async def _make(self, purpose: Purpose, attempts: Sequence[PlannedAttempt], *groups: AgentGroup) -> None:
        """Make attempts and record their time span, even if they are interrupted."""
        clock = asyncio.get_running_loop().time
        start = clock()
        try:
            await self.runner.make(attempts, *groups)
        finally:
            since, seconds = round(start - self._started, 3), round(clock() - start, 3)
            self._phases.append(Phase(purpose=purpose, attempts=len(attempts), start=since, seconds=seconds))

    def _plan_attempts(self, runs: Mapping[CaseKey, int], purpose: Purpose, group: AgentGroup) -> list[PlannedAttempt]:
        """Plan this many attempts of each case, one of every case before the second of any."""
        starts = {case: self.runner.collector.next_repeat(case, group.name) for case in runs}
        repeats = {case: range(starts[case], starts[case] + count) for case, count in runs.items()}
        return list(self.plan.further(repeats, purpose, group.name))

    def _stop_at_limit(self, why: str) -> None:
        self._cut_short = why
        self.stop.request(RunStatus.LIMITED)
        self._warn(f"stopping: {why}")

    def _end_reruns(self, why: str) -> None:
        self._cut_short = why
        self._warn(f"no more re-runs: {why}")

    def _warn(self, text: str) -> None:
        self.runner.emit(Notice(text, level="warning"))


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task. Raises the task's own exception, but none caused by the cancellation."""
    if not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # the other tasks must still be cancelled
            await asyncio.wait({task}, timeout=_CANCEL_GRACE_S)
        return
    error = None if task.cancelled() else task.exception()
    while isinstance(error, BaseExceptionGroup):  # all workers hit the same full disk: report it once
        error = error.exceptions[0]
    if error is not None:
        raise error
