"""What a run opens before its first attempt: sandbox, drivers, models, metric functions, and the secrets to redact."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_eval_action.agents import AGENTS
from agent_eval_action.agents.adk import LOGS, AdkAgent
from agent_eval_action.agents.base import (
    AgentDriver,
    AgentSession,
    ConversationUser,
    DriverContext,
    FixedUser,
    RecordedConversation,
)
from agent_eval_action.agents.simulator import SimulatedUser, simulator_digest
from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.criteria.base import Functions, ScoringContext
from agent_eval_action.criteria.custom import CustomCriterion
from agent_eval_action.criteria.judge.base import JudgedCriterion
from agent_eval_action.diagnostics.reader import did_you_mean
from agent_eval_action.environments.install import install_secrets, selected_install_env
from agent_eval_action.environments.resolve import AgentFolder, Log, configured_interpreter, reason_env_not_reusable
from agent_eval_action.errors import ConfigError, CredentialsError, Problem
from agent_eval_action.folders import OutputFolder, file_name, real_path
from agent_eval_action.formats import case_digest
from agent_eval_action.llm.budget import SIMULATED_USER, Meter
from agent_eval_action.llm.client import Llm, LlmError, LlmReply
from agent_eval_action.llm.credentials import EXTRA, dotenv_of, judge_environ, missing
from agent_eval_action.llm.providers import check_options, unknown_model
from agent_eval_action.llm.router import LlmSettings, LlmStack, open_llm
from agent_eval_action.processes.metric_functions import FunctionOptions, MetricFunctions, open_functions
from agent_eval_action.results.decision import Finding
from agent_eval_action.results.evalset import EvalCase, FunctionReply
from agent_eval_action.results.redaction import Redaction, pattern_redactor, secrets_in
from agent_eval_action.run.base_agents import AgentGroup, BaseCommit, BaseTree
from agent_eval_action.run.cost_estimate import estimate_plan
from agent_eval_action.run.events import Notice
from agent_eval_action.run.missing_credentials import MissingCredentials, mark_unmeasured
from agent_eval_action.run.plan import Plan, PlannedAttempt, PlannedSet
from agent_eval_action.sandbox.sandboxes import Level, Sandboxes, open_sandboxes


@dataclass(frozen=True, slots=True)
class ModelRequirement:
    """A model that something of the plan will ask. ``purpose``: a criterion, or the simulated user."""

    purpose: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


def model_requirements(plan: Plan, recorded: Collection[str] = ()) -> tuple[ModelRequirement, ...]:
    """Every model the plan will ask, once for each purpose and place that asks it.

    ``recorded``: names of agents that are recordings, whose users are asked nothing.
    """
    found: list[ModelRequirement] = []
    for one in plan.sets:
        found += [wanted for wanted in _of_set(one, played=one.agent not in recorded) if wanted not in found]
    return tuple(found)


def _of_set(one: PlannedSet, *, played: bool) -> Iterator[ModelRequirement]:
    for criterion, info in zip(one.criteria, one.infos, strict=True):
        if info.unmeasured:
            continue
        own = isinstance(criterion, JudgedCriterion) and criterion.judge_model_options.judge_model_config
        for model in criterion.models():
            yield ModelRequirement(criterion.name, model, own or {}, info.source)
    if played and any(item.has_scenario for item in one.run):
        yield ModelRequirement(SIMULATED_USER, one.simulator.model, one.simulator.model_configuration or {}, one.path)


def require_usable_models(
    wanted: Iterable[ModelRequirement], environ: Mapping[str, str], *, openai_base_url: str = ""
) -> None:
    """Say of every model why it cannot be asked, before anything is spent.

    Raises ConfigError for a name or an option that is wrong, CredentialsError for what is not set.
    """
    asked = tuple(wanted)
    validate_models(asked)
    if lacking := _problems((one, missing(one.model, environ, openai_base_url=openai_base_url)) for one in asked):
        raise CredentialsError("a model that is needed cannot be asked here, so nothing was run", problems=lacking)


def validate_models(wanted: Iterable[ModelRequirement]) -> None:
    """Say of every model why it can be asked nowhere. Raises ConfigError for a name or an option that is wrong."""
    if wrong := _problems((one, unknown_model(one.model) or check_options(one.model, one.options)) for one in wanted):
        raise ConfigError("a model is configured that cannot be asked", problems=wrong)


def missing_credentials(
    wanted: Iterable[ModelRequirement], environ: Mapping[str, str], *, openai_base_url: str = ""
) -> dict[str, str]:
    """The models that cannot be asked here, and what each wants: one sentence a model."""
    models = sorted({one.model for one in wanted})
    said = {model: missing(model, environ, openai_base_url=openai_base_url) for model in models}
    return {model: sentence for model, sentence in said.items() if sentence and EXTRA not in sentence}


def _problems(found: Iterable[tuple[ModelRequirement, str]]) -> tuple[Problem, ...]:
    return tuple(Problem(Path(one.source or "criteria"), f"{one.purpose}: {why}") for one, why in found if why)


def make_user(planned: PlannedAttempt, session: AgentSession, llm: Llm | None) -> ConversationUser:
    """The case's own user, or the one who spoke in a recording of it."""
    scenario = planned.case.conversation_scenario
    if scenario is None:
        return FixedUser(tuple(turn.user_content for turn in planned.case.turns))
    if isinstance(session, RecordedConversation):
        return session.speaker(scenario)
    return SimulatedUser(llm, scenario, planned.planned_set.simulator, planned.key.repeat)


