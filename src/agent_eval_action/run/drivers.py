"""Which driver an agent asks for, and the one its counterpart on the base commit is run with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent_eval_action.agents.adk import AdkAgent, AdkAgentOptions
from agent_eval_action.agents.base import AgentDriver
from agent_eval_action.agents.recorded import RecordedAgent
from agent_eval_action.config.agents import AgentSettings
from agent_eval_action.config.settings import Settings
from agent_eval_action.interpreter.install import given_for_install
from agent_eval_action.interpreter.isolation_cell import Isolation, Level, open_isolation
from agent_eval_action.interpreter.shared import Place, not_shared
from agent_eval_action.run.arms import Arm
from agent_eval_action.run.events import Notice


async def isolated(
    settings: Settings, environ: Mapping[str, str], agents: Sequence[AgentSettings], emit: Callable[[Notice], None]
) -> Isolation | None:
    """What agents run in, where they can be given a uid of their own; what they run as is said once."""
    said: list[Notice] = []

    def say(text: str, level: Level) -> None:
        said.append(Notice(text, level=level))

    ours = (settings.out, settings.cache_dir)
    found = await asyncio.to_thread(open_isolation, environ, settings.workspace, ours, say)
    for notice in said if any(agent.driver != "recorded" for agent in agents) else ():
        emit(notice)
    return found


def driver_for(
    agent: AgentSettings, settings: Settings, environ: Mapping[str, str], isolation: Isolation | None = None
) -> AgentDriver:
    """The driver an agent asks for. ``isolation``: what it runs in, where it can be given a uid of its own."""
    if agent.driver == "recorded" and agent.recording is not None:
        return RecordedAgent(agent.name, agent.recording)
    return AdkAgent(replace(_options(agent, settings, environ), isolation=isolation))


def driver_on_base(
    head: Arm, settings: Settings, environ: Mapping[str, str], agent: AgentSettings, workspace: Path
) -> AgentDriver:
    """The driver of an agent as the base commit has it, in the tree ``workspace``.

    It runs in the environment of this change's agent where both need the same packages and none of this
    change's code is installed there; else in one of its own.
    """
    options = _options(agent, settings, environ)
    mine = head.drivers.get(agent.name)
    python, cell = (mine.python, mine.cell) if isinstance(mine, AdkAgent) else (None, None)
    isolation = mine.isolation if isinstance(mine, AdkAgent) else None
    there = Place(agent.path.resolve(), workspace.resolve())
    here = Place(settings.workspace.resolve() / there.folder.relative_to(there.workspace), settings.workspace.resolve())
    if python is not None and not_shared(python, here, there, environ, cell):
        python = None
    log = options.log_path.with_name(f"{agent.name}.base.log")
    # a uid of its own: the change's agent must not be able to make the base's look as bad
    return AdkAgent(
        replace(options, python=python, workspace=workspace, log_path=log, isolation=isolation, role="base")
    )


def _options(agent: AgentSettings, settings: Settings, environ: Mapping[str, str]) -> AdkAgentOptions:
    return AdkAgentOptions(
        name=agent.name,
        path=agent.path,
        python=agent.python,
        workers=agent.workers,
        timeout_s=agent.timeout_s,
        concurrency=settings.concurrency,
        environ={**environ, **{name: value for name, value in agent.env.items() if value is not None}},
        env_allow=tuple(agent.env),
        install_env=given_for_install(agent.install_env, environ),
        log_path=settings.out / "logs" / f"{agent.name}.log",
        cache_dir=settings.cache_dir / "environments",
        workspace=settings.workspace,
    )
