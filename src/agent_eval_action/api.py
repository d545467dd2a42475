"""Wires the real objects and runs the stages: files → plan → attempts → comparison → decision → reports."""

from __future__ import annotations

import asyncio
import datetime as dt
import platform
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agent_eval_action import __version__, git, stats
from agent_eval_action.agents.adk import LOGS
from agent_eval_action.baseline.accepted import Names, unknown
from agent_eval_action.baseline.file_store import FileStore
from agent_eval_action.baseline.history_session import HistorySession, open_history_session
from agent_eval_action.baseline.lookup import BaseBaseline
from agent_eval_action.baseline.pooling import (
    PASSES,
    baseline_of,
    unmeasured_on_base,
    without_accepted,
    without_control,
)
from agent_eval_action.baseline.records import Baseline
from agent_eval_action.ci import Job, detect
from agent_eval_action.config.discovery import Discovery, discover
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.criteria import warm_up
from agent_eval_action.errors import AgentEvalError, Problem
from agent_eval_action.formats import load_eval_file, parse_selector
from agent_eval_action.gate import compare, decide
from agent_eval_action.gate.broken_code import BrokenCode, broken_code, next_check
from agent_eval_action.gate.evidence import Enough, RunControl, Step
from agent_eval_action.gate.next_step import next_step
from agent_eval_action.gate.state import rules_of, scores_of, state_of
from agent_eval_action.gate.why import told
from agent_eval_action.gate_changes.changes import GateChanges, detect_changes
from agent_eval_action.git.base_commit import CheckoutBase, commit_behind, resolve_base
from agent_eval_action.llm.router import LlmSettings
from agent_eval_action.processes.managed import kill_children
from agent_eval_action.results.decision import Decision
from agent_eval_action.results.history import Accepted, History
from agent_eval_action.results.redaction import Redaction
from agent_eval_action.results.run_result import (
    AttemptError,
    CaseKey,
    Conditions,
    Provenance,
    RunResult,
    RunStatus,
)
from agent_eval_action.results.transcripts import TranscriptWriter
from agent_eval_action.run.affected import AffectedAgents, affected_agents, changed_files, declares_paths, hidden_files
from agent_eval_action.run.attempt_runner import (
    AttemptBudget,
    AttemptLimits,
    AttemptRunner,
    StallDetector,
    stall_timeout,
)
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
from agent_eval_action.run.events import Event, Notice, PhaseStarted
from agent_eval_action.run.loader import Loader, relative
from agent_eval_action.run.missing_credentials import (
    cases_to_ask_on_base,
    credential_warnings,
    mark_unanswered,
    mark_unmeasured,
)
from agent_eval_action.run.orchestrator import Orchestrator, RunLimits, StopRequest
from agent_eval_action.run.plan import Plan
from agent_eval_action.run.resources import (
    ResourceOptions,
    RunResources,
    add_redaction_patterns,
    agent_secrets,
    make_base_driver,
    make_driver,
    open_resources,
    open_sandbox,
    redact_logs,
    refuse_unusable_agents,
    wait_for_interpreters,
)
from agent_eval_action.run.resume import (
    PreviousAttempts,
    attempt_provenance,
    cli_arguments,
    discard_previous_attempts,
    load_previous_attempts,
)
from agent_eval_action.sandbox.sandboxes import Level, Sandboxes

_TAIL_LINES = 8
_STOP_S = 2.5
"""After an interrupt, for attempts and workers to end; then what there is is written."""
_CLEAN_S = 2.5
"""After the files are written, for what still runs. The runner kills ten seconds after its first signal."""


@dataclass(frozen=True)
class Context:
    """What a run is given besides its settings: the environment, and who listens."""

    environ: Mapping[str, str]
    emit: Callable[[Event], None]
    stop: StopRequest
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    selectors: tuple[str, ...] = ()
    repeats: int | None = None  # over the settings' (a baseline is made with more)
    flags: Mapping[str, Any] = field(default_factory=dict)  # as typed: the same words are read on the base
    cwd: Path | None = None
    meanwhile: Callable[[], None] = lambda: None  # done in a thread while the agents start
    job: Job = field(default_factory=Job)  # what CI says about this run
    redaction: Redaction = field(default_factory=Redaction)  # what is taken out of all that is kept
    hide: Callable[[Iterable[str]], None] | None = None  # told of secrets before anything that may hold them is said

    @property
    def may_lack(self) -> bool:
        """Whether credentials may be missing: on a pull request, but not for a baseline, which is whole or not made."""
        return self.job.may_lack_credentials and self.repeats is None


