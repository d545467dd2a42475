"""Choose the interpreter of an agent, and decide whether the agent of another tree may share it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.environments.build import EnvironmentBuild
from agent_eval_action.environments.lock import KINDS, LockFile, find_lock, included
from agent_eval_action.environments.runtime import AgentEnvironment, AgentFolder, AgentRuntimeSpec
from agent_eval_action.environments.variables import install_environ, without_secrets
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import folders_upwards, relative
from agent_eval_action.sandbox.sandboxes import popen_options

_PROBE_S: Final = 30.0
_MIN_PYTHON: Final = (3, 10)
_MIN_ADK: Final = (1, 10)
_UPGRADE: Final = "upgrade google-adk to 1.10 or newer"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_OTHER_REQUIREMENT_FILES: Final = (".python-version", "uv.toml", "setup.py", "setup.cfg", "requirements.in")

# Avoids importlib.metadata: its import takes longer than the start of Python and the rest of this together.
_INTERPRETER_PROBE: Final = """
import importlib.util, json, os, sys
try:
    spec = importlib.util.find_spec("google.adk")
except ImportError:
    spec = None
adk = bool(spec and spec.origin)
names = os.listdir(os.path.join(os.path.dirname(spec.origin), "..", "..")) if adk else []
versions = [name[11:-10] for name in names if name.startswith("google_adk-") and name.endswith(".dist-info")]
found = {"adk": adk, "version": "".join(versions[:1])}
print(json.dumps({"python": "%d.%d.%d" % sys.version_info[:3], **found}))
"""

# If a tree's own code is installed in an environment, it would be imported instead of the other tree's.
_INSTALLED_FROM_TREE_PROBE: Final = """
import importlib.metadata as metadata, json, os, sys, urllib.parse
root, own, found = sys.argv[1], os.path.realpath(sys.prefix), set()
def inside(path):
    path = os.path.realpath(path)
    return (path + os.sep).startswith(root + os.sep) and not (path + os.sep).startswith(own + os.sep)
for package in metadata.distributions():
    url = json.loads(package.read_text("direct_url.json") or "{}").get("url", "")
    if url.startswith("file://") and inside(urllib.parse.unquote(url[7:])):
        found.add(package.metadata["Name"])
for folder in filter(os.path.isdir, sys.path):
    for name in os.listdir(folder):
        if name.endswith((".pth", ".egg-link")):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                if any(inside(line.strip()) for line in file if line.startswith("/")):
                    found.add(name)
print(json.dumps(sorted(found)))
"""


class _Fault(NamedTuple):
    """Why an interpreter cannot be used. ``too_old``: it is the agent's, but its google-adk is not supported."""

    reason: str
    too_old: bool = False


def choose_interpreter(
    spec: AgentRuntimeSpec, place: AgentFolder, given_up: threading.Event | None = None
) -> AgentEnvironment:
    """Return the agent's interpreter: the configured one, else a virtual environment, else a build from the lock.

    Blocks. Setting ``given_up`` in another thread stops a build. Raises AgentEnvironmentError that lists what was
    tried.
    """
    if spec.python is not None:
        return _configured(spec, place, spec.python)
    rejected: list[str] = []
    for venv, how in _candidates(spec, place):
        # in a sandbox it is a link; the agent cannot exchange the link's target
        python = (venv.resolve() if place.sandbox else venv) / "bin" / "python"
        fault = _fault(python, spec, place)
        if fault is None:
            return AgentEnvironment(python, "; ".join([how, *rejected]))
        if fault.too_old:
            message = f"the agent's environment {place.relative(venv)} cannot run it: {fault.reason}"
            raise AgentEnvironmentError(message, hint=_UPGRADE)
        if not _is_ours(venv):
            rejected.append(f"{place.relative(venv)} was passed over: {fault.reason}")
    lock = find_lock(place.folder, place.workspace)
    if lock is None:
        missing, venv_hint = "no Python environment with google-adk for the agent", "a .venv with google-adk"
        if spec.function:
            missing, venv_hint = "no Python environment for the agent", "a .venv"
        raise AgentEnvironmentError(
            "; ".join([f"{missing} {place.relative(place.folder)}", *rejected]),
            hint=f"set `python:` of the agent, make {venv_hint} beside it, "
            "or add uv.lock, pyproject.toml or requirements.txt",
        )
    environment = _built(spec, place, lock, given_up or threading.Event())
    return AgentEnvironment(environment.python, "; ".join([environment.how, *rejected]))


