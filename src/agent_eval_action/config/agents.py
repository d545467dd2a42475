"""Agents as configured: each one's own words over what is said for all, under flags and inputs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, InstanceOf

from agent_eval_action.config.adk_config import UserSimulatorConfig
from agent_eval_action.config.composite import EvalPattern
from agent_eval_action.config.layers import AgentEntry, Given
from agent_eval_action.config.options import AGENT_OPTIONS
from agent_eval_action.config.specs import CriterionSpec
from agent_eval_action.errors import Problem
from agent_eval_action.folders import real_path
from agent_eval_action.model.base import Frozen
from agent_eval_action.source import did_you_mean, shorten

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
