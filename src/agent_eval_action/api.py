"""Wires the real objects and runs the stages: files → plan → attempts → comparison → decision → reports."""

from __future__ import annotations

import asyncio
import datetime as dt
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_eval_action import __version__, git
from agent_eval_action.agents.adk import AdkAgent, AdkAgentOptions
from agent_eval_action.agents.base import AgentDriver
from agent_eval_action.agents.recorded import RecordedAgent
from agent_eval_action.baseline import STORES, Store
from agent_eval_action.baseline.records import Baseline
from agent_eval_action.config.agents import AgentSettings
from agent_eval_action.config.discovery import Discovery, discover
from agent_eval_action.config.settings import Settings
from agent_eval_action.criteria import warm_up
from agent_eval_action.errors import Problem
from agent_eval_action.formats import load_eval_file, parse_selector
from agent_eval_action.gate import compare, decide
from agent_eval_action.model.result import AgentConditions, AttemptError, Conditions, RunResult, RunStatus
from agent_eval_action.pipeline import Limits, Pipeline, Stop
from agent_eval_action.run.collect import Collector
from agent_eval_action.run.events import Event, Notice, PhaseStarted
from agent_eval_action.run.load import Loader, relative
from agent_eval_action.run.plan import Plan
from agent_eval_action.run.resume import Earlier, earlier, forget
from agent_eval_action.run.transcripts import TranscriptWriter

_TAIL_LINES = 8


@dataclass(frozen=True)
class Context:
    """What a run is given besides its settings: the environment, and who listens."""

    environ: Mapping[str, str]
    emit: Callable[[Event], None]
    stop: Stop
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    selectors: tuple[str, ...] = ()
    repeats: int | None = None  # over the settings' (a baseline is made with more)


async def evaluate(settings: Settings, context: Context) -> RunResult:
    """Run everything the settings name, compare with the baseline, decide.

    Writes attempts.jsonl and blobs/ while it runs; the other files are the caller's. Raises the errors
    of ``errors`` for what is wrong before anything was measured.
    """
    began, started_at = time.monotonic(), dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    found = discovered(settings, context.selectors)
    for note in (*context.notes, *found.notes):
        context.emit(Notice(note))
    run = _Run(settings, context, found)
    try:
        run.start()
        plan, kept = await run.prepare()
        status = await run.measure(plan, kept)
    finally:
        await run.stop()
    result = run.collector.result(
        started_at=started_at,
        seconds=time.monotonic() - began,
        status=status,
        conditions=run.conditions(),
    )
    return judged(result, stored_baseline(settings).read(), settings)


def discovered(settings: Settings, selectors: Sequence[str]) -> Discovery:
    """Which eval files run against which agents."""

    def app_names(path: Path) -> frozenset[str]:
        eval_set = load_eval_file(path, workspace=settings.workspace).eval_set
        return frozenset(case.session_input.app_name for case in eval_set.eval_cases if case.session_input)

    chosen = [parse_selector(text, exists=Path.exists) for text in selectors]
    return discover(settings, [(s.path, s.case_ids) for s in chosen], app_names)


def stored_baseline(settings: Settings) -> Store:
    """The store the settings name."""
    return STORES["file"](settings.baseline, settings.workspace)


def judged(result: RunResult, baseline: Baseline | None, settings: Settings, path: Path | None = None) -> RunResult:
    """The result with its decision. ``path``: where the baseline came from, unless it is the stored one."""
    comparison = compare(baseline, result, path=relative(path or settings.baseline, settings.workspace))
    return result.model_copy(update={"decision": decide(comparison, result, settings.policy)})


