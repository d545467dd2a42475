"""Arms: whose agents make attempts. The head's are this change's, the base's those of the commit it is merged onto."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_eval_action.agents.base import AgentDriver
from agent_eval_action.config.assignment import AgentDefaults, AgentSettings, may_hold_agent
from agent_eval_action.config.settings import Settings, resolve
from agent_eval_action.errors import AgentEvalError
from agent_eval_action.folders import real_path
from agent_eval_action.git import Git, Remote, Repository, Scratch, remote_of
from agent_eval_action.git.export import export_tree, folder_in_repository
from agent_eval_action.results.run_result import AgentConditions, ArmName, AttemptError

StartTask = asyncio.Task[AgentConditions | AttemptError]


@dataclass(frozen=True)
class AgentGroup:
    """Agents that are being started: ``drivers`` and what their ``start`` will say, by agent name.

    ``commit`` is what the agents are of, "" for the checkout itself. ``fixed`` agents can make nothing
    beyond the first pass (a recording). ``missing`` says in one sentence each why agents are not among them; those of
    them that the commit does not have are ``absent``.
    ``release`` gives back what the arm was made of.
    """

    name: ArmName
    drivers: Mapping[str, AgentDriver]
    starts: Mapping[str, StartTask]
    commit: str = ""
    fixed: frozenset[str] = frozenset()
    release: Callable[[], None] = field(default=lambda: None)
    missing: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    @classmethod
    def begin(
        cls,
        name: ArmName,
        drivers: Mapping[str, AgentDriver],
        *,
        commit: str = "",
        fixed: frozenset[str] = frozenset(),
        release: Callable[[], None] = lambda: None,
        missing: Mapping[str, str] | None = None,
        absent: frozenset[str] = frozenset(),
    ) -> AgentGroup:
        """Start every agent; none is waited for."""
        starts = {agent: asyncio.create_task(driver.start()) for agent, driver in drivers.items()}
        return cls(name, drivers, starts, commit, fixed, release, missing or {}, absent)

    def conditions(self) -> tuple[AgentConditions, ...]:
        """Of the agents that did start."""
        said = [task.result() for task in self.starts.values() if task.done() and not task.cancelled()]
        return tuple(one for one in said if isinstance(one, AgentConditions))

    async def stop(self) -> None:
        """End every worker, then give back what they ran on. Never raises for what an agent did."""
        for task in self.starts.values():
            if not task.done():
                task.cancel()
        try:
            await asyncio.gather(*self.starts.values(), return_exceptions=True)
            await asyncio.gather(*(driver.stop() for driver in self.drivers.values()), return_exceptions=True)
        finally:
            self.release()


@dataclass(frozen=True, slots=True)
class BaseUnavailable:
    """Why the base commit's agents cannot be run, in one sentence. ``absent``: those that it does not have."""

    reason: str
    commit: str | None = None
    absent: frozenset[str] = frozenset()


_FOLDERS = 8  # runs of one workspace at the same time that each control against the same commit
_DOTENV = ".env"
_OF_THE_FILE = ("env", "install_env", "python")

DriverFactory = Callable[[AgentSettings, Path], AgentDriver]
"""A driver of an agent whose workspace is the given folder."""


@dataclass(frozen=True, slots=True)
class BaseCommit:
    """Which commit the control runs, and where it lies. Its files are not read before they are needed.

    ``remote`` is asked for a commit that the clone lacks; ``inner`` is the workspace's place in it.
    ``tracked`` are the files of the change that could pass for the job's own: ``.env`` and what virtual environments
    consist of, relative to the workspace. None where git cannot say which they are.
    """

    commit: str
    inner: str
    git: Git
    settings: Settings
    remote: Remote | None = None
    tracked: frozenset[str] | None = frozenset()

    def brought_along(self, path: Path) -> bool:
        """Whether the change brought this file of the workspace along, or whether it cannot be ruled out."""
        here = self.settings.workspace
        return self.tracked is None or path.relative_to(here).as_posix() in self.tracked


def find_base(settings: Settings, commit: str | None, environ: Mapping[str, str]) -> BaseCommit | BaseUnavailable:
    """Where the files of a commit can be had. ``commit``: the one the change is put upon, None if nothing says it."""
    repository = Repository(settings.workspace, environ)
    if commit is None:
        inside = repository.resolve("HEAD") is not None
        return BaseUnavailable("git names no commit this one is merged onto" if inside else "this is no git repository")
    remote = None
    if repository.commit(commit) is None:
        remote = remote_of(repository, "origin", environ)
        if remote is None:
            return BaseUnavailable(_absent(commit), commit)
    inner, tracked = folder_in_repository(repository), repository.tracked(_DOTENV, "pyvenv.cfg")
    return BaseCommit(commit, inner, repository.git, settings, remote, tracked)


def _absent(commit: str) -> str:
    return f"the base commit {commit[:10]} is not in this clone (actions/checkout: fetch-depth: 2)"


