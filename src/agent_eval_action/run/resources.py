"""Open what a run needs before its first attempt: sandboxes, drivers, models, metric functions, secrets to redact."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_eval_action.agents import AGENTS
from agent_eval_action.agents.adk import WorkerAgent, runtime_spec
from agent_eval_action.agents.base import AgentDriver, DriverContext
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.criteria.base import Functions, ScoringContext
from agent_eval_action.diagnostics.reader import did_you_mean
from agent_eval_action.environments.resolve import configured_interpreter, reason_env_not_reusable
from agent_eval_action.environments.runtime import AgentFolder
from agent_eval_action.environments.variables import install_secrets, selected_install_env
from agent_eval_action.errors import ConfigError, CredentialsError
from agent_eval_action.folders import OutputFolder, folders_upwards
from agent_eval_action.llm.budget import Meter
from agent_eval_action.llm.client import LlmError, LlmReply
from agent_eval_action.llm.credentials import EXTRA, dotenv_of, dotenv_of_agent, judge_environ
from agent_eval_action.llm.router import LlmStack
from agent_eval_action.processes.metric_functions import MetricFunctions
from agent_eval_action.results.evalset import FunctionReply
from agent_eval_action.results.findings import Finding
from agent_eval_action.results.redaction import Redaction, secrets_in
from agent_eval_action.run.base_agents import AgentGroup, BaseCommit, BaseTree
from agent_eval_action.run.events import Notice
from agent_eval_action.run.plan import (
    MissingCredentials,
    Plan,
    check_models,
    estimate_plan,
    mark_unmeasured,
    model_requirements,
)
from agent_eval_action.sandbox.sandboxes import Level, Role, Sandboxes, open_sandboxes


async def open_sandbox(
    settings: Settings,
    environ: Mapping[str, str],
    agents: Sequence[AgentSettings],
    emit: Callable[[Notice], None],
    hidden: Collection[Path] = (),
) -> Sandboxes | None:
    """Open the sandboxes if agents can get a uid of their own, and emit what they run as.

    ``hidden``: files to leave out of the agents' copies of the checkout, relative to the workspace.
    """
    notices: list[Notice] = []

    def say(text: str, level: Level) -> None:
        notices.append(Notice(text, "setup" if level == "info" else level))

    ours = (settings.out, settings.cache_dir)
    sandboxes = await asyncio.to_thread(open_sandboxes, environ, settings.workspace, ours, say)
    if sandboxes is not None:
        sandboxes.hidden = hidden
    for notice in notices if any(agent.driver != "recorded" for agent in agents) else ():
        emit(notice)
    return sandboxes


def refuse_unusable_agents(agents: Sequence[AgentSettings], workspace: Path, environ: Mapping[str, str]) -> None:
    """Raise ConfigError if ``driver`` or ``python`` names nothing: that is a wrong option, not a broken agent."""
    for agent in agents:
        if agent.driver not in AGENTS:
            raise ConfigError(
                f"driver of the agent {agent.name}: there is no driver `{agent.driver}`",
                hint=did_you_mean(agent.driver, AGENTS) or f"choose from {', '.join(AGENTS)}, or install its package",
            )
        if agent.driver not in {"adk", "python"} or agent.python is None:
            continue
        if not os.path.lexists(python := configured_interpreter(agent.python, workspace, environ)):
            raise ConfigError(
                f"python of the agent {agent.name}: there is no interpreter at {python}",
                hint="name an interpreter, or a virtual environment"
                + (", that has google-adk 1.10 or newer" if agent.driver == "adk" else ""),
            )


def expect_sessions(head: AgentGroup, plan: Plan) -> None:
    """Set each agent's number of sessions, so that it starts no idle workers."""
    for name, driver in head.drivers.items():
        if isinstance(driver, WorkerAgent):
            driver.sessions = plan.repeats * sum(len(planned.run) for planned in plan.sets if planned.agent == name)


async def wait_for_interpreters(head: AgentGroup, names: Collection[str]) -> None:
    """Wait until these agents have chosen interpreters, which the base's may share if all run as one user."""
    drivers = [driver for name, driver in head.drivers.items() if name in names]
    sharing = [driver for driver in drivers if isinstance(driver, WorkerAgent) and driver.spec.sandboxes is None]
    await asyncio.gather(*(driver.wait_for_interpreter() for driver in sharing))


