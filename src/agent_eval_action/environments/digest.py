"""Names an environment by everything that decides what is installed in it, so that equal names mean equal content."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from agent_eval_action.folders import folders_upwards, real_path

_SETTINGS: Final = ("uv.toml", "pyproject.toml", ".python-version", ".python-versions")
"""Files that uv obeys, in the project's folder and in those above it."""

_HARMLESS: Final = frozenset({"default-groups", "dev-dependencies", "package", "required-version"})
"""Settings of ``[tool.uv]`` that make uv read no other file of the tree."""

_LOCAL: Final = re.compile(
    r"\s*(?:-e\b|--editable|-f\b|--find-links|[./~]|[^#]*\bfile:|[^#\s]*\.(?:whl|zip|gz)\b|.*\$\{)"
)
"""A requirement that is, or may be, a path."""

_LOGIN: Final = re.compile(r"(?<=://)[^/\s@]+@")
_CREDENTIALS: Final = ("_PASSWORD", "_USERNAME", "_TOKEN", "_SECRET")
_OF_THE_MACHINE: Final = frozenset(
    {"PATH", "HOME", "USER", "LANG", "TMPDIR", "NETRC", "UV_CACHE_DIR", "UV_NO_PROGRESS", "UV_PYTHON_INSTALL_DIR"}
)
_PREFIXES_OF_THE_MACHINE: Final = ("LC_", "SSL_CERT_", "XDG_", "UV_CONCURRENT_", "UV_HTTP_", "UV_OFFLINE")
_FILES_OF_UV: Final = ("UV_BUILD_CONSTRAINT", "UV_CONFIG_FILE", "UV_CONSTRAINT", "UV_FIND_LINKS", "UV_OVERRIDE")
_SKIPPED: Final = frozenset({".git", ".agent-eval", ".venv", "__pycache__", "node_modules"})


def environment_digest(lock: Path, workspace: Path, environ: Mapping[str, str]) -> str:
    """The name of the environment built from a lock. ``environ`` is what the install step sees.

    The place of the project is part of it where something of the tree may be installed. Else two trees that need
    the same packages, as a change and its base commit mostly do, share one environment.
    """
    found = hashlib.sha256()
    files = _settings(lock, workspace)
    local = _installs_from_tree(lock, workspace, environ)
    texts = [lock.name, str(lock.parent) if local else "", sys.platform, platform.machine(), *_variables(environ)]
    for text in texts:
        found.update(text.encode("utf-8", "surrogateescape") + b"\0")
    files += included(lock, set()) if lock.name == "requirements.txt" else [lock]
    files += [path for name in _FILES_OF_UV if (path := Path(environ.get(name, ""))).is_file()]
    for path in dict.fromkeys(files):
        name = path.relative_to(workspace) if path.is_relative_to(workspace) else Path(path.name)
        found.update(name.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    for path in _copied_sources(lock) if local else ():
        _add_tree(found, path)
    return found.hexdigest()[:32]


def included(path: Path, seen: set[Path]) -> list[Path]:
    """A requirements file and those it includes by -r and -c."""
    if path in seen or not path.is_file():
        return []
    seen.add(path)
    files = [path]
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        found = re.match(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]\s*(\S+)", line)
        if found:
            files += included(real_path(path.parent / found.group(1)), seen)
    return files


def _settings(lock: Path, workspace: Path) -> list[Path]:
    folders = folders_upwards(lock.parent, workspace)
    return [folder / name for folder in folders for name in _SETTINGS if (folder / name).is_file()]


def _variables(environ: Mapping[str, str]) -> Iterator[str]:
    """What the install step sees, without credentials: a token that is new in every run names nothing."""
    for name, value in sorted(environ.items()):
        if name in _OF_THE_MACHINE or name.startswith(_PREFIXES_OF_THE_MACHINE) or name.lower().endswith("_proxy"):
            continue
        yield name if name.endswith(_CREDENTIALS) else f"{_LOGIN.sub('', name)}={_LOGIN.sub('', value)}"


def _installs_from_tree(lock: Path, workspace: Path, environ: Mapping[str, str]) -> bool:
    """Whether anything of the tree may be installed, or run while installing. In doubt it is."""
    if any(environ.get(name) for name in _FILES_OF_UV):
        return True
    for path in _settings(lock, workspace):
        if path.name == "uv.toml":
            return True
        if path.name == "pyproject.toml" and set(table_at(_toml(path), "tool", "uv")) - _HARMLESS:
            return True
    if lock.name == "requirements.txt":
        lines = [line for path in included(lock, set()) for line in path.read_text("utf-8", "replace").splitlines()]
        return any(_LOCAL.match(line) for line in lines)
    data = _toml(lock)
    if lock.name == "pyproject.toml":
        project = table_at(data, "project")
        # metadata that is not written down is asked of the project's own build backend
        return "dependencies" not in project or bool(project.get("dynamic")) or "file:" in str(project)
    packages = data.get("package")
    return not isinstance(packages, list) or not all(_is_remote(package) for package in packages)


def _is_remote(package: Any) -> bool:
    source = package.get("source") if isinstance(package, dict) else None
    if not isinstance(source, dict):
        return False
    if "registry" in source:
        return str(source["registry"]).startswith(("https://", "http://"))
    return bool(source.keys() & {"git", "url", "virtual"})


def _copied_sources(lock: Path) -> Iterator[Path]:
    """What is copied from the tree into the environment. What is only linked to (editable) is read where it lies."""
    if lock.name == "uv.lock":
        packages = _toml(lock).get("package")
        for package in packages if isinstance(packages, list) else ():
            source = package.get("source") if isinstance(package, dict) else None
            for kind in ("directory", "path"):
                if isinstance(source, dict) and isinstance(source.get(kind), str):
                    yield lock.parent / source[kind]
    elif lock.name == "requirements.txt":
        for file in included(lock, set()):
            for line in file.read_text("utf-8", "replace").splitlines():
                # from an address, or as a path alone
                if found := re.match(r"\s*(?:[^#]*\bfile:(?://)?)?([./~\w][^\s;#\[]*)", line):
                    path = file.parent / found.group(1)
                    if _LOCAL.match(line) and os.path.lexists(path):
                        yield path


def _add_tree(found: Any, top: Path) -> None:
    """Every file below, by name and content. No link is followed."""
    for path in _files(top):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            found.update(str(path).encode("utf-8", "surrogateescape") + b"\1")
            continue
        with os.fdopen(descriptor, "rb") as file:
            content = hashlib.file_digest(file, "sha256") if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
        name = path.relative_to(top.parent).as_posix().encode("utf-8", "surrogateescape")
        found.update(name + b"\0" + (content.digest() if content else b"") + b"\0")


def _files(top: Path) -> Iterator[Path]:
    if not top.is_dir() or top.is_symlink():
        yield top
        return
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(set(folders) - _SKIPPED)
        yield from (Path(folder) / name for name in sorted(names))


def _toml(path: Path) -> dict[str, Any]:
    """A file that cannot be read is one nothing is known of."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {"tool": {"uv": {"unreadable": True}}}


def table_at(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """A table inside a TOML document; empty where there is none."""
    for name in names:
        inner = data.get(name)
        if not isinstance(inner, dict):
            return {}
        data = inner
    return data