async def open_base_agents(
    base: BaseCommit,
    agents: list[AgentSettings],
    make: DriverFactory,
    earlier: Mapping[str, AgentSettings] | None = None,
) -> AgentGroup | BaseUnavailable:
    """Write the commit's files and begin to start these agents of it. The arm's ``release`` removes the files.

    ``earlier``: what the base commit's configuration says of agents that it has, by the names this change gives
    them. Paths are those of the change's workspace. Agents that the commit lacks are named in the arm's ``missing``.
    """
    given_up = threading.Event()
    writing = asyncio.get_running_loop().run_in_executor(None, write_tree, base, given_up)
    try:
        tree = await asyncio.shield(writing)
    except asyncio.CancelledError:
        given_up.set()
        writing.add_done_callback(_release)
        raise
    except (OSError, ValueError) as error:
        return BaseUnavailable(f"the files of the base commit {base.commit[:10]} cannot be had: {error}", base.commit)
    try:
        found = {
            agent.name: _as_on_base(agent, (earlier or {}).get(agent.name, agent), base, tree.workspace)
            for agent in agents
        }
        lost = {name: one for name, one in found.items() if isinstance(one, BaseUnavailable)}
        missing = {name: one.reason for name, one in lost.items()}
        absent = frozenset(name for name, one in lost.items() if one.absent)
        there = [one for one in found.values() if isinstance(one, AgentSettings)]
        if not there:
            tree.release()
            return BaseUnavailable("; ".join(missing.values()), base.commit, absent)
        made = await asyncio.gather(*(asyncio.to_thread(make, one, tree.workspace) for one in there))
        drivers = {one.name: driver for one, driver in zip(there, made, strict=True)}
        return AgentGroup.begin(
            "base", drivers, commit=base.commit, release=tree.release, missing=missing, absent=absent
        )
    except BaseException:
        tree.release()
        raise


@dataclass
class BaseTree:
    """A folder of files that nobody else uses: the lock ends with this process, however it ends."""

    folder: Path
    workspace: Path
    lock: int

    def release(self) -> None:
        """Remove the files; safe to call twice."""
        if self.lock < 0:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)
        self.lock = -1


def _release(writing: asyncio.Future[BaseTree]) -> None:
    with contextlib.suppress(OSError, ValueError, asyncio.CancelledError):
        writing.result().release()


def write_tree(base: BaseCommit, given_up: threading.Event | None = None) -> BaseTree:
    """Write the commit's files into a folder of their own. Raises OSError or ValueError. Blocks."""
    tree = _claimed(base)
    try:
        with contextlib.ExitStack() as stack:
            git = base.git
            if base.remote is not None:  # into a repository of our own: the user's is not written to
                git = _fetched(stack.enter_context(Scratch.open(base.remote, git.environ)), base.commit)
            export_tree(git, base.commit, tree.folder, given_up)
        tree.workspace.mkdir(parents=True, exist_ok=True)
    except BaseException:
        tree.release()
        raise
    return tree


def _fetched(scratch: Scratch, commit: str) -> Git:
    if scratch.fetch(commit, depth=1).sha is None:
        raise OSError(f"{_absent(commit)}, and cannot be fetched")
    return scratch.git