def planned_digest(case: EvalCase, simulator: UserSimulatorConfig) -> str:
    """The case's digest; with a simulated user it names that user too, for another leads another conversation."""
    digest = case_digest(case)
    if case.conversation_scenario is None:
        return digest
    user = simulator_digest(case.conversation_scenario, simulator)
    return hashlib.sha256(f"{digest} {user}".encode()).hexdigest()[: len(digest)]


async def open_sandbox(
    settings: Settings,
    environ: Mapping[str, str],
    agents: Sequence[AgentSettings],
    emit: Callable[[Notice], None],
    hidden: Collection[Path] = (),
) -> Sandboxes | None:
    """What agents run in, where they can be given a uid of their own; what they run as is said once.

    ``hidden``: what no copy of the checkout that an agent works on has in it, relative to the workspace.
    """
    said: list[Notice] = []

    def say(text: str, level: Level) -> None:
        said.append(Notice(text, level=level))

    ours = (settings.out, settings.cache_dir)
    found = await asyncio.to_thread(open_sandboxes, environ, settings.workspace, ours, say)
    if found is not None:
        found.hidden = hidden
    for notice in said if any(agent.driver != "recorded" for agent in agents) else ():
        emit(notice)
    return found


def make_driver(
    agent: AgentSettings,
    settings: Settings,
    environ: Mapping[str, str],
    isolation: Sandboxes | None = None,
    say: Log = lambda _text, _level: None,
) -> AgentDriver:
    """The driver an agent asks for. ``isolation``: what it runs in, where it can be given a uid of its own.

    ``say`` is called from another thread with what takes long, before it begins.
    """

    def say_of_agent(text: str, level: Level) -> None:
        say(f"{agent.name}: {text}", level)

    context = DriverContext(agent, settings, environ, settings.workspace, isolation, say=say_of_agent)
    return AGENTS[agent.driver](context)


def refuse_unusable_agents(agents: Sequence[AgentSettings], workspace: Path, environ: Mapping[str, str]) -> None:
    """Raise ConfigError where ``driver`` or ``python`` names nothing: that is a wrong option, and no broken agent."""
    for agent in agents:
        if agent.driver not in AGENTS:
            raise ConfigError(
                f"driver of the agent {agent.name}: there is no driver `{agent.driver}`",
                hint=did_you_mean(agent.driver, AGENTS) or f"choose from {', '.join(AGENTS)}, or install its package",
            )
        if agent.driver != "adk" or agent.python is None:
            continue
        if not os.path.lexists(python := configured_interpreter(agent.python, workspace, environ)):
            raise ConfigError(
                f"python of the agent {agent.name}: there is no interpreter at {python}",
                hint="name an interpreter, or a virtual environment, that has google-adk 1.10 or newer",
            )


async def wait_for_interpreters(head: AgentGroup, names: Collection[str]) -> None:
    """Wait for what ``driver_on_base`` may share of these agents, where all run as one user."""
    drivers = [driver for name, driver in head.drivers.items() if name in names]
    waited = [one for one in drivers if isinstance(one, AdkAgent) and one.isolation is None]
    await asyncio.gather(*(one.interpreter_chosen() for one in waited))


