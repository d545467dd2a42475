"""The loop: one pass over everything, then whatever the gate asks for, until it has enough or a limit is met."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.gate.evidence import Enough, RerunSuite, RerunSuspects, RunControl, Step
from agent_eval_action.results.run_result import AttemptError, Base, CaseKey, ErrorKind, Purpose, RunStatus
from agent_eval_action.run.attempt_runner import AttemptRunner, interleave
from agent_eval_action.run.base_agents import AgentGroup, LazyBaseAgents, OpenBaseAgents
from agent_eval_action.run.events import Notice, PhaseStarted, RerunsPlanned, RunPlanned
from agent_eval_action.run.plan import Plan, PlannedAttempt

_STOP_GRACE_S = 2.0
_PHASES: Final[dict[Purpose, str]] = {"rerun": "re-running", "suite": "the suite again", "control": "control"}


@dataclass
class StopRequest:
    """Why and whether the run is to end early. ``request`` may be called from a signal handler of the loop."""

    status: RunStatus = RunStatus.COMPLETE
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    _event: asyncio.Event = field(default_factory=asyncio.Event)

    def request(self, status: RunStatus) -> None:
        """End the run; the first reason stays. ``interrupted`` is set whenever somebody asked, also afterwards."""
        if status is RunStatus.INTERRUPTED:
            self.interrupted.set()
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


class Gate(Protocol):
    """What the loop asks after each step: the pure decision code, over what was measured so far."""

    def __call__(self, *, control: bool) -> Step:
        """The next step. ``control``: whether the base commit's agent can be run."""
        ...


