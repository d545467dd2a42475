"""Groups of agents that make attempts: this change's (the head), and those of its base commit."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from agent_eval_action.agents.base import AgentDriver
from agent_eval_action.config.loader import may_hold_agent, resolve
from agent_eval_action.config.models import AgentDefaults, AgentSettings, Settings
from agent_eval_action.errors import AgentEvalError
from agent_eval_action.folders import real_path
from agent_eval_action.git.repository import Remote, Repository, Scratch, export_tree, remote_of
from agent_eval_action.results.run_result import AgentConditions, ArmName, AttemptError
from agent_eval_action.sandbox.sandboxes import Sandboxes

StartTask = asyncio.Task[AgentConditions | AttemptError]

_MAX_TREES = 8  # simultaneous runs in one workspace that each run agents of the same commit
_DOTENV = ".env"
_RUNS_BASE = frozenset({"adk", "python"})
_RUNS_BASE_BY_COMMAND = frozenset({"a2a", "adk_server", "command", "openai"})
_CONFIGURED_IN_FILE = ("driver", "url", "command", "function", "model", "headers", "env", "install_env", "python")


@dataclass(frozen=True)
class AgentGroup:
    """Agents that have been started, with their drivers and start tasks by name.

    ``commit``: the agents' commit, "" for the checkout itself. ``replay_only``: agents that are recordings, which make
    no attempt beyond the first pass. ``missing``: the reason for each agent that is not in the group; those in
    ``absent`` do not exist at the commit. ``release`` frees the agents' files. ``sandboxes``: where their code runs.
    """

    name: ArmName
    drivers: Mapping[str, AgentDriver] = field(default_factory=dict)
    starts: Mapping[str, StartTask] = field(default_factory=dict)
    commit: str = ""
    replay_only: frozenset[str] = frozenset()
    release: Callable[[], None] = lambda: None
    missing: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    sandboxes: Sandboxes | None = None

    @classmethod
    def start(cls, name: ArmName, drivers: Mapping[str, AgentDriver], **fields: Any) -> AgentGroup:
        """Start every agent without waiting. ``fields``: the group's other fields."""
        starts = {agent: asyncio.create_task(driver.start()) for agent, driver in drivers.items()}
        return cls(name, drivers, starts, **fields)

    @property
    def starting(self) -> bool:
        return not all(task.done() for task in self.starts.values())

    def conditions(self) -> tuple[AgentConditions, ...]:
        """Return the conditions of the agents that have started."""
        results = [task.result() for task in self.starts.values() if task.done() and not task.cancelled()]
        return tuple(result for result in results if isinstance(result, AgentConditions))

    async def start_errors(self) -> dict[str, AttemptError]:
        """Wait until every start has ended; return the errors of failed ones."""
        results = {name: await asyncio.shield(task) for name, task in self.starts.items()}
        return {name: result for name, result in results.items() if isinstance(result, AttemptError)}

    async def stop(self) -> None:
        """Stop every worker, then free their files. Never raises because of an agent."""
        for task in self.starts.values():
            task.cancel()
        try:
            await asyncio.gather(*self.starts.values(), return_exceptions=True)
            await asyncio.gather(*(driver.stop() for driver in self.drivers.values()), return_exceptions=True)
        finally:
            self.release()


