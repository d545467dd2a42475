"""What the base commit measures its agents by: its configuration and eval files, read out of git, never run."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from agent_eval_action.config.discovery import Discovery
from agent_eval_action.config.settings import Settings, resolve
from agent_eval_action.errors import AgentEvalError, UsageError
from agent_eval_action.gate_changes.snapshot import SetSnapshot, Snapshot, sets_of_plan
from agent_eval_action.git import Git, Scratch
from agent_eval_action.git.tree import export_tree
from agent_eval_action.model.baseline import Baseline
from agent_eval_action.model.history import Accepted
from agent_eval_action.run.arms import NoBase
from agent_eval_action.run.base import BaseCommit, find_base
from agent_eval_action.run.load import Loader, relative
from agent_eval_action.run.plan import Plan

MERGING: Final = frozenset({"pull_request", "pull_request_target", "merge_group"})
"""Events in which a change asks to be merged: there the base's rules hold, not those the change brings along."""

_TEXTS: Final = frozenset({".json", ".yaml", ".yml"})
_AGENTS: Final = frozenset({"agent.py", "__init__.py"})
"""Discovery looks into these to know an agent from another package."""

_MAX_BYTES: Final = 64 << 20

Discover = Callable[[Settings], Discovery]
ReadAccepted = Callable[[Settings], tuple[Accepted, ...]]
ReadBaseline = Callable[[Settings], Baseline | None]


@dataclass(frozen=True)
class CommandContext:
    """How this run was asked for: the same words are read on the base. ``flags`` as ``resolve`` takes them.

    ``base`` is the commit whose rules and cases the change is held to, None where nothing says it.
    """

    flags: Mapping[str, Any]
    environ: Mapping[str, str]
    cwd: Path
    discover: Discover
    base: str | None = None
    accepted: ReadAccepted = field(default=lambda _: ())
    baseline: ReadBaseline = field(default=lambda _: None)

    @property
    def merging(self) -> bool:
        """Whether a change asks to be merged here."""
        return self.environ.get("GITHUB_EVENT_NAME", "") in MERGING


@dataclass(frozen=True, slots=True)
class BaseSnapshot:
    """The base's side. ``settings`` is None where its configuration could not be used; ``notes`` say why."""

    commit: str
    snapshot: Snapshot | None = None
    settings: Settings | None = None
    notes: tuple[str, ...] = ()


def take_snapshot(settings: Settings, context: CommandContext, plan: Plan | None = None) -> Snapshot:
    """What a checkout is measured by, whatever part of it this run was narrowed to. Raises what loading raises.

    ``plan``: of all of it, where there is one already.
    """
    return Snapshot(
        sets=sets_of_plan(plan) if plan else _sets(settings, context.discover),
        policy=settings.policy,
        policy_file=relative(settings.config, settings.workspace) if settings.config else "agent-eval.yaml",
        fail_on=settings.fail_on,
        repeats=settings.repeats,
        accepted=context.accepted(settings),
        baseline=context.baseline(settings),
    )


def read_base(settings: Settings, context: CommandContext) -> BaseSnapshot | NoBase:
    """The base commit's side of the comparison, or why there is none."""
    found = find_base(settings, context.base, context.environ)
    if isinstance(found, NoBase):
        return found
    short = found.commit[:10]
    try:
        with tempfile.TemporaryDirectory(prefix="agent-eval-base-") as name, _git(found) as git:
            root = Path(name).resolve()
            export_tree(git, found.commit, root, wanted=_is_read)
            return _read(found, root / found.inner if found.inner else root, context)
    except (OSError, ValueError) as error:
        return NoBase(f"the files of the base commit {short} cannot be had: {error}", found.commit)


