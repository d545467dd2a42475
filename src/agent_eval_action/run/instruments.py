"""What criteria and simulated users work with in a run: its models and the user's metric functions, opened once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent_eval_action.agents.adk import AdkAgent
from agent_eval_action.config.agents import AgentSettings
from agent_eval_action.config.settings import Settings
from agent_eval_action.criteria.base import Instruments
from agent_eval_action.criteria.foreign.custom import CustomCriterion
from agent_eval_action.errors import CredentialsError
from agent_eval_action.interpreter.functions import FunctionOptions, MetricFunctions, open_functions
from agent_eval_action.llm.budget import Meter
from agent_eval_action.llm.credentials import dotenv_of, judge_environ
from agent_eval_action.llm.stack import LlmSettings, LlmStack, open_llm
from agent_eval_action.run.arms import Arm
from agent_eval_action.run.foresee import foreseen
from agent_eval_action.run.models import Wanted, refuse_unusable, wanted_of
from agent_eval_action.run.plan import Plan


@dataclass(frozen=True, slots=True)
class Workshop:
    """Opened instruments by agent."""

    by_agent: Mapping[str, Instruments]
    stack: LlmStack | None = None
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
    """

    settings: Settings
    environ: Mapping[str, str]
    agents: Sequence[AgentSettings]
    meter: Meter
    read_cache: bool
    say: Callable[[str], None]


async def open_workshop(plan: Plan, opening: Opening, head: Arm) -> Workshop:
    """Open what this plan needs. Raises ConfigError or CredentialsError for what cannot be asked."""
    stack = await _models(plan, opening)
    functions = _functions(plan, opening, head)
    prices = opening.meter.prices
    made = {one.agent: Instruments(stack, functions.get(one.agent), prices) for one in plan.sets}
    return Workshop(made, stack, tuple(functions.values()))


async def _models(plan: Plan, opening: Opening) -> LlmStack | None:
    recorded = {agent.name for agent in opening.agents if agent.driver == "recorded"}
    wanted = wanted_of(plan, recorded)
    if not wanted:
        return None
    settings = opening.settings
    workspace = settings.workspace.resolve()
    folders = [agent.path.resolve() for agent in opening.agents]
    environ = judge_environ(opening.environ, dotenv_of(folders, workspace))
    llm = LlmSettings.of(settings)
    refuse_unusable(wanted, environ, openai_base_url=llm.openai_base_url)
    llm.prices.require((one.model for one in wanted), settings.max_cost)
    if told := foreseen(plan, llm.prices, recorded=recorded).sentence:
        opening.say(told)
    stack = open_llm(
        llm,
        environ,
        cache_dir=settings.cache_dir,
        read_cache=opening.read_cache,
        meter=opening.meter,
        say=opening.say,
    )
    await _warm(stack, wanted)
    return stack


async def _warm(stack: LlmStack, wanted: Sequence[Wanted]) -> None:
    """Load the clients while the agents start; what fails (an extra, an identity) fails before anything is spent."""
    if failed := await stack.warm_up(one.model for one in wanted):
        await stack.close()
        raise CredentialsError(f"a model that is needed cannot be asked here, so nothing was run: {'; '.join(failed)}")


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
        log_path=settings.out / "logs" / f"{agent.name}.metrics.log",
        cache_dir=settings.cache_dir / "environments",
        python=agent.python,
        timeout_s=agent.timeout_s,
        environ={**opening.environ, **{name: value for name, value in agent.env.items() if value is not None}},
        env_allow=tuple(agent.env),
        known=lambda: driver.python if isinstance(driver, AdkAgent) else None,
    )
