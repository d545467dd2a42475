"""What an agent's environment is made of: lock and settings files, what they include, and folders they install from."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from agent_eval_action.config.discovery import CRITERIA_FILE, DiscoveredSet, Discovery, glob_regex, is_eval_file
from agent_eval_action.config.loader import CONFIG_NAMES
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.environments.digest import included, table_at
from agent_eval_action.folders import folders_upwards, real_path
from agent_eval_action.git import Repository
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.findings import text_note
from agent_eval_action.results.run_result import Conditions, RunResult

_NAMES: Final = frozenset(
    {
        *("pyproject.toml", "uv.lock", "uv.toml", "poetry.lock", "poetry.toml", "pdm.lock", "Pipfile", "Pipfile.lock"),
        *("setup.py", "setup.cfg", ".python-version", ".python-versions", ".env"),
    }
)
_LISTS: Final = re.compile(r"(requirements|constraints|overrides).*\.(txt|in)")
_INSTALLED_PATH: Final = re.compile(
    r"\s*(?:(?:-e|--editable)[\s=]\s*)?(?:[\w.\-\[\],\s]+@\s*)?(?P<file>file:(?://)?)?(?P<path>[^#;\[\]]+)"
)
_LOOKS_LIKE_A_PATH: Final = re.compile(r"[./~]|.*[/\\]|.*\.(?:whl|zip|gz)$")


@dataclass(frozen=True, slots=True)
class BuildFiles:
    """Of one agent. ``places`` are files, and folders with all that is below them."""

    homes: frozenset[Path]
    places: frozenset[Path]

    @classmethod
    def of(cls, folder: Path, workspace: Path) -> BuildFiles:
        """As the checkout has it now; what a file that is gone had said shows in its removal."""
        places: set[Path] = set()
        for place in folders_upwards(folder, workspace):
            _add_project(place, workspace, places)
        return cls(frozenset({folder, folder.resolve()}), frozenset(places))

    def has(self, path: Path) -> bool:
        """Whether the environment depends on a file (absolute)."""
        if _is_build_file(path) and any(home.is_relative_to(path.parent) for home in self.homes):
            return True
        return any(path.is_relative_to(place) for place in self.places)


def _is_build_file(path: Path) -> bool:
    return path.name in _NAMES or _LISTS.fullmatch(path.name) is not None


def _add_project(folder: Path, workspace: Path, places: set[Path]) -> None:
    """What the files of a project folder name, and what the projects they install from name in turn."""
    lists = [path for path in sorted(folder.glob("*")) if _LISTS.fullmatch(path.name) and path.is_file()]
    files = [file for path in lists for file in included(path, set())]
    places.update(files)
    for found in (*_of_pyproject(folder), *_of_uv_lock(folder), *(path for file in files for path in _of_list(file))):
        path = found.resolve()
        # a package that is the checkout itself, or holds the agent, has its files counted as the agent's
        if path in places or not path.is_relative_to(workspace.resolve()) or folder.resolve().is_relative_to(path):
            continue
        places.add(path)
        if path.is_dir():
            _add_project(path, workspace, places)


def _of_pyproject(folder: Path) -> Iterator[Path]:
    data = _toml(folder / "pyproject.toml")
    uv, poetry = table_at(data, "tool", "uv"), table_at(data, "tool", "poetry")
    groups = [table_at(poetry, "dependencies"), table_at(poetry, "dev-dependencies")]
    groups += [
        table_at(group, "dependencies") for group in table_at(poetry, "group").values() if isinstance(group, dict)
    ]
    for table in (table_at(uv, "sources"), *groups):
        for source in table.values():
            for entry in source if isinstance(source, list) else [source]:
                if isinstance(entry, dict) and isinstance(entry.get("path"), str):
                    yield folder / entry["path"]
    members = table_at(uv, "workspace").get("members")
    for pattern in members if isinstance(members, list) else ():
        if isinstance(pattern, str) and pattern and not pattern.startswith("/"):
            yield from folder.glob(pattern)
    for requirement in _requirements(data):
        yield from _path_of(requirement, folder)


def _requirements(data: Mapping[str, Any]) -> Iterator[str]:
    """PEP 508 requirements of a pyproject.toml, wherever they stand in it."""
    project = table_at(data, "project")
    lists = [project.get("dependencies"), *table_at(project, "optional-dependencies").values()]
    lists += [*table_at(data, "dependency-groups").values(), table_at(data, "build-system").get("requires")]
    for values in lists:
        entries = values if isinstance(values, list) else []
        yield from (entry for entry in entries if isinstance(entry, str) and "file:" in entry)


def _of_uv_lock(folder: Path) -> Iterator[Path]:
    packages = _toml(folder / "uv.lock").get("package")
    for package in packages if isinstance(packages, list) else ():
        source = package.get("source") if isinstance(package, dict) else None
        for kind in ("editable", "directory", "path", "virtual"):
            if isinstance(source, dict) and isinstance(source.get(kind), str):
                yield folder / source[kind]


def _of_list(file: Path) -> Iterator[Path]:
    for line in file.read_text("utf-8", "replace").splitlines():
        if not re.match(r"\s*(#|-(?!e\b|-editable\b))", line):
            yield from _path_of(line, file.parent)


def _path_of(requirement: str, folder: Path) -> Iterator[Path]:
    found = _INSTALLED_PATH.match(requirement)
    text = found["path"].strip() if found else ""
    if found and text and "://" not in text and (found["file"] or _LOOKS_LIKE_A_PATH.match(text)):
        yield folder / unquote(text)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def hidden_files(settings: Settings, found: Discovery, base_eval_files: Iterable[str] = ()) -> frozenset[Path]:
    """Files and folders, relative to the workspace, that no agent gets to see.

    Only what this run uses: eval files, the criteria files beside them, recordings, the configuration, the stored
    baseline, and results to resume. ``base_eval_files``: those of the base commit, which may be called differently.
    """
    if settings.policy.agents_see_evals:
        return frozenset()
    workspace = real_path(settings.workspace)
    of_base = [settings.workspace / name for name in base_eval_files]
    named = [*_named(settings, found), *of_base, *(path.parent / CRITERIA_FILE for path in of_base)]
    # what an agent could open by either of its names, where a file is reached by a link
    places = {place for path in named for place in (settings.workspace / path, real_path(path))}
    roots = (settings.workspace, workspace)
    inside = {place.relative_to(root) for root in roots for place in places if place.is_relative_to(root)}
    return frozenset(inside - {Path()})


def _named(settings: Settings, found: Discovery) -> Iterator[Path]:
    agents = [*settings.agents, *(one.agent for one in found.sets)]
    for one in found.sets:
        yield from (path for path in (one.path, one.criteria_file) if path is not None)
    for agent in agents:
        yield from (path for path in (agent.recording, agent.criteria) if isinstance(path, Path))
    yield from (path for path in (settings.config, settings.baseline.path, settings.resume) if path is not None)


OURS: Final = ".agent-eval"
_MAX_CONFIG: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class AffectedAgents:
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
        reasons = tuple(map(text_note, self.notes))
        decision = Decision(outcome=Verdict.PASS, reasons=reasons)
        return RunResult(started_at=started_at, conditions=under, decision=decision)


def declares_paths(found: Discovery) -> bool:
    """Whether any agent says what it is made of."""
    return any(one.agent.paths is not None for one in found.sets)


def affected_agents(
    settings: Settings, found: Discovery, changed: Sequence[Path] | str, workflow: str = ""
) -> AffectedAgents:
    """What a change of these files (absolute paths) leaves to run, or a sentence: why they are not known. Pure.

    ``workflow``: the file of the workflow this run is of, from the workspace. Where the files are not known
    everything is run.
    """
    if isinstance(changed, str):
        note = f"everything is run, for what this change touches is not known: {changed}"
        return AffectedAgents(found, settings, notes=(note,))
    agents = {one.agent.name: one.agent for one in found.sets}
    every = SharedFiles.of(settings, found, workflow)
    if any(every.counts(path) for path in changed):
        return AffectedAgents(found, settings)
    skipped = tuple(
        name
        for name, agent in agents.items()
        if agent.paths is not None and not _touched(agent, found.sets, changed, settings.workspace)
    )
    if not skipped:
        return AffectedAgents(found, settings)
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
    return AffectedAgents(replace(found, sets=sets), narrow, skipped, (note,))


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """What counts for every agent: the configuration, what is stored, eval files of nobody's, the workflow."""

    folder: Path
    files: frozenset[Path]
    config_text: str
    assigned: frozenset[Path]

    @classmethod
    def of(cls, settings: Settings, found: Discovery, workflow: str) -> SharedFiles:
        """As these settings have it."""
        files = {file for file in (settings.baseline.path, settings.config, settings.workspace / workflow) if file}
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


def _touched(agent: AgentSettings, sets: Iterable[DiscoveredSet], changed: Iterable[Path], workspace: Path) -> bool:
    """Whether a changed file is this agent's: by its folder, its eval files' folders, its build, its ``paths``."""
    build, own = BuildFiles.of(agent.path, workspace), [one for one in sets if one.agent.name == agent.name]
    return any(build.has(path) or _is_of(agent, own, path, workspace) for path in changed)


def _is_of(agent: AgentSettings, sets: Iterable[DiscoveredSet], path: Path, workspace: Path) -> bool:
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
        yield Path(os.path.normpath(one.origin.base / one.pattern))


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