@dataclass
class _Run:
    """The objects of one run, made once."""

    settings: Settings
    context: Context
    found: Discovery
    drivers: dict[str, AgentDriver] = field(default_factory=dict)
    starts: dict[str, asyncio.Task[AgentConditions | AttemptError]] = field(default_factory=dict)
    warm: asyncio.Task[None] = field(init=False)
    commit: asyncio.Task[str | None] = field(init=False)
    collector: Collector = field(init=False)

    def start(self) -> None:
        """Begin starting every agent: their imports overlap with reading the eval files."""
        self.context.emit(PhaseStarted("agents", ", ".join(agent.name for agent in self._agents())))
        for agent in self._agents():
            self.drivers[agent.name] = driver_for(agent, self.settings, self.context.environ)
            self.starts[agent.name] = asyncio.create_task(self._start(agent.name))
        self.commit = asyncio.create_task(asyncio.to_thread(git.head_commit, self.settings.workspace))
        self.warm = asyncio.create_task(asyncio.to_thread(warm_up))

    async def _start(self, name: str) -> AgentConditions | AttemptError:
        """Start one agent; why it does not start is said once, with the end of its traceback."""
        started = await self.drivers[name].start()
        if isinstance(started, AttemptError):
            tail = "\n".join(f"    {line}" for line in started.traceback.splitlines()[-_TAIL_LINES:])
            self.context.emit(Notice(f"{name} does not start: {started.message}\n{tail}".rstrip(), level="warning"))
        elif started.adk_version:
            what = f"google-adk {started.adk_version}, Python {started.python}"
            self.context.emit(Notice(f"{name}: {what} ({started.environment})"))
        return started

    def _agents(self) -> list[AgentSettings]:
        return list({planned.agent.name: planned.agent for planned in self.found.sets}.values())

    async def prepare(self) -> tuple[Plan, Earlier]:
        """Read the eval files while the agents start."""
        settings, context = self.settings, self.context
        loader = Loader(settings.workspace, settings.case)
        plan = await asyncio.to_thread(loader.plan, self.found, context.repeats or settings.repeats)
        for problem in (*context.warnings, *loader.warnings):
            context.emit(Notice(str(problem), level="warning"))
        kept = earlier(settings.resume, settings.out, plan) if settings.resume else Earlier()
        return plan, kept

    async def measure(self, plan: Plan, kept: Earlier) -> RunStatus:
        """Make and score the attempts."""
        settings, context = self.settings, self.context
        limits = Limits(settings.concurrency, settings.retries, settings.max_time)
        with TranscriptWriter(settings.out) as writer:
            pipeline = Pipeline(plan, self.drivers, self.starts, self.warm, writer, limits, context.emit, context.stop)
            self.collector = pipeline.collector
            await pipeline.run(kept)
        if context.stop.status is RunStatus.COMPLETE:
            forget(settings.out)
        return context.stop.status

    async def stop(self) -> None:
        """End what was started."""
        for task in self.starts.values():
            if not task.done():
                task.cancel()
        await asyncio.gather(*self.starts.values(), self.warm, self.commit, return_exceptions=True)
        await asyncio.gather(*(driver.stop() for driver in self.drivers.values()), return_exceptions=True)

    def conditions(self) -> Conditions:
        """Under what conditions the run was made, as far as they are known."""
        settings = self.settings
        agents = [task.result() for task in self.starts.values() if task.done() and not task.cancelled()]
        return Conditions(
            tool_version=__version__,
            platform=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            commit=self.commit.result(),
            repeats=self.context.repeats or settings.repeats,
            concurrency=settings.concurrency,
            threshold_on=settings.policy.threshold_on,
            selection=(*self.context.selectors, *settings.case),
            only_agents=settings.only_agents,
            arguments=arguments(settings, self.context.selectors),
            agents=tuple(agent for agent in agents if isinstance(agent, AgentConditions)),
        )


def arguments(settings: Settings, selectors: Sequence[str]) -> tuple[str, ...]:
    """What repeats a run from the workspace: a configuration that would not be found there, and what narrowed it."""
    words = list(selectors)
    config = settings.config
    if config and config.is_relative_to(settings.workspace) and config.parent != settings.workspace:
        words += ["--config", relative(config, settings.workspace)]
    for agent in settings.agents if settings.only_agents else ():
        words += ["--agent", relative(agent.path, settings.workspace)]
    for pattern in settings.case:
        words += ["--case", pattern]
    return tuple(words)


def driver_for(agent: AgentSettings, settings: Settings, environ: Mapping[str, str]) -> AgentDriver:
    """The driver an agent asks for."""
    if agent.driver == "recorded" and agent.recording is not None:
        return RecordedAgent(agent.name, agent.recording)
    return AdkAgent(
        AdkAgentOptions(
            name=agent.name,
            path=agent.path,
            python=agent.python,
            workers=agent.workers,
            timeout_s=agent.timeout_s,
            concurrency=settings.concurrency,
            environ={**environ, **{name: value for name, value in agent.env.items() if value is not None}},
            env_allow=tuple(agent.env),
            log_path=settings.out / "logs" / f"{agent.name}.log",
            cache_dir=settings.cache_dir / "environments",
            workspace=settings.workspace,
        )
    )