def make_base_driver(
    head: AgentGroup, base: BaseCommit, environ: Mapping[str, str], agent: AgentSettings, workspace: Path
) -> AgentDriver:
    """The driver of an agent as the base commit has it, in the tree ``workspace``.

    It has a uid of its own where uids can be given: the change's agent must not be able to make the base's look as bad.
    """
    settings = base.settings
    active = environ.get("VIRTUAL_ENV", "")
    if active and _outside(Path(active) / "bin" / "python", settings.workspace, workspace) is None:
        environ = {name: value for name, value in environ.items() if name != "VIRTUAL_ENV"}
    mine = head.drivers.get(agent.name)
    isolation = mine.isolation if isinstance(mine, AdkAgent) else None
    python = base_interpreter(mine, base, environ, agent, workspace)
    agent = agent.model_copy(update={"python": python})
    return AGENTS[agent.driver](DriverContext(agent, settings, environ, workspace, isolation, role="base"))


def base_interpreter(
    mine: AgentDriver | None, base: BaseCommit, environ: Mapping[str, str], agent: AgentSettings, workspace: Path
) -> Path | None:
    """The interpreter that code of the base commit runs in, ``agent`` being in its tree; None: one of its own is built.

    ``mine``: the driver of the change's agent.
    """
    if isinstance(mine, AdkAgent) and mine.isolation is not None:
        return _outside(agent.python, base.settings.workspace, workspace)
    if not isinstance(mine, AdkAgent) or mine.python is None:
        return None
    here = AgentFolder(mine.path.resolve(), base.settings.workspace.resolve())
    there = AgentFolder(agent.path.resolve(), workspace.resolve())
    return mine.python if _may_share(mine.python, base, here, there, environ) else None


def _outside(python: Path | None, *trees: Path) -> Path | None:
    """A configured interpreter, unless it lies in a tree: what a change brings along runs no other agent.

    An environment of the base's own is built from its lock. It is the change's where both have the same lock and
    nothing of either tree is installed, see ``environment_digest``.
    """
    if python is None or any(python.is_relative_to(tree) or _resolves_into(python, tree) for tree in trees):
        return None
    return python


def _resolves_into(python: Path, tree: Path) -> bool:
    return python.parent.resolve().is_relative_to(tree.resolve())


def _may_share(
    python: Path, base: BaseCommit, here: AgentFolder, there: AgentFolder, environ: Mapping[str, str]
) -> bool:
    """Whether the base commit's agent may run in the environment of the change's, where all run as one user."""
    made, root = python.parent.parent / "pyvenv.cfg", here.workspace
    if made.is_relative_to(root) and base.brought_along(base.settings.workspace / made.relative_to(root)):
        return False
    return not reason_env_not_reusable(python, here, there, environ)


@dataclass(frozen=True, slots=True)
class BaseMetricFunctions:
    """Where metric functions come from on an event of a change: the base commit's files.

    ``agents``: the base's agent of each of the change's by its name, with its folder in ``tree``. ``changed``: what
    the change does to the functions, with the merge.
    """

    commit: BaseCommit
    tree: BaseTree
    agents: Mapping[str, AgentSettings]
    changed: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionRouter:
    """A ``criteria.base.Functions``: the base commit's functions, and beside them those the change adds."""

    base: MetricFunctions
    added: MetricFunctions | None
    of_base: frozenset[str]

    async def call(self, function: str, arguments: Mapping[str, Any]) -> FunctionReply:
        """Call a function where it is from."""
        source = self.base if function in self.of_base or self.added is None else self.added
        return await source.call(function, arguments)


