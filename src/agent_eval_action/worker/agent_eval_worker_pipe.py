"""Frames over a pipe pair of the worker's own: magic, length, JSON. Agents print to stdout, so stdout carries none."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import io
import json
import os
import queue
import signal
import struct
import sys
import threading
from pathlib import Path
from typing import Any

from agent_eval_worker_json import encode

MAGIC = b"AEF1"
HEADER = struct.Struct(">4sI")
# Agents close or scribble on low descriptors ("for fd in range(3, 64)"); ours live above that.
LOWEST_FD = 200


class Channel:
    """Both ends of the worker's pipe pair. ``send`` may be called from any thread."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read = _raise_fd(read_fd)
        self._write = _raise_fd(write_fd)
        self._identity = _identity(self._write)
        self._queue: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="agent-eval-writer", daemon=True)
        self._writer.start()
        # exec closes them; a plain fork (multiprocessing's default on Linux) does not.
        os.register_at_fork(after_in_child=self._close_in_child)

    def receive(self) -> dict[str, Any] | None:
        """The next frame, or None when the other side is gone. Blocks."""
        head = self._read_exactly(HEADER.size)
        if head is None:
            return None
        magic, size = HEADER.unpack(head)
        if magic != MAGIC:
            return None
        body = self._read_exactly(size)
        return None if body is None else json.loads(body)

    def send(self, frame: dict[str, Any] | bytes) -> None:
        """Queue a frame: a dict, or bytes that are JSON already."""
        self._queue.put(frame if isinstance(frame, bytes) else encode(frame))

    def flush(self, timeout: float) -> None:
        """Wait until everything queued so far is written."""
        done = threading.Event()
        self._queue.put(done)
        done.wait(timeout)

    def _read_exactly(self, size: int) -> bytes | None:
        chunks = []
        while size:
            try:
                chunk = os.read(self._read, min(size, 1 << 20))
            except OSError:
                return None
            if not chunk:
                return None
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def _write_all(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            self._write_exactly(HEADER.pack(MAGIC, len(item)) + item)

    def _write_exactly(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            # The agent may have closed our descriptor, and a file it opened since may have its number.
            if _identity(self._write) != self._identity:
                os._exit(86)
            try:
                view = view[os.write(self._write, view[: 1 << 20]) :]
            except OSError:
                os._exit(86)

    def _close_in_child(self) -> None:
        for fd in (self._read, self._write):
            with contextlib.suppress(OSError):
                os.close(fd)


def open_channel() -> Channel:
    """Open the channel to our starter, and set up the streams and the stack on request, before foreign code runs.

    Import everything of ours before: our folder is off the path afterwards.
    """
    here = Path(__file__).resolve().parent
    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    # Foreign code sees neither our folder nor our arguments.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    sys.argv = sys.argv[:1]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    crash = os.fdopen(os.dup(2), "w")
    faulthandler.enable(file=crash)
    # Works while foreign code holds the GIL, when no thread of ours can say what it does.
    faulthandler.register(signal.SIGUSR2, file=crash, all_threads=True)
    return channel


def _raise_fd(fd: int) -> int:
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST_FD)
    except (OSError, ValueError):
        os.set_inheritable(fd, False)
        return fd
    os.close(fd)
    return high


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def flush_streams() -> None:
    """What the agent printed must be out before the process ends."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
