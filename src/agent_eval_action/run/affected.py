"""Select the agents that a change affects: by their folders, eval files, ``paths`` and build files.

Also the files to hide from agents because they contain the answers.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from agent_eval_action.baseline.stores import FOLDER
from agent_eval_action.config.criteria_files import function_files
from agent_eval_action.config.discovery import CRITERIA_FILE, DiscoveredSet, Discovery, criteria_places
from agent_eval_action.config.loader import CONFIG_NAMES
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.config.walk import PRUNED, glob_regex, is_eval_file
from agent_eval_action.diagnostics.suggestions import plural
from agent_eval_action.environments.lock import included, table_at
from agent_eval_action.folders import folders_upwards, real_path
from agent_eval_action.git.repository import Repository
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.evalset import is_replayed
from agent_eval_action.results.findings import text_note
from agent_eval_action.results.run_result import Conditions, RunResult

_BUILD_FILES: Final = frozenset(
    {
        *("pyproject.toml", "uv.lock", "uv.toml", "poetry.lock", "poetry.toml", "pdm.lock", "Pipfile", "Pipfile.lock"),
        *("setup.py", "setup.cfg", ".python-version", ".python-versions", ".env"),
    }
)
_REQUIREMENTS_FILE: Final = re.compile(r"(requirements|constraints|overrides).*\.(txt|in)")
_INSTALLED_PATH: Final = re.compile(
    r"\s*(?:(?:-e|--editable)[\s=]\s*)?(?:[\w.\-\[\],\s]+@\s*)?(?P<file>file:(?://)?)?(?P<path>[^#;\[\]]+)"
)
_LOOKS_LIKE_A_PATH: Final = re.compile(r"[./~]|.*[/\\]|.*\.(?:whl|zip|gz)$")
_PATH_KEYS: Final = ("path", "editable", "directory", "virtual")
_MAX_CONFIG: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BuildFiles:
    """The files that an agent's environment is built from. ``places``: files, and folders with all their content."""

    homes: frozenset[Path]
    places: frozenset[Path]

    @classmethod
    def read(cls, folder: Path, workspace: Path) -> BuildFiles:
        """Read them from the current checkout; files named only by a removed file show up through its removal."""
        places: set[Path] = set()
        for parent in folders_upwards(folder, workspace):
            _add_project(parent, workspace, places)
        return cls(frozenset({folder, folder.resolve()}), frozenset(places))

    def has(self, path: Path) -> bool:
        """Whether the environment depends on a file (absolute path)."""
        is_build_file = path.name in _BUILD_FILES or _REQUIREMENTS_FILE.fullmatch(path.name)
        if is_build_file and any(home.is_relative_to(path.parent) for home in self.homes):
            return True
        return any(path.is_relative_to(place) for place in self.places)


def _add_project(folder: Path, workspace: Path, places: set[Path]) -> None:
    """Add what a project folder's files name, and recursively the local projects they install."""
    lists = [path for path in sorted(folder.glob("*")) if _REQUIREMENTS_FILE.fullmatch(path.name) and path.is_file()]
    files = [file for path in lists for file in included(path)]
    places.update(files)
    required = (
        path
        for file in files
        for line in file.read_text("utf-8", "replace").splitlines()
        if not re.match(r"\s*(#|-(?!e\b|-editable\b))", line)
        for path in _path_of(line, file.parent)
    )
    pyproject = _toml(folder / "pyproject.toml")
    members = table_at(pyproject, "tool", "uv", "workspace").get("members")
    patterns = [pattern for pattern in members if isinstance(pattern, str)] if isinstance(members, list) else []
    packages = (path for pattern in patterns if pattern and pattern[0] != "/" for path in folder.glob(pattern))
    locked = _paths_in(_toml(folder / "uv.lock"), folder)
    for named in (*_paths_in(pyproject, folder), *packages, *locked, *required):
        path = named.resolve()
        # a package that is the checkout itself or contains the agent counts as the agent's own files
        if path in places or not path.is_relative_to(workspace.resolve()) or folder.resolve().is_relative_to(path):
            continue
        places.add(path)
        if path.is_dir():
            _add_project(path, workspace, places)


