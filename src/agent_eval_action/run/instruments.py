"""What criteria and simulated users work with in a run: its models and the user's metric functions, opened once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent_eval_action.agents.adk import AdkAgent
from agent_eval_action.config.agents import AgentSettings
from agent_eval_action.config.settings import Settings
from agent_eval_action.criteria.base import Instruments
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
from agent_eval_action.run.arms import Arm
from agent_eval_action.run.foresee import foreseen
from agent_eval_action.run.models import Wanted, lacking_of, refuse_unusable, refuse_wrong, wanted_of
from agent_eval_action.run.plan import Plan
from agent_eval_action.run.secrets import LOGS
from agent_eval_action.run.withheld import Lacking, without


@dataclass(frozen=True, slots=True)
class Workshop:
    """Opened instruments by agent. ``lacking``: models that cannot be asked here, where a run may do without."""

    by_agent: Mapping[str, Instruments]
    stack: LlmStack | None = None
    lacking: Lacking = field(default_factory=dict)
    functions: tuple[MetricFunctions, ...] = ()

    async def close(self) -> None:
        """End what was opened; never raises for what a function or a server did."""
        if self.stack is not None:
            await self.stack.close()
        await asyncio.gather(*(functions.stop() for functions in self.functions), return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a run opens its instruments with.

    ``read_cache`` False: votes are made anew. ``say`` is told what is worth knowing before anything is spent.
    ``may_lack``: models without credentials are left out and named in the workshop, and nothing is raised.
    ``observe`` is told what every try to ask a model came to.
    """

    settings: Settings
    environ: Mapping[str, str]
    agents: Sequence[AgentSettings]
    meter: Meter
    read_cache: bool
    say: Callable[[str], None]
    isolation: Isolation | None = None
    may_lack: bool = False
    observe: Callable[[LlmReply | LlmError], None] = lambda _: None

    @property
    def recorded(self) -> frozenset[str]:
        """Names of agents that are recordings."""
        return frozenset(agent.name for agent in self.agents if agent.driver == "recorded")


async def open_workshop(plan: Plan, opening: Opening, head: Arm) -> Workshop:
    """Open what this plan needs. Raises ConfigError or CredentialsError for what cannot be asked."""
    stack, lacking = await _models(plan, opening)
    functions = _functions(plan, opening, head)
    prices = opening.meter.prices
    made = {one.agent: Instruments(stack, functions.get(one.agent), prices) for one in plan.sets}
    return Workshop(made, stack, lacking, tuple(functions.values()))


async def _models(plan: Plan, opening: Opening) -> tuple[LlmStack | None, Lacking]:
    wanted = wanted_of(plan, opening.recorded)
    if not wanted:
        return None, {}
    settings = opening.settings
    workspace = settings.workspace.resolve()
    folders = [agent.path.resolve() for agent in opening.agents]
    environ = judge_environ(opening.environ, dotenv_of(folders, workspace))
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


def _functions(plan: Plan, opening: Opening, head: Arm) -> dict[str, MetricFunctions]:
    """Of the agents whose criteria name a function of the user's; no process is started before its first call."""
    needed = {one.agent for one in plan.sets if any(isinstance(each, CustomCriterion) for each in one.criteria)}
    return {
        agent.name: open_functions(_options(agent, opening, head)) for agent in opening.agents if agent.name in needed
    }


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
