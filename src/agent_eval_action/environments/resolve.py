"""Whether the environment of one tree will do for another tree of the same project, and why not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.environments.build import KINDS, LockFile, build_environment, find_lock, is_built
from agent_eval_action.environments.digest import included
from agent_eval_action.environments.install import install_environ, without_secrets
from agent_eval_action.environments.launch import folders_upwards
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.sandbox.sandboxes import Sandbox, popen_options

_ALSO: Final = (".python-version", "uv.toml", "setup.py", "setup.cfg", "requirements.in")
_PROBE_S: Final = 30.0

# A tree's own code that is installed in an environment would be imported in the place of the other tree's.
_PROBE: Final = """
import importlib.metadata as metadata, json, os, sys, urllib.parse
root, own, found = sys.argv[1], os.path.realpath(sys.prefix), set()
def inside(path):
    path = os.path.realpath(path)
    return (path + os.sep).startswith(root + os.sep) and not (path + os.sep).startswith(own + os.sep)
for one in metadata.distributions():
    url = json.loads(one.read_text("direct_url.json") or "{}").get("url", "")
    if url.startswith("file://") and inside(urllib.parse.unquote(url[7:])):
        found.add(one.metadata["Name"])
for folder in filter(os.path.isdir, sys.path):
    for name in os.listdir(folder):
        if name.endswith((".pth", ".egg-link")):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                if any(inside(line.strip()) for line in file if line.startswith("/")):
                    found.add(name)
print(json.dumps(sorted(found)))
"""


@dataclass(frozen=True, slots=True)
class AgentFolder:
    """An agent's folder in a workspace."""

    folder: Path
    workspace: Path


def reason_env_not_reusable(python: Path, here: AgentFolder, there: AgentFolder, environ: Mapping[str, str]) -> str:
    """Why the interpreter of the agent ``here`` must not run the one ``there``; "" when it may. Blocks.

    This is asked where all agents run as one user, who could change any environment. In a cell nothing is shared
    but what both would build.
    """
    if _needs(here) != _needs(there):
        return "they need other packages"
    env = {key: environ[key] for key in ("PATH", "HOME", "LANG") if key in environ}
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter the agent runs in anyway
            [str(python), "-I", "-c", _PROBE, str(here.workspace.resolve())],
            env=env,
            capture_output=True,
            timeout=_PROBE_S,
            check=True,
        )
        installed = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"it cannot be looked into: {error}"
    return f"{installed[0]} of this tree is installed in it" if installed else ""


def _needs(place: AgentFolder) -> dict[str, bytes]:
    """Everything that says what an agent needs, by its path in the agent's folder, which may be renamed, or above."""
    found: dict[str, bytes] = {}
    for path in _files(place):
        inside = place.folder != place.workspace and path.is_relative_to(place.folder)
        name = "<agent>" / path.relative_to(place.folder) if inside else path
        name = name.relative_to(place.workspace) if name.is_relative_to(place.workspace) else name
        found[name.as_posix()] = path.read_bytes()
    return found


def _files(place: AgentFolder) -> Iterator[Path]:
    for folder in folders_upwards(place.folder, place.workspace):
        yield from (folder / name for name in (*KINDS, *_ALSO) if (folder / name).is_file())
        yield from included((folder / "requirements.txt"), set())


PROBE = """
import importlib.metadata, importlib.util, json, sys
try:
    spec = importlib.util.find_spec("google.adk")
except ImportError:
    spec = None
try:
    version = importlib.metadata.version("google-adk")
except importlib.metadata.PackageNotFoundError:
    version = ""
found = {"adk": bool(spec and spec.origin), "version": version}
print(json.dumps({"python": "%d.%d.%d" % sys.version_info[:3], **found}))
"""
PROBE_S = 30.0
Log = Callable[[str, Literal["info", "warning"]], None]
"""Takes a sentence for the log. It is called from the thread in which an agent starts."""
MIN_PYTHON = (3, 10)
MIN_ADK = (1, 10)
_UPGRADE = "upgrade google-adk to 1.10 or newer"
_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class AgentEnvironment:
    """An interpreter that has google-adk, and how it was chosen, in words for the user."""

    python: Path
    how: str


