"""What the base commit measures its agents by: its configuration and eval files, read out of git, never run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

from pydantic import BaseModel

from agent_eval_action.baseline import accepted
from agent_eval_action.baseline.file_store import FileStore
from agent_eval_action.config.discovery import Discovery
from agent_eval_action.config.loader import resolve
from agent_eval_action.config.models import AgentSettings, FailOn, Settings
from agent_eval_action.config.options import BY_NAME
from agent_eval_action.config.types import EvalPattern
from agent_eval_action.errors import AgentEvalError, ConfigError, ResultsError
from agent_eval_action.folders import relative
from agent_eval_action.gate_changes.snapshot import SetSnapshot, Snapshot, set_snapshot
from agent_eval_action.git.export import export_tree
from agent_eval_action.run.base_agents import BaseCommit, BaseUnavailable, find_base
from agent_eval_action.run.loader import Loader
from agent_eval_action.run.plan import Plan, PlannedSet

_TEXTS: Final = frozenset({".json", ".yaml", ".yml"})
_AGENTS: Final = frozenset({"agent.py", "__init__.py"})
"""Discovery looks into these to know an agent from another package."""

_MAX_BYTES: Final = 64 << 20
_FILES_OF_INPUTS: Final = ("config", "criteria", "user_simulator")
"""Options that name a file which must be there; one that the base commit lacks is a file of the change's own."""


class Discover(Protocol):
    """Finds the eval files of a checkout; ``may_lack`` leaves out what is named and not there."""

    def __call__(self, settings: Settings, *, may_lack: bool = False) -> Discovery: ...


@dataclass(frozen=True, slots=True)
class CommandContext:
    """How this run was asked for: the same words are read on the base. ``flags`` as ``resolve`` takes them.

    ``base`` is the commit whose rules and cases the change is held to, None where nothing says it. ``is_change``:
    the event is of a change that asks to be merged, for which the base's rules hold.
    """

    flags: Mapping[str, Any]
    environ: Mapping[str, str]
    cwd: Path
    discover: Discover
    base: str | None = None
    is_change: bool = False

    @property
    def fail_on(self) -> FailOn:
        """What makes the step red by flags and inputs alone, where no configuration file is to be believed."""
        flags = {name: value for name, value in self.flags.items() if name == "fail_on"}
        environ = {name: self.environ[name] for name in BY_NAME["fail_on"].variables if name in self.environ}
        return resolve(flags=flags, environ=environ, cwd=self.cwd, files=False).settings.fail_on


@dataclass(frozen=True, slots=True)
class BaseSnapshot:
    """The base commit's side. Paths in ``settings`` and ``agents`` are those of the change's workspace.

    ``sets`` have no cases: they are what each is scored by, and who plays its users. ``chosen_agents_lack``: the run
    names agents that the base does not have, so ``sets`` are those of all its agents.
    """

    source: BaseCommit
    settings: Settings
    snapshot: Snapshot
    sets: tuple[PlannedSet, ...] = ()
    agents: tuple[AgentSettings, ...] = ()
    notes: tuple[str, ...] = ()
    chosen_agents_lack: bool = False

    @property
    def commit(self) -> str:
        """The commit's whole name."""
        return self.source.commit


def take_snapshot(settings: Settings, context: CommandContext, plan: Plan | None = None) -> Snapshot:
    """What this checkout is measured by, whatever part of it a run is narrowed to. Raises what loading raises.

    ``plan``: of all of it, where there is one already.
    """
    plan = plan or Loader(settings.workspace).plan(context.discover(settings), 1)
    return _snapshot(settings, tuple(map(set_snapshot, plan.sets)))


def _snapshot(settings: Settings, sets: tuple[SetSnapshot, ...]) -> Snapshot:
    accept_file = settings.workspace / accepted.ACCEPT
    try:
        baseline = FileStore(settings.baseline.path, settings.workspace).read()
    except ResultsError:  # nothing can be compared with a file that cannot be read
        baseline = None
    return Snapshot(
        sets=sets,
        policy=settings.policy,
        policy_file=relative(settings.config, settings.workspace) if settings.config else "agent-eval.yaml",
        fail_on=settings.fail_on,
        repeats=settings.repeats,
        accepted=tuple(accepted.read(accept_file, workspace=settings.workspace)),
        baseline=baseline,
    )


def read_base(settings: Settings, context: CommandContext) -> BaseSnapshot | BaseUnavailable:
    """The base commit's side of the comparison, or why it cannot be read."""
    found = find_base(settings, context.base, context.environ)
    if isinstance(found, BaseUnavailable):
        return found
    short = found.commit[:10]
    try:
        with tempfile.TemporaryDirectory(prefix="agent-eval-base-") as name, found.open_repository() as repository:
            root = Path(name).resolve()
            export_tree(repository, found.commit, root, wanted=_is_read)
            folder = root / found.inner if found.inner else root
            folder.mkdir(parents=True, exist_ok=True)  # a commit without this folder has no rules but the defaults
            return _read(found, folder, context)
    except (OSError, ValueError) as error:
        return BaseUnavailable(f"the files of the base commit {short} cannot be had: {error}", found.commit)