@dataclass
class LazyBaseAgents:
    """The base commit's agents. Each is opened at most once; agents opened together share their files.

    ``open_agents`` starts the agents of these names. ``commit``: the base commit, "" if unknown.
    """

    open_agents: Callable[[frozenset[str]], Awaitable[AgentGroup]]
    commit: str = ""
    _opening: dict[str, asyncio.Task[AgentGroup]] = field(default_factory=dict)

    def open(self, agents: frozenset[str]) -> bool:
        """Start opening these agents without waiting; return whether any of them is new."""
        new = agents - self._opening.keys()
        if new:
            self._opening.update(dict.fromkeys(sorted(new), asyncio.ensure_future(self.open_agents(new))))
        return bool(new)

    def ready(self, agents: Iterable[str]) -> bool:
        """Whether each of these has started, or failed to."""
        tasks = {self._opening[name] for name in agents}
        return all(task.done() and task.exception() is None and not task.result().starting for task in tasks)

    @property
    def starting(self) -> bool:
        return not self.ready(self._opening)

    async def group(self, agents: frozenset[str]) -> AgentGroup:
        """Wait until these are open and return them; the caller must not stop the group."""
        groups = {name: await asyncio.shield(self._opening[name]) for name in sorted(agents)}
        started = {name: group for name, group in groups.items() if name in group.drivers}
        return AgentGroup(
            "base",
            {name: group.drivers[name] for name, group in started.items()},
            {name: group.starts[name] for name, group in started.items()},
            next((group.commit for group in groups.values() if group.commit), ""),
            missing={name: group.missing[name] for name, group in groups.items() if name in group.missing},
            absent=frozenset(name for name, group in groups.items() if name in group.absent),
        )

    async def opened(self) -> AgentGroup:
        """Return all agents that are open by now."""
        done = (name for name, task in self._opening.items() if task.done() and not task.cancelled())
        return await self.group(frozenset(name for name in done if self._opening[name].exception() is None))

    async def stop(self) -> None:
        """Stop everything that was opened or is opening; ignores errors of opening."""
        tasks = set(self._opening.values())
        for task in tasks:
            task.cancel()
        for group in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(group, AgentGroup):
                await group.stop()


def unavailable_fields(reasons: Mapping[str, str], agents: AbstractSet[str]) -> dict[str, Any]:
    """Return the fields of ``Base`` for agents that cannot be run: a single reason if that is all ``agents``."""
    if reasons and reasons.keys() >= agents:
        return {"unavailable": "; ".join(dict.fromkeys(reasons.values())), "unavailable_agents": {}}
    return {"unavailable_agents": dict(reasons)}


@dataclass(frozen=True, slots=True)
class BaseUnavailable:
    """The reason why the base commit's files cannot be read, as a sentence."""

    reason: str
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class BaseCommit:
    """The commit that a change is merged onto, and the location of its files, which are only read on demand.

    ``remote`` has the commit if the clone lacks it; ``inner`` is the workspace's folder in the repository.
    ``tracked``: files of the change that could pass for the job's own (``.env`` and the marks of virtual environments),
    relative to the workspace. None: git cannot list them.
    """

    commit: str
    inner: str
    repository: Repository
    settings: Settings
    clone_hint: str
    remote: Remote | None = None
    tracked: frozenset[str] | None = frozenset()

    def brought_along(self, path: Path) -> bool:
        """Whether the change has this workspace file in git, or may have."""
        return self.tracked is None or path.relative_to(self.settings.workspace).as_posix() in self.tracked

    def submodules(self, repository: Repository) -> Iterator[tuple[str, str, Repository]]:
        """The submodules that are checked out: path, the base's commit of it, and a repository that may have it.

        ``repository`` has the base commit. Reads only git objects, since agents may be running. Raises OSError.
        """
        workspace = self.settings.workspace
        top = workspace.parents[len(Path(self.inner).parts) - 1] if self.inner else workspace
        for path, commit in repository.submodules(self.commit).items():
            if (top / path).is_dir() and any((top / path).iterdir()):
                yield path, commit, replace(self.repository, folder=top / path)

    @contextlib.contextmanager
    def open_repository(self) -> Iterator[Repository]:
        """Open a repository that has the commit: the clone, else our own, since we do not write to the user's.

        Raises OSError if the commit cannot be fetched.
        """
        if self.remote is None:
            yield self.repository
            return
        with Scratch.open(self.remote, self.repository.environ) as scratch:
            if scratch.fetch(self.commit, depth=1).sha is None:
                raise OSError(f"it is not in this clone ({self.clone_hint}), and cannot be fetched")
            yield scratch


def find_base(
    settings: Settings, commit: str | None, environ: Mapping[str, str], clone_hint: str
) -> BaseCommit | BaseUnavailable:
    """Find where to read a commit's files. ``commit``: the one the change is merged onto, if known.

    ``clone_hint``: how this job can fetch more history.
    """
    repository = Repository(settings.workspace, environ)
    if commit is None:
        inside = repository.resolve("HEAD") is not None
        return BaseUnavailable("git names no commit this one is merged onto" if inside else "this is no git repository")
    remote = None
    if repository.commit(commit) is None and (remote := remote_of(repository, "origin", environ)) is None:
        return BaseUnavailable(f"the base commit {commit[:10]} is not in this clone ({clone_hint})", commit)
    tracked = repository.tracked(_DOTENV, "pyvenv.cfg")
    return BaseCommit(commit, repository.prefix(), repository, settings, clone_hint, remote, tracked)


