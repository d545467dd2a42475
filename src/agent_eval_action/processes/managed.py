"""Child processes that are never left behind, and the log of what they print."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import BinaryIO

from agent_eval_action.folders import OutputFolder

MARKER = "AGENT_EVAL_WORKER"
GONE_S = 2.0


def kill_tree(process: subprocess.Popen[bytes], marker: str) -> None:
    """Kill the worker's process group, then whoever else carries its marker, and see them gone. Blocks."""
    strays = pids_with_marker(marker) - {process.pid}
    # The group outlives its leader, so it is killed even when the worker is gone; not when nobody is left
    # of it, since its number may have been given anew.
    if process.returncode is None or strays:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    gone_by = time.monotonic() + GONE_S
    while strays and time.monotonic() < gone_by:
        for pid in strays:
            _kill(pid)
        time.sleep(0.005)
        # A child may have been forked between the look and the blow.
        strays = {pid for pid in strays if _is_running(pid)} | pids_with_marker(marker) - {process.pid}
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GONE_S)


def kill_children() -> None:
    """Kill every child of this process, and the group of those that lead one: nobody waits for them any more.

    On Linux; elsewhere they end when their pipes do.
    """
    ours = os.getpgid(0)
    children: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children.update(map(int, file.read_text().split()))
    for pid in children:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if (group := os.getpgid(pid)) != ours:
                os.killpg(group, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)


def _kill(pid: int) -> None:
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
    needle = f"{MARKER}={marker}".encode()
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and needle in _environ(entry.name):
                found.add(int(entry.name))
    return found


def _environ(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


TAIL_BYTES = 32 * 1024


class OutputLog:
    """One agent's log file, shared by its workers. Raw bytes; what is beyond ``limit`` is counted and dropped."""

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
                # A full disk must not stop the reading: the agent would stand still.
                with contextlib.suppress(OSError):
                    self._open().write(keep)
                self._written += len(keep)

    def close(self) -> None:
        """Note what was dropped, and close."""
        with self._lock:
            if self._dropped:
                text = f"\n[agent-eval: {self._dropped} more bytes were printed; the log keeps {self._limit}]\n"
                with contextlib.suppress(OSError):
                    self._open().write(text.encode())
                self._dropped = 0
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = self._folder.append(self._name)
        return self._file


class OutputReader(threading.Thread):
    """Reads one worker's output to the end, whatever it is worth."""

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
        """Read until the end of the pipe, or until told to finish and nothing more is there."""
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
