"""The file that lists what an agent needs, and the name of its environment: equal names mean equal content."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import folders_upwards, open_file, real_path

UV_LOCK: Final = "uv.lock"
PYPROJECT: Final = "pyproject.toml"
REQUIREMENTS: Final = "requirements.txt"
KINDS: Final = (UV_LOCK, PYPROJECT, REQUIREMENTS)
OTHER_LOCKS: Final = {
    "poetry.lock": "write requirements.txt with `poetry export -o requirements.txt`",
    "pdm.lock": "write requirements.txt with `pdm export -o requirements.txt`",
    "Pipfile.lock": "write requirements.txt with `pipenv requirements > requirements.txt`",
}
"""Lock files that uv cannot install from, and how to export one that it can."""

_LOCKED: Final = re.compile(r'(?m)^\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"')
_REQUIREMENT: Final = re.compile(r"(?m)^[A-Za-z0-9]")
_INCLUDE: Final = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]\s*(\S+)")

_SETTINGS: Final = ("uv.toml", PYPROJECT, ".python-version", ".python-versions")
"""Files that configure uv, in the project's folder and above."""

_HARMLESS: Final = frozenset({"default-groups", "dev-dependencies", "package", "required-version"})
"""Settings of ``[tool.uv]`` that make uv read no other file of the tree."""

_LOCAL: Final = re.compile(
    r"\s*(?:-e\b|--editable|-f\b|--find-links|[./~]|[^#]*\bfile:|[^#\s]*\.(?:whl|zip|gz)\b|.*\$\{)"
)
"""A requirement that is, or may be, a path."""

_PATH: Final = re.compile(r"\s*(?:[^#]*\bfile:(?://)?)?([./~\w][^\s;#\[]*)")
"""The path in such a requirement, alone or in a URL."""