def make_base_driver(
    head: AgentGroup, base: BaseCommit, environ: Mapping[str, str], agent: AgentSettings, workspace: Path
) -> AgentDriver:
    """Return the driver of the base commit's agent in the tree ``workspace``.

    It has its own uid where isolation allows it, so that the change's agent cannot sabotage the base's.
    """
    settings = base.settings
    active = environ.get("VIRTUAL_ENV", "")
    if active and _unless_inside(Path(active) / "bin" / "python", settings.workspace, workspace) is None:
        environ = {name: value for name, value in environ.items() if name != "VIRTUAL_ENV"}
    current = head.drivers.get(agent.name)
    servers = current.servers if isinstance(current, WorkerAgent) else None
    if agent.command and head.sandboxes is not None:
        interpreter = _unless_inside(agent.python, settings.workspace, workspace)
    else:
        interpreter = _base_interpreter(current, base, environ, agent, workspace)
    agent = agent.model_copy(update={"python": interpreter})
    context = DriverContext(agent, settings, environ, workspace, head.sandboxes, role="base", fork_servers=servers)
    return AGENTS[agent.driver](context)


def _base_interpreter(
    current: AgentDriver | None, base: BaseCommit, environ: Mapping[str, str], agent: AgentSettings, workspace: Path
) -> Path | None:
    """Return the interpreter for the base commit's ``agent`` in the tree; None: build its environment.

    ``current``: the driver of the change's agent.
    """
    if isinstance(current, WorkerAgent) and current.spec.sandboxes is not None:
        return _unless_inside(agent.python, base.settings.workspace, workspace)
    checkout, there = base.settings.workspace.resolve(), AgentFolder(agent.path.resolve(), workspace.resolve())
    if isinstance(current, WorkerAgent):
        here, python = AgentFolder(current.spec.path.resolve(), checkout), current.python
    else:
        here = AgentFolder(checkout / there.folder.relative_to(there.workspace), checkout)
        python = _python_of_programs(agent, here)
    if python is None:
        return None
    marker = python.parent.parent / "pyvenv.cfg"
    inside = marker.is_relative_to(here.workspace)
    if inside and base.brought_along(base.settings.workspace / marker.relative_to(here.workspace)):
        return None
    return None if reason_env_not_reusable(python, here, there, environ) else python


def _python_of_programs(agent: AgentSettings, here: AgentFolder) -> Path | None:
    """Return the interpreter of the first environment on the path of a ``command`` in the checkout."""
    if agent.command is None or agent.python is not None:
        return agent.python
    pythons = (folder / ".venv" / "bin" / "python" for folder in folders_upwards(here.folder, here.workspace))
    return next((python for python in pythons if python.exists()), None)


def _unless_inside(python: Path | None, *trees: Path) -> Path | None:
    """Return a configured interpreter unless it lies in a tree, because a change's files must run no other agent.

    The base's own environment is then built from its lock. Both share one if they have the same lock and nothing of
    either tree is installed, see ``environment_digest``.
    """
    if python is None:
        return None
    folder = python.parent.resolve()
    inside = any(python.is_relative_to(tree) or folder.is_relative_to(tree.resolve()) for tree in trees)
    return None if inside else python


@dataclass(frozen=True, slots=True)
class BaseMetricFunctions:
    """The base commit's metric functions, which score a change.

    ``agents``: the base's agents by the names that the change gives them, with their folders in ``tree``. ``changed``:
    how merging the change would alter the functions.
    """

    commit: BaseCommit
    tree: BaseTree
    agents: Mapping[str, AgentSettings]
    changed: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionRouter:
    """Calls each function at its origin: the base commit, or the change that adds it."""

    base: MetricFunctions
    added: MetricFunctions | None
    of_base: frozenset[str]

    async def call(self, function: str, arguments: Mapping[str, Any], source: str = "") -> FunctionReply:
        functions = self.base if function in self.of_base or self.added is None else self.added
        return await functions.call(function, arguments, source)


def recordings(agents: Iterable[AgentSettings]) -> frozenset[str]:
    """Return the names of agents that are recordings, whose users are not simulated."""
    return frozenset(agent.name for agent in agents if agent.driver == "recorded")


