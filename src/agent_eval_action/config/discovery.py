"""Decide which eval files run against which agents; both may be named, configured or discovered.

A file belongs to the nearest agent above or beside it, else to the agent that its session_input names.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from agent_eval_action.config.criteria import DEFAULT_CRITERIA
from agent_eval_action.config.criteria_files import METRICS_SUFFIX
from agent_eval_action.config.loader import relative_name, unique_names
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.config.types import EvalPattern, Origin
from agent_eval_action.config.walk import (
    FETCHED,
    GO_SERVER,
    MAX_ENTRIES,
    TooManyEntries,
    Walked,
    expand,
    fetch,
    is_in_bucket,
    is_set_folder,
    walk,
)
from agent_eval_action.diagnostics.reader import MAX_JSON_BYTES, Source, plural, read_bytes, shorten
from agent_eval_action.diagnostics.tables import TABLE_SUFFIXES
from agent_eval_action.errors import EvalFileError, Problem, Unreadable
from agent_eval_action.folders import folders_upwards
from agent_eval_action.results.evalset import CONFORMANCE_SPEC, EVAL_SUFFIXES, ColumnMapping, is_replayed

CRITERIA_FILE: Final = "test_config.json"
EVAL_CONFIGS: Final = ("eval_config.json", "eval_config.yaml", "eval_config.yml")
"""Names of the criteria file in Google's project templates, beside the folder of the eval files."""

_TRACES: Final = Path("artifacts", "traces")
"""Where agents-cli stores agents' answers, in the project's folder."""

REPLAYING: Final = frozenset({"adk", "recorded"})
"""The drivers that can replay models' recorded answers."""

_SET_ID: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)

Selector = tuple[Path, Sequence[str]]
AppNames = Callable[[Path], frozenset[str]]


@dataclass(frozen=True, slots=True)
class DiscoveredSet:
    """An eval file to run against an agent. ``case_ids`` () means every case.

    ``key`` names the set in every result. ``criteria_file`` is None if agent-eval.yaml contains the agent's criteria
    (``agent.criteria``) or ADK's defaults apply. ``columns``: what the columns of a table contain.
    """

    agent: AgentSettings
    path: Path
    key: str
    case_ids: tuple[str, ...] = ()
    criteria_file: Path | None = None
    session_file: Path | None = None
    columns: ColumnMapping | None = None


@dataclass(frozen=True, slots=True)
class Discovery:
    """The sets to run, sorted by agent and set, notes for the user, and what is left out.

    ``agents`` are all configured or discovered agents, with or without eval files.
    """

    sets: tuple[DiscoveredSet, ...]
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    agents: tuple[AgentSettings, ...] = ()


def discover(
    settings: Settings, selectors: Sequence[Selector], app_names: AppNames, *, may_lack: bool = False
) -> Discovery:
    """Find agents and eval files. Raises EvalFileError with every file whose agent is not clear.

    ``selectors`` are the files (folders, globs) named for this run, with their case ids; ``app_names``
    reads the session_input.app_name values of an eval file. ``may_lack``: skip agents and eval files that are named
    but missing, as in an earlier commit that does not have them yet.
    """
    search = _Search(settings, app_names, may_lack)
    search.run(selectors)
    sets = tuple(search.sets())
    idle = [agent.name for agent in search.agents if agent.name not in {found.agent.name for found in sets}]
    if not may_lack and (not sets or (idle and settings.agents and not selectors)):
        whose = f" of {', '.join(idle)}" if sets else ""
        hint = "they are called *.evalset.json or *.test.json, lie in eval/datasets, or are named under evals"
        raise EvalFileError(f"no eval files{whose} found: there is nothing to measure", hint)
    return Discovery(sets, tuple(search.notes(sets)), tuple(search.left_out(idle)), search.agents)


