"""Worker processes: started apart from us, read to their end, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_eval_action.environments.runtime import Launch
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.protocol import Frame, FramePipe, encode
from agent_eval_action.sandbox.sandboxes import popen_options

MARKER = "AGENT_EVAL_WORKER"
TAIL_BYTES = 32 * 1024
TAIL_LINES = 40
TAIL_COLUMNS = 500  # a crash ends with the names of all extension modules in one line
_GONE_S = 2.0
_NATURAL_END_S = 0.3
_LAST_FRAMES_S = 0.1
STACK_S = 0.3
"""How long a process that was asked for its stack may take to print it."""


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A worker process and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    marker: str
    read_fd: int
    write_fd: int
    output_fd: int


def start_process(launch: Launch) -> StartedProcess:
    """Start a worker in a session of its own. Raises OSError when the interpreter cannot be executed."""
    marker, user = secrets.token_hex(16), launch.place.sandbox.user if launch.place.sandbox else None
    command_read, command_write = os.pipe()
    event_read, event_write = os.pipe()
    output_read, output_write = os.pipe()
    command = launch.command(command_read, event_write)
    theirs, ours = (command_read, event_write, output_write), (event_read, command_write, output_read)
    try:
        process = subprocess.Popen(  # noqa: S603 - the interpreter is the user's choice, the rest is ours
            user.command(command) if user else command,
            stdin=subprocess.DEVNULL,
            stdout=output_write,
            stderr=output_write,
            pass_fds=(command_read, event_write),
            cwd=launch.place.cwd,
            env={**launch.environ(), MARKER: marker},
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


class ManagedProcess:
    """A started process on the event loop: its frames, its output, its end.

    ``on_frame`` takes each frame. ``on_end`` is called once, when the pipe or the process ends by itself, with what
    was wrong on the pipe or ""; ``terminate`` must follow.
    """

    def __init__(
        self,
        started: StartedProcess,
        launch: Launch,
        log: OutputLog,
        *,
        frame_bytes: int,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._started = started
        self._launch = launch
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._exit_code: int | None = None
        self._has_ended = False
        self._terminating: asyncio.Task[None] | None = None
        self._reader = OutputReader(started.output_fd, log)
        self._reader.start()
        self._pipe = FramePipe(started.read_fd, started.write_fd, frame_bytes)
        self._pipe.attach(on_frame, self._end)
        self._pid_fd: int | None = None
        # A child of the process may hold the pipe open: the process's own end must be seen too, where it can be.
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._pid_fd = os.pidfd_open(started.process.pid)
                self._loop.add_reader(self._pid_fd, self._on_exit)

    def send(self, frame: Frame) -> None:
        """Queue a frame."""
        self._pipe.send(frame)

    def dump_stacks(self) -> None:
        """Have the process print its stacks: only a signal handler written in C works while the GIL is held."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._started.process.pid, signal.SIGUSR2)

    async def wait(self, seconds: float) -> int | None:
        """Wait until the process ends by itself; its exit code, None when it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return await asyncio.to_thread(self._started.process.wait, seconds)
        return None

    async def terminate(self) -> None:
        """Kill the process and whatever it started, and read its output to the end. Safe to call again."""
        if self._terminating is None:
            self._terminating = self._loop.create_task(self._terminate())
        await asyncio.shield(self._terminating)

    @property
    def is_terminating(self) -> bool:
        """Whether ``terminate`` was called."""
        return self._terminating is not None

    def exit_description(self) -> str:
        """How the process ended by itself, as a predicate; "" when it did not. Known after ``terminate``."""
        code = self._exit_code
        if code is None:
            return ""
        if code >= 0:
            return f"ended with exit code {code}"
        # Real-time signals have numbers and no names.
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"was killed by {name}"

    def tail(self) -> str:
        """The last lines it printed, with the paths the user knows."""
        return self._launch.place.shown(last_lines(self._reader.tail()))

    def _on_exit(self) -> None:
        self._forget_pid_fd()
        # Frames written before the end are in the pipe still: let them be read first.
        self._loop.call_later(_LAST_FRAMES_S, self._end, "")

    def _end(self, reason: str) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._on_end(reason)

    async def _terminate(self) -> None:
        # The pipe ends a moment before the process does.
        self._exit_code = await self.wait(_NATURAL_END_S)
        await asyncio.to_thread(kill_tree, self._started.process, self._started.marker)
        await asyncio.to_thread(self._reader.finish)
        self._forget_pid_fd()
        self._pipe.close()

    def _forget_pid_fd(self) -> None:
        if self._pid_fd is not None:
            self._loop.remove_reader(self._pid_fd)
            os.close(self._pid_fd)
            self._pid_fd = None


def last_lines(text: str) -> str:
    """The last lines of a text, each cut to a readable length."""
    return "\n".join(line[:TAIL_COLUMNS] for line in text.rstrip().splitlines()[-TAIL_LINES:])


def kill_tree(process: subprocess.Popen[bytes], marker: str) -> None:
    """Kill the worker's process group and every process that carries its marker, and wait for them. Blocks."""
    strays = pids_with_marker(marker) - {process.pid}
    # The group outlives its leader, so it is killed even when the worker is gone; not when nobody is left
    # of it, since its number may have been given anew.
    if process.returncode is None or strays:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _GONE_S
    while strays and time.monotonic() < deadline:
        for pid in strays:
            _kill_and_reap(pid)
        time.sleep(0.005)
        # A child may have been forked between the look and the kill.
        strays = {pid for pid in strays if _is_running(pid)} | pids_with_marker(marker) - {process.pid}
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GONE_S)