def custom_metrics(plan: Plan) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    """Return the functions that criteria name, by agent: those in force, and those that the change adds."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for planned in plan.sets:
        for criterion, info in zip(planned.criteria, planned.infos, strict=True):
            if functions := criterion.functions():
                found.setdefault(planned.agent, (set(), set()))[info.added].update(functions)
    return {agent: (frozenset(own), frozenset(added - own)) for agent, (own, added) in found.items()}


@dataclass(frozen=True, slots=True)
class ResourceOpener:
    """Opens the resources of a run's criteria: models and metric functions.

    ``closing`` collects callbacks that close them, and that never raise because of a function or server. ``read_cache``
    False: every vote is taken anew. ``say`` gets notes to show before money is spent. ``may_lack``: models without
    credentials are returned instead of raising. ``base``: the origin of metric functions, if not the checkout.
    ``brought_along``: whether a workspace file belongs to the change, and so must not configure judges. ``observe``
    gets the outcome of every model call.
    """

    settings: Settings
    environ: Mapping[str, str]
    agents: Sequence[AgentSettings]
    head: AgentGroup
    meter: Meter
    closing: list[Callable[[], Awaitable[None]]]
    say: Callable[[str], None]
    read_cache: bool
    sandboxes: Sandboxes | None = None
    may_lack: bool = False
    base: BaseMetricFunctions | None = None
    brought_along: Callable[[Path], bool] = lambda _: False
    observe: Callable[[LlmReply | LlmError], None] = lambda _: None

    async def open(self, plan: Plan) -> tuple[dict[str, ScoringContext], MissingCredentials]:
        """Return the resources of each agent's criteria, and the models that cannot be called.

        Raises ConfigError or CredentialsError.
        """
        llm, lacking = await self._open_models(plan)
        named = custom_metrics(plan)
        agents = [agent for agent in self.agents if agent.name in named]
        functions = {agent.name: self._open_functions(agent, *named[agent.name]) for agent in agents}
        names = {planned.agent for planned in plan.sets}
        return {name: ScoringContext(llm, functions.get(name), self.meter.prices) for name in names}, lacking

    async def _open_models(self, plan: Plan) -> tuple[LlmStack | None, MissingCredentials]:
        settings, recorded, prices = self.settings, self.head.replay_only, self.meter.prices
        required = model_requirements(plan, recorded)
        if not required:
            return None, {}
        folders = [agent.path.resolve() for agent in self.agents]
        environ = judge_environ(self.environ, dotenv_of(folders, settings.workspace.resolve(), self.brought_along))
        lacking = check_models(required, environ, settings.llm.openai_base_url or "", may_lack=self.may_lack)
        models = [model.model for model in required if model.model not in lacking]
        if not models:
            return None, lacking
        prices.require(models, settings.max_cost)
        if text := estimate_plan(mark_unmeasured(plan, lacking, recorded), prices, recorded).sentence:
            self.say(text)
        llm = LlmStack(
            settings.llm,
            environ,
            # a cache entry includes its question, which may contain text that must not be stored
            cache=None if settings.redact else settings.output_folder(settings.cache_dir),
            read_cache=self.read_cache,
            meter=self.meter,
            say=self.say,
            observe=self.observe,
        )
        self.closing.append(llm.close)
        # load the clients while the agents start; problems (a missing extra, an identity) appear before any spending
        failed = await llm.warm_up(models)
        if failed and (not self.may_lack or any(EXTRA in reason for reason in failed.values())):
            reasons = "; ".join(dict.fromkeys(failed.values()))
            raise CredentialsError(f"a model that is needed cannot be asked here, so nothing was run: {reasons}")
        return llm, {**lacking, **failed}

    def _open_functions(
        self, agent: AgentSettings, in_force: frozenset[str], added: frozenset[str]
    ) -> Functions | None:
        """Open an agent's metric functions; processes start at the first call."""
        driver = self.head.drivers.get(agent.name)
        base, own = self._base_functions(agent.name, driver) if in_force else None, None
        if added or (in_force and self.base is None):
            # functions that the change adds decide nothing; beside the base's they run as the change's agent
            role: Role = "head" if base else "metrics"
            context = DriverContext(agent, self.settings, self.environ, self.settings.workspace, self.sandboxes, role)
            known = driver if isinstance(driver, WorkerAgent) else None
            own = MetricFunctions(
                runtime_spec(context), lambda: known.python if known else None, known.servers if known else None
            )
        self.closing.extend(functions.stop for functions in (base, own) if functions)
        return FunctionRouter(base, own, in_force) if base else own

    def _base_functions(self, name: str, current: AgentDriver | None) -> MetricFunctions | None:
        if self.base is None or (agent := self.base.agents.get(name)) is None:
            return None
        base, environ, workspace = self.base, self.environ, self.base.tree.workspace
        context = DriverContext(agent, self.settings, environ, workspace, self.sandboxes, role="metrics")
        spec = replace(runtime_spec(context), python=None)
        return MetricFunctions(spec, lambda: _base_interpreter(current, base.commit, environ, agent, workspace))


def agent_secrets(agents: Iterable[AgentSettings], environ: Mapping[str, str], workspace: Path) -> Iterator[str]:
    """Yield the agents' secrets: from their variables and their `.env`."""
    for agent in agents:
        given = {name: environ.get(name, "") if value is None else value for name, value in agent.env.items()}
        yield from secrets_in(given)
        yield from install_secrets(selected_install_env(agent.install_env, environ))
        yield from secrets_in(dotenv_of_agent(agent.path, workspace))


def redact_logs(logs: OutputFolder, redaction: Redaction) -> None:
    """Redact what agents printed, after they have stopped. Files that cannot be rewritten are removed."""
    with contextlib.suppress(OSError):  # if the folder is no longer ours, nothing of ours is shown
        for name, _ in logs.files():
            try:
                with logs.read(name) as file:
                    data = file.read()
                redacted = redaction.data(data)
                if redacted != data:
                    logs.replace(name, [redacted])
            except OSError:
                with contextlib.suppress(OSError):
                    logs.remove(name)
