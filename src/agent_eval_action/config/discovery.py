"""One bounded walk over a workspace: which folders hold an agent, and where eval files lie."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from agent_eval_action.config.agents import relative_name, unique_names
from agent_eval_action.config.assignment import AgentAssignment, AppNames, Unassigned
from agent_eval_action.config.criteria import DEFAULT_CRITERIA
from agent_eval_action.config.models import AgentDefaults, AgentSettings, Settings
from agent_eval_action.config.types import EvalPattern, Origin
from agent_eval_action.diagnostics.reader import did_you_mean, plural, shorten
from agent_eval_action.errors import EvalFileError, Problem
from agent_eval_action.results.evalset import EVAL_SUFFIXES

EVAL_SETS: Final = "evalsets"  # in a folder of this name every JSON file that holds a set is one
MAX_ENTRIES: Final = 250_000
MAX_DEPTH: Final = 40

_PRUNED: Final = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "build", "dist", "target"})
_NO_AGENTS: Final = frozenset({"tests", "test"})  # eval files are kept there, agents in there are fixtures
_FOREIGN: Final = frozenset({"tsconfig.test.json"})  # TypeScript's, by the same suffix
_MENTION: Final = re.compile(rb"\b(?:root_agent|get_agent_async)\b")
_APP: Final = re.compile(rb"^app\s*(?::[^=\n]+)?=|\bimport\b[^\n]*\bapp\b", re.MULTILINE)
_ADK_CASE: Final = re.compile(rb'"eval_?[iI]d"\s*:')
_AGENTS_CLI_CASE: Final = re.compile(rb'"eval_case_id"\s*:')
_READ: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Walked:
    """What a walk saw, sorted. ``complete`` is False when it stopped at its bound."""

    agents: tuple[Path, ...]
    eval_files: tuple[Path, ...]
    agents_cli_datasets: tuple[Path, ...] = ()
    complete: bool = True


def walk(root: Path, *, max_entries: int = MAX_ENTRIES) -> Walked:
    """Look through a folder. Links to folders are not followed; hidden, built and installed ones are left out."""
    agents: list[Path] = []
    files: list[Path] = []
    datasets: list[Path] = []
    seen = 0
    for folder, entries in _folders(root):
        seen += len(entries)
        names = {entry.name for entry in entries}
        if not _NO_AGENTS & set(folder.relative_to(root).parts) and holds_agent(folder, names):
            agents.append(folder)
        here = [folder / entry.name for entry in entries if entry.name.endswith(".json") and _is(entry.is_file)]
        files += [file for file in here if is_eval_file(file) or (folder.name == EVAL_SETS and holds_eval_set(file))]
        if folder.name == "datasets":
            datasets += [file for file in here if is_agents_cli_dataset(file)]
        if seen > max_entries:
            return Walked(tuple(sorted(agents)), tuple(sorted(files)), tuple(sorted(datasets)), complete=False)
    return Walked(tuple(sorted(agents)), tuple(sorted(files)), tuple(sorted(datasets)))


def is_eval_file(path: Path) -> bool:
    """Whether the file's name marks it as an eval file."""
    return path.name.endswith(EVAL_SUFFIXES) and path.name not in _FOREIGN


def holds_eval_set(path: Path) -> bool:
    """Whether the beginning of a JSON file looks like an ADK eval set."""
    text = _beginning(path) if path.suffix == ".json" else b""
    return b"eval_cases" in text and bool(_ADK_CASE.search(text))


def is_agents_cli_dataset(path: Path) -> bool:
    """Whether the beginning of a JSON file looks like an evaluation dataset of agents-cli."""
    text = _beginning(path) if path.suffix == ".json" else b""
    return b"eval_cases" in text and bool(_AGENTS_CLI_CASE.search(text)) and not _ADK_CASE.search(text)


class TooManyEntries(Exception):  # noqa: N818 - internal signal; the caller says what to name instead
    """More entries were found than a walk looks at."""


def files_below(root: Path, *, max_entries: int = MAX_ENTRIES) -> Iterator[Path]:
    """Every file below a folder that `walk` would look at. Raises TooManyEntries."""
    for folder, entries in _folders(root):
        max_entries -= len(entries)
        if max_entries < 0:
            raise TooManyEntries
        yield from (folder / entry.name for entry in entries if not _is(entry.is_dir))