@dataclass
class Orchestrator:
    """One run over a plan. ``max_time`` is in seconds from its start; None: no bound.

    ``stall_timeout``: the seconds without any answer after which the run ends; None: no bound.

    ``base_passes``: how often the base commit's agent runs everything beside the first pass, in the place
    of a stored history.

    ``controllable``: what the control would run, None where there is nothing. What was measured is in
    ``crew.collector``; what became of the control in ``base``, also when the run ended before it was made;
    ``cut_short`` is the limit that ended the re-runs before everything was decided.
    """

    plan: Plan
    head: AgentGroup
    crew: AttemptRunner
    stop: StopRequest
    max_time: float | None = None
    stall_timeout: float | None = None
    gate: Gate = field(default=lambda *, control: Enough("nothing was asked for"))  # noqa: ARG005 - a Gate
    open_base: OpenBaseAgents | None = None
    controllable: Base | None = None
    base_passes: int = 0
    base: Base | None = None
    cut_short: str = ""
    _bases: LazyBaseAgents | None = None
    _passed: bool = False

    async def run(self) -> float:
        """Make and score everything. Returns the seconds it took."""
        began = time.monotonic()
        self._bases = LazyBaseAgents(self.open_base) if self.open_base is not None else None
        for start in self.head.starts.values():
            start.add_done_callback(lambda _: self.crew.progress.made())
        try:
            await self._until_stopped(self._work())
            self._leave_open()
        finally:
            if self._bases is not None:
                await self._bases.stop()
        return time.monotonic() - began

    async def _until_stopped(self, coroutine: Coroutine[None, None, None]) -> None:
        work = asyncio.create_task(coroutine)
        stopped = asyncio.create_task(self.stop.wait())
        stalled = asyncio.create_task(self._stalled())
        try:
            await asyncio.wait({work, stopped, stalled}, timeout=self.max_time, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self._end_early(stalled.result() if stalled.done() else "")
        finally:
            await _cancel(stopped)
            await _cancel(stalled)
            await _cancel(work)

    async def _stalled(self) -> str:
        """Return why the run is to end, when nothing was answered for too long."""
        if self.stall_timeout is None:
            await asyncio.Event().wait()
            raise AssertionError("nothing sets that event")
        return await self.crew.progress.stalled(self.stall_timeout, excused=self._agents_start)

    def _agents_start(self) -> bool:
        """Whether an agent is being started: building its environment and importing it have bounds of their own."""
        head = any(not start.done() for start in self.head.starts.values())
        return head or (self._bases is not None and self._bases.starting)

    def _end_early(self, stalled: str) -> None:
        """A first pass cut off leaves cases unmeasured; re-runs cut off leave doubts, which the gate weighs."""
        if not self.stop.requested and self._passed:
            self.cut_short = stalled or f"max_time of {self.max_time:g} s was reached"
            self.crew.emit(Notice(f"stopping: {self.cut_short}; the verdict stands on what there is", level="warning"))
            return
        if not self.stop.requested and stalled:
            self._limited(stalled)
            return
        self.stop.request(RunStatus.TIMED_OUT)
        self.crew.emit(Notice(f"stopping: the run {_WORDS[self.stop.status]}", level="warning"))

    def _leave_open(self) -> None:
        """A control that could have been made and was cut off leaves open what it was for: no regression, no pass."""
        if self.base is None and (self.cut_short or self.stop.requested):
            self.base = self.controllable
            if self._bases is not None and (known := self._bases.known()).missing:
                self.base = Base(commit=known.commit or None)
                self._record_unavailable(known.missing)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._first_pass())
            if self.base_passes:
                group.create_task(self._whole_base())
        if self.base_passes and (met := self.crew.spending.met()) and not self.stop.requested:
            self._limited(f"{met} while the base commit's agent ran as the baseline")
        self._passed = True
        control = self.open_base is not None and not self.base_passes
        while not self.stop.requested:
            step = await asyncio.to_thread(self.gate, control=control)
            if isinstance(step, Enough):
                self.cut_short = step.reason if step.limited else ""
                return
            if spent := self.crew.spending.met():  # asked for only where something is still wanted
                self._cut(spent)
                return
            before = self.crew.collector.scored()
            if isinstance(step, RunControl):
                control = await self._control(step)
            else:
                await self._again(step, control=control)
            if not self._may_go_on(step, before):
                return

    async def _first_pass(self) -> None:
        crew, plan = self.crew, self.plan
        attempts = sum(1 for _ in plan.attempts())
        kept = sum(planned.key in crew.kept for planned in plan.attempts()) if crew.kept else 0
        crew.emit(PhaseStarted("run", f"{plural(plan.cases, 'case')}, {plural(attempts, 'attempt')}"))
        crew.emit(RunPlanned(attempts=attempts, cases=plan.cases, kept=kept))
        await crew.make(plan.attempts(), self.head)
        if not crew.collector.complete():
            self._limited(crew.spending.met())

    def _limited(self, why: str) -> None:
        self.cut_short = why
        self.stop.request(RunStatus.LIMITED)
        self.crew.emit(Notice(f"stopping: {why}", level="warning"))

    async def _again(self, step: RerunSuspects | RerunSuite, *, control: bool) -> None:
        purpose: Purpose = "rerun" if isinstance(step, RerunSuspects) else "suite"
        attempts = [(case, count) for case, count in _by_case(step) if case.agent not in self.head.fixed]
        planned = self._planned(attempts, purpose, self.head)
        if not planned:
            self.cut_short = "a recording cannot be run again"
            return
        self._announce(purpose, len(planned), step.why)
        agents = frozenset(one.key.agent for one in planned)
        if control and self._bases is not None and self._bases.begin(agents):
            # its start overlaps the re-runs; no attempt of it is made before the gate asks for one
            self.crew.emit(Notice("the base commit's agent is started beside, in case a control is needed"))
        await self.crew.make(planned, self.head)

    async def _whole_base(self) -> None:
        """Everything on the base commit's agent: measured now, under the conditions of this run."""
        cases = dict.fromkeys((case for case, _ in self.plan.digests()), self.base_passes)
        await self._on_base(list(cases.items()), "the base commit's agent runs everything, as the baseline")

    async def _control(self, step: RunControl) -> bool:
        """Run the base commit's agent on suspects. Returns whether it can be asked for again."""
        beside = [(case, runs) for case, runs in step.beside if isinstance(case, CaseKey)]
        return await self._on_base(_by_case(step), step.why, beside, errors_answer=step.errors_answer)

    async def _on_base(
        self,
        wanted: list[tuple[CaseKey, int]],
        why: str,
        beside: Iterable[tuple[CaseKey, int]] = (),
        *,
        errors_answer: bool = False,
    ) -> bool:
        """Run the base commit's agent, and in turn with it this change's: what drifts then meets both."""
        if self._bases is None:
            return False
        arm = await self._opened(self._bases, frozenset(case.agent for case, _ in wanted))
        failed = {name: error for name, error in (await _started(arm)).items() if error is not None}
        self.crew.progress.made()
        able = arm.drivers.keys() - failed.keys()
        planned = self._planned([item for item in wanted if item[0].agent in able], "control", arm)
        if planned:
            unable = failed.keys() | arm.missing.keys() | self.head.fixed
            again = self._planned([item for item in beside if item[0].agent not in unable], "control", self.head)
            self._announce("control", len(planned) + len(again), why)
            await self.crew.make(interleave(planned, again), arm, self.head)
        self._record_run(arm, failed)
        here = await _started(self.head)
        lacking = {name for name, error in failed.items() if error.kind is ErrorKind.CREDENTIALS}
        broken = {} if errors_answer else self.crew.collector.base_errors()
        broken |= {n: error for n, error in failed.items() if not (n in lacking and _kind(here[n]) is error.kind)}
        short = arm.commit[:10]
        said = {name: f"the agent of {short} could not be run: {error.message}" for name, error in broken.items()}
        self._say_unavailable(self._record_unavailable({**arm.missing, **said}))
        return self.base is None or not self.base.unavailable

    async def _opened(self, bases: LazyBaseAgents, agents: frozenset[str]) -> AgentGroup:
        bases.begin(agents)
        if not bases.ready(agents):
            self.crew.emit(PhaseStarted("control", "starting the base commit's agent"))
        return await bases.opened(agents)

    def _record_run(self, arm: AgentGroup, failed: Mapping[str, AttemptError]) -> None:
        """Record the agents of the base commit that were run now, beside those of earlier controls."""
        base = self.base or Base()
        agents = {said.agent: said for said in (*base.agents, *arm.conditions())}
        lacking = {name for name, error in failed.items() if error.kind is ErrorKind.CREDENTIALS} | {*base.lacking}
        update = {"commit": arm.commit or None, "agents": tuple(agents.values()), "lacking": tuple(sorted(lacking))}
        update["absent"] = tuple(sorted({*base.absent, *arm.absent}))
        self.base = base.model_copy(update=update)

    def _record_unavailable(self, agents: Mapping[str, str]) -> dict[str, str]:
        """Record why agents of the base commit cannot be run. Returns those not recorded before."""
        base = self.base or Base()
        known = {**agents, **base.unavailable_agents}
        if known and known.keys() >= {planned.agent for planned in self.plan.sets} - self.head.fixed:
            why = "; ".join(dict.fromkeys(known.values()))
            self.base = base.model_copy(update={"unavailable": why, "unavailable_agents": {}})
        else:
            self.base = base.model_copy(update={"unavailable_agents": known})
        return {name: why for name, why in agents.items() if name not in base.unavailable_agents}

    def _say_unavailable(self, agents: Mapping[str, str]) -> None:
        if self.base is not None and self.base.unavailable:
            rest = "it has no baseline" if self.base_passes else "the verdict stands on history"
            self.crew.emit(Notice(f"no control: {self.base.unavailable}; {rest}", level="warning"))
            return
        rest = "it has no baseline" if self.base_passes else "its verdict stands on history"
        for name, why in agents.items():
            self.crew.emit(Notice(f"no control of {name}: {why}; {rest}", level="warning"))

    def _planned(
        self, wanted: Iterable[tuple[CaseKey, int]], purpose: Purpose, arm: AgentGroup
    ) -> list[PlannedAttempt]:
        """The attempts asked for, one of every case before the second of any."""
        counts = dict(wanted)
        starts = {case: self.crew.collector.made(case, arm.name) for case in counts}
        most = max(counts.values(), default=0)
        return [
            planned
            for planned in self.plan.further(starts, most, purpose, arm.name)
            if planned.key.repeat < starts[planned.key.case_key] + counts[planned.key.case_key]
        ]

    def _announce(self, purpose: Purpose, attempts: int, why: str) -> None:
        self.crew.emit(PhaseStarted(_PHASES[purpose], why))
        self.crew.emit(RerunsPlanned(attempts, purpose, why))

    def _may_go_on(self, step: Step, before: int) -> bool:
        """Whether asking again can lead anywhere: a step that brought no score would be asked for for ever."""
        spent, brought = self.crew.spending.met(), self.crew.collector.scored() > before
        if not self.cut_short and not spent and not brought and not isinstance(step, RunControl):
            self._cut("what was run again could not be measured")
        return not self.cut_short

    def _cut(self, why: str) -> None:
        self.cut_short = why
        self.crew.emit(Notice(f"no more re-runs: {why}", level="warning"))