def no_agent_found(settings: Settings) -> EvalFileError:
    """The error of a checkout without an agent."""
    message = "no folder holds an agent.py with root_agent, app or get_agent_async, or a root_agent.yaml"
    hint = "name the agent's folder: --agent DIR, or agent: DIR in agent-eval.yaml"
    return EvalFileError(f"no agent found: below {settings.start} {message}", hint=hint)


@dataclass
class _Search:
    """The state of the search: files chosen so far, and problems.

    ``chosen`` maps an agent's name and a file to case ids, () for all. ``fetched`` maps a file from a bucket to the
    folder of the agent whose store it is from, ``columns`` to what its columns contain. ``elsewhere`` counts the files
    of agents that are not part of this run, ``unrelated`` those beside no agent.
    """

    settings: Settings
    app_names: AppNames
    may_lack: bool = False
    problems: list[Problem] = field(default_factory=list)
    chosen: dict[tuple[str, Path], tuple[str, ...]] = field(default_factory=dict)
    fetched: dict[Path, Path | None] = field(default_factory=dict)
    columns: dict[Path, ColumnMapping | None] = field(default_factory=dict)
    elsewhere: Counter[Path] = field(default_factory=Counter)
    unrelated: int = 0

    def run(self, selectors: Sequence[Selector]) -> None:
        """Fill ``chosen`` from the files named for this run, else from those configured, else by discovery."""
        for path, case_ids in selectors:
            for file in self._files((EvalPattern(str(path), Origin(Path.cwd(), Path(path))),), self.agents):
                self._choose(self._run_by(file), file, case_ids)
        for agent in () if selectors else self.agents:
            for file in self._configured_files.get(agent.name, ()):
                self._choose((agent,), file)
        if not selectors and self.settings.evals:
            for file in self._files(self.settings.evals, self.agents):
                self._choose(self._run_by(file), file)
        elif not selectors and any(not agent.evals for agent in self.agents):
            self._discover()
        if self.problems:
            raise EvalFileError("it is not clear what to run", problems=tuple(self.problems))

    @cached_property
    def walked(self) -> Walked:
        """Everything below the start folder; walked at most once, and only if needed."""
        try:
            return walk(self.settings.start)
        except TooManyEntries:
            message = f"{self.settings.start} has more than {MAX_ENTRIES} files: too many to look through"
            raise EvalFileError(message, hint="name agents and their evals in agent-eval.yaml") from None

    @cached_property
    def agents(self) -> tuple[AgentSettings, ...]:
        """The configured agents, else every agent folder found."""
        if self.settings.agents:
            return self.settings.agents
        folders = (*self.walked.agents, *self.walked.go_agents)
        if not folders and not self.may_lack:
            raise no_agent_found(self.settings)
        common = dict(self.settings.agent_defaults)
        names = unique_names(folders, self.settings.workspace)
        served = common | {"driver": "adk_server", "command": GO_SERVER} if common["driver"] == "adk" else common
        return tuple(
            AgentSettings(path=folder, name=name, **(served if folder in self.walked.go_agents else common))
            for folder, name in zip(folders, names, strict=True)
        )

    @cached_property
    def _by_folder(self) -> dict[Path, list[AgentSettings]]:
        """The agents of every agent folder: none if it is not part of this run; several may share a folder."""
        found = {*self.walked.agents, *self.walked.go_agents}
        folders: dict[Path, list[AgentSettings]] = {
            folder: [] for folder in sorted(found.union(agent.path for agent in self.agents))
        }
        for agent in self.agents:
            folders[agent.path].append(agent)
        return folders

    @cached_property
    def _agents_by_parent(self) -> dict[Path, list[Path]]:
        below: dict[Path, list[Path]] = defaultdict(list)
        for folder in self._by_folder:
            below[folder.parent].append(folder)
        return below

    @cached_property
    def _configured_files(self) -> dict[str, tuple[Path, ...]]:
        return {agent.name: self._files(agent.evals, (agent,)) for agent in self.agents if agent.evals}

    def _discover(self) -> None:
        claimed = {file for files in self._configured_files.values() for file in files}
        files = [file for file in self.walked.eval_files if file not in claimed]
        for file in self._own_of_named_agents(files) if self.settings.only_agents else files:
            folder = self._folder_of(file)
            if isinstance(folder, EvalFileError):
                self._refuse(file, folder)
            elif agents := self._by_folder[folder]:
                drivers = REPLAYING if is_replayed(file) else {agent.driver for agent in agents}
                self._choose([agent for agent in agents if not agent.evals and agent.driver in drivers], file)
            else:
                self.elsewhere[folder] += 1

    def _own_of_named_agents(self, files: Sequence[Path]) -> Sequence[Path]:
        """Leave out files without an agent if the requested agents have files of their own.

        A user who names an agent's folder in a larger checkout means that agent's files.
        """
        near = {file for file in files if self._is_near(file)}
        folders = {file: self._folder_of(file) for file in files if near and file not in near}
        strays = {
            file for file, folder in folders.items() if isinstance(folder, EvalFileError) or self._by_folder[folder]
        }
        self.unrelated = len(strays)
        return [file for file in files if file not in strays]

    def _is_near(self, file: Path) -> bool:
        """Whether the file lies in or beside an agent of this run, or names it as its app."""
        folders = self._nearest(file)
        if len(folders) != 1:
            with contextlib.suppress(EvalFileError):
                folders = self._named_by(file, folders) or folders
        return any(self._by_folder[folder] for folder in folders)

    def _run_by(self, file: Path) -> Sequence[AgentSettings]:
        """The agents that run a named file: those that configure it, else the only agent, else those it belongs to."""
        naming = [agent for agent in self.agents if file in self._configured_files.get(agent.name, ())]
        if naming or len(self.settings.agents) == 1:
            return naming or self.settings.agents
        folder = self.fetched.get(file) or self._folder_of(file)
        if isinstance(folder, EvalFileError):
            self._refuse(file, folder)
            return ()
        if not self._by_folder[folder]:
            name = relative_name(folder, self.settings.workspace)
            message = f"belongs to the agent {name}, which is not part of this run"
            self.problems.append(Problem(file, message, hint=f"--agent {name}"))
        return self._by_folder[folder]

    def _refuse(self, file: Path, error: EvalFileError) -> None:
        self.problems += error.problems or (Problem(file, error.message, hint=error.hint),)

    def _folder_of(self, file: Path) -> Path | EvalFileError:
        """The agent folder that a file belongs to, or an error if that is not clear."""
        found = self._nearest(file)
        if (len(found) != 1 or file.name == CONFORMANCE_SPEC) and len(self._by_folder) > 1:
            try:
                found = self._named_by(file, () if file.name == CONFORMANCE_SPEC else found) or found
            except EvalFileError as error:
                return error
        if not found and len(self._by_folder) == 1:
            found = list(self._by_folder)
        if len(found) == 1:
            return found[0]
        names = [relative_name(folder, self.settings.workspace) for folder in found or list(self._by_folder)[:10]]
        hint = "name its agent: session_input.app_name in the file, or evals of an agent in agent-eval.yaml"
        none = f"lies beside no agent, and its session_input.app_name is none of: {', '.join(names)}"
        return EvalFileError(f"may belong to {' or '.join(names)}" if found else none, hint)

    def _nearest(self, file: Path) -> list[Path]:
        """The agent folder that contains the file, or the agent folders beside it or beside its nearest parent."""
        for folder in file.parents:
            if folder in self._by_folder:
                return [folder]
            if folder in self._agents_by_parent:
                return self._agents_by_parent[folder]
            if folder == self.settings.workspace:
                break
        return []

    def _named_by(self, file: Path, among: Sequence[Path]) -> list[Path]:
        """The agent folders, of ``among`` or else of all, that a session_input names. Raises EvalFileError."""
        apps = self.app_names(file)
        known = {folder: {folder.name, *(agent.name for agent in agents)} for folder, agents in self._by_folder.items()}
        return [folder for folder in among or known if known[folder] & apps]

    def _files(self, patterns: Sequence[EvalPattern], agents: Sequence[AgentSettings]) -> tuple[Path, ...]:
        """The files that these patterns name. A name without a file may be the id of an eval set of these agents."""
        files: dict[Path, None] = {}
        folders = [agent.path for agent in agents]
        for pattern in patterns:
            try:
                if is_in_bucket(pattern.pattern):
                    found = fetch(pattern, folders, self.settings.workspace)
                    self.fetched |= found
                    self.columns |= dict.fromkeys(found, pattern.columns)
                    files |= dict.fromkeys(found)
                else:
                    name = pattern.pattern if may_be_set_id(pattern.pattern, pattern.origin.base) else ""
                    ids = [folder / f"{name}.evalset.json" for folder in folders if name]
                    files |= dict.fromkeys([file for file in ids if file.is_file()] or expand(pattern))
            except EvalFileError as error:
                self.problems += () if self.may_lack else error.problems
        return tuple(files)

    def _choose(self, agents: Sequence[AgentSettings], file: Path, case_ids: Sequence[str] = ()) -> None:
        """Choose a file or some of its cases. A whole file includes its cases; repeated ids are refused later."""
        for agent in agents:
            earlier = self.chosen.get((agent.name, file))
            whole = not case_ids or earlier == ()
            self.chosen[agent.name, file] = () if whole else (*(earlier or ()), *case_ids)
        for listed in () if case_ids else self._test_files_in(file):
            if others := [agent for agent in agents if self.chosen.get((agent.name, listed)) != ()]:
                self._choose(others, listed)

    def _test_files_in(self, file: Path) -> Iterator[Path]:
        """The eval files that an ADK-Rust set lists under ``test_files``."""
        if file.suffix != ".json":
            return
        try:
            if b'"test_files"' not in read_bytes(file, self.settings.workspace, MAX_JSON_BYTES):
                return
            source = Source.read(file, workspace=self.settings.workspace, error=EvalFileError)
        except (Unreadable, EvalFileError):  # reported when the file is loaded
            return
        names = source.value.get("test_files") if isinstance(source.value, dict) else None
        for number, name in enumerate(names if isinstance(names, list) else ()):
            path = Path(os.path.normpath(file.parent / name)) if isinstance(name, str) else file.parent
            is_there = False
            with contextlib.suppress(OSError):  # the name is too long
                is_there = path.is_file() and path.is_relative_to(self.settings.workspace)
            if is_there:
                yield path
            else:
                problem = source.problem(("test_files", number), "there is no such eval file", value=shorten(name))
                self.problems.append(problem)

    def sets(self) -> Iterator[DiscoveredSet]:
        """The chosen sets, sorted by agent and set."""
        for agent in sorted(self.agents, key=lambda agent: agent.name):
            files = {file: ids for (name, file), ids in self.chosen.items() if name == agent.name}
            keys = set_keys(list(files), agent.path, self.settings.workspace)
            columns = column_mappings((*agent.evals, *self.settings.evals))
            for file in sorted(files, key=keys.__getitem__):
                criteria = agent.criteria if isinstance(agent.criteria, Path) else None
                if agent.criteria is None:
                    criteria = next((place for place in criteria_places(file) if place.is_file()), None)
                beside = file.with_name(file.name.removesuffix(".test.json") + ".session.json")
                has_session = file.name.endswith(".test.json") and beside.is_file()
                session = beside if has_session else agent.initial_session_file
                own_columns = columns.get(file) or self.columns.get(file)
                yield DiscoveredSet(agent, file, keys[file], files[file], criteria, session, own_columns)

    def notes(self, sets: Sequence[DiscoveredSet]) -> Iterator[str]:
        """Sentences for the user about which files run."""
        workspace = self.settings.workspace
        how = "" if self.settings.agents else " (discovered)"
        counts = Counter(found.agent.name for found in sets)
        for agent in sorted(self.agents, key=lambda agent: agent.name):
            if count := counts[agent.name]:
                yield f"agent {agent.name} in {relative_name(agent.path, workspace)}{how}: {plural(count, 'eval file')}"
        scored = [found for found in sets if not is_replayed(found.path)]
        if defaults := sum(found.criteria_file is None and found.agent.criteria is None for found in scored):
            scores = ", ".join(f"{spec.name} {spec.options['threshold']}" for spec in DEFAULT_CRITERIA)
            yield f"no {CRITERIA_FILE} beside {plural(defaults, 'eval file')}: ADK's defaults apply ({scores})"
        live = {found.path.parent for found in sets if found.agent.driver != "recorded"}
        above = {folder for below in filter(is_set_folder, live) for folder in folders_upwards(below, workspace)}
        for traces in sorted(folder / _TRACES for folder in above):
            if any(traces.glob("*.json")):
                name = relative_name(traces, workspace)
                what = "holds what the agent answered in earlier runs, which is not scored"
                yield f"{name} {what}; --recording {name} scores it"

    def left_out(self, idle: Sequence[str]) -> Iterator[str]:
        """Sentences for the user about which agents and files do not run, and why."""
        workspace = self.settings.workspace
        if idle:
            yield f"not run, no eval files: {', '.join(idle)}"
        for folder, count in sorted(self.elsewhere.items()):
            name = relative_name(folder, workspace)
            yield f"not run: {plural(count, 'eval file')} of {name}, which is not configured"
        if self.unrelated:
            files, names = plural(self.unrelated, "eval file"), ", ".join(self.settings.only_agents)
            yield f"not run: {files} beside no agent (only {names} was asked for); name a file to run it"


