"""Which driver an agent asks for, and the one its counterpart on the base commit is run with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent_eval_action.agents.adk import AdkAgent, AdkAgentOptions
from agent_eval_action.agents.base import AgentDriver
from agent_eval_action.agents.recorded import RecordedAgent
from agent_eval_action.config.agents import AgentSettings
from agent_eval_action.config.settings import Settings
from agent_eval_action.errors import ConfigError
from agent_eval_action.interpreter.environment import Say, configured_interpreter
from agent_eval_action.interpreter.install import given_for_install
from agent_eval_action.interpreter.isolation_cell import Isolation, Level, open_isolation
from agent_eval_action.interpreter.shared import Place, not_shared
from agent_eval_action.run.arms import Arm
from agent_eval_action.run.base import BaseCommit
from agent_eval_action.run.events import Notice
from agent_eval_action.run.secrets import LOGS


async def isolated(
    settings: Settings,
    environ: Mapping[str, str],
    agents: Sequence[AgentSettings],
    emit: Callable[[Notice], None],
    hidden: Collection[Path] = (),
) -> Isolation | None:
    """What agents run in, where they can be given a uid of their own; what they run as is said once.

    ``hidden``: what no copy of the checkout that an agent works on has in it, relative to the workspace.
    """
    said: list[Notice] = []

    def say(text: str, level: Level) -> None:
        said.append(Notice(text, level=level))

    ours = (settings.out, settings.cache_dir)
    found = await asyncio.to_thread(open_isolation, environ, settings.workspace, ours, say)
    if found is not None:
        found.hidden = hidden
    for notice in said if any(agent.driver != "recorded" for agent in agents) else ():
        emit(notice)
    return found


def driver_for(
    agent: AgentSettings,
    settings: Settings,
    environ: Mapping[str, str],
    isolation: Isolation | None = None,
    say: Say = lambda _text, _level: None,
) -> AgentDriver:
    """The driver an agent asks for. ``isolation``: what it runs in, where it can be given a uid of its own.

    ``say`` is called from another thread with what takes long, before it begins.
    """
    if agent.driver == "recorded" and agent.recording is not None:
        return RecordedAgent(agent.name, agent.recording, settings.workspace)
    options = _options(agent, settings, environ)
    return AdkAgent(replace(options, isolation=isolation, say=lambda text, level: say(f"{agent.name}: {text}", level)))


def refuse_missing_interpreters(agents: Sequence[AgentSettings], workspace: Path, environ: Mapping[str, str]) -> None:
    """Raise ConfigError where ``python`` names nothing: a wrong option is no agent that does not start."""
    for agent in agents:
        if agent.driver == "recorded" or agent.python is None:
            continue
        if not os.path.lexists(python := configured_interpreter(agent.python, workspace, environ)):
            raise ConfigError(
                f"python of the agent {agent.name}: there is no interpreter at {python}",
                hint="name an interpreter, or a virtual environment, that has google-adk 1.10 or newer",
            )


async def interpreters_chosen(head: Arm, names: Collection[str]) -> None:
    """Wait for what ``driver_on_base`` may share of these agents, where all run as one user."""
    drivers = [driver for name, driver in head.drivers.items() if name in names]
    waited = [one for one in drivers if isinstance(one, AdkAgent) and one.isolation is None]
    await asyncio.gather(*(one.interpreter_chosen() for one in waited))


def driver_on_base(
    head: Arm, base: BaseCommit, environ: Mapping[str, str], agent: AgentSettings, workspace: Path
) -> AgentDriver:
    """The driver of an agent as the base commit has it, in the tree ``workspace``.

    It has a uid of its own where uids can be given: the change's agent must not be able to make the base's look as bad.
    """
    settings = base.settings
    active = environ.get("VIRTUAL_ENV", "")
    if active and _outside(Path(active) / "bin" / "python", settings.workspace, workspace) is None:
        environ = {name: value for name, value in environ.items() if name != "VIRTUAL_ENV"}
    options = _options(agent, settings, environ)
    mine = head.drivers.get(agent.name)
    isolation = mine.isolation if isinstance(mine, AdkAgent) else None
    python = python_on_base(mine, base, environ, agent, workspace)
    return AdkAgent(replace(options, python=python, workspace=workspace, isolation=isolation, role="base"))


def python_on_base(
    mine: AgentDriver | None, base: BaseCommit, environ: Mapping[str, str], agent: AgentSettings, workspace: Path
) -> Path | None:
    """The interpreter that code of the base commit runs in, ``agent`` being in its tree; None: one of its own is built.

    ``mine``: the driver of the change's agent.
    """
    if isinstance(mine, AdkAgent) and mine.isolation is not None:
        return _outside(agent.python, base.settings.workspace, workspace)
    if not isinstance(mine, AdkAgent) or mine.python is None:
        return None
    here = Place(mine.path.resolve(), base.settings.workspace.resolve())
    there = Place(agent.path.resolve(), workspace.resolve())
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


def _may_share(python: Path, base: BaseCommit, here: Place, there: Place, environ: Mapping[str, str]) -> bool:
    """Whether the base commit's agent may run in the environment of the change's, where all run as one user."""
    made, root = python.parent.parent / "pyvenv.cfg", here.workspace
    if made.is_relative_to(root) and base.brought_along(base.settings.workspace / made.relative_to(root)):
        return False
    return not not_shared(python, here, there, environ)


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
        logs=settings.output_folder(settings.out / LOGS),
        cache=settings.output_folder(settings.cache_dir / "environments"),
        workspace=settings.workspace,
    )