def _folders(root: Path) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    """Folders with their entries, in a stable order, parents first."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        entries = _entries(folder)
        names = {entry.name for entry in entries}
        if "pyvenv.cfg" in names and depth:
            continue
        yield folder, entries
        if depth < MAX_DEPTH:
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            waiting += [
                (folder / name, depth + 1)
                for name in reversed(below)
                if not name.startswith(".") and name not in _PRUNED
            ]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:  # unreadable, or gone since: nothing in there can be run
        return []


def _is(asked: Callable[[], bool]) -> bool:
    """Ask a question about an entry; links that form a circle raise OSError, and the answer is no."""
    try:
        return asked()
    except OSError:
        return False


def holds_agent(folder: Path, names: Iterable[str]) -> bool:
    """Whether the folder's files look like an agent that ADK would find; nothing is imported."""
    present = set(names)
    if "root_agent.yaml" in present:
        return True
    if "agent.py" in present:
        text = _beginning(folder / "agent.py")
        return bool(_MENTION.search(text) or (b"adk" in text and (_APP.search(text) or not _parses(text))))
    return "__init__.py" in present and bool(_MENTION.search(_beginning(folder / "__init__.py")))


def _parses(text: bytes) -> bool:
    """Whether it is Python. A broken agent.py counts as an agent, so that starting it reports the line."""
    if len(text) >= _READ:  # cut in the middle
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    except (RecursionError, MemoryError):
        return True
    return True


def _beginning(path: Path) -> bytes:
    try:
        # A fifo of this name must not block the walk.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - opens a descriptor
            return file.read(_READ) or b""
    except OSError:
        return b""


NOT_READ: Final = "is an agents-cli evaluation dataset, which is not read"
AS_EVAL_SET: Final = "write it as an ADK eval set: `eval_id` and `conversation` in each case"
_MAGIC = re.compile(r"[*?\[]")


def expand(named: EvalPattern) -> tuple[Path, ...]:
    """The files, sorted. Raises EvalFileError when there is none: a gate that ran nothing must not pass."""
    path = Path(os.path.normpath(named.origin.base / named.pattern))
    if path.is_file():
        return (path,)
    try:
        return _searched(path, named)
    except TooManyEntries:
        message = f"more than {MAX_ENTRIES} files to look through"
        raise _refusal(named, message, "name a folder further down") from None
    except re.error:
        raise _refusal(named, "is not a glob", "[a-z] holds a range, ** stands alone") from None


def _refusal(named: EvalPattern, message: str, hint: str | None) -> EvalFileError:
    problem = named.origin.problem(message, value=shorten(named.pattern), hint=hint)
    return EvalFileError("eval files cannot be found", problems=(problem,))


def _searched(path: Path, named: EvalPattern) -> tuple[Path, ...]:
    if path.is_dir():
        files = sorted(files_below(path))
        named_so = tuple(file for file in files if is_eval_file(file))
        found = named_so or tuple(file for file in files if holds_eval_set(file))
        if not found and any(map(is_agents_cli_dataset, files)):
            raise _refusal(named, f"what is in this folder {NOT_READ}", AS_EVAL_SET)
        if not found:
            raise _refusal(named, "no eval file in this folder", "*.evalset.json or *.test.json")
        return found
    if not _MAGIC.search(named.pattern):
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise _refusal(named, "there is no such eval file", did_you_mean(path.name, siblings))
    found = tuple(sorted(_matches(path)))
    if not found:
        raise _refusal(named, "matches no file", f"paths start from {named.origin.base}")
    return found


def _matches(path: Path) -> Iterator[Path]:
    """Files that match, searched from the last folder that is spelt out."""
    parts = path.parts
    first = next(index for index, part in enumerate(parts) if _MAGIC.search(part))
    start = Path(*parts[:first])
    wanted = glob_regex("/".join(parts[first:]))
    for file in files_below(start):
        if wanted.fullmatch(file.relative_to(start).as_posix()):
            yield file


def glob_regex(pattern: str) -> re.Pattern[str]:
    """``*``, ``?`` and ``[...]`` inside a name; ``**`` for any number of folders, as in the shell."""
    out = ""
    parts = PurePosixPath(pattern).parts
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            out += ".*" if last else "(?:[^/]+/)*"
        else:
            out += _name_regex(part) + ("" if last else "/")
    return re.compile(out, re.DOTALL)


