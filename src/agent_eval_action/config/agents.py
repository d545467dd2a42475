"""The agents of a run as configured: merged values, unique names, and problems with their folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_eval_action.config.models import AgentDefaults, AgentSettings
from agent_eval_action.config.options import AGENT_OPTIONS
from agent_eval_action.config.types import EvalPattern, Origin, SourcedValue
from agent_eval_action.diagnostics.reader import did_you_mean, shorten
from agent_eval_action.errors import Problem
from agent_eval_action.folders import real_path


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """One entry of ``agents``: its folder or name as written, and the options it sets."""

    origin: Origin
    path: str | None = None
    name: str | None = None
    given: Mapping[str, SourcedValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResolvedAgents:
    """The agents to run, and the defaults of every agent that discovery finds."""

    agents: tuple[AgentSettings, ...]
    defaults: AgentDefaults
    problems: tuple[Problem, ...] = ()


def resolve_agents(
    file_agents: Sequence[AgentEntry],
    chosen: Sequence[AgentEntry],
    file: Mapping[str, SourcedValue],
    over: Mapping[str, SourcedValue],
    workspace: Path,
    *,
    may_lack: bool = False,
) -> ResolvedAgents:
    """The agents to run: those ``chosen`` by flag or input, else those of the file, else none (discovery).

    Values of flags and inputs (``over``) win over the agent's entry, and that over the top of the file.
    ``may_lack``: agents whose folder is not there are left out.
    """
    drafts = [_draft(entry, _values({**file, **entry.given, **over}), "evals" in over) for entry in file_agents]
    common = _values({**file, **over})
    if chosen:
        drafts = [_match(entry, drafts) or _draft(entry, common, True) for entry in chosen]
    if may_lack:
        drafts = [draft for draft in drafts if draft.path.is_dir()]
    problems = [problem for draft in drafts for problem in _folder_problems(draft, workspace)]
    names = _names(drafts, workspace, problems)
    agents = tuple(
        AgentSettings(path=draft.path, name=name, evals=draft.evals, **draft.values)
        for draft, name in zip(drafts, names, strict=True)
    )
    return ResolvedAgents(agents, AgentDefaults(**common), tuple(problems))


def _values(given: Mapping[str, SourcedValue]) -> dict[str, Any]:
    """The fields of AgentDefaults that somebody gave."""
    names = [option.name for option in AGENT_OPTIONS if option.name in given and option.name != "evals"]
    values = {name: given[name].value for name in names}
    return {"driver": "recorded", **values} if values.get("recording") else values


@dataclass(frozen=True, slots=True)
class _Draft:
    """An agent before it has its final name."""

    entry: AgentEntry
    path: Path
    values: Mapping[str, Any]
    evals: tuple[EvalPattern, ...]

    def problem(self, message: str, value: str | None = None, hint: str | None = None) -> Problem:
        return self.entry.origin.problem(message, value=value, hint=hint)


def _draft(entry: AgentEntry, values: Mapping[str, Any], evals_overridden: bool) -> _Draft:
    own, base = entry.given.get("evals"), entry.origin.base
    folder = base / entry.path if entry.path else values.get("recording", base)
    return _Draft(entry, Path(os.path.normpath(folder)), values, own.value if own and not evals_overridden else ())


def _match(entry: AgentEntry, drafts: Sequence[_Draft]) -> _Draft | None:
    """The configured agent that a flag or input means, by its folder or by its name."""
    folder = real_path(entry.origin.base / (entry.path or ""))
    by_folder = [draft for draft in drafts if real_path(draft.path) == folder]
    by_name = [draft for draft in drafts if entry.path in (draft.entry.name, draft.path.name)]
    return next(iter(by_folder or by_name), None)


def _folder_problems(draft: _Draft, workspace: Path) -> Iterator[Problem]:
    written = shorten(draft.entry.path) if draft.entry.path else None
    driver, recording = draft.values.get("driver"), draft.values.get("recording")
    if not real_path(draft.path).is_relative_to(workspace):
        hint = f"start from a folder that holds the agent; the workspace is {workspace}"
        yield draft.problem("the agent's folder is outside the workspace", written, hint)
    elif draft.path.is_file():
        yield draft.problem("an agent is a folder, this is a file", written, f"path: {draft.path.parent.name}")
    elif not draft.path.is_dir():
        siblings = [p.name for p in draft.path.parent.iterdir() if p.is_dir()] if draft.path.parent.is_dir() else []
        yield draft.problem("there is no such agent folder", written, did_you_mean(draft.path.name, siblings))
    elif driver in (None, "adk") and not may_hold_agent(draft.path):
        hint = "name the folder that holds agent.py or root_agent.yaml"
        yield draft.problem("no agent in this folder: neither agent.py nor root_agent.yaml", written, hint)
    if driver == "recorded" and not recording:
        yield draft.problem("the driver recorded needs a recording", hint="recording: FOLDER of a finished run")
    if driver == "adk" and recording:
        yield draft.problem("a recording is given, and driver: adk", hint="keep one of them")


def may_hold_agent(folder: Path) -> bool:
    """Whether ADK could find an agent in the folder; what is in the files is not looked at."""
    return any((folder / name).exists() for name in ("agent.py", "agent", "__init__.py", "root_agent.yaml"))


def _names(drafts: Sequence[_Draft], workspace: Path, problems: list[Problem]) -> list[str]:
    unnamed = iter(unique_names([draft.path for draft in drafts if not draft.entry.name], workspace))
    names = [draft.entry.name or next(unnamed) for draft in drafts]
    for index, (draft, name) in enumerate(zip(drafts, names, strict=True)):
        if name in names[:index]:
            problems.append(draft.problem("two agents have this name", shorten(name), "give one of them another name"))
        if not name.isprintable():
            problems.append(draft.problem("a name must be printable text", shorten(name)))
    return names


def unique_names(folders: Sequence[Path], workspace: Path) -> list[str]:
    """The folders' names, and their paths from the workspace where two agree.

    The workspace itself is called differently on every machine, so it is ``agent``.
    """
    short = ["agent" if folder == workspace else folder.name for folder in folders]
    return [
        name if short.count(name) == 1 or not folder.is_relative_to(workspace) else relative_name(folder, workspace)
        for folder, name in zip(folders, short, strict=True)
    ]


def relative_name(path: Path, workspace: Path) -> str:
    """A path from the workspace with forward slashes."""
    return Path(os.path.relpath(path, workspace)).as_posix()