@dataclass(frozen=True, slots=True)
class RunResources:
    """Opened instruments by agent. ``lacking``: models that cannot be asked here, where a run may do without."""

    by_agent: Mapping[str, ScoringContext]
    stack: LlmStack | None = None
    lacking: MissingCredentials = field(default_factory=dict)
    functions: tuple[MetricFunctions, ...] = ()
    base: BaseMetricFunctions | None = None

    async def close(self) -> None:
        """End what was opened; never raises for what a function or a server did."""
        if self.stack is not None:
            await self.stack.close()
        await asyncio.gather(*(functions.stop() for functions in self.functions), return_exceptions=True)
        if self.base is not None:
            await asyncio.to_thread(self.base.tree.release)


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """What a run opens its instruments with.

    ``read_cache`` False: votes are made anew. ``say`` is told what is worth knowing before anything is spent.
    ``may_lack``: models without credentials are left out and named in the workshop, and nothing is raised.
    ``base``: where metric functions come from, if not from the checkout. ``brought_along``: whether a file of the
    workspace is the change's, so that it says nothing about judges. ``observe`` is told what every try to ask a
    model came to.
    """

    settings: Settings
    environ: Mapping[str, str]
    agents: Sequence[AgentSettings]
    meter: Meter
    read_cache: bool
    say: Callable[[str], None]
    isolation: Sandboxes | None = None
    may_lack: bool = False
    base: BaseMetricFunctions | None = None
    brought_along: Callable[[Path], bool] = lambda _: False
    observe: Callable[[LlmReply | LlmError], None] = lambda _: None

    @property
    def recorded(self) -> frozenset[str]:
        """Names of agents that are recordings."""
        return frozenset(agent.name for agent in self.agents if agent.driver == "recorded")


async def open_resources(plan: Plan, opening: ResourceOptions, head: AgentGroup) -> RunResources:
    """Open what this plan needs. Raises ConfigError or CredentialsError for what cannot be asked."""
    stack, lacking = await _models(plan, opening)
    callers, functions = _functions(plan, opening, head)
    prices = opening.meter.prices
    made = {one.agent: ScoringContext(stack, callers.get(one.agent), prices) for one in plan.sets}
    return RunResources(made, stack, lacking, functions, opening.base)


async def _models(plan: Plan, opening: ResourceOptions) -> tuple[LlmStack | None, MissingCredentials]:
    wanted = model_requirements(plan, opening.recorded)
    if not wanted:
        return None, {}
    settings = opening.settings
    workspace = settings.workspace.resolve()
    folders = [agent.path.resolve() for agent in opening.agents]
    environ = judge_environ(opening.environ, dotenv_of(folders, workspace, opening.brought_along))
    llm = LlmSettings.of(settings)
    lacking: dict[str, str] = {}
    if opening.may_lack:
        validate_models(wanted)
        lacking = missing_credentials(wanted, environ, openai_base_url=llm.openai_base_url)
        plan = mark_unmeasured(plan, lacking, opening.recorded)
        wanted = tuple(one for one in wanted if one.model not in lacking)
    else:
        require_usable_models(wanted, environ, openai_base_url=llm.openai_base_url)
    if not wanted:
        return None, lacking
    llm.prices.require((one.model for one in wanted), settings.max_cost)
    if told := estimate_plan(plan, llm.prices, recorded=opening.recorded).sentence:
        opening.say(told)
    stack = open_llm(
        llm,
        environ,
        cache=settings.output_folder(settings.cache_dir),
        read_cache=opening.read_cache,
        meter=opening.meter,
        say=opening.say,
        observe=opening.observe,
    )
    return stack, {**lacking, **await _warm(stack, wanted, may_lack=opening.may_lack)}


async def _warm(stack: LlmStack, wanted: Sequence[ModelRequirement], *, may_lack: bool) -> MissingCredentials:
    """Load the clients while the agents start; what fails (an extra, an identity) fails before anything is spent."""
    failed = await stack.warm_up(one.model for one in wanted)
    if failed and (not may_lack or any(EXTRA in sentence for sentence in failed.values())):
        await stack.close()
        said = "; ".join(dict.fromkeys(failed.values()))
        raise CredentialsError(f"a model that is needed cannot be asked here, so nothing was run: {said}")
    return failed


