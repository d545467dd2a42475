"""What an attempt is made with, as digests: the code, the settings of the agent and who judges. For ``--resume``."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from agent_eval_action import git
from agent_eval_action.config.agents import AgentSettings
from agent_eval_action.config.settings import Settings
from agent_eval_action.llm.credentials import OPENAI_URLS, VERTEX_SWITCHES
from agent_eval_action.model.result import AgentConditions, MadeWith
from agent_eval_action.model.transcript import ATTEMPTS

_SKIPPED: Final = frozenset(
    {".git", ".agent-eval", "__pycache__", "node_modules", ".venv"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".hypothesis"}
)
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_WIRES: Final = (*OPENAI_URLS, *VERTEX_SWITCHES, "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL")


def made_with(
    settings: Settings, agents: Collection[AgentSettings], environ: Mapping[str, str], hidden: Collection[Path]
) -> dict[str, MadeWith]:
    """Of each agent by its name, its environment apart, which is known when it has started. Blocks.

    ``hidden``: files that no agent sees, relative to the workspace; cases and criteria have digests of their own.
    Read before any agent runs, for it may write into the checkout.
    """
    ours = {settings.out, settings.cache_dir, *(settings.workspace / path for path in hidden)}
    code = _code_digest(settings.workspace, environ, ours)
    judges = _digest([settings.llm_openai_base_url, {name: environ.get(name, "") for name in _WIRES}])
    return {
        agent.name: MadeWith(code=code, settings=_settings_digest(agent, settings, environ), judges=judges)
        for agent in agents
    }


def environment_of(conditions: AgentConditions) -> str:
    """The digest of the environment an agent has started in."""
    return _digest([conditions.python, conditions.adk_version, conditions.packages_digest])


def _settings_digest(agent: AgentSettings, settings: Settings, environ: Mapping[str, str]) -> str:
    """What decides its answers besides its code. Values of secrets are left out: a new key gives no other answers."""
    env = {
        name: value if value is not None else environ.get(name, "")
        for name, value in agent.env.items()
        if not _SECRET.search(name)
    }
    path = os.path.relpath(agent.path, settings.workspace)
    recording = _file_digest(agent.recording / ATTEMPTS) if agent.recording is not None else ""
    return _digest([agent.driver, path, recording, sorted(agent.env), env])


def _code_digest(workspace: Path, environ: Mapping[str, str], ours: Collection[Path]) -> str:
    """Every file of the checkout but ours: what an agent imports or reads can lie anywhere in it.

    Where it is a repository, what git ignores is left out but for ``.env``: logs and databases that agents write.
    """
    found = hashlib.sha256()
    listed = git.Repository(workspace, environ).listed()
    paths = (workspace / name for name in sorted(listed)) if listed is not None else _walked(workspace)
    for path in paths:
        if any(path == place or place in path.parents for place in ours):
            continue
        name = path.relative_to(workspace).as_posix().encode("utf-8", "surrogateescape")
        found.update(name + b"\0" + _file_digest(path).encode() + b"\0")
    return found.hexdigest()[:16]


def _walked(workspace: Path) -> Iterator[Path]:
    """Files in a stable order. No link is followed."""
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED and not Path(folder, name, "pyvenv.cfg").exists()
        )
        yield from (Path(folder, name) for name in sorted(names))


def _file_digest(path: Path) -> str:
    """Of a file's content, or of where a link leads; what cannot be read is like nothing."""
    try:
        if path.is_symlink():
            return f"link {path.readlink()}"
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