def likely_interpreter(spec: AgentRuntimeSpec, place: AgentFolder) -> Path | None:
    """Return the interpreter that ``choose_interpreter`` would probably choose, without starting it, or None."""
    if spec.python is not None:
        return configured_interpreter(spec.python, place.workspace, spec.environ)
    return next((venv / "bin" / "python" for venv, _ in _candidates(spec, place) if not _is_ours(venv)), None)


def _candidates(spec: AgentRuntimeSpec, place: AgentFolder) -> Iterator[tuple[Path, str]]:
    """Yield virtual environments that may be the agent's, nearest first, each with a description."""
    folders = folders_upwards(place.folder, place.workspace)
    found = [folder / ".venv" for folder in folders if (folder / ".venv").is_dir()]
    named = spec.environ.get("VIRTUAL_ENV", "").strip()
    active = Path(named) if named and Path(named).is_absolute() else None
    if active is not None and place.sandbox is not None:
        active = place.sandbox.inside(active)
    for venv in found:
        how = f"found {place.relative(venv)}"
        if active is not None and active.resolve() != venv.resolve() and not _is_ours(active):
            how += f"; the activated {active} was passed over: {place.relative(venv)} lies beside the agent"
        yield venv, how
    if active is not None and active.resolve() not in {venv.resolve() for venv in found}:
        yield active, f"the activated virtual environment {place.relative(active)}"


def _is_ours(venv: Path) -> bool:
    """Whether we run from it; then it may be there only for us."""
    return venv.resolve() == Path(sys.prefix).resolve()


def configured_interpreter(python: Path, workspace: Path, environ: Mapping[str, str]) -> Path:
    """Return the file that ``python:`` names: an interpreter, a virtual environment's, or one on the PATH."""
    found = python / "bin" / "python" if python.is_dir() else python
    if len(python.parts) == 1 and not found.exists():
        found = Path(shutil.which(str(python), path=environ.get("PATH")) or found)
    return found if found.is_absolute() else workspace / found


def _configured(spec: AgentRuntimeSpec, place: AgentFolder, python: Path) -> AgentEnvironment:
    found = configured_interpreter(python, place.workspace, spec.environ)
    if place.sandbox is not None:
        inside = place.sandbox.inside(found)
        found = inside.parent.parent.resolve() / "bin" / inside.name if inside != found else found
    if fault := _fault(found, spec, place):
        raise AgentEnvironmentError(
            f"the configured interpreter {python} cannot run the agent: {fault.reason}",
            hint="`python:` names an interpreter, or a virtual environment"
            + (", of Python 3.10 or newer" if spec.function else ", that has google-adk 1.10 or newer"),
        )
    return AgentEnvironment(found, f"configured: {python}")