@dataclass
class Evaluation:
    """One run: everything the settings name, what is in doubt again, compared with the baseline and decided.

    Writes attempts.jsonl and blobs/ while it runs; the other files are the caller's.
    """

    settings: Settings
    context: Context
    run: _Run | None = None
    _work: asyncio.Task[RunResult] | None = None
    _began: float = field(default_factory=time.monotonic)
    _started_at: str = field(default_factory=lambda: dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))

    async def result(self) -> RunResult:
        """The decided run; within seconds of an interrupt as far as it came, whatever is being started or ended.

        Raises the errors of ``errors`` for what is wrong before anything was measured.
        """
        self._work = asyncio.create_task(_evaluate(self))
        interrupt = asyncio.create_task(self.context.stop.interrupted.wait())
        await asyncio.wait({self._work, interrupt}, return_when=asyncio.FIRST_COMPLETED)
        interrupt.cancel()
        if not self._work.done():
            if self.run is None or not self.run.measuring:  # nobody looks whether to stop: threads and processes work
                self._work.cancel()
            await asyncio.wait({self._work}, timeout=_STOP_S)
        if not self._work.done() or self._work.cancelled():
            return self.interrupted()
        if self.context.stop.interrupted.is_set() and not isinstance(self._work.exception(), AgentEvalError | None):
            return self.interrupted()  # what was broken off may end in any way
        return self._work.result()

    def interrupted(self) -> RunResult:
        """The run as far as it came, decided; nothing is waited for."""
        self.context.stop.request(RunStatus.INTERRUPTED)
        run, seconds = self.run, time.monotonic() - self._began
        found = run.result(self._started_at, seconds) if run is not None and run.measuring else None
        if found is None:
            conditions = Conditions(tool_version=__version__, change=self.context.job.commit)
            found = RunResult(started_at=self._started_at, status=self.context.stop.status, conditions=conditions)
        found = self.context.redaction.value(found)
        return judged(found, run.baseline if run is not None else None, self.settings)

    async def end(self) -> None:
        """After an interrupt: give what is still at work a moment to clean up, then kill its processes."""
        if self._work is not None:
            await asyncio.wait({self._work}, timeout=_CLEAN_S)
        kill_children()
        if self._work is None or not self._work.done():
            redact_logs(self.settings.output_folder(self.settings.out / LOGS), self.context.redaction)


async def _evaluate(evaluation: Evaluation) -> RunResult:
    settings, context = evaluation.settings, evaluation.context
    began, started_at = evaluation._began, evaluation._started_at  # noqa: SLF001 - two halves of one thing
    if warning := context.job.refuse(allowed=settings.allow_pull_request_target):
        context.emit(Notice(warning, level="warning"))
    upon = await asyncio.to_thread(base_of, settings, context)
    change = await asyncio.to_thread(change_of, settings, context, upon)
    if change.unreadable:
        return change.undecided(started_at, conditions_of(settings, context))
    settings = change.settings
    found = discovered(settings, context.selectors)
    add_redaction_patterns(settings.redact, context.redaction)
    hide = context.hide or context.redaction.hide
    hide(agent_secrets((one.agent for one in found.sets), context.environ, settings.workspace))
    for note in (*context.notes, *found.notes, *change.notes):
        context.emit(Notice(note))
    hidden = hidden_files(settings, found, change.base_eval_files)
    left = await asyncio.to_thread(narrow, settings, found, context, upon)
    settings, found = left.settings, left.found
    for note in left.notes:
        context.emit(Notice(note))
    if left.nothing:
        return left.result(started_at, conditions_of(settings, context))
    partly = bool(context.selectors or settings.case or left.skipped)
    main = await asyncio.to_thread(mainline, settings, context.environ, change.stored, context.job)
    history = main.history().without_cases()  # those of the suite are pooled when its files have been read
    for note in history.notes:
        context.emit(Notice(note, level="warning"))
    run = _Run(settings, context, found, history.as_baseline(), upon, change, recording=main.recording)
    evaluation.run = run
    refuse_unusable_agents(run.agents(), settings.workspace, context.environ)
    await run.isolate(hidden)
    try:
        run.start()
        plan, kept = await run.prepare()
        history, main = main.history(plan.suite(left.skipped)), main.without_records()
        if settings.baseline.store == "rerun":  # no record says which entries main has: the base commit's file does
            history = replace(history, pending=tuple(one for one in history.pending if one not in change.accepted))
        run.accepted = history.pending
        run.baseline = history.as_baseline()
        for problem in () if partly else unknown(main.entries, names_of(plan)):
            context.emit(Notice(str(problem), level="warning"))
        await run.measure(plan, kept)
    finally:
        await run.stop()
    result = context.redaction.value(run.result(started_at, time.monotonic() - began))
    whole = None if partly else run.own_plan
    result = result.model_copy(update={"decision": _decision(run, result, history)})
    decided = change.apply_to(result, whole, run.agents(), run.workshop.base)
    decided = context.redaction.value(decided)
    written = await asyncio.to_thread(main.add, decided)
    if written.stored or (main.event.name and main.store_kind == "branch"):
        context.emit(Notice(written.note))
    return decided


