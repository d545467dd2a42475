"""A workspace on disk, and settings resolved in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.loader import Resolved, resolve
from agent_eval_action.errors import ConfigError

AGENT = "from google.adk.agents import Agent\nroot_agent = Agent(name='x')\n"


class Workspace:
    """Files by path, and what resolving in there says."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str | bytes = "{}") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    def agent(self, folder: str) -> Path:
        return self.write(f"{folder}/agent.py", AGENT).parent

    def resolve(self, *, cwd: str = "", environ: dict[str, str] | None = None, **flags: Any) -> Resolved:
        return resolve(flags=flags, environ=environ or {}, cwd=self.root / cwd)

    def refused(self, config: str | bytes | None = None, **given: Any) -> list[str]:
        """Every problem of a configuration that cannot be used, without the path of the workspace."""
        if config is not None:
            self.write("agent-eval.yaml", config)
        with pytest.raises(ConfigError) as caught:
            self.resolve(**given)
        return [str(problem).replace(f"{self.root}/", "") for problem in caught.value.problems]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = (tmp_path / "repo").resolve()
    (root / ".git").mkdir(parents=True)
    return Workspace(root)


@pytest.fixture
def make_workspace(tmp_path: Path) -> Callable[[str], Workspace]:
    def make(name: str) -> Workspace:
        (tmp_path / name / ".git").mkdir(parents=True)
        return Workspace((tmp_path / name).resolve())

    return make
