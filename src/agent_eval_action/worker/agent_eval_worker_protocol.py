"""Frames over the worker's own pipe pair, because agents print to stdout: magic, length, JSON of any value."""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import fcntl
import io
import json
import math
import os
import queue
import signal
import struct
import sys
import threading
from pathlib import Path
from typing import Any

from agent_eval_worker_errors import WorkerError, whole_text

MAGIC = b"AEF1"
HEADER = struct.Struct(">4sI")
# Agents close or scribble on low descriptors ("for fd in range(3, 64)"); ours live above that.
LOWEST_FD = 200
MAX_DEPTH = 100
MAX_NODES = 2_000_000
MAX_BITS = 8192  # Python refuses to read or write decimal numbers of more than 4300 digits


class Channel:
    """Both ends of the worker's pipe pair. ``send`` may be called from any thread."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read = _raise_fd(read_fd)
        self._write = _raise_fd(write_fd)
        self._identity = _identity(self._write)
        self._queue: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        threading.Thread(target=self._write_all, name="agent-eval-writer", daemon=True).start()
        # exec closes them; a plain fork (multiprocessing's default on Linux) does not.
        os.register_at_fork(after_in_child=self._close_in_child)

    def receive(self) -> dict[str, Any] | None:
        """Return the next frame; None if the other side is gone. Blocks."""
        head = self._read_exactly(HEADER.size)
        if head is None:
            return None
        magic, size = HEADER.unpack(head)
        body = self._read_exactly(size) if magic == MAGIC else None
        return None if body is None else json.loads(body)

    def send(self, frame: dict[str, Any] | bytes) -> None:
        """Queue a frame: a dict, or bytes that are already JSON."""
        self._queue.put(frame if isinstance(frame, bytes) else encode(frame))

    def flush(self, timeout: float) -> None:
        """Wait until everything queued so far is written."""
        done = threading.Event()
        self._queue.put(done)
        done.wait(timeout)

    def _read_exactly(self, size: int) -> bytearray | None:
        data = bytearray()
        while len(data) < size:
            try:
                chunk = os.read(self._read, size - len(data))
            except OSError:
                return None
            if not chunk:
                return None
            data += chunk
        return data

    def _write_all(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            view = memoryview(HEADER.pack(MAGIC, len(item)) + item)
            while view:
                # The agent may have closed our descriptor and opened a file with the same number.
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


def open_channel(read_fd: int, write_fd: int) -> Channel:
    """Open the channel to our starter, and set up the streams and stack dumps, before foreign code runs.

    Import all our modules before: our folder is not on the path afterwards.
    """
    here = Path(__file__).resolve().parent
    channel = Channel(read_fd, write_fd)
    # Foreign code sees neither our folder nor our arguments.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    sys.argv = sys.argv[:1]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    crash = os.fdopen(os.dup(2), "w")
    faulthandler.enable(file=crash)
    # Works while foreign code holds the GIL, when no thread of ours can report what it does.
    faulthandler.register(signal.SIGUSR2, file=crash, all_threads=True)
    return channel


def flush_streams() -> None:
    """Flush what the agent printed, before the process ends."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


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


def encode(value: Any) -> bytes:
    """Return UTF-8 JSON of any value; what JSON cannot hold becomes text. Raises WorkerError only for its size."""
    try:
        # A Python str may hold a lone surrogate, which no UTF-8 reader accepts; encoding raises for it.
        return json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        return json.dumps(_Cleaner().clean(value, 0), ensure_ascii=False).encode("utf-8")


def encode_model(model: Any) -> bytes:
    """Return JSON of a pydantic model, without None fields."""
    with contextlib.suppress(Exception):  # the cleaner handles what pydantic refuses
        model = model.model_dump(mode="json", exclude_none=True)
    return encode(model)


class _Cleaner:
    """Copies a value into plain JSON types, cutting cycles and deep nesting."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._nodes = 0

    def clean(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:  # shared references can make a value endless
            raise WorkerError("output", f"more than {MAX_NODES} values in one object")
        if value is None or isinstance(value, (bool, int, float, str)):
            return _clean_plain(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return base64.urlsafe_b64encode(bytes(value)).decode("ascii")
        if depth >= MAX_DEPTH:
            return f"<deeper than {MAX_DEPTH} levels>"
        if id(value) in self._open:
            return "<refers to itself>"
        self._open.add(id(value))
        try:
            return self._clean_container(value, depth + 1)
        finally:
            self._open.discard(id(value))

    def _clean_container(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            items = list(value.items())
            return {whole_text(key if isinstance(key, str) else _repr(key)): self.clean(v, depth) for key, v in items}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.clean(item, depth) for item in list(value)]
        if not callable(getattr(value, "model_dump", None)):
            return whole_text(_repr(value))
        try:
            fields = value.model_dump(mode="python", exclude_none=True)
        except Exception:  # noqa: BLE001 - pydantic refuses a cyclic value in both modes
            fields = {key: item for key, item in vars(value).items() if item is not None}
        return self.clean(fields, depth)


def _clean_plain(value: Any) -> Any:
    if isinstance(value, str):
        return whole_text(str(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if value.bit_length() < MAX_BITS else hex(value)
    return value


def _repr(value: Any) -> str:
    try:
        return str(value)
    except BaseException as error:  # noqa: BLE001 - a hostile __str__ must not end the turn
        return f"<{type(value).__name__} whose text raises {type(error).__name__}>"