def _decision(run: _Run, result: RunResult, history: History) -> Decision | None:
    settings = run.settings
    held, against = held_against(result, run.baseline, settings, run.accepted)
    broken = broken_code(result)
    if settings.baseline.store == "rerun":
        source, lost = Path("the base commit, run beside"), unmeasured_on_base(result)
        return judged(held, against, settings, source, history, broken=broken, unmeasured=lost).decision
    return judged(held, against, settings, Path(history.source), history, broken=broken).decision


def narrow(settings: Settings, found: Discovery, context: Context, upon: CheckoutBase) -> AffectedAgents:
    """What is left to run where agents say what they are made of, and the event is one of a change."""
    if context.repeats is not None or not context.job.may_skip or not declares_paths(found):  # a baseline is whole
        return AffectedAgents(found, settings)
    repository = git.Repository(settings.workspace, context.environ)
    changed = changed_files(repository, upon.exact_sha, upon.head.sha if upon.head else None)
    return affected_agents(settings, found, changed, context.job.definition)


def conditions_of(settings: Settings, context: Context) -> Conditions:
    """The conditions of a run that ends before an agent is started."""
    return Conditions(tool_version=__version__, commit=git.head_commit(settings.workspace), change=context.job.commit)


def base_of(settings: Settings, context: Context) -> CheckoutBase:
    """The commit under test and the one it is based on, according to git and the event."""
    return resolve_base(settings.workspace, context.environ, context.job.event)


def change_of(settings: Settings, context: Context, upon: CheckoutBase) -> GateChanges:
    """The change under test beside what it is made to, read out of git before any agent runs."""
    everything = partial(discovered, selectors=())
    return detect_changes(
        settings,
        context.flags,
        context.environ,
        context.cwd or settings.start,
        everything,
        base=upon.rules,
        is_change=context.job.event.is_change,
    )


def discovered(settings: Settings, selectors: Sequence[str], *, may_lack: bool = False) -> Discovery:
    """Which eval files run against which agents. ``may_lack``: those that are named and not there are left out."""

    def app_names(path: Path) -> frozenset[str]:
        eval_set = load_eval_file(path, workspace=settings.workspace).eval_set
        return frozenset(case.session_input.app_name for case in eval_set.eval_cases if case.session_input)

    chosen = [parse_selector(text, exists=Path.exists) for text in selectors]
    return discover(settings, [(s.path, s.case_ids) for s in chosen], app_names, may_lack=may_lack)


def mainline(
    settings: Settings, environ: Mapping[str, str], base: BaseBaseline | None = None, job: Job | None = None
) -> HistorySession:
    """What main has scored, as a run of this checkout compares with it. ``base``: what the base commit has stored."""
    event = (job or detect(environ).job(environ)).event
    return open_history_session(settings, environ, event, base)