def _paths_in(value: Any, folder: Path) -> Iterator[Path]:
    """Yield the paths in a pyproject.toml or a uv.lock: of sources, and of requirements (PEP 508) with file URLs."""
    if isinstance(value, str) and "file:" in value:
        yield from _path_of(value, folder)
    elif isinstance(value, dict):
        yield from (folder / value[key] for key in _PATH_KEYS if isinstance(value.get(key), str))
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _paths_in(item, folder)


def _path_of(requirement: str, folder: Path) -> Iterator[Path]:
    match = _INSTALLED_PATH.match(requirement)
    text = match["path"].strip() if match else ""
    if match and text and "://" not in text and (match["file"] or _LOOKS_LIKE_A_PATH.match(text)):
        yield folder / unquote(text)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def hidden_files(
    settings: Settings, found: Discovery, base_eval_files: Iterable[str] = (), base_scoring_files: Iterable[str] = ()
) -> frozenset[Path]:
    """Return the files and folders to hide from agents, relative to the workspace.

    Only what this run uses: eval files, the criteria files beside them with the code of their functions, recordings,
    the configuration, the stored baseline, and results to resume. ``base_eval_files``, ``base_scoring_files``: those
    of the base commit, which may have other names.
    """
    if settings.policy.agents_see_evals:
        return frozenset()
    workspace = real_path(settings.workspace)
    of_base = [settings.workspace / name for name in base_eval_files]
    agents = [*settings.agents, *(planned.agent for planned in found.sets)]
    named: list[Path | object] = [*of_base, *(place for path in of_base for place in criteria_places(path))]
    named += [settings.workspace / name for name in base_scoring_files]
    named += [settings.config, settings.baseline.path, settings.resume]
    named += [path for planned in found.sets for path in (planned.path, planned.criteria_file)]
    replayed = {planned.path.parent for planned in found.sets if is_replayed(planned.path)}
    named += [path for folder in replayed for path in (*folder.glob("generated-*.yaml"), folder / CRITERIA_FILE)]
    named += [path for agent in agents for path in (agent.recording, agent.criteria)]
    paths = [path for path in named if isinstance(path, Path)]
    # results and baselines, which can be large, name no functions
    small = [
        path for path in dict.fromkeys(paths) if path.suffix in {".yaml", ".yml"} or path.name == "eval_config.json"
    ]
    paths += [code for path in small if path.is_file() for code in function_files(path, workspace)]
    # an agent could open a linked file by either of its names
    places = {place for path in paths for place in (settings.workspace / path, real_path(path))}
    roots = (settings.workspace, workspace)
    inside = {place.relative_to(root) for root in roots for place in places if place.is_relative_to(root)}
    return frozenset(inside - {Path()})


@dataclass(frozen=True, slots=True)
class AffectedAgents:
    """The agents left to run. ``skipped``: names of agents that the change does not affect; ``notes`` name them."""

    found: Discovery
    settings: Settings
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return bool(self.skipped) and not self.found.sets

    def result(self, started_at: str, conditions: Conditions) -> RunResult:
        """Return the passing result of a run that had nothing to measure, with the reason."""
        conditions = conditions.model_copy(update={"fail_on": self.settings.fail_on, "only_agents": self.skipped})
        decision = Decision(outcome=Verdict.PASS, reasons=tuple(map(text_note, self.notes)))
        return RunResult(started_at=started_at, conditions=conditions, decision=decision)


def affected_agents(
    settings: Settings,
    found: Discovery,
    repository: Repository,
    commits: tuple[str | None, str | None],
    *,
    workflow: str,
    clone_hint: str,
) -> AffectedAgents:
    """Return what a change between two commits leaves to run; everything if the change is unknown.

    Agents that do not declare their files always run. ``workflow``: the file that defines this job, relative to the
    workspace. ``clone_hint``: how this job can fetch more history.
    """
    agents = {planned.agent.name: planned.agent for planned in found.sets}
    if all(agent.paths is None for agent in agents.values()):
        return AffectedAgents(found, settings)
    unknown = "its base commit is not known"
    root = names = None
    base, head = commits
    if base is not None and head is not None:
        unknown = f"its base commit {base[:10]} is not in this clone ({clone_hint})"
        root = repository.root()
        names = repository.changed(base, head) if root else None
    if root is None or names is None:
        note = f"everything is run, because what this change touches is not known: {unknown}"
        return AffectedAgents(found, settings, notes=(note,))
    changed = [root / name for name in names]
    skipped: tuple[str, ...] = ()
    if not any(map(_shared_files(settings, found, workflow), changed)):
        skipped = tuple(
            name
            for name, agent in agents.items()
            if agent.paths is not None and not _is_affected(agent, found.sets, changed, settings.workspace)
        )
    if not skipped:
        return AffectedAgents(found, settings)
    left = tuple(name for name in agents if name not in skipped)
    files = plural(len(changed), "changed file")
    note = f"nothing relevant changed for {', '.join(skipped)}: none of {files} is the agent's (paths)"
    kept = tuple(agent for agent in settings.agents if agent.name in left)
    narrowed = settings.model_copy(update={"agents": kept, "only_agents": left})
    sets = tuple(planned for planned in found.sets if planned.agent.name in left)
    return AffectedAgents(replace(found, sets=sets), narrowed, skipped, (note,))


