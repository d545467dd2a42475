"""Run the plan once, then whatever the gate of the run requests, until it stops or a limit is reached."""

from __future__ import annotations

import asyncio
import contextlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Protocol

from agent_eval_action.baseline.records import baseline_of, unmeasured_on_base, without_accepted, without_control
from agent_eval_action.config.models import Settings
from agent_eval_action.gate import Comparison, compare, decide
from agent_eval_action.gate.next_step import Run, Step, Stop, broken_code, describe_step, next_check, next_step
from agent_eval_action.gate.pairs import GateRules, GateState
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import Decision
from agent_eval_action.results.history import History
from agent_eval_action.results.run_result import (
    AttemptSummary,
    Base,
    CaseResult,
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
from agent_eval_action.run.plan import NOT_MEASURED, Plan, PlannedAttempt

_CANCEL_GRACE_S: Final = 2.0
_MEASURED_BASE: Final = "the base commit, run beside"
BASE_AGENT: Final = "main's agent"
"""The progress display's name for the base commit's agents."""
_ENDINGS: Final = {
    RunStatus.TIMED_OUT: "reached its max_time",
    RunStatus.INTERRUPTED: "was interrupted",
    RunStatus.LIMITED: "met a limit",
    RunStatus.INCOMPLETE: "lacks shards",
    RunStatus.COMPLETE: "is complete",
}


@dataclass(frozen=True)
class RunGate:
    """Applies the pure code of the gate to one run.

    ``adaptive``: cases that got worse are run again. ``may_lack_credentials``: cases that lack credentials are left
    out. ``withheld``: why the CI system gave the run no secrets. ``missing``: the credentials that models lack.
    """

    settings: Settings
    history: History = field(default_factory=History)
    adaptive: bool = False
    may_lack_credentials: bool = False
    withheld: str = ""
    missing: tuple[str, ...] = ()
    _last: list[tuple[RunResult, Comparison]] = field(default_factory=list, init=False)

    @property
    def asks_base_for_withheld(self) -> bool:
        """Whether a case that lacks credentials is excused only if the base commit's agent lacks them too."""
        return self.may_lack_credentials and bool(self.withheld)

    def next_step(self, result: RunResult, *, control: bool) -> Step:
        """Return what to run next. ``control``: whether the base commit's agent can be run."""
        if control and self.asks_base_for_withheld and (cases := _cases_to_ask_on_base(result)):
            why = f"whether main's agent answers without credentials what this change's does not ({len(cases):,} cases)"
            return Run("control", tuple((case, 1) for case in cases), why)
        if not self.adaptive:
            return Stop("nothing is run again")
        result = self.without_unanswered(result)
        compared, comparison = self._compare(result)
        state = GateState(comparison.pairs, control, comparison.extra)
        rules = GateRules(self.settings.policy, self.settings.max_extra_runs, compared.conditions.adaptive)
        step = next_step(state, rules)
        if not isinstance(step, Stop):
            return replace(step, why=describe_step(step, state))
        return next_check(result, rules, control=control, without=comparison.cases_set_aside) or step

    def without_unanswered(self, result: RunResult) -> RunResult:
        """Return the result with cases that lack credentials marked as not measured."""
        return _mark_unanswered(result, self.withheld, self.missing) if self.may_lack_credentials else result

    def decide(self, result: RunResult) -> Decision:
        """Return the decision on a result marked by ``without_unanswered``."""
        compared, comparison = self._compare(result)
        self._last.clear()  # this is the last comparison, and the reports need the memory
        # from all attempts, including the base commit's
        return decide(comparison, compared, self.settings.policy, broken_code(result))

    def _compare(self, result: RunResult) -> tuple[RunResult, Comparison]:
        """Return the run, and its comparison with the stored history or with the base agent's scores in this run."""
        if self.settings.baseline.store != "rerun":
            if not self._last or not _same_measurements(self._last[0][0], result):
                self._last[:] = [(result, compare(self.history, result))]
            return result, self._last[0][1]
        record = without_accepted(baseline_of(result), self.history.pending)
        history = replace(self.history, pooled=record if record and record.cases else None, source=_MEASURED_BASE)
        compared = without_control(result)
        return compared, compare(history, compared, unmeasured=unmeasured_on_base(result))


def _same_measurements(before: RunResult, now: RunResult) -> bool:
    """Whether nothing was measured in between, so that the last step and the verdict can share one comparison."""
    same_sets = len(before.sets) == len(now.sets) and all(map(operator.is_, before.sets, now.sets))
    return same_sets and before.base == now.base and before.conditions == now.conditions


def _cases_to_ask_on_base(result: RunResult) -> tuple[CaseKey, ...]:
    """Return cases unanswered for lack of credentials that the base commit's agent has not been tried on.

    The change's agent alone cannot excuse a case: it could claim this for exactly the cases that got worse.
    """
    known = {*result.base.lacking, *result.base.unavailable_agents} if result.base else set()
    return tuple(
        key
        for key, case in result.keyed_cases()
        if key.agent not in known and not case.control and _missing_message(case.attempts)
    )


def _mark_unanswered(result: RunResult, withheld: str, missing: Iterable[str]) -> RunResult:
    """Return the result with cases that the agent could not answer for lack of credentials marked as not measured.

    A case with any answered attempt stays: it had credentials. ``withheld``: why CI gave the run no secrets, "" if it
    gave them; if set, a case is left out only if the base commit's agent could not answer it either. ``missing``: the
    credentials that the judges' models lack. Pure.
    """
    reasons = {id(case): _missing_message(case.attempts) for eval_set in result.sets for case in eval_set.cases}
    messages = tuple(dict.fromkeys(filter(None, (*missing, *reasons.values()))))
    if not messages:
        return result
    conditions = result.conditions.model_copy(update={"withheld": withheld, "lacking": messages})
    sets = []
    for eval_set in result.sets:
        excused = not withheld or (result.base is not None and eval_set.agent in result.base.lacking)
        cases = (_excuse(case, excused=excused) if reasons[id(case)] else case for case in eval_set.cases)
        sets.append(eval_set.model_copy(update={"cases": tuple(cases)}))
    return result.model_copy(update={"sets": tuple(sets), "conditions": conditions})


def _excuse(case: CaseResult, *, excused: bool) -> CaseResult:
    """Return a case without an answer as not measured if main's agent lacks credentials too, else as an error."""
    if excused or _missing_message(case.control):
        return case.model_copy(update={"unmeasured": NOT_MEASURED, "attempts": (), "control": ()})
    kind, words = ErrorKind.CREDENTIALS, "it is not known whether main's agent needs credentials here"
    if any(attempt.error is None for attempt in case.control):
        kind, words = ErrorKind.EXCEPTION, "main's agent answers this without credentials, this change's says"
    errors = [(attempt, attempt.error) for attempt in case.attempts if attempt.error is not None]
    attempts = (
        attempt.model_copy(
            update={"error": error.model_copy(update={"kind": kind, "message": f"{words}: {error.message}"})}
        )
        for attempt, error in errors
    )
    return case.model_copy(update={"attempts": tuple(attempts)})


def _missing_message(attempts: Sequence[AttemptSummary]) -> str:
    """Return the missing credentials if all attempts failed for lack of them; else ""."""
    errors = [attempt.error for attempt in attempts]
    lacking = [error.message for error in errors if error is not None and error.kind is ErrorKind.CREDENTIALS]
    return lacking[0] if lacking and len(lacking) == len(errors) else ""


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