@dataclass(frozen=True, slots=True)
class Search:
    """Where to look. ``environ`` is the caller's whole environment; ``given_up`` ends a build from another thread.

    With a ``cell`` folder and workspace lie in its copy, and whatever is executed is its user's.
    ``install_env`` reaches the install step alone. ``say`` is told of what takes long, before it begins.
    """

    folder: Path
    workspace: Path
    cache: OutputFolder
    environ: Mapping[str, str]
    python: Path | None = None
    given_up: threading.Event = field(default_factory=threading.Event)
    cell: Sandbox | None = None
    install_env: Mapping[str, str] = field(default_factory=dict)
    say: Log = lambda _text, _level: None

    @property
    def activated(self) -> Path | None:
        """The virtual environment that is active where we were called, unless it is only our own."""
        named = self.environ.get("VIRTUAL_ENV", "").strip()
        return Path(named) if named and Path(named).is_absolute() else None


class _TooOldError(Exception):
    """An environment was found that is the agent's, and its google-adk cannot be run."""


def choose_interpreter(search: Search) -> AgentEnvironment:
    """The agent's interpreter; raises AgentEnvironmentError saying what was tried. Blocks."""
    if search.python is not None:
        return _configured(search, search.python)
    rejected: list[str] = []
    for venv, how in _candidates(search):
        # in a cell a link: what it points to cannot be exchanged by the agent
        python = (venv.resolve() if search.cell else venv) / "bin" / "python"
        try:
            wrong = _reason_unusable(python, search)
        except _TooOldError as error:
            raise AgentEnvironmentError(
                f"the agent's environment {_shown(venv, search)} cannot run it: {error}", hint=_UPGRADE
            ) from None
        if wrong is None:
            return AgentEnvironment(python, _join(how, rejected))
        if not _is_ours(venv):
            rejected.append(f"{_shown(venv, search)} was passed over: {wrong}")
    lock = find_lock(search.folder, search.workspace)
    if lock is None:
        raise AgentEnvironmentError(
            _join(f"no Python environment with google-adk for the agent {_shown(search.folder, search)}", rejected),
            hint="set `python:` of the agent, make a .venv with google-adk beside it, "
            "or add uv.lock, pyproject.toml or requirements.txt",
        )
    return _built(search, lock, rejected)


def _candidates(search: Search) -> Iterator[tuple[Path, str]]:
    """Virtual environments that may be the agent's, nearest first, and how each is called where it is taken."""
    active = search.activated
    found = [
        place / ".venv" for place in folders_upwards(search.folder, search.workspace) if (place / ".venv").is_dir()
    ]
    if active is not None and search.cell is not None:
        active = search.cell.inside(active)
    for venv in found:
        other = f"; the activated {active} was passed over: {_shown(venv, search)} lies beside the agent"
        passed_over = active is not None and active.resolve() != venv.resolve() and not _is_ours(active)
        yield venv, f"found {_shown(venv, search)}{other if passed_over else ''}"
    if active is not None and active.resolve() not in {venv.resolve() for venv in found}:
        yield active, f"the activated virtual environment {_shown(active, search)}"


def _is_ours(venv: Path) -> bool:
    """Whether we run from it: then it may be there for us alone."""
    return venv.resolve() == Path(sys.prefix).resolve()


def configured_interpreter(python: Path, workspace: Path, environ: Mapping[str, str]) -> Path:
    """The file that ``python:`` names: an interpreter, that of a virtual environment, or one on the PATH."""
    found = python / "bin" / "python" if python.is_dir() else python
    if len(python.parts) == 1 and not found.exists():
        found = Path(shutil.which(str(python), path=environ.get("PATH")) or found)
    return found if found.is_absolute() else workspace / found