def touched_agents(settings: Settings, found: Discovery, changed: Iterable[Path]) -> frozenset[str]:
    """Return the names of agents whose answers a changed file (absolute path) may change.

    Files hidden from agents change none. An agent without ``paths`` may read every file except those in other agents'
    folders.
    """
    workspace, hidden = settings.workspace, {settings.workspace / path for path in hidden_files(settings, found)}
    seen = [path for path in changed if path not in hidden]

    def may_read(agent: AgentSettings, path: Path) -> bool:
        return not any(path.is_relative_to(other.path) for other in found.agents if other.path != agent.path)

    return frozenset(
        agent.name
        for agent in found.agents
        if _is_affected(agent, found.sets, seen, workspace)
        or (agent.paths is None and any(may_read(agent, path) for path in seen))
    )


def _shared_files(settings: Settings, found: Discovery, workflow: str) -> Callable[[Path], bool]:
    """Return a predicate for files that affect every agent.

    These are the configuration and what it names, what is stored, the workflow, and eval files without an agent.
    """
    named = {settings.baseline.path, settings.config, settings.workspace / workflow}
    assigned = {planned.path for planned in found.sets}
    try:
        text = settings.config.read_bytes()[:_MAX_CONFIG].decode("utf-8", "replace") if settings.config else ""
    except OSError:
        text = ""
    return lambda path: (
        path in named
        or path.is_relative_to(settings.workspace / FOLDER)
        or path.name in CONFIG_NAMES
        or path.name in text  # for example a criteria file or a simulated user
        or (is_eval_file(path) and path not in assigned)  # removed, or belonging to no agent
        or (path.is_dir() and not path.is_symlink())  # a submodule: git does not list the changed files in it
    )


def _is_affected(agent: AgentSettings, sets: Iterable[DiscoveredSet], changed: Iterable[Path], workspace: Path) -> bool:
    """Whether a changed file is this agent's: by its folder, eval files' folders, build files or ``paths``."""
    build = BuildFiles.read(agent.path, workspace)
    homes = {agent.path, real_path(agent.path), *_targets_of_links(agent.path)}
    folders = {planned.path.parent for planned in sets if planned.agent.name == agent.name}
    evals = folders | set(map(real_path, folders))
    named = {agent.criteria, agent.initial_session_file, agent.python}
    patterns = [Path(os.path.normpath(pattern.origin.base / pattern.pattern)) for pattern in agent.paths or ()]
    patterns += [real_path(pattern) for pattern in patterns]
    return any(
        build.has(path)
        or any(path.is_relative_to(home) for home in homes)
        or path.parent in evals
        or path in named
        or any(_matches(path, pattern, workspace) for pattern in patterns)
        for path in changed
    )


def _targets_of_links(folder: Path) -> Iterator[Path]:
    """The targets of links in an agent's folder: if a target changes, git names it, not the link."""
    for place, folders, files in os.walk(folder):
        yield from (real_path(path) for name in (*folders, *files) if (path := Path(place, name)).is_symlink())
        folders[:] = [name for name in folders if name not in PRUNED and not name.startswith(".")]


def _matches(path: Path, pattern: Path, workspace: Path) -> bool:
    """Whether a pattern matches the path: as a file, a folder above it, or a glob."""
    if path.is_relative_to(pattern):
        return True
    if not pattern.is_relative_to(workspace) or not path.is_relative_to(workspace):
        return False
    regex = glob_regex(pattern.relative_to(workspace).as_posix())
    return regex.fullmatch(path.relative_to(workspace).as_posix()) is not None
