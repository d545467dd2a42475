"""What an agent's environment is made of: lock and settings files, what they include, and folders they install from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from agent_eval_action.interpreter.environment_digest import included, table_at
from agent_eval_action.interpreter.launch import upwards

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
        for place in upwards(folder, workspace):
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