def _name_regex(part: str) -> str:
    out, index = "", 0
    while index < len(part):
        sign, index = part[index], index + 1
        end = part.find("]", index + 1 + (part[index : index + 1] == "!"))
        if sign == "[" and end > 0:
            inside, index = part[index:end], end + 1
            negated = inside.startswith("!")
            letters = inside.removeprefix("!").replace("\\", r"\\").replace("^", r"\^").replace("[", r"\[")
            out += f"(?!/)[{'^' if negated else ''}{letters}]"
        else:
            out += {"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign))
    return out


Selector = tuple[Path, Sequence[str]]


@dataclass
class Search:
    """The search for the files of a run: what is chosen so far, and the problems.

    ``chosen`` maps an agent's name and a file to case ids, () for all; ``elsewhere`` counts the files
    of agent folders that are not part of this run, ``unrelated`` those that lie beside no agent.
    """

    settings: Settings
    app_names: AppNames
    may_lack: bool = False
    problems: list[Problem] = field(default_factory=list)
    chosen: dict[tuple[str, Path], tuple[str, ...]] = field(default_factory=dict)
    elsewhere: Counter[Path] = field(default_factory=Counter)
    unrelated: int = 0

    def run(self, selectors: Sequence[Selector]) -> None:
        """Fill ``chosen``, or raise EvalFileError with every problem."""
        if selectors:
            self._select(selectors)
        else:
            self._configured()
        if self.problems:
            raise EvalFileError("it is not clear what to run", problems=tuple(self.problems))

    @cached_property
    def walked(self) -> Walked:
        """Everything below the start; the walk is made once, and only if it is needed."""
        walked = walk(self.settings.start)
        if not walked.complete:
            message = f"{self.settings.start} has more than {MAX_ENTRIES} files: too many to look through"
            raise EvalFileError(message, hint="name agents and their evals in agent-eval.yaml")
        return walked

    @property
    def agents_cli_datasets(self) -> tuple[Path, ...]:
        """agents-cli's files, which are not read; () unless the workspace was walked."""
        return self.walked.agents_cli_datasets if "walked" in self.__dict__ else ()

    @cached_property
    def agents(self) -> tuple[AgentSettings, ...]:
        """The configured agents, else every agent folder found."""
        if self.settings.agents:
            return self.settings.agents
        workspace, defaults = self.settings.workspace, self.settings.agent_defaults
        folders = self.walked.agents
        if not folders and not self.may_lack:
            message = "no folder holds an agent.py with root_agent, app or get_agent_async, or a root_agent.yaml"
            hint = "name the agent's folder: --agent DIR, or agent: DIR in agent-eval.yaml"
            raise EvalFileError(f"no agent found: below {self.settings.start} {message}", hint=hint)
        common = {name: getattr(defaults, name) for name in AgentDefaults.model_fields}
        names = unique_names(folders, workspace)
        return tuple(AgentSettings(path=f, name=n, **common) for f, n in zip(folders, names, strict=True))

    @cached_property
    def _assignment(self) -> AgentAssignment:
        mine = {agent.path for agent in self.agents}
        others = [folder for folder in self.walked.agents if folder not in mine]
        return AgentAssignment(self.agents, others, self.settings.workspace, self.app_names)

    @cached_property
    def _own(self) -> dict[str, tuple[Path, ...]]:
        """The files that agents name as their own."""
        return {agent.name: self._files(agent.evals) for agent in self.agents if agent.evals}

    def _select(self, selectors: Sequence[Selector]) -> None:
        """The files named for this run."""
        for path, case_ids in selectors:
            for file in self._files((EvalPattern(str(path), Origin(Path.cwd(), Path(path))),)):
                for agent in self._run_by(file):
                    self._choose(agent, file, case_ids)

    def _configured(self) -> None:
        """The agents' own files and the run's; discovered ones for agents that have neither."""
        for agent in self.agents:
            for file in self._own.get(agent.name, ()):
                self._choose(agent, file)
        if self.settings.evals:
            for file in self._files(self.settings.evals):
                for agent in self._run_by(file):
                    self._choose(agent, file)
        elif any(not agent.evals for agent in self.agents):
            self._discovered()

    def _discovered(self) -> None:
        claimed = {file for files in self._own.values() for file in files}
        files = [file for file in self.walked.eval_files if file not in claimed]
        for file in self._own_of_named_agents(files) if self.settings.only_agents else files:
            assigned = self._assignment.agents_for(file)
            if isinstance(assigned, Unassigned):
                self.elsewhere.update(assigned.others)
                self.problems += () if assigned.others else assigned.problems
                continue
            for agent in assigned:
                if not agent.evals:
                    self._choose(agent, file)

    def _own_of_named_agents(self, files: Sequence[Path]) -> Sequence[Path]:
        """Leave out files without an agent if the agents that were asked for have files of their own.

        Whoever names an agent's folder inside a larger checkout means that agent's files.
        """
        near = {file: self._assignment.nearby(file) for file in files}
        if not any(near.values()):
            return files
        strays = {file for file in files if not near[file] and self._is_stray(file)}
        self.unrelated = len(strays)
        return [file for file in files if file not in strays]

    def _is_stray(self, file: Path) -> bool:
        assigned = self._assignment.agents_for(file)
        return not isinstance(assigned, Unassigned) or not assigned.others

    def _run_by(self, file: Path) -> Sequence[AgentSettings]:
        """The agents a named file is run against: those that name it, else the only agent, else its assigned agents."""
        naming = [agent for agent in self.agents if file in self._own.get(agent.name, ())]
        if naming:
            return naming
        if len(self.settings.agents) == 1:
            return self.settings.agents
        assigned = self._assignment.agents_for(file)
        if isinstance(assigned, Unassigned):
            self.problems += assigned.problems
            return ()
        return assigned

    def _files(self, patterns: Sequence[EvalPattern]) -> tuple[Path, ...]:
        files: dict[Path, None] = {}
        for pattern in patterns:
            try:
                files |= dict.fromkeys(expand(pattern))
            except EvalFileError as error:
                self.problems += () if self.may_lack else error.problems
        return tuple(files)

    def _choose(self, agent: AgentSettings, file: Path, case_ids: Sequence[str] = ()) -> None:
        """Choose a file or cases of it. A whole file includes its cases; the format refuses ids named twice."""
        key = (agent.name, file)
        earlier = self.chosen.get(key)
        whole = not case_ids or earlier == ()
        self.chosen[key] = () if whole else (*(earlier or ()), *case_ids)


CRITERIA_FILE: Final = "test_config.json"
_SCAFFOLDED: Final = "eval_config.json"  # what Google's project templates call it, in the folder above evalsets/
CRITERIA_FILES: Final = (CRITERIA_FILE, _SCAFFOLDED)


@dataclass(frozen=True, slots=True)
class DiscoveredSet:
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
    """The sets to run, sorted by agent and set, and notes for the user."""

    sets: tuple[DiscoveredSet, ...]
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


def _sets(search: Search) -> Iterator[DiscoveredSet]:
    workspace = search.settings.workspace
    for agent in sorted(search.agents, key=lambda agent: agent.name):
        files = {file: ids for (name, file), ids in search.chosen.items() if name == agent.name}
        keys = set_keys(list(files), agent.path, workspace)
        for file in sorted(files, key=keys.__getitem__):
            yield DiscoveredSet(
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
    places = [eval_file.with_name(name) for name in CRITERIA_FILES]
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


def _notes(search: Search, sets: Sequence[DiscoveredSet], idle: Sequence[str]) -> Iterator[str]:
    workspace = search.settings.workspace
    how = "" if search.settings.agents else " (discovered)"
    for agent in sorted(search.agents, key=lambda agent: agent.name):
        count = sum(planned.agent.name == agent.name for planned in sets)
        if count:
            yield f"agent {agent.name} in {relative_name(agent.path, workspace)}{how}: {plural(count, 'eval file')}"
    if idle:
        yield f"not run, no eval files: {', '.join(idle)}"
    for file in search.agents_cli_datasets:
        yield f"not run: {relative_name(file, workspace)} {NOT_READ}"
    for folder, count in sorted(search.elsewhere.items()):
        yield f"not run: {plural(count, 'eval file')} of {relative_name(folder, workspace)}, which is not configured"
    if search.unrelated:
        unrelated, names = plural(search.unrelated, "eval file"), ", ".join(search.settings.only_agents)
        yield f"not run: {unrelated} beside no agent (only {names} was asked for); name a file to run it"
    if defaults := sum(planned.criteria_file is None and planned.agent.criteria is None for planned in sets):
        scores = ", ".join(f"{spec.name} {spec.options['threshold']}" for spec in DEFAULT_CRITERIA)
        yield f"no {CRITERIA_FILE} beside {plural(defaults, 'eval file')}: ADK's defaults apply ({scores})"