@dataclass
class BaseTree:
    """A folder with the commit's files for this run only. Its lock ends with this process, even after a crash."""

    folder: Path
    workspace: Path
    lock: int

    def release(self) -> None:
        """Remove the files. May be called twice."""
        if self.lock >= 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self.lock)
            self.lock = -1


def write_tree(base: BaseCommit, cancelled: threading.Event | None = None) -> BaseTree:
    """Write the commit's files into a new folder. Raises OSError or ValueError. Blocks."""
    tree = _claim_tree(base)
    try:
        with base.open_repository() as repository:
            export_tree(repository, base.commit, tree.folder, cancelled)
            for path, commit, submodule in base.submodules(repository):
                if submodule.commit(commit) is not None:
                    export_tree(submodule, commit, tree.folder / path, cancelled)
        tree.workspace.mkdir(parents=True, exist_ok=True)
    except BaseException:
        tree.release()
        raise
    return tree


def _claim_tree(base: BaseCommit) -> BaseTree:
    """Claim an empty folder, if possible the same one for the same commit, so that its environments are reused."""
    trees = base.settings.output_folder(base.settings.cache_dir / "base")
    trees.make()
    for number in range(_MAX_TREES):
        name = base.commit[:12] + (f"-{number}" if number else "")
        lock = os.open(trees.path / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        folder = trees.path / name
        shutil.rmtree(folder, ignore_errors=True)  # left by a run that was killed
        folder.mkdir()
        return BaseTree(folder, folder / base.inner if base.inner else folder, lock)
    raise OSError(f"{_MAX_TREES} other runs use its files in {trees.path}")


async def open_base_agents(
    base: BaseCommit,
    agents: list[AgentSettings],
    make_driver: Callable[[AgentSettings, Path], AgentDriver],
    earlier: Mapping[str, AgentSettings],
) -> AgentGroup:
    """Write the commit's files into a folder and start these agents from it; the group's ``release`` removes it.

    ``make_driver`` makes an agent's driver for the given workspace. ``earlier``: agents as the base commit configures
    them, by the names that the change gives them, with paths in the change's workspace.
    """
    cancelled = threading.Event()
    writing = asyncio.get_running_loop().run_in_executor(None, write_tree, base, cancelled)
    try:
        tree = await asyncio.shield(writing)
    except asyncio.CancelledError:
        cancelled.set()
        writing.add_done_callback(_release_written)
        raise
    except (OSError, ValueError) as error:
        reason = f"the files of the base commit {base.commit[:10]} cannot be had: {error}"
        return AgentGroup("base", commit=base.commit, missing={agent.name: reason for agent in agents})
    try:
        located = [_agent_on_base(agent, earlier.get(agent.name, agent), base, tree.workspace) for agent in agents]
        found = [agent for agent in located if isinstance(agent, AgentSettings)]
        made = await asyncio.gather(*(asyncio.to_thread(make_driver, agent, tree.workspace) for agent in found))
    except BaseException:
        tree.release()
        raise
    if not found:
        tree.release()
    lost = {agent.name: why for agent, why in zip(agents, located, strict=True) if isinstance(why, _NotOnBase)}
    return AgentGroup.start(
        "base",
        {agent.name: driver for agent, driver in zip(found, made, strict=True)},
        commit=base.commit,
        release=tree.release,
        missing={name: why.reason for name, why in lost.items()},
        absent=frozenset(name for name, why in lost.items() if why.absent),
    )


def _release_written(writing: asyncio.Future[BaseTree]) -> None:
    with contextlib.suppress(OSError, ValueError, asyncio.CancelledError):
        writing.result().release()


class _NotOnBase(NamedTuple):
    """Why the base commit's agent cannot be run. ``absent``: it does not exist at that commit."""

    reason: str
    absent: bool = False


def _agent_on_base(
    agent: AgentSettings, earlier: AgentSettings, base: BaseCommit, tree: Path
) -> AgentSettings | _NotOnBase:
    """Return the agent in the base's tree, with the environment from the base's configuration.

    ``earlier``: the agent before the change, which may have renamed it and moved its folder.
    """
    workspace, short = base.settings.workspace, base.commit[:10]
    if why := _why_not_on_base(agent):
        return _NotOnBase(why)
    if not agent.path.is_relative_to(workspace):
        return _NotOnBase(f"the agent {agent.name} lies outside the workspace")
    folder = agent.path.relative_to(workspace)
    folders = [known.path.relative_to(workspace) for known in (earlier, agent) if known.path.is_relative_to(workspace)]
    names = " or ".join(dict.fromkeys(path.as_posix() for path in folders))
    absent = _NotOnBase(f"the base commit {short} has no agent in {names}", absent=True)
    old_folder = next((path for path in folders if _holds_agent(tree / path, tree, agent.driver)), None)
    if old_folder is None:
        return absent
    try:
        before = _configured_agent(base.settings, tree, old_folder, earlier.name)
        now = _configured_agent(base.settings, workspace, folder, agent.name)
    except AgentEvalError as error:
        return _NotOnBase(f"the configuration of the base commit {short} cannot be used: {error.message}")
    _copy_dotenv_files(base, folder, tree, old_folder)
    # flags and inputs apply to both commits; the configuration file is part of the change
    own = {name: getattr(before, name) for name in _CONFIGURED_IN_FILE if getattr(agent, name) == getattr(now, name)}
    then = agent.model_copy(update={"path": real_path(tree / old_folder), **own})
    if not _holds_agent(then.path, tree, then.driver):  # only the change's driver finds an agent in this folder
        return absent
    why = _why_not_on_base(then)
    return _NotOnBase(why) if why else then


def _why_not_on_base(agent: AgentSettings) -> str:
    if agent.driver in _RUNS_BASE or (agent.driver in _RUNS_BASE_BY_COMMAND and agent.command):
        return ""
    if agent.url:
        return f"the agent {agent.name} is asked at its url, where the base commit's is not"
    if agent.driver == "recorded":
        return f"the agent {agent.name} is a recording, of which there is none on the base"
    return f"the driver {agent.driver} of the agent {agent.name} runs no base commit"


def _holds_agent(folder: Path, tree: Path, driver: str) -> bool:
    path = real_path(folder)
    return path.is_relative_to(tree.resolve()) and path.is_dir() and (driver != "adk" or may_hold_agent(path))


def _configured_agent(settings: Settings, root: Path, folder: Path, name: str) -> AgentDefaults:
    """Return the agent by the configuration file of a tree: the same file if it exists there, else the one found."""
    flags: dict[str, str] = {}
    if settings.config is not None and settings.config.is_relative_to(settings.workspace):
        file = root / settings.config.relative_to(settings.workspace)
        if file.is_file():
            flags["config"] = str(file)
    resolved = resolve(flags=flags, environ={"GITHUB_WORKSPACE": str(root)}, cwd=root).settings
    there = [agent for agent in resolved.agents if real_path(agent.path) == real_path(root / folder)]
    return next((agent for agent in there if agent.name == name), there[0] if there else resolved.agent_defaults)


def _copy_dotenv_files(base: BaseCommit, folder: Path, tree: Path, old_folder: Path) -> None:
    """Copy the .env files for the base's agent: they are seldom in git, and hold its credentials.

    A .env that is in git belongs to the change, so it is not copied. Links are not followed.
    """
    workspace = base.settings.workspace
    pairs = ((folder, old_folder), *((parent, parent) for parent in (old_folder, *old_folder.parents)))
    for here, there in pairs:
        source, target = workspace / here / _DOTENV, tree / there / _DOTENV
        is_file = source.is_file() and source.resolve() == workspace.resolve() / here / _DOTENV
        if is_file and not base.brought_along(source) and target.parent.is_dir() and not os.path.lexists(target):
            with contextlib.suppress(OSError):
                shutil.copyfile(source, target)
