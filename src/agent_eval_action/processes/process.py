"""Start a worker process, read its output, and kill it with everything it started."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from agent_eval_action.environments.runtime import AgentFolder, Launch
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.protocol import encode
from agent_eval_action.sandbox.sandboxes import popen_options
from agent_eval_action.sandbox.users import descendant_pids, kill_all, process_statuses

MARKER = "AGENT_EVAL_WORKER"
TAIL_BYTES = 32 * 1024
TAIL_LINES = 40
TAIL_COLUMNS = 500  # a crash ends with the names of all extension modules in one line
_GONE_S = 2.0
_POLL_MS = 50
_UNKNOWN_CODE: Final = 255
"""Exit code if the fork server ended before its child, as in multiprocessing."""

_CREDENTIALS: Final = struct.Struct("3i")
_ANSWER_BYTES: Final = 4096
_ANSWER_S: Final = 1.0


class ForkedProcess:
    """What we use of ``subprocess.Popen``, for a process whose parent is a fork server.

    It stays a zombie until ``wait`` has its exit code.
    """

    def __init__(self, pid: int, answers: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._answers = answers
        self._pid_fd = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Several threads may wait, one after the other."""
        with self._lock:
            if self.returncode is None:
                ended = select.poll()
                ended.register(self._pid_fd, select.POLLIN)
                if not ended.poll(None if timeout is None else timeout * 1000):
                    raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
                os.close(self._pid_fd)
                code = None
                with self._answers, contextlib.suppress(OSError):  # if the server has ended, the code is lost
                    self._answers.settimeout(_ANSWER_S)
                    code = read_answer(self._answers)[0].get("code")
                self.returncode = code if isinstance(code, int) else _UNKNOWN_CODE
            return self.returncode


def read_answer(answers: socket.socket) -> tuple[dict[str, Any], int]:
    """Return a fork server's answer, {} if it is missing or invalid, and the pid of the process that sent it."""
    body, ancillary, _, _ = answers.recvmsg(_ANSWER_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
    pid = next((_CREDENTIALS.unpack(data)[0] for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS), 0)
    try:
        answer = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        answer = {}
    return (answer if isinstance(answer, dict) and pid > 0 else {}), pid


Process = subprocess.Popen[bytes] | ForkedProcess


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A worker process and our ends of its pipes."""

    process: Process
    marker: str
    read_fd: int
    write_fd: int
    output_fd: int


def start_process(launch: Launch, fork: Callable[[str, str, Sequence[int]], Process] | None = None) -> StartedProcess:
    """Start a worker in a session of its own. Raises OSError if it can neither be forked nor executed.

    ``fork`` gets a marker, a program and three descriptors.
    """
    marker = secrets.token_hex(16)
    command_read, command_write = os.pipe()
    event_read, event_write = os.pipe()
    output_read, output_write = os.pipe()
    theirs = (command_read, event_write, output_write)
    try:
        process: Process
        if fork is not None:
            process = fork(marker, launch.program, theirs)
        else:
            process = execute(
                launch.place,
                launch.command(command_read, event_write, launch.program),
                {**launch.environ(), MARKER: marker},
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                pass_fds=(command_read, event_write),
                cwd=launch.place.cwd,
            )
    except BaseException:
        for fd in (event_read, command_write, output_read):
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    # Fits into an empty pipe, so the import begins now, even if our event loop is busy.
    os.write(command_write, encode(launch.first_frame()))
    return StartedProcess(process, marker, event_read, command_write, output_read)


def execute(
    place: AgentFolder, command: Sequence[str], environ: Mapping[str, str], **options: Any
) -> subprocess.Popen[bytes]:
    """Execute an agent's command as the agent's user, bounded, in a session of its own. Raises OSError."""
    user = place.user
    return subprocess.Popen(  # noqa: S603 - the command is the user's choice
        user.command(command) if user else command,
        env=environ,
        start_new_session=True,
        **options,
        **popen_options(user),
    )


def exit_description(code: int) -> str:
    """Return how a process ended, as the end of a sentence. Real-time signals have numbers but no names."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"


def last_lines(text: str) -> str:
    """Return the last lines of a text, each cut to a readable length."""
    return "\n".join(line[:TAIL_COLUMNS] for line in text.rstrip().splitlines()[-TAIL_LINES:])


def kill_tree(process: Process, marker: str) -> None:
    """Kill a worker's process group and every process with its marker, and wait for them. Blocks."""
    known: set[int] = set()

    def strays() -> set[int]:
        # A child may have been forked after the last listing, before the kill.
        known.update(pids_with_marker(marker) - {process.pid})
        for pid in known if os.getpid() == 1 else ():
            # As the container's first process we inherit orphans, and nobody else would reap them.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return {pid for pid, status in process_statuses() if pid in known and status["State"][0] != "Z"}

    # The group outlives its leader, so it is killed even if the worker has ended, but not without a member left:
    # its number may belong to another group by now.
    if strays() or process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    kill_all(strays, _GONE_S)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GONE_S)


def kill_children() -> None:
    """Kill all descendants of this process and the groups they lead, once nobody waits for them.

    Works on Linux; elsewhere they end when their pipes do.
    """
    own_group = os.getpgid(0)
    for pid in descendant_pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if (group := os.getpgid(pid)) != own_group:
                os.killpg(group, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)


def pids_with_marker(marker: str) -> set[int]:
    """Return the processes with the marker in their environment (Linux; elsewhere the process group must do)."""
    needle, found = f"{MARKER}={marker}".encode(), set()
    for pid, _ in process_statuses():
        with contextlib.suppress(OSError):
            if needle in Path(f"/proc/{pid}/environ").read_bytes():
                found.add(pid)
    return found


class OutputLog:
    """One agent's log file, shared by its workers. It keeps the first ``limit`` bytes and counts the rest."""

    def __init__(self, folder: OutputFolder, name: str, limit: int) -> None:
        self._folder = folder
        self._name = name
        self._limit = limit
        self._printed = 0
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        with self._lock:
            if keep := data[: max(0, self._limit - self._printed)]:
                self._append(keep)
            self._printed += len(data)

    def close(self) -> None:
        """Note how much was dropped, and close the file."""
        with self._lock:
            if (dropped := self._printed - self._limit) > 0:
                text = f"\n[agent-eval: {dropped} more bytes were printed; the log keeps {self._limit}]\n"
                self._append(text.encode())
                self._printed = self._limit
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None

    def _append(self, data: bytes) -> None:
        # A full disk must not stop the reader: the agent would block.
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self._folder.append(self._name)
            self._file.write(data)


class OutputReader(threading.Thread):
    """Reads one worker's output to the end."""

    def __init__(self, fd: int, log: OutputLog) -> None:
        super().__init__(name="agent-output", daemon=True)
        self._fd = fd
        self._log = log
        self._tail = bytearray()
        self._finishing = False

    def tail(self) -> str:
        return bytes(self._tail[-TAIL_BYTES:]).decode("utf-8", "replace")

    def finish(self) -> None:
        """Read what is left and end, even if a child of the agent still holds the pipe open."""
        self._finishing = True
        self.join()

    def run(self) -> None:
        """Read until the end of the pipe, or after ``finish`` until nothing is left."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while True:
            finishing = self._finishing
            if poll.poll(_POLL_MS):
                data = os.read(self._fd, 1 << 18)
                if not data:
                    break
                self._log.write(data)
                self._tail += data
                if len(self._tail) > 4 * TAIL_BYTES:
                    del self._tail[:-TAIL_BYTES]
            elif finishing:
                break
        os.close(self._fd)
