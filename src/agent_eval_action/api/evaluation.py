"""One evaluation: read the checkout, start the agents, measure, decide, and record."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import os
import platform
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from agent_eval_action import __version__, stats
from agent_eval_action.agents import AGENTS
from agent_eval_action.agents.adk import LOGS
from agent_eval_action.agents.base import AgentDriver, DriverContext
from agent_eval_action.baseline.accepted import unknown
from agent_eval_action.baseline.history_session import HistorySession, open_history_session
from agent_eval_action.baseline.records import PASSES
from agent_eval_action.ci import Job
from agent_eval_action.config.discovery import Discovery
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.config.types import ShardOption
from agent_eval_action.criteria import warm_up
from agent_eval_action.diagnostics.reader import Source
from agent_eval_action.diagnostics.validation import validated
from agent_eval_action.errors import AgentEvalError, Problem, ResultsError, UsageError
from agent_eval_action.folders import OutputFolder, relative
from agent_eval_action.gate.next_step import Step, Stop
from agent_eval_action.gate_changes.changes import GateChanges, detect_changes
from agent_eval_action.gate_changes.snapshot import CommandContext
from agent_eval_action.git.base_commit import commit_behind, resolve_base
from agent_eval_action.git.repository import Repository, agents_running
from agent_eval_action.llm.budget import Meter
from agent_eval_action.processes.process import ForkServers, kill_children
from agent_eval_action.reports import results_json
from agent_eval_action.results.decision import Decision
from agent_eval_action.results.redaction import Redaction
from agent_eval_action.results.run_result import (
    AttemptError,
    Conditions,
    Provenance,
    RunResult,
    RunStatus,
    Shard,
    ShardProblem,
    ShardTrouble,
)
from agent_eval_action.results.transcripts import TranscriptWriter
from agent_eval_action.run import resources, resume
from agent_eval_action.run.affected import AffectedAgents, affected_agents, hidden_files
from agent_eval_action.run.attempt_runner import AttemptRunner, StallDetector, stall_timeout
from agent_eval_action.run.base_agents import (
    AgentGroup,
    BaseCommit,
    BaseUnavailable,
    LazyBaseAgents,
    StartTask,
    find_base,
    open_base_agents,
)
from agent_eval_action.run.collector import ResultCollector
from agent_eval_action.run.events import AgentStarted, AgentStarting, Event, Notice, NoticeLevel, SuiteRead
from agent_eval_action.run.loader import Loader, discover_eval_files, names_of
from agent_eval_action.run.orchestrator import Orchestrator, RunGate, StopRequest
from agent_eval_action.run.plan import NOT_MEASURED, Plan, mark_unmeasured
from agent_eval_action.run.shards import (
    CaseSeconds,
    JoinedShards,
    ShardPart,
    ShardResult,
    Wave,
    configuration_digest,
    divide,
    join_shards,
    refuse_combinations,
    share_limits,
    wave_of,
)
from agent_eval_action.sandbox.sandboxes import Level, Sandboxes

_TRACEBACK_LINES = 8
_MOST_FILES = 10_000
_STOP_S = 2.5
"""How long attempts and workers may take to end after an interrupt, before the partial result is built."""
_CLEAN_S = 2.5
"""How long they may take after the files are written. GitHub's runner kills ten seconds after its first signal."""


@dataclass(frozen=True)
class RunContext:
    """The environment and callbacks of a run, besides its settings.

    ``repeats`` overrides the settings' (baselines are made with more). ``flags``: the command's flags as typed, which
    also apply to the base commit's settings. ``job``: what CI reports about the run. ``while_agents_start`` is called
    in a thread while the agents start. ``fork_servers`` may be shared with other runs. ``hide_secrets`` is called with
    secrets before anything that may contain them is emitted. ``unaffected``: agents whose attempts are resumed although
    files of the checkout have changed.
    """

    environ: Mapping[str, str]
    emit: Callable[[Event], None]
    stop: StopRequest
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    selectors: tuple[str, ...] = ()
    repeats: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    cwd: Path | None = None
    job: Job = field(default_factory=Job)
    while_agents_start: Callable[[], None] = lambda: None
    fork_servers: ForkServers = field(default_factory=ForkServers)
    redaction: Redaction = field(default_factory=Redaction)
    hide_secrets: Callable[[Iterable[str]], None] | None = None
    unaffected: frozenset[str] = frozenset()

    @property
    def may_lack_credentials(self) -> bool:
        """Whether the run tolerates missing credentials: on a pull request, but not to make a complete baseline."""
        return self.job.may_lack_credentials and self.repeats is None

    def note(self, notes: Iterable[str], level: NoticeLevel = "info") -> None:
        for text in notes:
            self.emit(Notice(text, level))

    def warn(self, warnings: Iterable[str]) -> None:
        self.note(warnings, "warning")