def may_be_set_id(name: str, folder: Path) -> bool:
    """Whether a name may be the id of an eval set, because no such path exists in ``folder``."""
    return bool(_SET_ID.fullmatch(name)) and not os.path.lexists(folder / name)


def column_mappings(patterns: Iterable[EvalPattern]) -> dict[Path, ColumnMapping]:
    """The column mapping of each table that has one in these patterns; the first counts."""
    found: dict[Path, ColumnMapping] = {}
    for pattern in patterns:
        if pattern.columns is not None:
            with contextlib.suppress(EvalFileError):  # reported when the files are searched
                found = dict.fromkeys(expand(pattern), pattern.columns) | found
    return found


def criteria_places(eval_file: Path) -> Iterator[Path]:
    """Paths where the criteria of an eval file may be; the first that exists counts."""
    if eval_file.name.endswith(".evalset.json"):
        yield eval_file.with_name(eval_file.name.removesuffix(".evalset.json") + METRICS_SUFFIX)
    yield eval_file.with_name(CRITERIA_FILE)
    for folder in (eval_file.parent, *([eval_file.parent.parent] if is_set_folder(eval_file.parent) else ())):
        yield from (folder / name for name in EVAL_CONFIGS)


def set_keys(files: Sequence[Path], agent: Path, workspace: Path) -> dict[Path, str]:
    """Name one agent's eval sets by the path from the agent's parent folder, without the suffix.

    If the agent is the whole workspace, whose name differs between machines, the path starts from the workspace. The
    eval_set_id does not serve as a name, since copied files share it and older formats have none. If two names would
    be equal (different suffixes, or a file outside the parent folder), both are whole paths. A file from a bucket is
    named by bucket and object.
    """
    short: dict[Path, str] = {}
    for file in files:
        fetched = workspace / FETCHED
        outside = fetched if file.is_relative_to(fetched) else workspace
        inside = outside == workspace != agent and file.is_relative_to(agent.parent)
        named = file.parent if file.name == CONFORMANCE_SPEC else file
        short[file] = relative_name(named, agent.parent if inside else outside)
        for suffix in (*EVAL_SUFFIXES, ".json", *TABLE_SUFFIXES):
            short[file] = short[file].removesuffix(suffix)
    counts = Counter(short.values())
    return {file: name if counts[name] == 1 else relative_name(file, workspace) for file, name in short.items()}
