"""Whose an eval file is: the nearest agent above or beside it, else the one its session_input names."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, InstanceOf

from agent_eval_action.config.criteria import CriterionSpec, UserSimulatorConfig
from agent_eval_action.config.loader import AgentEntry, Given
from agent_eval_action.config.options import AGENT_OPTIONS
from agent_eval_action.config.types import EvalPattern
from agent_eval_action.diagnostics.reader import did_you_mean, shorten
from agent_eval_action.errors import EvalFileError, Problem
from agent_eval_action.folders import real_path
from agent_eval_action.results.base import Frozen

AppNames = Callable[[Path], frozenset[str]]


@dataclass(frozen=True, slots=True)
class Unowned:
    """An eval file that no agent of this run can be found for. ``others``: the folders it belongs to instead."""

    problems: tuple[Problem, ...]
    others: tuple[Path, ...] = ()


class Owners:
    """The agents of a run by where they lie. ``others`` are agent folders that are not part of it."""

    def __init__(
        self, agents: Sequence[AgentSettings], others: Iterable[Path], workspace: Path, app_names: AppNames
    ) -> None:
        self._agents = tuple(agents)
        self._workspace = workspace
        self._app_names = app_names
        self._at: dict[Path, list[AgentSettings]] = defaultdict(list)
        for agent in agents:
            self._at[agent.path].append(agent)
        self._folders = {*self._at, *others}
        self._below: dict[Path, list[Path]] = defaultdict(list)
        for folder in sorted(self._folders):
            self._below[folder.parent].append(folder)

    def of(self, file: Path) -> tuple[AgentSettings, ...] | Unowned:
        """The agents a file is run against; several only when they share the folder (two interpreters, say)."""
        nearest = self._nearest(file)
        if len(nearest) != 1 and len(self._folders) > 1:
            named = self._named(file, nearest or sorted(self._folders))
            if isinstance(named, Unowned):
                return named
            nearest = named or nearest
        if not nearest and len(self._folders) == 1:
            nearest = sorted(self._folders)
        if len(nearest) != 1:
            return self._unowned(file, nearest)
        return tuple(self._at.get(nearest[0], ())) or Unowned((self._elsewhere(file, nearest[0]),), tuple(nearest))

    def near(self, file: Path) -> tuple[AgentSettings, ...]:
        """The agents of this run that a file lies in or beside, or names as its app; not those it is merely left to."""
        nearest = self._nearest(file)
        named = self._named(file, nearest or sorted(self._folders)) if len(nearest) != 1 else []
        folders = nearest if isinstance(named, Unowned) else named or nearest
        return tuple(agent for folder in folders for agent in self._at.get(folder, ()))

    def _nearest(self, file: Path) -> list[Path]:
        """The agent folder the file is in, or those beside it or beside a folder it is in, nearest first."""
        for folder in file.parents:
            if folder in self._folders:
                return [folder]
            if folder in self._below:
                return self._below[folder]
            if folder == self._workspace:
                break
        return []

    def _named(self, file: Path, among: Sequence[Path]) -> list[Path] | Unowned:
        """The agents among these that a session_input of the file names as its app."""
        try:
            apps = self._app_names(file)
        except EvalFileError as error:
            return Unowned(tuple(error.problems) or (Problem(file, error.message, hint=error.hint),))
        return [folder for folder in among if {folder.name, *(agent.name for agent in self._at[folder])} & apps]

    def _unowned(self, file: Path, nearest: Sequence[Path]) -> Unowned:
        where = [relative_name(folder, self._workspace) for folder in nearest]
        message = f"may belong to {' or '.join(where)}" if where else "lies beside no agent"
        hint = "name its agent: session_input.app_name in the file, or evals of an agent in agent-eval.yaml"
        all_agents = ", ".join(relative_name(folder, self._workspace) for folder in sorted(self._folders)[:10])
        rest = "" if where else f", and its session_input.app_name is none of: {all_agents}"
        return Unowned((Problem(file, message + rest, hint=hint),))

    def _elsewhere(self, file: Path, folder: Path) -> Problem:
        name = relative_name(folder, self._workspace)
        return Problem(file, f"belongs to the agent {name}, which is not part of this run", hint=f"--agent {name}")


Driver = Literal["adk", "recorded"]


class AgentDefaults(Frozen):
    """What an agent has that says nothing of its own.

    ``criteria`` is a file, or entries written in agent-eval.yaml; None leaves it to the
    test_config.json beside each eval file. ``user_simulator`` None leaves it to the criteria file.
    ``workers`` None is one per CPU core; ``timeout_s`` is seconds a turn; ``env`` maps a variable to
    its value, or to None to let it through; ``install_env`` is the same for building its environment alone.
    ``paths`` are files beside its own that it is made of; None: not known, so that every change may touch it.
    """

    driver: Driver = "adk"
    recording: Path | None = None
    python: Path | None = None
    criteria: Path | tuple[InstanceOf[CriterionSpec], ...] | None = None
    user_simulator: UserSimulatorConfig | None = None
    env: dict[str, str | None] = Field(default_factory=dict)
    install_env: dict[str, str | None] = Field(default_factory=dict)
    initial_session_file: Path | None = None
    workers: int | None = None
    timeout_s: float = 120.0
    paths: tuple[InstanceOf[EvalPattern], ...] | None = None


class AgentSettings(AgentDefaults):
    """One agent: its folder, its name in every result, and the eval files said to be its own."""

    path: Path
    name: str
    evals: tuple[EvalPattern, ...] = ()


@dataclass(frozen=True, slots=True)
class Roster:
    """The agents to run, and what every other agent would have."""

    agents: tuple[AgentSettings, ...]
    defaults: AgentDefaults
    problems: tuple[Problem, ...] = ()


def values_for(own: Mapping[str, Given], file: Mapping[str, Given], over: Mapping[str, Given]) -> dict[str, Any]:
    """The agent options somebody gave: flags and inputs over the agent's entry over the file's top."""
    merged = {**file, **own, **over}
    values = {option.name: merged[option.name].value for option in AGENT_OPTIONS if option.name in merged}
    if values.get("recording") and "driver" not in merged:
        values["driver"] = "recorded"
    return values


def roster(
    file_agents: Sequence[AgentEntry],
    chosen: Sequence[AgentEntry],
    file: Mapping[str, Given],
    over: Mapping[str, Given],
    workspace: Path,
    *,
    may_lack: bool = False,
) -> Roster:
    """The agents to run: those ``chosen`` by flag or input, else those of the file, else none (discovery).

    ``may_lack``: those whose folder is not there are left out.
    """
    problems: list[Problem] = []
    drafts = [_draft(entry, values_for(entry.given, file, over), "evals" in over) for entry in file_agents]
    if chosen:
        drafts = [_match(entry, drafts) or _draft(entry, values_for({}, file, over), True) for entry in chosen]
    if may_lack:
        drafts = [draft for draft in drafts if draft.path.is_dir()]
    for draft in drafts:
        problems += _folder_problems(draft, workspace)
    named = _names(drafts, workspace, problems)
    agents = tuple(
        AgentSettings(path=draft.path, name=name, evals=draft.evals, **draft.values)
        for draft, name in zip(drafts, named, strict=True)
    )
    return Roster(agents, AgentDefaults(**_without_evals(values_for({}, file, over))), tuple(problems))


@dataclass(frozen=True, slots=True)
class _Draft:
    """An agent before it has its final name."""

    entry: AgentEntry
    path: Path
    values: Mapping[str, Any]
    evals: tuple[EvalPattern, ...]

    def problem(self, message: str, value: str | None = None, hint: str | None = None) -> Problem:
        return self.entry.where.problem(message, value=value, hint=hint)


def _draft(entry: AgentEntry, values: dict[str, Any], evals_overridden: bool) -> _Draft:
    own = entry.given.get("evals")
    folder = entry.where.base / entry.path if entry.path else values.get("recording")
    evals = own.value if own and not evals_overridden else ()
    return _Draft(entry, Path(os.path.normpath(folder or entry.where.base)), _without_evals(values), evals)


def _without_evals(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "evals"}


def _match(entry: AgentEntry, drafts: Sequence[_Draft]) -> _Draft | None:
    """The configured agent that a flag or input means, by its folder or by its name."""
    folder = real_path(entry.where.base / (entry.path or ""))
    by_folder = [draft for draft in drafts if real_path(draft.path) == folder]
    by_name = [draft for draft in drafts if entry.path in (draft.entry.name, draft.path.name)]
    return next(iter(by_folder or by_name), None)


def _folder_problems(draft: _Draft, workspace: Path) -> Iterator[Problem]:
    written = shorten(draft.entry.path) if draft.entry.path else None
    if not real_path(draft.path).is_relative_to(workspace):
        hint = f"start from a folder that holds the agent; the workspace is {workspace}"
        yield draft.problem("the agent's folder is outside the workspace", written, hint)
    elif draft.path.is_file():
        yield draft.problem("an agent is a folder, this is a file", written, f"path: {draft.path.parent.name}")
    elif not draft.path.is_dir():
        there = [p.name for p in draft.path.parent.iterdir() if p.is_dir()] if draft.path.parent.is_dir() else []
        yield draft.problem("there is no such agent folder", written, did_you_mean(draft.path.name, there))
    elif draft.values.get("driver", "adk") == "adk" and not may_hold_agent(draft.path):
        hint = "name the folder that holds agent.py or root_agent.yaml"
        yield draft.problem("no agent in this folder: neither agent.py nor root_agent.yaml", written, hint)
    if draft.values.get("driver") == "recorded" and not draft.values.get("recording"):
        yield draft.problem("the driver recorded needs a recording", hint="recording: FOLDER of a finished run")
    if draft.values.get("driver") == "adk" and draft.values.get("recording"):
        yield draft.problem("a recording is given, and driver: adk", hint="keep one of them")


def may_hold_agent(folder: Path) -> bool:
    """Whether ADK could find an agent in the folder; what is in the files is not looked at."""
    return any((folder / name).exists() for name in ("agent.py", "agent", "__init__.py", "root_agent.yaml"))


def default_name(folder: Path, workspace: Path) -> str:
    """The folder's name; the workspace itself is called differently on every machine, so it is ``agent``."""
    return "agent" if folder == workspace else folder.name


def unique_names(folders: Sequence[Path], workspace: Path) -> list[str]:
    """Folder names; where two agree, their paths from the workspace."""
    short = [default_name(folder, workspace) for folder in folders]
    return [
        name if short.count(name) == 1 or not folder.is_relative_to(workspace) else relative_name(folder, workspace)
        for folder, name in zip(folders, short, strict=True)
    ]


def relative_name(path: Path, workspace: Path) -> str:
    """A path from the workspace with forward slashes."""
    return Path(os.path.relpath(path, workspace)).as_posix()


def _names(drafts: Sequence[_Draft], workspace: Path, problems: list[Problem]) -> list[str]:
    unnamed = iter(unique_names([draft.path for draft in drafts if not draft.entry.name], workspace))
    names = [draft.entry.name or next(unnamed) for draft in drafts]
    for index, (draft, name) in enumerate(zip(drafts, names, strict=True)):
        if name in names[:index]:
            problems.append(draft.problem("two agents have this name", shorten(name), "give one of them another name"))
        if not name.isprintable():
            problems.append(draft.problem("a name must be printable text", shorten(name)))
    return names