def accept_names(settings: Settings) -> Names:
    """What there is to accept: the names of the suite as its files have it."""
    return names_of(Loader(settings.workspace).plan(discovered(settings, ()), 1))


def names_of(plan: Plan) -> Names:
    """What an entry of accept.yaml can name."""
    return Names(
        case={case.eval_id for one in plan.sets for case in one.cases},
        criterion={info.name for one in plan.sets for info in one.infos},
        agent={one.agent for one in plan.sets},
        eval_set={one.key for one in plan.sets},
    )


def held_against(
    result: RunResult, baseline: Baseline | None, settings: Settings, accepted: Sequence[Accepted] = ()
) -> tuple[RunResult, Baseline | None]:
    """The run and what it is compared with: what is stored, or what the base commit's agent scored beside it."""
    if settings.baseline.store != "rerun":
        return result, baseline
    return without_control(result), without_accepted(baseline_of(result), accepted)


def stored_baseline(settings: Settings) -> FileStore:
    """The committed file."""
    return FileStore(settings.baseline.path, settings.workspace)


def judged(
    result: RunResult,
    baseline: Baseline | None,
    settings: Settings,
    path: Path | None = None,
    history: History | None = None,
    *,
    broken: BrokenCode | None = None,
    unmeasured: Mapping[CaseKey, str] | None = None,
) -> RunResult:
    """The result with its decision. ``path``: where the baseline came from, unless it is the stored one.

    ``unmeasured``: cases whose baseline this run was to measure and could not, with the reason.
    """
    source = relative(path or settings.baseline.path, settings.workspace)
    comparison = compare(baseline, result, path=source, history=history, unmeasured=unmeasured)
    return result.model_copy(update={"decision": decide(comparison, result, settings.policy, broken)})