_LOGIN: Final = re.compile(r"(?<=://)[^/\s@]+@")
_CREDENTIALS: Final = ("_PASSWORD", "_USERNAME", "_TOKEN", "_SECRET")
_MACHINE_NAMES: Final = frozenset(
    {"PATH", "HOME", "USER", "LANG", "TMPDIR", "NETRC", "UV_CACHE_DIR", "UV_NO_PROGRESS", "UV_PYTHON_INSTALL_DIR"}
)
_MACHINE_PREFIXES: Final = ("LC_", "SSL_CERT_", "XDG_", "UV_CONCURRENT_", "UV_HTTP_", "UV_OFFLINE")
_UV_FILE_VARIABLES: Final = ("UV_BUILD_CONSTRAINT", "UV_CONFIG_FILE", "UV_CONSTRAINT", "UV_FIND_LINKS", "UV_OVERRIDE")
_SKIPPED: Final = frozenset({".git", ".agent-eval", ".venv", "__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True)
class LockFile:
    """A file in a workspace that lists what an agent needs."""

    path: Path
    workspace: Path

    def packages(self) -> int:
        """Return how many packages it names; 0 if it may not list all."""
        text = _text(self.path)
        if self.path.name == UV_LOCK:
            return len(_LOCKED.findall(text))
        return len(_REQUIREMENT.findall(text)) if self.path.name == REQUIREMENTS else 0

    def pinned(self, package: str) -> str:
        """Return the version to which it pins a package; "" if none."""
        text = _text(self.path)
        if self.path.name == UV_LOCK:
            return next((version for name, version in _LOCKED.findall(text) if name == package), "")
        found = re.search(rf"(?im)^{re.escape(package)}(?:\[[^\]]*\])?\s*==\s*([0-9][^\s;\\,]*)", text)
        return found[1] if found and self.path.name == REQUIREMENTS else ""

    def digest(self, environ: Mapping[str, str]) -> str:
        """Return the name of the environment built from it. ``environ`` is what the install step sees.

        The project's path is included only if something of the tree may be installed. Otherwise two trees that need the
        same packages share an environment.
        """
        found = hashlib.sha256()
        folders, files = folders_upwards(self.path.parent, self.workspace), self._files()
        settings = [folder / name for folder in folders for name in _SETTINGS if (folder / name).is_file()]
        local = self._installs_from_tree(settings, environ)
        place = str(self.path.parent) if local else ""
        for text in (self.path.name, place, sys.platform, platform.machine(), *_variables(environ)):
            found.update(text.encode("utf-8", "surrogateescape") + b"\0")
        named = [path for name in _UV_FILE_VARIABLES if (path := Path(environ.get(name, ""))).is_file()]
        for path in dict.fromkeys((*settings, *files, *named)):
            relative = path.relative_to(self.workspace) if path.is_relative_to(self.workspace) else Path(path.name)
            found.update(relative.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        for top in self._copied_sources() if local else ():
            for name, content in _tree_contents(top):
                found.update(name + content)
        return found.hexdigest()[:32]

    def _files(self) -> list[Path]:
        return included(self.path) if self.path.name == REQUIREMENTS else [self.path]

    def _installs_from_tree(self, settings: list[Path], environ: Mapping[str, str]) -> bool:
        """Whether something of the tree may be installed, or run while installing. True if in doubt."""
        if any(environ.get(name) for name in _UV_FILE_VARIABLES) or any(path.name == "uv.toml" for path in settings):
            return True
        if any(set(table_at(_toml(path), "tool", "uv")) - _HARMLESS for path in settings if path.name == PYPROJECT):
            return True
        if self.path.name == REQUIREMENTS:
            return any(_LOCAL.match(line) for path in self._files() for line in _text(path).splitlines())
        data = _toml(self.path)
        if self.path.name == PYPROJECT:
            project = table_at(data, "project")
            # the project's own build backend supplies metadata that is not written down
            return "dependencies" not in project or bool(project.get("dynamic")) or "file:" in str(project)
        return not isinstance(data.get("package"), list) or not all(map(_is_remote, _sources(data)))

    def _copied_sources(self) -> Iterator[Path]:
        """Yield what is copied from the tree into the environment; editable sources are only linked."""
        if self.path.name == UV_LOCK:
            for source in _sources(_toml(self.path)):
                for kind in ("directory", "path"):
                    if isinstance(source.get(kind), str):
                        yield self.path.parent / source[kind]
        elif self.path.name == REQUIREMENTS:
            for file in self._files():
                for line in filter(_LOCAL.match, _text(file).splitlines()):
                    found = _PATH.match(line)
                    if found and os.path.lexists(path := file.parent / found[1]):
                        yield path


def find_lock(folder: Path, workspace: Path) -> LockFile | None:
    """Return the nearest lock above the agent; in one folder uv.lock before pyproject.toml before requirements.txt.

    Raises AgentEnvironmentError if another tool's lock pins the packages: without it other versions would be measured.
    A requirements.txt beside it is taken for that tool's export.
    """
    for place in folders_upwards(folder, workspace):
        foreign = next((name for name in OTHER_LOCKS if (place / name).is_file()), None)
        for kind in (UV_LOCK, REQUIREMENTS) if foreign else KINDS:
            if (place / kind).is_file():
                return LockFile(place / kind, workspace)
        if foreign:
            shown = (place / foreign).relative_to(workspace) if place.is_relative_to(workspace) else place / foreign
            raise AgentEnvironmentError(
                f"{shown} pins the agent's packages, and agent-eval cannot install from it",
                hint=f"{OTHER_LOCKS[foreign]}, or install into a .venv beside the agent in a step before this one",
            )
    return None


def included(path: Path) -> list[Path]:
    """Return a requirements file and those it includes by -r and -c; none if it does not exist."""
    files: list[Path] = []
    todo = [path]
    while todo:
        file = todo.pop(0)
        if file not in files and file.is_file():
            files.append(file)
            lines = map(_INCLUDE.match, _text(file).splitlines())
            todo += [real_path(file.parent / found[1]) for found in lines if found]
    return files


def table_at(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a table inside a TOML document; empty if there is none."""
    for name in names:
        inner = data.get(name)
        if not isinstance(inner, dict):
            return {}
        data = inner
    return data


def _variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what the install step sees, without the values of credentials: a token may differ in every run."""
    for name, value in sorted(environ.items()):
        if name in _MACHINE_NAMES or name.startswith(_MACHINE_PREFIXES) or name.lower().endswith("_proxy"):
            continue
        yield name if name.endswith(_CREDENTIALS) else f"{_LOGIN.sub('', name)}={_LOGIN.sub('', value)}"


def _sources(lock: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the source of each package of a uv.lock; empty if it has none."""
    packages = lock.get("package")
    for package in packages if isinstance(packages, list) else ():
        yield table_at(package, "source") if isinstance(package, dict) else {}


def _is_remote(source: Mapping[str, Any]) -> bool:
    if "registry" in source:
        return str(source["registry"]).startswith(("https://", "http://"))
    return bool(source.keys() & {"git", "url", "virtual"})


def _tree_contents(top: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield the name and the hash of every file below. Follows no links."""
    files = [top]
    if top.is_dir() and not top.is_symlink():
        files = []
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(set(folders) - _SKIPPED)
            files += [Path(folder) / name for name in sorted(names)]
    for path in files:
        name = path.relative_to(top.parent).as_posix().encode("utf-8", "surrogateescape")
        try:
            with open_file(path) as file:
                content = b"\0" + hashlib.file_digest(file, "sha256").digest() + b"\0"
        except OSError:
            content = b"\1"
        yield name, content


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def _toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; a file that cannot be read counts as one with unknown settings."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {"tool": {"uv": {"unreadable": True}}}