def kill_children() -> None:
    """Kill every child of this process, and the group of those that lead one: nobody waits for them any more.

    On Linux; elsewhere they end when their pipes do.
    """
    own_group = os.getpgid(0)
    children: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children.update(map(int, file.read_text().split()))
    for pid in children:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if (group := os.getpgid(pid)) != own_group:
                os.killpg(group, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)


def _kill_and_reap(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    # As the container's first process we inherit orphans, and nobody else would reap them.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z" or os.getpid() == 1


def pids_with_marker(marker: str) -> set[int]:
    """Processes whose environment carries the marker (Linux; elsewhere the process group has to do)."""
    needle, found = f"{MARKER}={marker}".encode(), set()
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and needle in Path(f"/proc/{entry.name}/environ").read_bytes():
                    found.add(int(entry.name))
    return found


class OutputLog:
    """One agent's log file, shared by its workers. It keeps ``limit`` raw bytes and counts the others."""

    def __init__(self, folder: OutputFolder, name: str, limit: int) -> None:
        self._folder = folder
        self._name = name
        self._limit = limit
        self._written = 0
        self._dropped = 0
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        """Append; called from the reading threads."""
        with self._lock:
            keep = data[: max(0, self._limit - self._written)]
            self._dropped += len(data) - len(keep)
            if keep:
                self._append(keep)
                self._written += len(keep)

    def close(self) -> None:
        """Note what was dropped, and close."""
        with self._lock:
            if self._dropped:
                text = f"\n[agent-eval: {self._dropped} more bytes were printed; the log keeps {self._limit}]\n"
                self._append(text.encode())
                self._dropped = 0
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None

    def _append(self, data: bytes) -> None:
        # A full disk must not stop the reading: the agent would stand still.
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self._folder.append(self._name)
            self._file.write(data)


class OutputReader(threading.Thread):
    """Reads what one worker prints, to the end."""

    def __init__(self, fd: int, log: OutputLog) -> None:
        super().__init__(name="agent-output", daemon=True)
        self._fd = fd
        self._log = log
        self._tail = bytearray()
        self._wake_read, self._wake_write = os.pipe()

    def tail(self) -> str:
        """The last of what was printed."""
        return bytes(self._tail[-TAIL_BYTES:]).decode("utf-8", "replace")

    def finish(self) -> None:
        """Read what is there and end, though a child of the agent may still hold the pipe open."""
        os.write(self._wake_write, b"x")
        self.join()
        os.close(self._wake_write)

    def run(self) -> None:
        """Read until the end of the pipe, or until ``finish`` was called and nothing more is there."""
        os.set_blocking(self._fd, False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._fd, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            finishing = ended = False
            while not (finishing and ended):
                for key, _ in selector.select():
                    finishing = finishing or key.fd == self._wake_read
                ended = ended or self._read_some(finishing)
                if ended and self._fd in selector.get_map():
                    selector.unregister(self._fd)
        os.close(self._fd)
        os.close(self._wake_read)

    def _read_some(self, finishing: bool) -> bool:
        """Whether there is nothing more to come (or, when finishing, nothing more now)."""
        for _ in range(64):
            try:
                data = os.read(self._fd, 1 << 18)
            except BlockingIOError:
                return finishing
            except OSError:
                return True
            if not data:
                return True
            self._log.write(data)
            self._tail += data
            if len(self._tail) > 4 * TAIL_BYTES:
                del self._tail[:-TAIL_BYTES]
        return False