@dataclass(frozen=True)
class _Scope:
    """The inputs of a run, read before any agent starts, so that no agent can change them in the checkout.

    ``settings``: those in force. ``hidden``: files that no agent may see, relative to the workspace. ``skipped``:
    agents that the change does not affect. ``conditions``: the run's, without its agents. ``main_commit``: main's
    newest recorded commit, "" if unknown. ``part``: what this shard measures of the plan; ``joined``: what the merged
    shards have measured.
    """

    settings: Settings
    conditions: Conditions
    partial: bool
    agents: tuple[AgentSettings, ...]
    found: Discovery
    change: GateChanges
    hidden: frozenset[Path]
    skipped: tuple[str, ...]
    session: HistorySession
    base: BaseCommit | BaseUnavailable
    main_commit: str
    part: ShardPart | None = None
    joined: JoinedShards | None = None

    @property
    def out(self) -> OutputFolder:
        """The folder for the run's output."""
        return self.settings.output_folder(self.settings.out)


@dataclass(frozen=True, slots=True)
class _Agents:
    """This change's agents while they start. ``warm_up`` ends when the slow imports are done."""

    head: AgentGroup
    provenance: Mapping[str, Provenance]
    warm_up: asyncio.Task[None]
    shard: Shard | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """The orchestrator of a run, and what decides about and records its result.

    ``functions``: the base's metric functions that score this run. ``shard``: set if this is a part of a run, which is
    not decided. ``joined``: the merged parts of this run.
    """

    orchestrator: Orchestrator | JoinedShards
    gate: RunGate
    functions: resources.BaseMetricFunctions | None
    shard: Shard | None = None
    joined: JoinedShards | None = None

    def result(self, started_at: str, seconds: float) -> RunResult:
        """Return the run so far, without a decision."""
        if self.joined is not None:
            started_at, seconds = self.joined.started_at or started_at, seconds + self.joined.seconds
        result = self.orchestrator.result(started_at, seconds)
        if self.shard is not None:  # the merged run decides which cases lack credentials
            conditions = result.conditions.model_copy(update={"lacking": self.gate.missing})
            return result.model_copy(update={"shard": self.shard, "conditions": conditions})
        result = self.gate.without_unanswered(result)
        return result if self.joined is None else result.model_copy(update={"merge": self.joined.block})


