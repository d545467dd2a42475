"""How the code of one agent runs: its files, interpreter, variables, limits and sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from agent_eval_action.config.models import TURN_SECONDS, AgentModule
from agent_eval_action.environments.variables import agent_environ
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import OutputFolder, folders_upwards, relative
from agent_eval_action.sandbox.sandboxes import Role, Sandbox, Sandboxes
from agent_eval_action.sandbox.users import SandboxUser

_WORKER_MAIN: Final = Path(__file__).resolve().parents[1] / "worker" / "agent_eval_worker_main.py"

Log = Callable[[str, Literal["info", "warning"]], None]
"""Logs a message with its level. It is called from the thread in which an agent starts."""


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """What an agent may use, in seconds and bytes."""

    import_s: float = 180.0
    cancel_grace_s: float = 3.0
    stop_s: float = 2.0
    turn_bytes: int = 64 << 20
    log_bytes: int = 20 << 20


@dataclass(frozen=True, slots=True)
class AgentFolder:
    """An agent's folder and its workspace; with a ``sandbox`` both are in its copy of the workspace."""

    folder: Path
    workspace: Path
    sandbox: Sandbox | None = None

    @property
    def user(self) -> SandboxUser | None:
        """The user of its processes; None if it is ours."""
        return self.sandbox.user if self.sandbox else None

    @property
    def cwd(self) -> Path:
        """The nearest folder in the workspace with a pyproject.toml, else the agent folder's parent."""
        folders = folders_upwards(self.folder, self.workspace)
        parent = self.folder if self.folder == self.workspace else self.folder.parent
        return next((folder for folder in folders if (folder / "pyproject.toml").is_file()), parent)

    def shown(self, text: str) -> str:
        """Return a text of the agent's process with the paths the user knows."""
        return self.sandbox.shown(text) if self.sandbox else text

    def inside(self, path: Path) -> Path:
        """Convert a path of the user to that in the agent's process."""
        return self.sandbox.inside(path) if self.sandbox else path

    def relative(self, path: Path) -> str:
        """Return a path for messages, relative to the workspace if it is inside."""
        return relative(path, self.workspace)


@dataclass(frozen=True, slots=True)
class AgentRuntimeSpec:
    """How one agent's code runs. ``environ`` is the caller's whole environment; the agent sees an allow-list of it.

    ``env_allow`` names more variables for the agent; only the install step sees ``install_env``. ``python`` is the
    configured interpreter, ``function`` answers instead of an ADK agent, ``module`` is imported instead of the folder,
    and ``role`` selects one of the ``sandboxes``, if there are any.
    """

    name: str
    path: Path
    workspace: Path
    logs: OutputFolder
    cache: OutputFolder
    python: Path | None = None
    function: str = ""
    module: AgentModule | None = None
    timeout_s: float = TURN_SECONDS
    environ: Mapping[str, str] = field(default_factory=dict)
    env_allow: tuple[str, ...] = ()
    install_env: Mapping[str, str] = field(default_factory=dict)
    limits: AgentLimits = field(default_factory=AgentLimits)
    sandboxes: Sandboxes | None = None
    role: Role = "head"
    log: Log = lambda _text, _level: None

    def locate(self) -> AgentFolder:
        """Return where the agent's files are. The first call copies the workspace into the sandbox. Blocks.

        Raises AgentEnvironmentError or OSError.
        """
        folder, workspace = self.path.resolve(), self.workspace.resolve()
        if not folder.is_dir():
            raise AgentEnvironmentError(f"the agent folder {self.path} does not exist")
        if self.sandboxes is None:
            return AgentFolder(folder, workspace)
        sandbox = self.sandboxes.sandbox(self.role, workspace)
        return AgentFolder(sandbox.inside(folder), sandbox.tree, sandbox)


@dataclass(frozen=True, slots=True)
class AgentEnvironment:
    """An interpreter for the agent, and how it was chosen, in words for the user."""

    python: Path
    how: str


@dataclass(frozen=True, slots=True)
class Launch:
    """What all processes of an agent have in common. ``program`` is what they serve."""

    spec: AgentRuntimeSpec
    place: AgentFolder
    environment: AgentEnvironment
    program: Literal["agent", "metrics"] = "agent"

    def command(self, *arguments: int | str) -> list[str]:
        """Return the command of a worker or a fork server, with arguments of ``agent_eval_worker_main.py``."""
        return [str(self.environment.python), str(_WORKER_MAIN), *map(str, arguments)]

    def environ(self) -> dict[str, str]:
        """Return the variables that the process sees."""
        seen = agent_environ(self.spec.environ, self.spec.env_allow)
        return self.place.sandbox.environ(seen) if self.place.sandbox else seen

    def first_frame(self) -> dict[str, Any]:
        """Return what the worker must know before it imports anything."""
        folder, cwd = self.place.folder, self.place.cwd
        module, search_path = self.spec.module, [folder if self.spec.function else folder.parent, cwd]
        if module is not None:
            cwd, search_path = self.place.inside(module.cwd), list(map(self.place.inside, module.search_path))
        return {
            "folder": str(folder),
            "workspace": str(self.place.workspace),
            "cwd": str(cwd),
            "function": self.spec.function,
            "module": module.name if module else "",
            "sub_agent": module.sub_agent if module else "",
            "sys_path": list(dict.fromkeys(map(str, search_path))),
            "timeout_s": self.spec.timeout_s,
            "cancel_grace_s": self.spec.limits.cancel_grace_s,
            "frame_bytes": self.spec.limits.turn_bytes,
        }
