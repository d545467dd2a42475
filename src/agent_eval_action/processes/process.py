"""Start worker processes, read their output, and kill them with everything they started.

Workers are forked by a fork server if possible: it runs the agent's interpreter as the agent's user and imports our
worker and google-adk, which is most of a worker's cost, but never an agent. Launches with the same interpreter,
variables and user share it.
"""

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
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from agent_eval_action.environments.runtime import AgentFolder, Launch
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.protocol import encode
from agent_eval_action.sandbox.sandboxes import popen_options
from agent_eval_action.sandbox.users import SandboxUser, descendant_pids, kill_all, process_statuses

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
_IMPORT_S: Final = 180.0
_FORK_S: Final = 5.0  # an agent, which runs as the same user, may have stopped the server

_Key = tuple[Path, tuple[tuple[str, str], ...], SandboxUser | None]


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
                    code = _read_answer(self._answers)[0].get("code")
                self.returncode = code if isinstance(code, int) else _UNKNOWN_CODE
            return self.returncode


def _read_answer(answers: socket.socket) -> tuple[dict[str, Any], int]:
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


class CannotForkError(OSError):
    """The server has ended, is stopped or refuses to fork; the interpreter can be executed instead."""


class ForkServerClient:
    """One fork server. It imports google-adk in the background; it ends with ``close``, or with this process.

    ``ready``: it has answered a request.
    """

    def __init__(self, launch: Launch) -> None:
        self._marker = secrets.token_hex(16)
        self.ready = False
        self._closed = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = execute(
                launch.place,
                launch.command(theirs.fileno()),
                {**launch.environ(), MARKER: self._marker},
                stdin=subprocess.DEVNULL,
                # replaced before anything is printed; workers get pipes, which like a socket cannot seek
                stdout=theirs.fileno(),
                stderr=theirs.fileno(),
                pass_fds=(theirs.fileno(),),
                cwd="/",  # so that nothing is imported from the agent's folder
            )
        except OSError:
            self._control.close()
            raise
        finally:
            theirs.close()

    def fork(self, marker: str, program: str, fds: Sequence[int]) -> ForkedProcess:
        """Fork a worker, once google-adk is imported. Blocks.

        Raises CannotForkError, or another OSError if the import takes too long or ``close`` was called.
        """
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The kernel reports who answers: the server runs code that the change under test installed, and might lie.
        answers.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        answers.settimeout(_FORK_S if self.ready else _IMPORT_S)
        try:
            with theirs:
                request = json.dumps({"marker": marker, "program": program}).encode()
                socket.send_fds(self._control, [request], [*fds, theirs.fileno()])
            answer, pid = _read_answer(answers)
            self.ready = True
            if answer.get("forked") is True:
                return ForkedProcess(pid, answers)
        except OSError as error:  # the server has ended, or the process that it forked
            if isinstance(error, TimeoutError) and not self.ready:
                answers.close()
                raise OSError(f"importing google-adk took longer than {_IMPORT_S:g} s") from None
        answers.close()
        raise OSError("the run ended") if self._closed else CannotForkError

    def close(self) -> None:
        """Stop the server, which also ends a waiting ``fork``. Blocks."""
        self._closed = True
        if self.ready:  # it ends by itself, after its workers
            self._control.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ANSWER_S)
        kill_tree(self._process, self._marker)
        self._control.close()


@dataclass
class ProcessStarter:
    """Starts processes of one launch: forks them from ``server``, else executes the interpreter.

    ``close`` must follow; it may be called while ``start`` waits in another thread.
    """

    launch: Launch
    servers: ForkServers
    server: ForkServerClient | None

    def start(self) -> StartedProcess:
        """Start a process. Blocks until google-adk is imported. Raises OSError."""
        if self.server is not None:
            try:
                return start_process(self.launch, self.server.fork)
            except CannotForkError:
                self.servers.release(self, usable=False)
        return start_process(self.launch)

    def close(self) -> None:
        """Release the server, which ends with its last starter. Blocks."""
        self.servers.release(self)


@dataclass
class ForkServers:
    """The fork servers of a run, by their launch settings; None where forking does not work. Thread-safe.

    ``kept``: the one used last stays for the next run, until ``close``.
    """

    kept: bool = False
    _servers: dict[_Key, ForkServerClient | None] = field(default_factory=dict)
    _users: Counter[ForkServerClient] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def prestart(self, launch: Launch) -> None:
        """Start the import for a launch that is likely to come. A server that is never used ends with ``close``."""
        with self._lock:
            self._server(launch)

    def starter(self, launch: Launch, *, only_ready: bool = False) -> ProcessStarter:
        """Return a starter for a launch. ``only_ready``: use a server only if one is ready already."""
        with self._lock:
            server = self._server(launch, start=not only_ready)
            if server is not None and only_ready and not server.ready:
                server = None
            if server is not None:
                self._users[server] += 1
        return ProcessStarter(launch, self, server)

    def _server(self, launch: Launch, *, start: bool = True) -> ForkServerClient | None:
        if launch.spec.function:  # a function does not need google-adk
            return None
        environ = launch.environ()
        key = launch.environment.python, tuple(sorted(environ.items())), launch.place.user
        if key not in self._servers and start and _can_fork(environ):
            with contextlib.suppress(OSError):  # executing the interpreter directly reports the error
                self._servers[key] = ForkServerClient(launch)
        return self._servers.get(key)

    def release(self, starter: ProcessStarter, *, usable: bool = True) -> None:
        """Take a starter's server back. An unused server ends, or is ``kept`` until another one is used. Blocks."""
        with self._lock:
            server, starter.server = starter.server, None
            if server is None:
                return
            self._users[server] -= 1
            if not usable:
                self._servers |= {key: None for key, other in self._servers.items() if other is server}
            unused = {each for each in (server, *filter(None, self._servers.values())) if not self._users[each]}
            if self.kept and usable:
                unused.discard(server)
            self._servers = {key: other for key, other in self._servers.items() if other not in unused}
        for each in unused:
            each.close()

    def close(self) -> None:
        """Stop all remaining servers. Blocks."""
        with self._lock:
            servers, self._servers = self._servers, {}
        for server in filter(None, servers.values()):
            server.close()


def _can_fork(environ: dict[str, str]) -> bool:
    """Whether forking works, and no PYTHONPATH adds modules that an agent may have written."""
    if sys.platform != "linux" or "PYTHONPATH" in environ:
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


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