def _configured(search: Search, python: Path) -> AgentEnvironment:
    found = configured_interpreter(python, search.workspace, search.environ)
    if search.cell is not None:
        inside = search.cell.inside(found)
        found = inside.parent.parent.resolve() / "bin" / inside.name if inside != found else found
    try:
        wrong = _reason_unusable(found, search)
    except _TooOldError as error:
        wrong = str(error)
    if wrong is not None:
        raise AgentEnvironmentError(
            f"the configured interpreter {python} cannot run the agent: {wrong}",
            hint="`python:` names an interpreter, or a virtual environment, that has google-adk 1.10 or newer",
        )
    return AgentEnvironment(found, f"configured: {python}")


def _built(search: Search, lock: LockFile, rejected: list[str]) -> AgentEnvironment:
    seen = install_environ(search.environ, search.install_env)
    shown_lock = _shown(lock.path, search)
    if (pinned := lock.pinned("google-adk")) and _too_old(pinned):
        raise AgentEnvironmentError(f"{shown_lock} pins {_old(pinned)}", hint=_UPGRADE)
    if not is_built(lock, search.cache, seen, search.cell):
        search.say(
            f"builds the agent's environment from {shown_lock}{_size(lock)}; this is done once for these files", "info"
        )
    try:
        venv, was_cached = build_environment(lock, search.cache, seen, search.given_up, search.cell)
    except AgentEnvironmentError as error:
        shown = [without_secrets(text or "", seen) for text in (error.message, error.hint)]
        raise AgentEnvironmentError(shown[0], hint=shown[1]) from None
    python = venv / "bin" / "python"
    try:
        wrong = _reason_unusable(python, search)
    except _TooOldError as error:
        raise AgentEnvironmentError(f"{shown_lock} installs {error}", hint=_UPGRADE) from None
    if wrong is not None:
        raise AgentEnvironmentError(
            f"the environment built from {shown_lock} cannot run the agent: {wrong}",
            hint=f"add google-adk to {lock.path.name}",
        )
    how = f"{'cached' if was_cached else 'built'} by uv from {shown_lock} ({venv.name[:12]})"
    return AgentEnvironment(python, _join(how, rejected))


def _reason_unusable(python: Path, search: Search) -> str | None:
    """Why an interpreter will not do, or None. It is started: a .venv made elsewhere may only look like one."""
    if not os.access(python, os.X_OK):
        return (
            "its interpreter is missing (was it made on another machine?)"
            if python.is_symlink()
            else (f"there is no interpreter at {python}")
        )
    env = {key: search.environ[key] for key in ("PATH", "HOME", "LANG") if key in search.environ}
    user = search.cell.user if search.cell else None
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter is the user's choice
            [str(python), "-I", "-c", PROBE],
            env=user.environ(env) if user else env,
            capture_output=True,
            timeout=PROBE_S,
            check=False,
            **popen_options(user),
        )
        said = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"it does not start: {error}"
    if said is None:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"it does not start: {''.join(last) or f'exit code {done.returncode}'}"
    if tuple(int(part) for part in said["python"].split(".")[:2]) < MIN_PYTHON:
        return f"it is Python {said['python']}, 3.10 or newer is needed"
    if said["adk"] and _too_old(said["version"]):
        raise _TooOldError(_old(said["version"]))
    return None if said["adk"] else "google-adk is not installed in it"


def _too_old(version: str) -> bool:
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) < MIN_ADK


def _old(version: str) -> str:
    return f"google-adk {version}, which is too old: 1.10 or newer is needed"


def _size(lock: LockFile) -> str:
    packages = lock.packages()
    return f" ({plural(packages, 'package')})" if packages else ""


def _shown(path: Path, search: Search) -> str:
    return str(path.relative_to(search.workspace)) if path.is_relative_to(search.workspace) else str(path)


def _join(first: str, more: list[str]) -> str:
    return "; ".join([first, *more])
