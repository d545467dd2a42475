"""Which interpreter runs the agent: the one configured, a ``.venv`` found, or one built from the lock. And why."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.interpreter.build import Lock, build, find_lock
from agent_eval_action.interpreter.install import seen_by_install, without_secrets
from agent_eval_action.interpreter.isolation_cell import Cell, options_of
from agent_eval_action.interpreter.launch import upwards

PROBE = """
import importlib.util, json, sys
try:
    spec = importlib.util.find_spec("google.adk")
except ImportError:
    spec = None
print(json.dumps({"python": "%d.%d.%d" % sys.version_info[:3], "adk": bool(spec and spec.origin)}))
"""
PROBE_S = 30.0
MIN_PYTHON = (3, 10)


@dataclass(frozen=True, slots=True)
class AgentEnvironment:
    """An interpreter that has google-adk, and how it was chosen, in words for the user."""

    python: Path
    how: str


@dataclass(frozen=True, slots=True)
class Search:
    """Where to look. ``environ`` is the caller's whole environment; ``given_up`` ends a build from another thread.

    With a ``cell`` folder and workspace lie in its copy, and whatever is executed is its user's.
    ``install_env`` reaches the install step alone.
    """

    folder: Path
    workspace: Path
    cache_dir: Path
    environ: Mapping[str, str]
    python: Path | None = None
    given_up: threading.Event = field(default_factory=threading.Event)
    cell: Cell | None = None
    install_env: Mapping[str, str] = field(default_factory=dict)


def choose(search: Search) -> AgentEnvironment:
    """The agent's interpreter; raises AgentEnvironmentError saying what was tried. Blocks."""
    if search.python is not None:
        return _configured(search, search.python)
    rejected: list[str] = []
    for place in upwards(search.folder, search.workspace):
        venv = place / ".venv"
        if not venv.is_dir():
            continue
        # in a cell a link: what it points to cannot be exchanged by the agent
        python = (venv.resolve() if search.cell else venv) / "bin" / "python"
        wrong = _wrong_with(python, search)
        if wrong is None:
            return AgentEnvironment(python, _join(f"found {_shown(venv, search)}", rejected))
        rejected.append(f"{_shown(venv, search)} was passed over: {wrong}")
    lock = find_lock(search.folder, search.workspace)
    if lock is None:
        raise AgentEnvironmentError(
            _join(f"no Python environment with google-adk for the agent {_shown(search.folder, search)}", rejected),
            hint="set `python:` of the agent, make a .venv with google-adk beside it, "
            "or add uv.lock, pyproject.toml or requirements.txt",
        )
    return _built(search, lock, rejected)


def _configured(search: Search, python: Path) -> AgentEnvironment:
    found = python / "bin" / "python" if python.is_dir() else python
    if len(python.parts) == 1 and not found.exists():
        found = Path(shutil.which(str(python), path=search.environ.get("PATH")) or found)
    if not found.is_absolute():
        found = search.workspace / found
    if search.cell is not None:
        inside = search.cell.inside(found)
        found = inside.parent.parent.resolve() / "bin" / inside.name if inside != found else found
    wrong = _wrong_with(found, search)
    if wrong is not None:
        raise AgentEnvironmentError(
            f"the configured interpreter {python} cannot run the agent: {wrong}",
            hint="`python:` names an interpreter, or a virtual environment, that has google-adk 1.10 or newer",
        )
    return AgentEnvironment(found, f"configured: {python}")


def _built(search: Search, lock: Lock, rejected: list[str]) -> AgentEnvironment:
    seen = seen_by_install(search.environ, search.install_env)
    try:
        venv, was_cached = build(lock, search.cache_dir, seen, search.given_up, search.cell)
    except AgentEnvironmentError as error:
        shown = [without_secrets(text or "", seen) for text in (error.message, error.hint)]
        raise AgentEnvironmentError(shown[0], hint=shown[1]) from None
    python = venv / "bin" / "python"
    wrong = _wrong_with(python, search)
    if wrong is not None:
        raise AgentEnvironmentError(
            f"the environment built from {_shown(lock.path, search)} cannot run the agent: {wrong}",
            hint=f"add google-adk to {lock.path.name}",
        )
    how = f"{'cached' if was_cached else 'built'} by uv from {_shown(lock.path, search)} ({venv.name[:12]})"
    return AgentEnvironment(python, _join(how, rejected))


def _wrong_with(python: Path, search: Search) -> str | None:
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
            **options_of(user),
        )
        said = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"it does not start: {error}"
    if said is None:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"it does not start: {''.join(last) or f'exit code {done.returncode}'}"
    if tuple(int(part) for part in said["python"].split(".")[:2]) < MIN_PYTHON:
        return f"it is Python {said['python']}, 3.10 or newer is needed"
    return None if said["adk"] else "google-adk is not installed in it"


def _shown(path: Path, search: Search) -> str:
    return str(path.relative_to(search.workspace)) if path.is_relative_to(search.workspace) else str(path)


def _join(first: str, more: list[str]) -> str:
    return "; ".join([first, *more])