def _is_read(path: str, size: int) -> bool:
    name = PurePosixPath(path)
    return size <= _MAX_BYTES and (name.suffix.lower() in _TEXTS or name.name in _AGENTS)


def _read(base: BaseCommit, root: Path, context: CommandContext) -> BaseSnapshot | BaseUnavailable:
    here = base.settings.workspace
    try:
        there, lack = _settings(here, root, context)
        discovery = context.discover(there, may_lack=True)
        sets, snapshots, notes = _load(there, discovery, base.commit)
        snapshot = _snapshot(there, snapshots)
    except AgentEvalError as error:
        short = base.commit[:10]
        problem = f" ({error.problems[0].message})" if error.problems else ""
        why = f"{error.message}{problem}".replace(f"{root}/", "")
        return BaseUnavailable(
            f"the configuration of the base commit {short} cannot be used: {why} (repair it on the base branch first)",
            base.commit,
        )
    agents = {found.agent.name: found.agent for found in discovery.sets}
    agents |= {agent.name: agent for agent in there.agents}
    return BaseSnapshot(
        source=base,
        settings=_placed(there, root, here),
        snapshot=snapshot,
        sets=sets,
        agents=tuple(_placed(agent, root, here) for agent in agents.values()),
        notes=notes,
        chosen_agents_lack=lack,
    )


def _settings(here: Path, root: Path, context: CommandContext) -> tuple[Settings, bool]:
    """The same words read in the base's tree, and whether they choose agents that it lacks.

    What names a file of the workspace means the base's.
    """
    old, new = str(here), str(root)

    def moved(value: Any) -> Any:
        if isinstance(value, Path | str) and Path(value).is_absolute() and Path(value).is_relative_to(old):
            return str(root / Path(value).relative_to(old))
        return [moved(item) for item in value] if isinstance(value, list | tuple) else value

    flags = {name: moved(value) for name, value in context.flags.items()}
    environ = {name: moved(value) if name.startswith("INPUT_") else value for name, value in context.environ.items()}
    inside = context.cwd.resolve()
    cwd = root / inside.relative_to(old) if inside.is_relative_to(old) else root
    cwd = cwd if cwd.is_dir() else root
    environ["GITHUB_WORKSPACE"] = new
    for name in _FILES_OF_INPUTS:
        _drop_absent_file(name, flags, environ, cwd, root)
    found = resolve(flags=flags, environ=environ, cwd=cwd, may_lack=True).settings
    chosen = [name for name in ("agent", *BY_NAME["agent"].variables) if flags.pop(name, None) or environ.pop(name, "")]
    if not chosen or found.only_agents:
        return found, False
    return resolve(flags=flags, environ=environ, cwd=cwd, may_lack=True).settings, True


def _drop_absent_file(name: str, flags: dict[str, Any], environ: dict[str, str], cwd: Path, root: Path) -> None:
    """Leave out a flag or an input that names a file the base commit does not have."""
    if flags.get(name) and not (cwd / str(flags[name])).is_file():
        del flags[name]
    for variable in BY_NAME[name].variables:
        text = environ.get(variable, "").strip()
        if text and "\n" not in text and not text.startswith("{") and not (root / text).is_file():
            del environ[variable]


def _load(
    there: Settings, discovery: Discovery, commit: str
) -> tuple[tuple[PlannedSet, ...], tuple[SetSnapshot, ...], tuple[str, ...]]:
    """Every set of the base, without and with its cases, and notes of eval files that cannot be read.

    Raises ConfigError where criteria cannot be used.
    """
    sets: list[PlannedSet] = []
    snapshots: list[SetSnapshot] = []
    notes: list[str] = []
    for found in discovery.sets:
        loader = Loader(there.workspace)
        loaded = loader.planned_set(found)
        if loaded is None and not loader.config_problems:
            path, problem = relative(found.path, there.workspace), loader.eval_problems[0].message
            notes.append(f"what the change does to {path} is not known, {commit[:10]} has it unreadable: {problem}")
            loaded = Loader(there.workspace).planned_set(found, without_cases=True)
        if loaded is None:
            raise ConfigError("the criteria cannot be used", problems=loader.config_problems)
        sets.append(replace(loaded, cases=()))
        snapshots.append(set_snapshot(loaded))
    return tuple(sets), tuple(snapshots), tuple(notes)


def _placed(value: Any, old: Path, new: Path) -> Any:
    """The value with every path below ``old`` at the same place below ``new``."""
    if isinstance(value, Path):
        return new / value.relative_to(old) if value.is_relative_to(old) else value
    if isinstance(value, EvalPattern):
        origin = value.origin
        moved = replace(origin, base=_placed(origin.base, old, new), path=_placed(origin.path, old, new))
        return replace(value, origin=moved)
    if isinstance(value, BaseModel):
        fields = {name: _placed(getattr(value, name), old, new) for name in type(value).model_fields}
        return value.model_copy(update=fields)
    if isinstance(value, dict):
        return {key: _placed(item, old, new) for key, item in value.items()}
    return tuple(_placed(item, old, new) for item in value) if isinstance(value, tuple) else value