@dataclass
class Evaluation:
    """Evaluates a checkout: measure everything the settings name, re-run what is in doubt, compare, and decide.

    Writes attempts.jsonl and blobs/ while it runs; the caller writes the other files.
    """

    settings: Settings
    context: RunContext
    measurement: Measurement | None = field(default=None, init=False)
    _plans: tuple[Plan, Plan] | None = field(default=None, init=False)
    _scored_by_events: frozenset[str] = field(default=frozenset(), init=False)
    _work: asyncio.Task[RunResult] | None = field(default=None, init=False)
    _began: float = field(default_factory=time.monotonic, init=False)
    _started_at: str = field(default_factory=lambda: dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), init=False)

    async def result(self) -> RunResult:
        """Return the decided run. After an interrupt it returns within seconds, with what was measured so far.

        Raises the errors of ``errors`` for problems found before anything was measured.
        """
        self._work = asyncio.create_task(self._evaluate())
        interrupt = asyncio.create_task(self.context.stop.interrupted.wait())
        try:
            await asyncio.wait({self._work, interrupt}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._work.cancel()
            await asyncio.wait({self._work})
            raise
        finally:
            interrupt.cancel()
        if not self._work.done():
            if self.measurement is None:  # nothing checks the stop request yet: threads and processes are at work
                self._work.cancel()
            await asyncio.wait({self._work}, timeout=_STOP_S)
        if not self._work.done() or self._work.cancelled():
            return self.interrupted()
        if self.context.stop.interrupted.is_set() and not isinstance(self._work.exception(), AgentEvalError | None):
            return self.interrupted()  # interrupted work may fail in any way
        return self._work.result()

    def interrupted(self) -> RunResult:
        """Return and decide the run so far, without waiting for anything."""
        self.context.stop.request(RunStatus.INTERRUPTED)
        if self.measurement is None:
            conditions = Conditions(tool_version=__version__, change=self.context.job.commit)
            result = RunResult(started_at=self._started_at, status=self.context.stop.status, conditions=conditions)
            return self._decided(result, RunGate(self.settings).decide(result))
        result = self._measured(self.measurement)
        return result if result.shard else self._decided(result, self.measurement.gate.decide(result))

    async def end(self) -> None:
        """After an interrupt, let unfinished work clean up for a moment, then kill its processes."""
        if self._work is not None:
            await asyncio.wait({self._work}, timeout=_CLEAN_S)
        kill_children()
        if self._work is None or not self._work.done():
            resources.redact_logs(self.settings.output_folder(self.settings.out / LOGS), self.context.redaction)

    async def _evaluate(self) -> RunResult:
        scope = await self._read_scope()
        if isinstance(scope, RunResult):
            return scope
        if scope.settings.merge:
            scope, joined = await self._join(scope)
            if (settled := await self._measured_by_shards(scope, joined)) is not None:
                self.measurement = settled
                return await self._conclude(scope, settled)
        elif scope.settings.shard:
            scope = await self._take_shard(scope, scope.settings.shard)
        async with contextlib.AsyncExitStack() as stack:
            agents = await self._start_agents(scope, stack)
            orchestrator, self.measurement = await self._prepare(scope, agents, stack)
            await orchestrator.run()
        if self.context.stop.status is RunStatus.COMPLETE:
            resume.discard_previous_attempts(scope.out)
        return await self._conclude(scope, self.measurement)

    async def case_seconds(self) -> CaseSeconds | None:
        """Return the duration of each case by main's history; None if nothing is to be run."""
        scope = await self._read_scope()
        if isinstance(scope, RunResult):
            return None
        _, plan = await self._read_plans(scope)
        return await asyncio.to_thread(CaseSeconds.of_history, plan, scope.session, scope.skipped)

    async def next_wave(self, target: float) -> Wave | None:
        """Return the gate's next runs for the shards' results, if one job needs longer than ``target`` for them."""
        scope = await self._read_scope()
        if isinstance(scope, RunResult):
            return None
        _, plan = await self._read_plans(scope)
        scope, joined = await self._join(scope)
        step = await self._next_step(scope, joined, self._gate(scope, plan, joined.lacking))
        if isinstance(step, Stop):
            return None
        known = await asyncio.to_thread(CaseSeconds.of_history, plan, scope.session, scope.skipped)
        return wave_of(step, joined, known.seconds, scope.settings.concurrency, target)

    async def _take_shard(self, scope: _Scope, shard: ShardOption) -> _Scope:
        _, plan = await self._read_plans(scope)
        if (path := scope.settings.wave) is not None:
            wave = await asyncio.to_thread(_read_wave, path)
            part = ShardPart.of_wave(plan, shard, wave, path)
            return replace(scope, part=part, settings=share_limits(scope.settings, shard, wave.spent))
        known = await asyncio.to_thread(CaseSeconds.of_history, plan, scope.session, scope.skipped, shard.record)
        part = ShardPart.of_plan(plan, shard, divide(known.seconds, shard.count))
        return replace(scope, part=part, settings=share_limits(scope.settings, shard))

    async def _join(self, scope: _Scope) -> tuple[_Scope, JoinedShards]:
        settings, conditions, (_, plan) = scope.settings, scope.conditions, await self._read_plans(scope)
        given, unreadable = await asyncio.to_thread(_read_shards, settings.merge, settings.workspace)
        joined = await asyncio.to_thread(join_shards, given, unreadable, plan, conditions, Meter.for_run(settings))
        return replace(scope, joined=joined, conditions=joined.conditions), joined

    async def _measured_by_shards(self, scope: _Scope, joined: JoinedShards) -> Measurement | None:
        """Return the measurement of a merged run that needs no more runs; None if the gate requests some."""
        _, plan = await self._read_plans(scope)
        gate = self._gate(scope, plan, joined.lacking)
        step = await self._next_step(scope, joined, gate)
        if not isinstance(step, Stop):
            return None
        joined.settle(step, self._base_commit(scope, gate))
        if not joined.complete:
            self.context.stop.request(RunStatus.INCOMPLETE)
        functions = await asyncio.to_thread(scope.change.open_functions, plan, scope.agents)
        if functions is not None:
            functions.tree.release()
        with TranscriptWriter(scope.out) as writer:
            await asyncio.to_thread(joined.copy_transcripts, writer)
        return Measurement(joined, gate, functions, joined=joined)

    async def _next_step(self, scope: _Scope, joined: JoinedShards, gate: RunGate) -> Step:
        control, asked = scope.settings.baseline.store != "rerun", gate if self._uses_gate(gate) else None
        return await asyncio.to_thread(joined.next_step, asked, control=control)

    def _uses_gate(self, gate: RunGate) -> bool:
        return gate.adaptive or (self.context.repeats is None and gate.asks_base_for_withheld)

    def _base_commit(self, scope: _Scope, gate: RunGate) -> str:
        """Return the commit of the control, "" if no control is possible."""
        return scope.base.commit if self._uses_gate(gate) and isinstance(scope.base, BaseCommit) else ""

    def _gate(self, scope: _Scope, plan: Plan, lacking: Iterable[str]) -> RunGate:
        """Return the gate of this run. ``lacking``: the credentials that are missing for models."""
        context, settings = self.context, scope.settings
        history = scope.session.history(plan.suite(scope.skipped))
        if settings.baseline.store == "rerun":  # no record lists main's entries; the base's file does
            known = scope.change.known.snapshot.accepted if scope.change.known else ()
            history = replace(history, pending=tuple(entry for entry in history.pending if entry not in known))
        if not scope.partial:
            context.warn(str(problem) for problem in unknown(scope.session.entries, names_of(plan)))
        return RunGate(
            settings.model_copy(update={"policy": scope.change.settings_for(plan).policy}),
            history,
            adaptive=scope.conditions.adaptive and scope.part is None,
            may_lack_credentials=context.may_lack_credentials,
            withheld=context.job.withheld,
            missing=tuple(lacking),
        )

    async def _read_scope(self) -> _Scope | RunResult:
        """Read what to run and the rules for it. Returns a result if nothing can or needs to be run."""
        context, environ, event = self.context, self.context.environ, self.context.job.event
        refuse_combinations(self.settings)
        if warning := context.job.refuse(allowed=self.settings.allow_pull_request_target):
            context.warn([warning])
        repository = Repository(self.settings.workspace, environ)
        checkout = await asyncio.to_thread(resolve_base, repository, event)
        cwd = context.cwd or self.settings.start
        command = CommandContext(context.flags, environ, cwd, checkout.rules, event, context.selectors)
        change = await asyncio.to_thread(detect_changes, self.settings, command)
        if change.unreadable:
            return change.undecided(self._started_at, self._early_conditions(self.settings))
        found = discover_eval_files(change.settings, context.selectors)
        context.redaction.hide_matches(change.settings.redact)
        hide = context.hide_secrets or context.redaction.hide
        hide(resources.agent_secrets((planned.agent for planned in found.sets), environ, change.settings.workspace))
        context.note((*context.notes, *found.notes, *change.notes), "setup")
        context.note(found.left_out)
        of_base = (change.known.eval_files, change.known.scoring_files) if change.known else ()
        hidden = hidden_files(change.settings, found, *of_base)
        affected = AffectedAgents(found, change.settings)
        # a baseline must be complete, and every commit of main is run: later comparisons would miss a record
        if context.repeats is None and event.is_change:
            commits = checkout.exact_sha, checkout.head.sha if checkout.head else None
            hint = event.clone_hint.format(2)
            select = partial(affected_agents, workflow=context.job.definition, clone_hint=hint)
            affected = await asyncio.to_thread(select, change.settings, found, repository, commits)
        context.note(affected.notes)
        settings, found = affected.settings, affected.found
        if affected.nothing:
            return affected.result(self._started_at, self._early_conditions(settings))
        session = await asyncio.to_thread(open_history_session, settings, environ, event, change.stored)
        history = session.history()  # the suite's history is pooled after its files have been read
        context.warn(history.notes)
        newest = history.pooled.commit if history.pooled else None
        known = commit_behind(repository, newest, checkout.head)
        agents = tuple({planned.agent.name: planned.agent for planned in found.sets}.values())
        resources.refuse_unusable_agents(agents, settings.workspace, environ)
        return _Scope(
            settings=settings,
            conditions=self._conditions(settings),
            partial=bool(context.selectors or settings.case or affected.skipped),
            agents=agents,
            found=found,
            change=change,
            hidden=hidden,
            skipped=affected.skipped,
            session=session,
            base=find_base(settings, checkout.control(known), environ, event.clone_hint.format(2)),
            main_commit=newest or "",
        )

    def _early_conditions(self, settings: Settings) -> Conditions:
        commit = Repository(settings.workspace, os.environ).resolve("HEAD")
        return Conditions(tool_version=__version__, commit=commit, change=self.context.job.commit)

    def _conditions(self, settings: Settings) -> Conditions:
        context = self.context
        return self._early_conditions(settings).model_copy(
            update={
                "platform": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
                "repeats": context.repeats or settings.repeats,
                "adaptive": context.repeats is None and settings.adaptive,
                "concurrency": settings.concurrency,
                "threshold_on": settings.policy.threshold_on,
                "fail_on": settings.fail_on,
                "selection": (*context.selectors, *settings.case),
                "only_agents": settings.only_agents,
                "arguments": resume.cli_arguments(settings, context.selectors),
            }
        )

    async def _start_agents(self, scope: _Scope, stack: contextlib.AsyncExitStack) -> _Agents:
        """Start every agent in the background, overlapping with reading the eval files. ``stack`` ends them."""
        settings, context, environ = scope.settings, self.context, self.context.environ
        stack.push_async_callback(asyncio.to_thread, resources.redact_logs, scope.out / LOGS, context.redaction)
        provenance = await asyncio.to_thread(resume.attempt_provenance, settings, scope.agents, environ, scope.hidden)
        shard = await asyncio.to_thread(self._shard, scope, provenance)
        sandbox = await resources.open_sandbox(settings, environ, scope.agents, context.emit, scope.hidden)
        if sandbox is not None:
            stack.push_async_callback(asyncio.to_thread, sandbox.close)
        if self._is_exposed(sandbox):
            await self._read_plans(scope)
        needed = {planned.agent for planned in scope.part.plan.sets} if scope.part else None
        starting = [agent for agent in scope.agents if needed is None or agent.name in needed]
        loop = asyncio.get_running_loop()

        def say(name: str, text: str, level: Level) -> None:  # called in the thread that starts the agent
            event = Notice(f"{name}: {text}", level) if level == "warning" else AgentStarting(name, text)
            loop.call_soon_threadsafe(context.emit, event)

        def say_of_calls(name: str, text: str) -> None:
            if name in self._scored_by_events and not context.stop.interrupted.is_set():
                context.note([f"{name}: {text}"])

        def import_slow_modules() -> None:  # needed later; loaded while the agents start
            warm_up()
            if scope.session.found.records:
                stats.warm_up()
            context.while_agents_start()

        workspace, servers = settings.workspace, context.fork_servers

        def driver_of(agent: AgentSettings) -> AgentDriver:
            log, log_calls = partial(say, agent.name), partial(say_of_calls, agent.name)
            given = DriverContext(
                agent, settings, environ, workspace, sandbox, say=log, say_of_calls=log_calls, fork_servers=servers
            )
            return AGENTS[agent.driver](given)

        drivers = {agent.name: driver_of(agent) for agent in starting}
        warm = asyncio.create_task(asyncio.to_thread(import_slow_modules))
        stack.push_async_callback(partial(asyncio.gather, warm, return_exceptions=True))
        stack.enter_context(agents_running())
        recordings = resources.recordings(scope.agents)
        head = AgentGroup.start("head", drivers, replay_only=recordings, sandboxes=sandbox)
        for name, start in head.starts.items():
            start.add_done_callback(partial(self._report_start, name))
        return _Agents(head, provenance, warm, shard)

    def _is_exposed(self, sandbox: Sandboxes | None) -> bool:
        """Whether the change's code runs as our own user and could write the files that we read."""
        return sandbox is None and self.context.job.event.is_change

    def _shard(self, scope: _Scope, provenance: Mapping[str, Provenance]) -> Shard | None:
        if scope.part is None:
            return None
        base = scope.base.commit if scope.settings.baseline.store == "rerun" else ""
        code = resume.tracked_digest(scope.settings, self.context.environ)
        digest = configuration_digest(provenance, code, base or "")
        return scope.part.block.model_copy(update={"configuration": digest})

    def _report_start(self, name: str, start: StartTask) -> None:
        """Report an agent's environment once, or why it does not start, with the end of its traceback."""
        if start.cancelled() or start.exception() is not None:
            return
        result = start.result()
        if isinstance(result, AttemptError):
            tail = "\n".join(f"    {line}" for line in result.traceback.splitlines()[-_TRACEBACK_LINES:])
            self.context.warn([f"{name} does not start: {result.message}\n{tail}".rstrip()])
        else:
            self.context.emit(AgentStarted(name, result.adk_version, result.python, result.environment))

    async def _read_plans(self, scope: _Scope) -> tuple[Plan, Plan]:
        """Return the checkout's own plan, and the one with the base commit's criteria where those are in force."""
        if self._plans is None:
            loader = Loader(scope.settings.workspace, scope.settings.case)
            own = await asyncio.to_thread(loader.plan, scope.found, scope.conditions.repeats)
            self._plans = own, await asyncio.to_thread(scope.change.plan_in_force, own, scope.agents)
            self.context.warn(str(problem) for problem in (*self.context.warnings, *loader.warnings))
            self.context.note(loader.notes)
        return self._plans

    async def _prepare(
        self, scope: _Scope, agents: _Agents, stack: contextlib.AsyncExitStack
    ) -> tuple[Orchestrator, Measurement]:
        """Read the eval files and open the attempts' resources while the agents start. ``stack`` closes them."""
        closing: list[Callable[[], Awaitable[None]]] = [agents.head.stop]
        stack.push_async_callback(lambda: asyncio.gather(*(end() for end in closing), return_exceptions=True))
        settings, context, joined, sandbox = scope.settings, self.context, scope.joined, agents.head.sandboxes
        own, plan = await self._read_plans(scope)
        plan = scope.part.plan if scope.part else plan
        self._scored_by_events = plan.agents_scored_by_events()
        resources.expect_sessions(agents.head, plan)
        functions = await asyncio.to_thread(scope.change.open_functions, plan, scope.agents)
        if functions is not None:
            closing.append(partial(asyncio.to_thread, functions.tree.release))
        meter, stall = joined.meter if joined else Meter.for_run(settings), StallDetector()
        opener = resources.ResourceOpener(
            settings,
            context.environ,
            scope.agents,
            agents.head,
            meter,
            closing,
            say=lambda text: context.note([text]),
            # a run that writes history takes every vote anew, or history would understate the judges' noise;
            # a change that can write to the cache could have forged votes
            read_cache=context.repeats is None and not scope.session.recording and not self._is_exposed(sandbox),
            sandboxes=sandbox,
            may_lack=context.may_lack_credentials,
            base=functions,
            brought_along=scope.change.brought_along,
            observe=stall.observe_reply,
        )
        contexts, lacking = await opener.open(plan)
        plan = mark_unmeasured(plan, lacking, agents.head.replay_only)
        context.warn(dict.fromkeys(f"{NOT_MEASURED}: {sentence}" for sentence in lacking.values()))
        previous = resume.PreviousAttempts(agents.provenance)
        if settings.resume:
            load = partial(resume.load_previous_attempts, workspace=settings.workspace, unaffected=context.unaffected)
            previous = load(settings.resume, scope.out, plan, agents.provenance)
        context.warn(previous.warnings())
        gate = self._gate(scope, plan, dict.fromkeys((*(joined.lacking if joined else ()), *lacking.values())))
        writer = stack.enter_context(TranscriptWriter(scope.out))
        if joined is not None:
            await asyncio.to_thread(joined.copy_transcripts, writer)
        runner = AttemptRunner(
            agents.warm_up,
            writer,
            joined.collector if joined else ResultCollector(plan, scope.part.made if scope.part else {}),
            meter,
            context.emit,
            previous,
            contexts,
            context.redaction.value,
            stall,
            settings.concurrency,
            settings.retries,
        )
        orchestrator = self._orchestrator(scope, agents.head, own, runner, gate)
        return orchestrator, Measurement(orchestrator, gate, functions, agents.shard, joined)

    @staticmethod
    def _suite_read(scope: _Scope, plan: Plan) -> SuiteRead:
        measured_beside = scope.settings.baseline.store == "rerun" and isinstance(scope.base, BaseCommit)
        reference = scope.base.commit or "" if measured_beside else scope.main_commit
        agents = tuple(dict.fromkeys(planned.agent for planned in plan.sets))
        criteria = {info.name for planned in plan.sets for info in planned.infos}
        return SuiteRead(agents, plan.cases, len(criteria), reference)

    def _orchestrator(
        self, scope: _Scope, head: AgentGroup, own: Plan, runner: AttemptRunner, gate: RunGate
    ) -> Orchestrator:
        """Return the orchestrator of all attempts. ``own``: the checkout's own plan."""
        self.context.emit(self._suite_read(scope, runner.collector.plan))
        settings, context, base = scope.settings, self.context, scope.base
        part, joined = scope.part, scope.joined
        only = part.step if part else None
        uses_gate = self._uses_gate(gate) and part is None
        rerun = settings.baseline.store == "rerun" and context.repeats is None
        control = uses_gate or rerun or (only is not None and only.purpose == "control")

        async def open_base(names: frozenset[str]) -> AgentGroup:
            if isinstance(base, BaseUnavailable):
                return AgentGroup("base", commit=base.commit or "", missing=dict.fromkeys(names, base.reason))
            agents = [agent for agent in scope.agents if agent.name in names]
            earlier = await asyncio.to_thread(scope.change.agents_on_base, own, agents)
            await resources.wait_for_interpreters(head, names)
            return await open_base_agents(
                base, agents, partial(resources.make_base_driver, head, base, context.environ), earlier
            )

        commit = self._base_commit(scope, gate) if part is None else ""
        longest = max(settings.llm.timeout_s, *(agent.timeout_s for agent in scope.agents))
        return Orchestrator(
            runner.collector.plan,
            head,
            runner,
            context.stop,
            scope.conditions,
            settings.max_time,
            stall_timeout(settings.stall_timeout, longest),
            next_step=gate.next_step if uses_gate else None,
            base_agents=LazyBaseAgents(open_base, commit) if control else None,
            base_passes=max(PASSES, settings.repeats) if rerun else 0,
            only=only,
            first_pass=joined is None,
            base=joined.base if joined else None,
        )

    async def _conclude(self, scope: _Scope, measurement: Measurement) -> RunResult:
        """Decide, apply the change's effect on the gate, and record a run of main."""
        result, session = self._measured(measurement), scope.session
        if result.shard is not None:
            return result
        decision = measurement.gate.decide(result)
        own, _ = await self._read_plans(scope)
        whole = None if scope.partial else own
        decision = scope.change.apply_to(decision, whole, scope.agents, measurement.functions)
        decided = self._decided(result, decision)
        written = await asyncio.to_thread(session.add, decided)
        if written.stored or (session.event.name and session.store.written_by_runs):
            self.context.note([written.note])
        return decided

    def _measured(self, measurement: Measurement) -> RunResult:
        """Return the result so far. Secrets are removed before anything is decided or quoted."""
        seconds = time.monotonic() - self._began
        return self.context.redaction.value(measurement.result(self._started_at, seconds))

    def _decided(self, result: RunResult, decision: Decision) -> RunResult:
        return result.model_copy(update={"decision": self.context.redaction.value(decision)})


def _read_shards(paths: Sequence[Path], workspace: Path) -> tuple[list[ShardResult], list[ShardProblem]]:
    """Read every results.json in these files and folders, and report those that cannot be read.

    Raises UsageError for a path that does not exist.
    """
    found: list[ShardResult] = []
    problems: list[ShardProblem] = []
    for path in dict.fromkeys(file for given in paths for file in _results_files(given)):
        source = relative(path, workspace)
        try:
            data = path.read_bytes()
            result = results_json.parsed(path, data)
        except (OSError, AgentEvalError) as error:
            detail = error.message.removeprefix(str(path)) if isinstance(error, AgentEvalError) else str(error)
            problems.append(ShardProblem(kind=ShardTrouble.UNREADABLE, source=source, detail=detail.lstrip(":")))
        else:
            found.append(ShardResult(source, path.parent, result, hashlib.sha256(data).hexdigest()))
    return found, problems


def _results_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        files = sorted(islice(path.rglob(results_json.RESULTS), _MOST_FILES))
        yield from (file for file in files if file.is_file() and not file.is_symlink())
    else:
        raise UsageError(f"there are no results at {path}", hint="name the folders or files that the shards left")


def _read_wave(path: Path) -> Wave:
    """Read the file that ``agent-eval next-wave`` wrote. Raises ResultsError."""
    source = Source.read(path, workspace=None, error=ResultsError)
    return validated(source, Wave, f"{path} is no file of a wave", "`agent-eval next-wave` writes it")