def rules_in_force(
    settings: Settings, found: BaseSnapshot | NoBase, context: CommandContext
) -> tuple[Settings, tuple[str, ...]]:
    """The settings a run is decided by, and what to say of it: of a change that asks to be merged, the base's rules."""
    if not context.merging:
        return settings, ()
    if isinstance(found, NoBase):
        return settings, (f"the rules are this change's own: {found.reason}",)
    theirs, short = found.settings, found.commit[:10]
    if theirs is None:
        return settings, ("the rules are this change's own",)
    if theirs.config is None and settings.config is not None:
        return settings, (f"the rules are this change's own: the base commit {short} has no configuration",)
    ruled = settings.model_copy(
        update={"policy": theirs.policy, "fail_on": theirs.fail_on, **_kept_in(theirs, settings.workspace)}
    )
    if ruled == settings:
        return settings, ()
    return ruled, (f"the rules are those of the base commit {short}, not the ones this change brings along",)


def _kept_in(theirs: Settings, workspace: Path) -> dict[str, Any]:
    """Where main's scores lie is a rule too: elsewhere a change could keep scores of its own."""
    names = ("baseline_store", "baseline_branch", "baseline_remote", "baseline_runs")
    path, root = theirs.baseline, theirs.workspace
    inside = path.is_relative_to(root)
    return {
        **{name: getattr(theirs, name) for name in names},
        "baseline": workspace / path.relative_to(root) if inside else path,
    }


@contextlib.contextmanager
def _git(base: BaseCommit) -> Iterator[Git]:
    """Where the commit is: in the clone, else fetched into a repository of our own."""
    if base.remote is None:
        yield base.git
        return
    with Scratch.open(base.remote, base.git.environ) as scratch:
        if scratch.fetch(base.commit, depth=1).sha is None:
            raise OSError("it is not in this clone (actions/checkout: fetch-depth: 2), and cannot be fetched")
        yield scratch.git


def _is_read(path: str, size: int) -> bool:
    name = PurePosixPath(path)
    return size <= _MAX_BYTES and (name.suffix.lower() in _TEXTS or name.name in _AGENTS)


def _read(base: BaseCommit, root: Path, context: CommandContext) -> BaseSnapshot:
    short = base.commit[:10]
    if not root.is_dir():
        return BaseSnapshot(base.commit, notes=(f"the base commit {short} does not have this folder yet",))
    try:
        settings = _settings(base.settings, root, context)
    except AgentEvalError as error:
        why = _said(error, root)
        return BaseSnapshot(base.commit, notes=(f"the configuration of the base commit {short} cannot be used: {why}",))
    try:
        return BaseSnapshot(base.commit, take_snapshot(settings, context), settings)
    except AgentEvalError as error:
        stored = context.baseline(settings)
        rules = Snapshot(policy=settings.policy, fail_on=settings.fail_on, repeats=settings.repeats, baseline=stored)
        note = f"what the change does to eval files is not known, those of {short}: {_said(error, root)}"
        return BaseSnapshot(base.commit, rules, settings, (note,))


def _settings(here: Settings, root: Path, context: CommandContext) -> Settings:
    """The same words read in the base's tree; what names a file of the workspace means the base's."""
    old, new = str(here.workspace), str(root)

    def moved(value: Any) -> Any:
        if isinstance(value, Path | str) and Path(value).is_absolute() and Path(value).is_relative_to(old):
            return str(root / Path(value).relative_to(old))
        return [moved(item) for item in value] if isinstance(value, list | tuple) else value

    flags = {name: moved(value) for name, value in context.flags.items()}
    environ = {name: moved(value) if name.startswith("INPUT_") else value for name, value in context.environ.items()}
    inside = context.cwd.resolve()
    cwd = root / inside.relative_to(old) if inside.is_relative_to(old) else root
    environ["GITHUB_WORKSPACE"] = new
    return resolve(flags=flags, environ=environ, cwd=cwd if cwd.is_dir() else root).settings


def _sets(settings: Settings, discover: Discover) -> tuple[SetSnapshot, ...]:
    loader = Loader(settings.workspace)
    try:
        return sets_of_plan(loader.plan(discover(settings), 1))
    except UsageError:
        return ()


def _said(error: AgentEvalError, root: Path) -> str:
    problem = f" ({error.problems[0].message})" if error.problems else ""
    return f"{error.message}{problem}".replace(f"{root}/", "")
