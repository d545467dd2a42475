"""Where the workspace begins, and which configuration file is meant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent_eval_action.errors import ConfigError
from agent_eval_action.source import did_you_mean

CONFIG_NAMES: Final = ("agent-eval.yaml", "agent-eval.yml")
GITHUB_CONFIG: Final = Path(".github") / "agent-eval.yaml"


def find_workspace(cwd: Path, environ: Mapping[str, str]) -> Path:
    """The folder that every stored path is relative to.

    GitHub's checkout when we are inside it; else the nearest folder upwards that is a git checkout or
    holds a configuration; else the current folder.
    """
    here = cwd.resolve()
    checkout = environ.get("GITHUB_WORKSPACE", "").strip()
    if checkout and here.is_relative_to(Path(checkout).resolve()):
        return Path(checkout).resolve()
    for folder in (here, *here.parents):
        # .git is a file in worktrees and submodules.
        if (folder / ".git").exists() or any((folder / name).is_file() for name in CONFIG_NAMES):
            return folder
    return here


def find_config(named: Path | None, label: str, cwd: Path, workspace: Path) -> Path | None:
    """The file named, else the nearest from the current folder up to the workspace, else .github's."""
    if named is not None:
        if named.is_file():
            return named
        there = [path.name for path in named.parent.iterdir()] if named.parent.is_dir() else []
        raise ConfigError(f"{label}: there is no configuration file {named}", hint=did_you_mean(named.name, there))
    here = cwd.resolve()
    for folder in (here, *here.parents):
        if not folder.is_relative_to(workspace):
            break
        found = [folder / name for name in CONFIG_NAMES if (folder / name).is_file()]
        if len(found) > 1:
            raise ConfigError(f"there are two configuration files: {found[0]} and {found[1]}", hint="remove one")
        if found:
            return found[0]
    github = workspace / GITHUB_CONFIG
    return github if github.is_file() else None


def config_base(path: Path, workspace: Path) -> Path:
    """The folder that paths in a configuration file start from: its own, for .github's file the workspace."""
    return workspace if path == workspace / GITHUB_CONFIG else path.parent
