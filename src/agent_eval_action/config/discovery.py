"""Which eval files run against which agents, as configured or as found; it says what it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.config.agents import AgentSettings, relative_name
from agent_eval_action.config.owners import AppNames
from agent_eval_action.config.patterns import AS_EVAL_SET, NOT_READ
from agent_eval_action.config.search import Search, Selector
from agent_eval_action.config.settings import Settings
from agent_eval_action.config.walk import EVAL_SETS, EVAL_SUFFIXES
from agent_eval_action.errors import EvalFileError, Problem

CRITERIA_FILE: Final = "test_config.json"
_SCAFFOLDED: Final = "eval_config.json"  # what Google's project templates call it, in the folder above evalsets/


@dataclass(frozen=True, slots=True)
class PlannedSet:
    """One eval file against one agent. ``case_ids`` () is every case.

    ``key`` names the set in every result. ``criteria_file`` is None when the agent's criteria are
    written in agent-eval.yaml (``agent.criteria``) or ADK's defaults apply.
    """

    agent: AgentSettings
    path: Path
    key: str
    case_ids: tuple[str, ...] = ()
    criteria_file: Path | None = None
    session_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Discovery:
    """What is to be run, sorted by agent and set, and what to say about it."""

    sets: tuple[PlannedSet, ...]
    notes: tuple[str, ...] = ()


def discover(
    settings: Settings, selectors: Sequence[Selector], app_names: AppNames, *, may_lack: bool = False
) -> Discovery:
    """Find agents and eval files. Raises EvalFileError with every file that cannot be placed.

    ``selectors`` are the files (folders, globs) named for this run, with their case ids; ``app_names``
    reads the session_input.app_name values of an eval file. ``may_lack``: agents and eval files that are
    named and not there are left out, as in an earlier commit that does not have them yet.
    """
    search = Search(settings, app_names, may_lack)
    search.run(selectors)
    sets = tuple(_sets(search))
    idle = [agent.name for agent in search.agents if agent.name not in {planned.agent.name for planned in sets}]
    if not may_lack and (not sets or (idle and settings.agents and not selectors)):
        whose = f" of {', '.join(idle)}" if sets else ""
        hint = "they are called *.evalset.json or *.test.json, or are named under evals"
        problems = tuple(Problem(file, NOT_READ, hint=AS_EVAL_SET) for file in search.agents_cli_datasets)
        raise EvalFileError(f"no eval files{whose} found: there is nothing to measure", hint, problems)
    return Discovery(sets, tuple(_notes(search, sets, idle)))


def _sets(search: Search) -> Iterator[PlannedSet]:
    workspace = search.settings.workspace
    for agent in sorted(search.agents, key=lambda agent: agent.name):
        files = {file: ids for (name, file), ids in search.chosen.items() if name == agent.name}
        keys = set_keys(list(files), agent.path, workspace)
        for file in sorted(files, key=keys.__getitem__):
            yield PlannedSet(
                agent=agent,
                path=file,
                key=keys[file],
                case_ids=files[file],
                criteria_file=criteria_file(agent, file),
                session_file=session_file(agent, file),
            )


def criteria_file(agent: AgentSettings, eval_file: Path) -> Path | None:
    """The agent's own file, else the test_config.json or eval_config.json beside the eval file, else None."""
    if agent.criteria is not None:
        return agent.criteria if isinstance(agent.criteria, Path) else None
    places = [eval_file.with_name(CRITERIA_FILE), eval_file.with_name(_SCAFFOLDED)]
    if eval_file.parent.name == EVAL_SETS:
        places.append(eval_file.parent.with_name(_SCAFFOLDED))
    return next((place for place in places if place.is_file()), None)


def session_file(agent: AgentSettings, eval_file: Path) -> Path | None:
    """``x.session.json`` beside ``x.test.json``, else the agent's initial session, else None."""
    beside = eval_file.with_name(eval_file.name.removesuffix(".test.json") + ".session.json")
    if eval_file.name.endswith(".test.json") and beside.is_file():
        return beside
    return agent.initial_session_file


def set_keys(files: Sequence[Path], agent: Path, workspace: Path) -> dict[Path, str]:
    """Names of one agent's eval sets: the file's path from the agent's parent folder, without the suffix.

    Not the eval_set_id, which is copied along with files and which older formats do not have. Where
    two agree (another suffix, or one of them outside that folder) each is its whole path.
    """

    def short(file: Path) -> str:
        name = relative_name(file, agent.parent if file.is_relative_to(agent.parent) else workspace)
        for suffix in (*EVAL_SUFFIXES, ".json"):
            name = name.removesuffix(suffix)
        return name

    counts = Counter(short(file) for file in files)
    return {file: short(file) if counts[short(file)] == 1 else relative_name(file, workspace) for file in files}


def _notes(search: Search, sets: Sequence[PlannedSet], idle: Sequence[str]) -> Iterator[str]:
    workspace = search.settings.workspace
    how = "" if search.settings.agents else " (discovered)"
    for agent in sorted(search.agents, key=lambda agent: agent.name):
        count = sum(planned.agent.name == agent.name for planned in sets)
        if count:
            yield f"agent {agent.name} in {relative_name(agent.path, workspace)}{how}: {_files(count)}"
    if idle:
        yield f"not run, no eval files: {', '.join(idle)}"
    for file in search.agents_cli_datasets:
        yield f"not run: {relative_name(file, workspace)} {NOT_READ}"
    for folder, count in sorted(search.elsewhere.items()):
        yield f"not run: {_files(count)} of {relative_name(folder, workspace)}, which is not configured"
    if search.unrelated:
        names = ", ".join(search.settings.only_agents)
        yield f"not run: {_files(search.unrelated)} beside no agent (only {names} was asked for); name a file to run it"
    defaults = sum(planned.criteria_file is None and planned.agent.criteria is None for planned in sets)
    if defaults:
        scores = "tool_trajectory_avg_score 1.0, response_match_score 0.8"
        yield f"no {CRITERIA_FILE} beside {_files(defaults)}: ADK's defaults apply ({scores})"


def _files(count: int) -> str:
    return f"{count} eval file" if count == 1 else f"{count} eval files"
