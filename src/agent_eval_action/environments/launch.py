"""How a worker is started: interpreter, environment, folders, limits; and the process itself."""

from __future__ import annotations

import os
import secrets
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_eval_action.processes.managed import MARKER
from agent_eval_action.processes.protocol import encode
from agent_eval_action.sandbox.sandboxes import Sandbox, popen_options

_PROGRAMS = Path(__file__).resolve().parents[1] / "worker"
WORKER = _PROGRAMS / "agent_eval_worker_main.py"
METRIC_WORKER = _PROGRAMS / "agent_eval_worker_metric.py"


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """What an agent may take before it is an error. Seconds and bytes."""

    import_s: float = 180.0
    cancel_grace_s: float = 3.0
    stop_s: float = 2.0
    turn_bytes: int = 64 << 20
    log_bytes: int = 20 << 20


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that is the same for all workers of an agent. ``cell``: folder and workspace lie in its copy."""

    python: Path
    environ: dict[str, str]
    folder: Path
    workspace: Path
    timeout_s: float
    limits: AgentLimits = field(default_factory=AgentLimits)
    program: Path = WORKER
    cell: Sandbox | None = None

    @property
    def cwd(self) -> Path:
        """The folder with the pyproject.toml of the agent, else the agent's parent."""
        for place in folders_upwards(self.folder, self.workspace):
            if (place / "pyproject.toml").is_file():
                return place
        return self.folder.parent

    def shown(self, text: str) -> str:
        """A text of the worker's with the paths the user knows."""
        return self.cell.shown(text) if self.cell else text

    def first_frame(self) -> dict[str, Any]:
        """What the worker must know before it imports anything."""
        cwd = self.cwd
        return {
            "folder": str(self.folder),
            "workspace": str(self.workspace),
            "cwd": str(cwd),
            "sys_path": list(dict.fromkeys([str(self.folder.parent), str(cwd)])),
            "timeout_s": self.timeout_s,
            "cancel_grace_s": self.limits.cancel_grace_s,
            "frame_bytes": self.limits.turn_bytes,
        }


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A worker process and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    marker: str
    read_fd: int
    write_fd: int
    output_fd: int


def start_process(launch: Launch) -> StartedProcess:
    """Start a worker in a session of its own; raises OSError when the interpreter cannot be executed."""
    marker, user = secrets.token_hex(16), launch.cell.user if launch.cell else None
    command_read, command_write = os.pipe()
    event_read, event_write = os.pipe()
    output_read, output_write = os.pipe()
    command = [str(launch.python), str(launch.program), str(command_read), str(event_write)]
    theirs, ours = (command_read, event_write, output_write), (event_read, command_write, output_read)
    try:
        process = subprocess.Popen(  # noqa: S603 - the interpreter is the user's choice, the rest is ours
            user.command(command) if user else command,
            stdin=subprocess.DEVNULL,
            stdout=output_write,
            stderr=output_write,
            pass_fds=(command_read, event_write),
            cwd=launch.cwd,
            env={**launch.environ, MARKER: marker},
            start_new_session=True,
            **popen_options(user),
        )
    except OSError:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    # Small enough for an empty pipe, so the import begins now, whatever our event loop is busy with.
    os.write(command_write, encode(launch.first_frame()))
    return StartedProcess(process, marker, event_read, command_write, output_read)


def folders_upwards(folder: Path, last: Path) -> list[Path]:
    """The folder and those above it up to ``last``; the folder alone when it does not lie in ``last``."""
    places = [folder, *folder.parents]
    return places[: places.index(last) + 1] if last in places else [folder]