def _by_case(step: RerunSuspects | RerunSuite | RunControl) -> list[tuple[CaseKey, int]]:
    return [(case, count) for case, count in step.attempts if isinstance(case, CaseKey)]


async def _started(arm: AgentGroup) -> dict[str, AttemptError | None]:
    said = {name: await asyncio.shield(task) for name, task in arm.starts.items()}
    return {name: one if isinstance(one, AttemptError) else None for name, one in said.items()}


def _kind(error: AttemptError | None) -> ErrorKind | None:
    return None if error is None else error.kind


_WORDS = {
    RunStatus.TIMED_OUT: "reached its max_time",
    RunStatus.INTERRUPTED: "was interrupted",
    RunStatus.LIMITED: "met a limit",
    RunStatus.COMPLETE: "is complete",
}


async def _cancel(task: asyncio.Task[Any]) -> None:
    """End a task; what it raised on its own is raised here, what the cancelling causes is not."""
    if not task.done():
        task.cancel()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(_settled(task)), _STOP_GRACE_S)
        return
    if not task.cancelled() and (error := task.exception()) is not None:
        raise _unwrapped(error)


async def _settled(task: asyncio.Task[Any]) -> None:
    await asyncio.wait({task})


def _unwrapped(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):  # all workers meet the same full disk: one of them says it
        error = error.exceptions[0]
    return error