@dataclass
class _Run:
    """The objects of one run, made once."""

    settings: Settings
    context: Context
    found: Discovery
    baseline: Baseline | None
    upon: CheckoutBase
    change: GateChanges
    recording: bool = False
    commit: str | None = None
    head: AgentGroup = field(init=False)
    own_plan: Plan = field(init=False)
    base: BaseCommit | BaseUnavailable = field(init=False)
    warm: asyncio.Task[None] = field(init=False)
    spending: AttemptBudget = field(init=False)
    workshop: RunResources = field(default_factory=lambda: RunResources({}))
    orchestrator: Orchestrator = field(init=False)
    isolation: Sandboxes | None = None
    made_with: dict[str, Provenance] = field(default_factory=dict)
    plan: Plan | None = None
    progress: StallDetector = field(default_factory=StallDetector)
    accepted: tuple[Accepted, ...] = ()  # changes that are accepted and that main does not know yet
    measuring: bool = False

    async def isolate(self, hidden: Collection[Path]) -> None:
        """Make ready what agents run in, where they can be given a uid of their own. ``hidden``: what it lacks."""
        agents = self.agents()
        self.made_with = await asyncio.to_thread(
            attempt_provenance, self.settings, agents, self.context.environ, hidden
        )
        self.isolation = await open_sandbox(self.settings, self.context.environ, agents, self.context.emit, hidden)
        if self.exposed:  # an agent could rewrite the eval files before they are read
            await self.read()

    def start(self) -> None:
        """Begin starting every agent: their imports overlap with reading the eval files."""
        settings, environ = self.settings, self.context.environ
        # read before any agent runs: what it may do to the repository then decides nothing
        self.commit = git.head_commit(settings.workspace)
        known = self.baseline.commit if self.baseline else None
        known = commit_behind(settings.workspace, environ, known, self.upon.head)
        self.base = find_base(settings, self.upon.control(known), environ)
        agents = self.agents()
        self.context.emit(PhaseStarted("agents", ", ".join(agent.name for agent in agents)))
        loop = asyncio.get_running_loop()

        def say(text: str, level: Level) -> None:  # in the thread in which an agent starts
            loop.call_soon_threadsafe(self.context.emit, Notice(text, level))

        drivers = {agent.name: make_driver(agent, settings, environ, self.isolation, say) for agent in agents}
        recorded = frozenset(agent.name for agent in agents if agent.driver == "recorded")
        git.agents_begin()
        self.head = AgentGroup.start("head", drivers, replay_only=recorded)
        for name, begun in self.head.starts.items():
            begun.add_done_callback(partial(self._started, name))
        self.warm = asyncio.create_task(asyncio.to_thread(self._meanwhile))

    def _meanwhile(self) -> None:
        """Imports that would take their time later, when somebody waits for them."""
        warm_up()
        if self.baseline is not None:
            stats.warm_up()
        self.context.meanwhile()

    def _started(self, name: str, begun: StartTask) -> None:
        """Say which environment an agent runs in; why it does not start is said once, with the end of its traceback."""
        if begun.cancelled() or begun.exception() is not None:
            return
        said = begun.result()
        if isinstance(said, AttemptError):
            tail = "\n".join(f"    {line}" for line in said.traceback.splitlines()[-_TAIL_LINES:])
            self.context.emit(Notice(f"{name} does not start: {said.message}\n{tail}".rstrip(), level="warning"))
        elif said.adk_version:
            what = f"google-adk {said.adk_version}, Python {said.python}"
            self.context.emit(Notice(f"{name}: {what} ({said.environment})"))

    @property
    def adaptive(self) -> bool:
        """Whether what got worse is run again: the loop and the verdict go by the same answer."""
        return self.context.repeats is None and self.settings.adaptive

    def agents(self) -> list[AgentSettings]:
        """Every agent of this run."""
        return list({planned.agent.name: planned.agent for planned in self.found.sets}.values())

    @property
    def exposed(self) -> bool:
        """Whether the code of a change runs as our own user, who can write what we read."""
        return self.isolation is None and self.context.job.may_skip

    async def read(self) -> Plan:
        """The plan that the eval files make, read once."""
        if self.plan is None:
            settings, context = self.settings, self.context
            loader = Loader(settings.workspace, settings.case)
            self.own_plan = await asyncio.to_thread(loader.plan, self.found, context.repeats or settings.repeats)
            self.plan = await asyncio.to_thread(self.change.plan_in_force, self.own_plan, self.agents())
            for problem in (*context.warnings, *loader.warnings):
                context.emit(Notice(str(problem), level="warning"))
            for note in loader.notes:
                context.emit(Notice(note))
        return self.plan

    async def prepare(self) -> tuple[Plan, PreviousAttempts]:
        """Read the eval files while the agents start."""
        settings, context = self.settings, self.context
        plan = await self.read()
        functions = await asyncio.to_thread(self.change.open_functions, plan, self.agents())
        self.workshop = RunResources({}, base=functions)  # released however opening ends
        self.spending = AttemptBudget(LlmSettings.of(settings).meter())
        opening = ResourceOptions(
            settings,
            context.environ,
            self.agents(),
            self.spending.meter,
            # of a run that writes history every vote is made anew, or history would understate the judges' noise;
            # where the change could write into the cache, it could have written votes
            read_cache=context.repeats is None and not self.recording and not self.exposed,
            say=lambda text: context.emit(Notice(text)),
            isolation=self.isolation,
            may_lack=context.may_lack,
            base=functions,
            brought_along=self.change.brought_along,
            observe=self.progress.observe_reply,
        )
        self.workshop = await open_resources(plan, opening, self.head)
        plan = mark_unmeasured(plan, self.workshop.lacking, opening.recorded)
        for warning in credential_warnings(self.workshop.lacking):
            context.emit(Notice(warning, level="warning"))
        kept = PreviousAttempts(self.made_with)
        if settings.resume:
            out = settings.output_folder(settings.out)
            kept = load_previous_attempts(settings.resume, out, plan, self.made_with, workspace=settings.workspace)
        for warning in kept.warnings():
            context.emit(Notice(warning, level="warning"))
        return plan, kept

    async def measure(self, plan: Plan, kept: PreviousAttempts) -> None:
        """Make and score the attempts, and those the gate asks for."""
        settings, context = self.settings, self.context
        bounds = AttemptLimits(settings.concurrency, settings.retries)
        with TranscriptWriter(settings.output_folder(settings.out)) as writer:
            runner = AttemptRunner(
                bounds,
                self.warm,
                writer,
                ResultCollector(plan),
                self.spending,
                context.emit,
                kept,
                self.workshop.by_agent,
                context.redaction.value,
                self.progress,
            )
            longest = max(settings.llm.timeout_s, *(agent.timeout_s for agent in self.agents()))
            asks_gate = self.adaptive or (context.repeats is None and self._asks_base_for_withheld)
            rerun = settings.baseline.store == "rerun" and context.repeats is None
            known = self.base.commit if asks_gate and isinstance(self.base, BaseCommit) else ""
            self.orchestrator = Orchestrator(
                plan,
                self.head,
                runner,
                context.stop,
                self._conditions(),
                RunLimits(settings.max_time, stall_timeout(settings.stall_timeout, longest)),
                next_step=self._gate if asks_gate else None,
                base_agents=LazyBaseAgents(self._open_base, known) if asks_gate or rerun else None,
                base_passes=max(PASSES, settings.repeats) if rerun else 0,
            )
            self.measuring = True
            await self.orchestrator.run()
        if context.stop.status is RunStatus.COMPLETE:
            discard_previous_attempts(settings.output_folder(settings.out))

    @property
    def _asks_base_for_withheld(self) -> bool:
        """Whether what lacks credentials is excused only if main's agent lacks them too."""
        return self.context.may_lack and bool(self.context.job.withheld)

    def _gate(self, result: RunResult, *, control: bool) -> Step:
        """What the pure decision code asks for, over everything measured so far."""
        if control and self._asks_base_for_withheld and (cases := cases_to_ask_on_base(result)):
            why = f"whether main's agent answers without credentials what this change's does not ({len(cases):,} cases)"
            return RunControl(tuple((case, 1) for case in cases), why)
        if not self.adaptive:
            return Enough("nothing is run again")
        policy, whole = self.settings.policy, self._marked(result)
        compared, baseline = held_against(whole, self.baseline, self.settings, self.accepted)
        state = state_of(compared, scores_of(baseline), policy, control=control)
        rules = rules_of(policy, compared, extra_runs=self.settings.max_extra_runs)
        step = next_step(state, rules)
        if not isinstance(step, Enough):
            return replace(step, why=told(step, state))
        return next_check(whole, policy, control=control, limits=rules.limits) or step

    async def _open_base(self, names: frozenset[str]) -> AgentGroup | BaseUnavailable:
        if isinstance(self.base, BaseUnavailable):
            return self.base
        agents = [agent for agent in self.agents() if agent.name in names]
        make = partial(make_base_driver, self.head, self.base, self.context.environ)
        earlier = await asyncio.to_thread(self.change.agents_on_base, self.own_plan, agents)
        await wait_for_interpreters(self.head, names)
        return await open_base_agents(self.base, agents, make, earlier)

    async def stop(self) -> None:
        """End what was started."""
        try:
            await asyncio.gather(self.head.stop(), self.workshop.close())
            if self.isolation is not None:
                await asyncio.to_thread(self.isolation.close)
        finally:
            git.agents_end()
        await asyncio.gather(self.warm, return_exceptions=True)
        logs = self.settings.output_folder(self.settings.out / LOGS)
        await asyncio.to_thread(redact_logs, logs, self.context.redaction)

    def result(self, started_at: str, seconds: float) -> RunResult:
        """The run as far as it came, not decided yet."""
        return self._marked(self.orchestrator.result(started_at, seconds))

    def _marked(self, measured: RunResult) -> RunResult:
        if not self.context.may_lack:
            return measured
        return mark_unanswered(measured, self.context.job.withheld, self.workshop.lacking)

    def _conditions(self) -> Conditions:
        """Under what conditions the run was made, as far as they are known."""
        settings = self.settings
        return Conditions(
            tool_version=__version__,
            platform=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            commit=self.commit,
            change=self.context.job.commit,
            repeats=self.context.repeats or settings.repeats,
            adaptive=self.adaptive,
            concurrency=settings.concurrency,
            threshold_on=settings.policy.threshold_on,
            fail_on=settings.fail_on,
            selection=(*self.context.selectors, *settings.case),
            only_agents=settings.only_agents,
            arguments=cli_arguments(settings, self.context.selectors),
        )