def custom_metrics(plan: Plan) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """The functions that criteria name, by agent: those in force, and those that the change under test adds."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for planned in plan.sets:
        for criterion, info in zip(planned.criteria, planned.infos, strict=True):
            if isinstance(criterion, CustomCriterion):
                found.setdefault(planned.agent, (set(), set()))[info.added].add(criterion.function)
    return {agent: (frozenset(own), frozenset(added - own)) for agent, (own, added) in found.items()}


def _functions(
    plan: Plan, opening: ResourceOptions, head: AgentGroup
) -> tuple[dict[str, Functions], tuple[MetricFunctions, ...]]:
    """Of the agents whose criteria name a function of the user's; no process is started before its first call."""
    callers: dict[str, Functions] = {}
    opened: list[MetricFunctions] = []
    named = custom_metrics(plan)
    for agent in opening.agents:
        in_force, added = named.get(agent.name, (frozenset(), frozenset()))
        then = opening.base.agents.get(agent.name) if opening.base else None
        own = [_options_instruments(agent, opening, head)] if added or (in_force and opening.base is None) else []
        if opening.base and then and in_force:
            base = open_functions(_options_on_base(then, opening, opening.base, head.drivers.get(agent.name)))
            # what the change adds decides nothing: it runs as the change's agent, far from what does
            more = [open_functions(replace(options, role="head")) for options in own]
            callers[agent.name] = FunctionRouter(base, more[0] if more else None, in_force)
            opened += [base, *more]
        elif own:
            opened.append(open_functions(own[0]))
            callers[agent.name] = opened[-1]
    return callers, tuple(opened)


def _options_on_base(
    then: AgentSettings, opening: ResourceOptions, base: BaseMetricFunctions, mine: AgentDriver | None
) -> FunctionOptions:
    workspace, environ = base.tree.workspace, opening.environ
    return FunctionOptions(
        path=then.path,
        workspace=workspace,
        logs=opening.settings.output_folder(opening.settings.out / LOGS),
        log_name=f"{file_name(then.name)}.metrics.log",
        cache=opening.settings.output_folder(opening.settings.cache_dir / "environments"),
        timeout_s=then.timeout_s,
        environ={**environ, **{name: value for name, value in then.env.items() if value is not None}},
        env_allow=tuple(then.env),
        install_env=selected_install_env(then.install_env, environ),
        known=lambda: base_interpreter(mine, base.commit, environ, then, workspace),
        isolation=opening.isolation,
    )


def _options_instruments(agent: AgentSettings, opening: ResourceOptions, head: AgentGroup) -> FunctionOptions:
    settings, driver = opening.settings, head.drivers.get(agent.name)
    return FunctionOptions(
        path=agent.path,
        workspace=settings.workspace,
        logs=settings.output_folder(settings.out / LOGS),
        log_name=f"{file_name(agent.name)}.metrics.log",
        cache=settings.output_folder(settings.cache_dir / "environments"),
        python=agent.python,
        timeout_s=agent.timeout_s,
        environ={**opening.environ, **{name: value for name, value in agent.env.items() if value is not None}},
        env_allow=tuple(agent.env),
        install_env=selected_install_env(agent.install_env, opening.environ),
        known=lambda: driver.python if isinstance(driver, AdkAgent) else None,
        isolation=opening.isolation,
    )


def agent_secrets(agents: Iterable[AgentSettings], environ: Mapping[str, str], workspace: Path) -> Iterator[str]:
    """What these agents see and nobody else should: their variables, and those of their `.env`."""
    inside = workspace.resolve()
    for agent in agents:
        given = {name: environ.get(name, "") if value is None else value for name, value in agent.env.items()}
        yield from secrets_in(given)
        yield from install_secrets(selected_install_env(agent.install_env, environ))
        yield from secrets_in(_dotenv(real_path(agent.path), inside))


def add_redaction_patterns(patterns: Sequence[str], redaction: Redaction) -> None:
    """Take out what fits a pattern of the user's as well."""
    if patterns:
        redaction.add(pattern_redactor(patterns, redaction.meet))


def redact_logs(logs: OutputFolder, redaction: Redaction) -> None:
    """Take secrets out of what agents printed, when they no longer run. What cannot be rewritten is removed."""
    with contextlib.suppress(OSError):  # no folder of ours any more: then nothing of ours is shown
        for name, _ in logs.files():
            try:
                with logs.read(name) as file:
                    data = file.read()
                shown = redaction.data(data)
                if shown != data:
                    logs.replace(name, [shown])
            except OSError:
                with contextlib.suppress(OSError):
                    logs.remove(name)


def _dotenv(folder: Path, workspace: Path) -> dict[str, str]:
    try:
        return dotenv_of([folder], workspace)
    except (OSError, ValueError):  # unreadable or no text: then it gives the agent nothing either
        return {}
