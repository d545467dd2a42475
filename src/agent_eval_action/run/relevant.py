"""Which agents a change can have touched, where somebody said what they are made of (``paths``).

An agent without ``paths`` is always run: its folder alone does not say what it imports.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent_eval_action.config.agents import AgentSettings
from agent_eval_action.config.discovery import Discovery, PlannedSet
from agent_eval_action.config.patterns import glob_regex
from agent_eval_action.config.settings import Settings
from agent_eval_action.config.walk import is_eval_file
from agent_eval_action.config.workspace import CONFIG_NAMES
from agent_eval_action.git import Repository
from agent_eval_action.model.decision import Decision, Outcome
from agent_eval_action.model.result import Conditions, RunResult
from agent_eval_action.run.build_files import BuildFiles

OURS: Final = ".agent-eval"
_MAX_CONFIG: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is left to run. ``skipped`` are the names of agents the change does not touch; ``notes`` say so."""

    found: Discovery
    settings: Settings
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether no agent is left."""
        return bool(self.skipped) and not self.found.sets

    def result(self, started_at: str, conditions: Conditions) -> RunResult:
        """The result of a run that had nothing to measure: it passes, and says why."""
        under = conditions.model_copy(update={"fail_on": self.settings.fail_on, "only_agents": self.skipped})
        decision = Decision(outcome=Outcome.PASS, reason="; ".join(self.notes))
        return RunResult(started_at=started_at, conditions=under, decision=decision)


def wanted(found: Discovery) -> bool:
    """Whether any agent says what it is made of."""
    return any(one.agent.paths is not None for one in found.sets)


def narrowed(settings: Settings, found: Discovery, changed: Sequence[Path] | str, workflow: str = "") -> Narrowed:
    """What a change of these files (absolute paths) leaves to run, or a sentence: why they are not known. Pure.

    ``workflow``: the file of the workflow this run is of, from the workspace. Where the files are not known
    everything is run.
    """
    if isinstance(changed, str):
        note = f"everything is run, for what this change touches is not known: {changed}"
        return Narrowed(found, settings, notes=(note,))
    agents = {one.agent.name: one.agent for one in found.sets}
    every = Everyone.of(settings, found, workflow)
    if any(every.counts(path) for path in changed):
        return Narrowed(found, settings)
    skipped = tuple(
        name
        for name, agent in agents.items()
        if agent.paths is not None and not _touched(agent, found.sets, changed, settings.workspace)
    )
    if not skipped:
        return Narrowed(found, settings)
    left = [name for name in agents if name not in skipped]
    files = f"{len(changed):,} changed file" + ("" if len(changed) == 1 else "s")
    note = f"nothing relevant changed for {', '.join(skipped)}: none of {files} is the agent's (paths)"
    narrow = settings.model_copy(
        update={
            "agents": tuple(agent for agent in settings.agents if agent.name in left),
            "only_agents": tuple(left),
        }
    )
    sets = tuple(one for one in found.sets if one.agent.name in left)
    return Narrowed(replace(found, sets=sets), narrow, skipped, (note,))


@dataclass(frozen=True, slots=True)
class Everyone:
    """What counts for every agent: the configuration, what is stored, eval files of nobody's, the workflow."""

    folder: Path
    files: frozenset[Path]
    config_text: str
    assigned: frozenset[Path]

    @classmethod
    def of(cls, settings: Settings, found: Discovery, workflow: str) -> Everyone:
        """As these settings have it."""
        files = {file for file in (settings.baseline, settings.config, settings.workspace / workflow) if file}
        try:
            text = settings.config.read_bytes()[:_MAX_CONFIG].decode("utf-8", "replace") if settings.config else ""
        except OSError:
            text = ""
        return cls(settings.workspace / OURS, frozenset(files), text, frozenset(one.path for one in found.sets))

    def counts(self, path: Path) -> bool:
        """Whether this file is everybody's. One that the configuration names is: a criteria file, a simulated user."""
        return (
            path in self.files
            or path.is_relative_to(self.folder)
            or path.name in (*CONFIG_NAMES, "agent-eval.yaml")
            or path.name in self.config_text
            or (is_eval_file(path) and path not in self.assigned)  # removed, or found by nobody
        )


def _touched(agent: AgentSettings, sets: Iterable[PlannedSet], changed: Iterable[Path], workspace: Path) -> bool:
    """Whether a changed file is this agent's: by its folder, its eval files' folders, its build, its ``paths``."""
    build, own = BuildFiles.of(agent.path, workspace), [one for one in sets if one.agent.name == agent.name]
    return any(build.has(path) or _is_of(agent, own, path, workspace) for path in changed)


def _is_of(agent: AgentSettings, sets: Iterable[PlannedSet], path: Path, workspace: Path) -> bool:
    homes = {agent.path, agent.path.resolve()}
    evals = {one.path.parent for one in sets}
    named = {agent.criteria, agent.initial_session_file, agent.python}
    return (
        any(path.is_relative_to(home) for home in homes)
        or path.parent in evals
        or path in named
        or any(_matches(path, pattern, workspace) for pattern in _patterns(agent))
    )


def _patterns(agent: AgentSettings) -> Iterator[Path]:
    for one in agent.paths or ():
        yield Path(os.path.normpath(one.where.base / one.pattern))


def _matches(path: Path, pattern: Path, workspace: Path) -> bool:
    """A path, a folder and all below it, or a glob."""
    if path.is_relative_to(pattern):
        return True
    if not pattern.is_relative_to(workspace) or not path.is_relative_to(workspace):
        return False
    wanted_path = glob_regex(pattern.relative_to(workspace).as_posix())
    return wanted_path.fullmatch(path.relative_to(workspace).as_posix()) is not None


def changed_files(repository: Repository, base: str | None, head: str | None) -> tuple[Path, ...] | str:
    """Files that differ between two commits, absolute; a sentence where that cannot be known from this clone."""
    if base is None or head is None:
        return "the commit it is put upon is not known"
    root = repository.root()
    names = repository.changed(base, head) if root else None
    if root is None or names is None:
        return f"the commit {base[:10]} it is put upon is not in this clone (actions/checkout: fetch-depth: 2)"
    return tuple(root / name for name in names)
