"""What criteria and simulated users work with in a run: its models and the user's metric functions, opened once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_eval_action.agents.adk import AdkAgent
from agent_eval_action.agents.base import AgentDriver
from agent_eval_action.config.agents import AgentSettings
from agent_eval_action.config.settings import Settings
from agent_eval_action.criteria.base import Functions, Instruments
from agent_eval_action.criteria.foreign.custom import CustomCriterion
from agent_eval_action.errors import CredentialsError
from agent_eval_action.folders import file_name
from agent_eval_action.interpreter.functions import FunctionOptions, MetricFunctions, open_functions
from agent_eval_action.interpreter.install import given_for_install
from agent_eval_action.interpreter.isolation_cell import Isolation
from agent_eval_action.llm.base import LlmError, LlmReply
from agent_eval_action.llm.budget import Meter
from agent_eval_action.llm.credentials import EXTRA, dotenv_of, judge_environ
from agent_eval_action.llm.stack import LlmSettings, LlmStack, open_llm
from agent_eval_action.model.decision import Finding
from agent_eval_action.model.function import FunctionReply
from agent_eval_action.run.arms import Arm
from agent_eval_action.run.base import BaseCommit, BaseTree
from agent_eval_action.run.drivers import python_on_base
from agent_eval_action.run.foresee import foreseen
from agent_eval_action.run.models import Wanted, lacking_of, refuse_unusable, refuse_wrong, wanted_of
from agent_eval_action.run.plan import Plan
from agent_eval_action.run.secrets import LOGS
from agent_eval_action.run.withheld import Lacking, without


@dataclass(frozen=True, slots=True)
class FunctionsOfBase:
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
class Workshop:
    """Opened instruments by agent. ``lacking``: models that cannot be asked here, where a run may do without."""

    by_agent: Mapping[str, Instruments]
    stack: LlmStack | None = None
    lacking: Lacking = field(default_factory=dict)
    functions: tuple[MetricFunctions, ...] = ()
    base: FunctionsOfBase | None = None

    async def close(self) -> None:
        """End what was opened; never raises for what a function or a server did."""
        if self.stack is not None:
            await self.stack.close()
        await asyncio.gather(*(functions.stop() for functions in self.functions), return_exceptions=True)
        if self.base is not None:
            await asyncio.to_thread(self.base.tree.release)


@dataclass(frozen=True, slots=True)
class Opening:
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
    isolation: Isolation | None = None
    may_lack: bool = False
    base: FunctionsOfBase | None = None
    brought_along: Callable[[Path], bool] = lambda _: False
    observe: Callable[[LlmReply | LlmError], None] = lambda _: None

    @property
    def recorded(self) -> frozenset[str]:
        """Names of agents that are recordings."""
        return frozenset(agent.name for agent in self.agents if agent.driver == "recorded")


async def open_workshop(plan: Plan, opening: Opening, head: Arm) -> Workshop:
    """Open what this plan needs. Raises ConfigError or CredentialsError for what cannot be asked."""
    stack, lacking = await _models(plan, opening)
    callers, functions = _functions(plan, opening, head)
    prices = opening.meter.prices
    made = {one.agent: Instruments(stack, callers.get(one.agent), prices) for one in plan.sets}
    return Workshop(made, stack, lacking, functions, opening.base)


async def _models(plan: Plan, opening: Opening) -> tuple[LlmStack | None, Lacking]:
    wanted = wanted_of(plan, opening.recorded)
    if not wanted:
        return None, {}
    settings = opening.settings
    workspace = settings.workspace.resolve()
    folders = [agent.path.resolve() for agent in opening.agents]
    environ = judge_environ(opening.environ, dotenv_of(folders, workspace, opening.brought_along))
    llm = LlmSettings.of(settings)
    lacking: dict[str, str] = {}
    if opening.may_lack:
        refuse_wrong(wanted)
        lacking = lacking_of(wanted, environ, openai_base_url=llm.openai_base_url)
        plan = without(plan, lacking, opening.recorded)
        wanted = tuple(one for one in wanted if one.model not in lacking)
    else:
        refuse_unusable(wanted, environ, openai_base_url=llm.openai_base_url)
    if not wanted:
        return None, lacking
    llm.prices.require((one.model for one in wanted), settings.max_cost)
    if told := foreseen(plan, llm.prices, recorded=opening.recorded).sentence:
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


async def _warm(stack: LlmStack, wanted: Sequence[Wanted], *, may_lack: bool) -> Lacking:
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


def _functions(plan: Plan, opening: Opening, head: Arm) -> tuple[dict[str, Functions], tuple[MetricFunctions, ...]]:
    """Of the agents whose criteria name a function of the user's; no process is started before its first call."""
    callers: dict[str, Functions] = {}
    opened: list[MetricFunctions] = []
    named = custom_metrics(plan)
    for agent in opening.agents:
        in_force, added = named.get(agent.name, (frozenset(), frozenset()))
        then = opening.base.agents.get(agent.name) if opening.base else None
        own = [_options(agent, opening, head)] if added or (in_force and opening.base is None) else []
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
    then: AgentSettings, opening: Opening, base: FunctionsOfBase, mine: AgentDriver | None
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
        install_env=given_for_install(then.install_env, environ),
        known=lambda: python_on_base(mine, base.commit, environ, then, workspace),
        isolation=opening.isolation,
    )


def _options(agent: AgentSettings, opening: Opening, head: Arm) -> FunctionOptions:
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
        install_env=given_for_install(agent.install_env, opening.environ),
        known=lambda: driver.python if isinstance(driver, AdkAgent) else None,
        isolation=opening.isolation,
    )