def _built(spec: AgentRuntimeSpec, place: AgentFolder, lock: LockFile, given_up: threading.Event) -> AgentEnvironment:
    environ = install_environ(spec.environ, spec.install_env)
    lock_name = place.relative(lock.path)
    if not spec.function and (fault := _too_old(lock.pinned("google-adk"))):
        raise AgentEnvironmentError(f"{lock_name} pins {fault.reason}", hint=_UPGRADE)

    def announce() -> None:
        size = f" ({plural(count, 'package')})" if (count := lock.packages()) else ""
        spec.log(f"builds the agent's environment from {lock_name}{size}; this is done once for these files", "info")

    try:
        venv, was_cached = EnvironmentBuild(lock, spec.cache, environ, given_up, announce).make(place.sandbox)
    except AgentEnvironmentError as error:
        message, hint = (without_secrets(place.shown(text or ""), environ) for text in (error.message, error.hint))
        raise AgentEnvironmentError(message, hint=hint) from None
    python = venv / "bin" / "python"
    if fault := _fault(python, spec, place):
        if fault.too_old:
            raise AgentEnvironmentError(f"{lock_name} installs {fault.reason}", hint=_UPGRADE)
        message = f"the environment built from {lock_name} cannot run the agent: {fault.reason}"
        raise AgentEnvironmentError(message, hint=f"add google-adk to {lock.path.name}")
    how = f"{'cached' if was_cached else 'built'} by uv from {lock_name} ({venv.name[:12]})"
    return AgentEnvironment(python, how)


def _fault(python: Path, spec: AgentRuntimeSpec, place: AgentFolder) -> _Fault | None:
    """Return what is wrong with an interpreter. Starts it: a .venv made elsewhere may only look like one."""
    if not os.access(python, os.X_OK):
        missing = "its interpreter is missing (was it made on another machine?)"
        return _Fault(missing if python.is_symlink() else f"there is no interpreter at {python}")
    env, user = _basic_environ(spec.environ), place.user
    command = [str(python), "-I", "-c", _INTERPRETER_PROBE]
    options = {"env": user.environ(env) if user else env, **popen_options(user)}
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=False, **options)  # noqa: S603 - the interpreter is the user's choice
        if done.returncode != 0:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            return _Fault(f"it does not start: {''.join(last) or f'exit code {done.returncode}'}")
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return _Fault(f"it does not start: {error}")
    if tuple(int(part) for part in found["python"].split(".")[:2]) < _MIN_PYTHON:
        return _Fault(f"it is Python {found['python']}, 3.10 or newer is needed")
    if not found["adk"] and not spec.function:
        return _Fault("google-adk is not installed in it")
    return None if spec.function else _too_old(found["version"])


def _too_old(version: str) -> _Fault | None:
    found = _VERSION.match(version)
    if found is None or (int(found[1]), int(found[2])) >= _MIN_ADK:
        return None
    return _Fault(f"google-adk {version}, which is too old: 1.10 or newer is needed", too_old=True)


def _basic_environ(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in ("PATH", "HOME", "LANG") if name in environ}


def reason_env_not_reusable(python: Path, here: AgentFolder, there: AgentFolder, environ: Mapping[str, str]) -> str:
    """Return why the agent ``there`` must not use the interpreter of the agent ``here``, or "". Blocks.

    Only for agents that all run as one user, who could change any environment. Sandboxes share only what both would
    build.
    """
    if _requirement_files(here) != _requirement_files(there):
        return "they need other packages"
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter the agent runs in anyway
            [str(python), "-I", "-c", _INSTALLED_FROM_TREE_PROBE, str(here.workspace.resolve())],
            env=_basic_environ(environ),
            capture_output=True,
            timeout=_PROBE_S,
            check=True,
        )
        installed = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"it cannot be looked into: {error}"
    return f"{installed[0]} of this tree is installed in it" if installed else ""


def _requirement_files(place: AgentFolder) -> dict[str, bytes]:
    """Return all files that define an agent's needs, by path. The agent's own folder may have another name."""
    found: dict[str, bytes] = {}
    for folder in folders_upwards(place.folder, place.workspace):
        paths = [path for name in (*KINDS, *_OTHER_REQUIREMENT_FILES) if (path := folder / name).is_file()]
        for path in (*paths, *included(folder / "requirements.txt")):
            inside = place.folder != place.workspace and path.is_relative_to(place.folder)
            name = "<agent>" / path.relative_to(place.folder) if inside else path
            found[relative(name, place.workspace)] = path.read_bytes()
    return found
