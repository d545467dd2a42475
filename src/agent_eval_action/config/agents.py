"""The agents of a run as configured: merged values, unique names, and problems with their folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from agent_eval_action.config.models import AgentSettings
from agent_eval_action.config.options import AGENT_OPTIONS
from agent_eval_action.config.types import Origin, SourcedValue
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


def resolve_agents(
    entries: Sequence[AgentEntry],
    chosen: Sequence[AgentEntry],
    file: Mapping[str, SourcedValue],
    over: Mapping[str, SourcedValue],
    workspace: Path,
    *,
    may_lack: bool = False,
) -> tuple[tuple[AgentSettings, ...], list[Problem]]:
    """The agents to run: those ``chosen`` by flag or input, else the ``entries`` of the file, else none (discovery).

    Values of flags and inputs (``over``) win over the agent's entry, and that over the top of the file.
    ``may_lack``: agents whose folder is not there are left out.
    """
    drafts = [(entry, _draft(entry, {**file, **entry.given, **over}, "evals" not in over)) for entry in entries]
    if chosen:
        common = {**file, **over}
        drafts = [_match(entry, drafts) or (entry, _draft(entry, common, own_evals=False)) for entry in chosen]
    if may_lack:
        drafts = [(entry, agent) for entry, agent in drafts if agent.path.is_dir()]
    problems = [problem for entry, agent in drafts for problem in _folder_problems(entry, agent, workspace)]
    unnamed = iter(unique_names([agent.path for _, agent in drafts if not agent.name], workspace))
    agents: list[AgentSettings] = []
    for entry, agent in drafts:
        name = agent.name or next(unnamed)
        if name in [other.name for other in agents]:
            hint = "give one of them another name"
            problems.append(entry.origin.problem("two agents have this name", value=shorten(name), hint=hint))
        if not name.isprintable():
            problems.append(entry.origin.problem("a name must be printable text", value=shorten(name)))
        agents.append(agent.model_copy(update={"name": name}))
    return tuple(agents), problems


def agent_values(given: Mapping[str, SourcedValue]) -> dict[str, Any]:
    """The fields of AgentDefaults that are configured."""
    values = {option.name: given[option.name].value for option in AGENT_OPTIONS if option.name in given}
    values.pop("evals", None)
    return {"driver": "recorded", **values} if values.get("recording") else values


def _draft(entry: AgentEntry, given: Mapping[str, SourcedValue], own_evals: bool) -> AgentSettings:
    """The agent of an entry; its name is empty unless it is written there."""
    values, base = agent_values(given), entry.origin.base
    folder = base / entry.path if entry.path else values.get("recording", base)
    evals = entry.given["evals"].value if own_evals and "evals" in entry.given else ()
    return AgentSettings(path=Path(os.path.normpath(folder)), name=entry.name or "", evals=evals, **values)


def _match(
    entry: AgentEntry, drafts: Sequence[tuple[AgentEntry, AgentSettings]]
) -> tuple[AgentEntry, AgentSettings] | None:
    """The configured agent that a flag or input means, by its folder or by its name."""
    folder = real_path(entry.origin.base / (entry.path or ""))
    by_folder = [draft for draft in drafts if real_path(draft[1].path) == folder]
    by_name = [draft for draft in drafts if entry.path in (draft[0].name, draft[1].path.name)]
    return next(iter(by_folder or by_name), None)


def _folder_problems(entry: AgentEntry, agent: AgentSettings, workspace: Path) -> Iterator[Problem]:
    problem = partial(entry.origin.problem, value=shorten(entry.path) if entry.path else None)
    path = agent.path
    if not real_path(path).is_relative_to(workspace):
        hint = f"start from a folder that holds the agent; the workspace is {workspace}"
        yield problem("the agent's folder is outside the workspace", hint=hint)
    elif path.is_file():
        yield problem("an agent is a folder, this is a file", hint=f"path: {path.parent.name}")
    elif not path.is_dir():
        siblings = [other.name for other in path.parent.iterdir() if other.is_dir()] if path.parent.is_dir() else []
        yield problem("there is no such agent folder", hint=did_you_mean(path.name, siblings))
    elif agent.driver == "adk" and not may_hold_agent(path):
        hint = "name the folder that holds agent.py or root_agent.yaml"
        yield problem("no agent in this folder: neither agent.py nor root_agent.yaml", hint=hint)
    for message, hint in _option_problems(agent):
        yield entry.origin.problem(message, hint=hint)


_SERVER: Final = (("url", "command"), "url: ADDRESS of a server that runs, or command: what starts one", ("headers",))
_DRIVER_OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], str, tuple[str, ...]]]] = {
    "adk": ((), "", ()),
    "recorded": (("recording",), "recording: FOLDER of a finished run", ()),
    "adk_server": _SERVER,
    "a2a": _SERVER,
    "openai": (*_SERVER[:2], ("headers", "model")),
    "command": (("command",), "command: the program that answers, and its arguments", ()),
    "python": (("function",), "function: MODULE:FUNCTION", ()),
}
"""Of each built-in driver the options of which it needs exactly one, a hint, and those that it takes beside it."""


def _option_problems(agent: AgentSettings) -> Iterator[tuple[str, str]]:
    """What is missing, or means nothing, of the options that only some drivers have. Drivers of packages take any."""
    if agent.driver not in _DRIVER_OPTIONS:
        return
    needed, hint, others = _DRIVER_OPTIONS[agent.driver]
    given = [name for name in needed if getattr(agent, name)]
    if needed and not given:
        yield f"the driver {agent.driver} needs a {' or a '.join(needed)}", hint
    if len(given) > 1:
        yield f"{' and '.join(given)} are given, and one of them answers", "keep one of them"
    known = {name for needs, _, more in _DRIVER_OPTIONS.values() for name in (*needs, *more)}
    for name in sorted(name for name in known - {*needed, *others} if getattr(agent, name)):
        yield f"a {name} is given, and driver: {agent.driver}", "keep one of them"


def may_hold_agent(folder: Path) -> bool:
    """Whether ADK could find an agent in the folder; what is in the files is not looked at."""
    return any((folder / name).exists() for name in ("agent.py", "agent", "__init__.py", "root_agent.yaml"))


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