def _claimed(base: BaseCommit) -> BaseTree:
    """An empty folder, the same one for the same commit: environments built for it are found again."""
    folder_of_trees = base.settings.output_folder(base.settings.cache_dir / "base")
    folder_of_trees.make()
    place = folder_of_trees.path
    for number in range(_FOLDERS):
        name = base.commit[:12] + (f"-{number}" if number else "")
        lock = os.open(place / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        folder = place / name
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        folder.mkdir()
        return BaseTree(folder, folder / base.inner if base.inner else folder, lock)
    raise OSError(f"{_FOLDERS} other runs use its files in {place}")


def _as_on_base(
    agent: AgentSettings, earlier: AgentSettings, base: BaseCommit, there: Path
) -> AgentSettings | BaseUnavailable:
    """The agent in the base's tree, with what the base's own configuration lets it see.

    ``earlier``: the agent before the change, which may have renamed it and moved its folder.
    """
    here, short = base.settings.workspace, base.commit[:10]
    if agent.driver != "adk":
        return BaseUnavailable(
            f"the agent {agent.name} is a recording, of which there is none on the base", base.commit
        )
    if not agent.path.is_relative_to(here):
        return BaseUnavailable(f"the agent {agent.name} lies outside the workspace", base.commit)
    place = agent.path.relative_to(here)
    places = [one.path.relative_to(here) for one in (earlier, agent) if one.path.is_relative_to(here)]
    old_place = next((one for one in places if _holds_agent(there / one, there)), None)
    if old_place is None:
        names = " or ".join(dict.fromkeys(one.as_posix() for one in places))
        return BaseUnavailable(f"the base commit {short} has no agent in {names}", base.commit, frozenset({agent.name}))
    try:
        before = _configured(base.settings, there, old_place, earlier.name)
        now = _configured(base.settings, here, place, agent.name)
    except AgentEvalError as error:
        return BaseUnavailable(
            f"the configuration of the base commit {short} cannot be used: {error.message}", base.commit
        )
    _carry_dotenv(base, place, there, old_place)
    # what a flag or an input says holds for both; what the file says is part of the change
    own = {name: getattr(before, name) for name in _OF_THE_FILE if getattr(agent, name) == getattr(now, name)}
    return agent.model_copy(update={"path": real_path(there / old_place), **own})


def _holds_agent(folder: Path, there: Path) -> bool:
    path = real_path(folder)
    return path.is_relative_to(there.resolve()) and path.is_dir() and may_hold_agent(path)


def _configured(settings: Settings, root: Path, place: Path, name: str) -> AgentDefaults:
    """The agent as the configuration file of a tree has it."""
    flags: dict[str, str] = {}
    if settings.config is not None and settings.config.is_relative_to(settings.workspace):
        file = root / settings.config.relative_to(settings.workspace)
        if not file.is_file():
            return AgentDefaults()
        flags["config"] = str(file)
    found = resolve(flags=flags, environ={"GITHUB_WORKSPACE": str(root)}, cwd=root).settings
    mine = [agent for agent in found.agents if real_path(agent.path) == real_path(root / place)]
    return next((agent for agent in mine if agent.name == name), mine[0] if mine else found.agent_defaults)


def _carry_dotenv(base: BaseCommit, place: Path, there: Path, old_place: Path) -> None:
    """The .env files an agent loads are seldom in git: without them the base's agent would have no credentials.

    A .env that is in git is the change's. It, and whatever a link leads to, stays where it is.
    """
    here = base.settings.workspace
    for folder, old_folder in ((place, old_place), *((folder, folder) for folder in (old_place, *old_place.parents))):
        source, target = here / folder / _DOTENV, there / old_folder / _DOTENV
        is_file = source.is_file() and source.resolve() == here.resolve() / folder / _DOTENV
        if is_file and not base.brought_along(source) and target.parent.is_dir() and not os.path.lexists(target):
            with contextlib.suppress(OSError):
                shutil.copyfile(source, target)


OpenBaseAgents = Callable[[frozenset[str]], Awaitable[AgentGroup | BaseUnavailable]]
"""Makes the base commit's agents of these names run; says why, where one or all of them cannot."""


@dataclass
class LazyBaseAgents:
    """Opens each agent at most once. Agents asked for together share their files."""

    open_base: OpenBaseAgents
    _opening: dict[str, asyncio.Task[AgentGroup | BaseUnavailable]] = field(default_factory=dict)

    def begin(self, agents: frozenset[str]) -> bool:
        """Begin to open these; whether any of them is new. Nothing is waited for, and nothing said."""
        new = agents - self._opening.keys()
        if new:
            task = asyncio.ensure_future(self.open_base(new))
            self._opening.update(dict.fromkeys(sorted(new), task))
        return bool(new)

    def ready(self, agents: frozenset[str]) -> bool:
        """Whether nothing is left to wait for: each of these has started, or it is known why it does not."""
        for task in {self._opening[name] for name in agents}:
            if not task.done() or task.exception() is not None:
                return False
            arm = task.result()
            if isinstance(arm, AgentGroup) and not all(start.done() for start in arm.starts.values()):
                return False
        return True

    @property
    def starting(self) -> bool:
        """Whether an agent of the base commit is being made ready or started."""
        return not self.ready(frozenset(self._opening))

    async def opened(self, agents: frozenset[str]) -> AgentGroup:
        """These agents, those that can be run being started. The answer is not to be stopped itself."""
        self.begin(agents)
        return _joined({name: await asyncio.shield(self._opening[name]) for name in sorted(agents)})

    def known(self) -> AgentGroup:
        """The same of every agent that was begun, as far as it is open."""
        done = {name: task for name, task in self._opening.items() if task.done() and not task.cancelled()}
        return _joined({name: task.result() for name, task in done.items() if task.exception() is None})

    async def stop(self) -> None:
        """End everything that was opened or is being opened; why it failed does not matter any more."""
        tasks = set(self._opening.values())
        for task in tasks:
            if not task.done():
                task.cancel()
        for one in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(one, AgentGroup):
                await one.stop()


def _joined(opened: Mapping[str, AgentGroup | BaseUnavailable]) -> AgentGroup:
    """Each agent out of the arm it was opened with."""
    arms = {name: arm for name, arm in opened.items() if isinstance(arm, AgentGroup) and name in arm.drivers}
    return AgentGroup(
        "base",
        {name: arm.drivers[name] for name, arm in arms.items()},
        {name: arm.starts[name] for name, arm in arms.items()},
        next((one.commit for one in opened.values() if one.commit), ""),
        missing={
            name: one.reason if isinstance(one, BaseUnavailable) else one.missing.get(name, "it was not opened")
            for name, one in opened.items()
            if name not in arms
        },
        absent=frozenset(name for name, one in opened.items() if name in one.absent),
    )
