"""Our end of the worker's pipe pair: magic, length, JSON. What the worker says is checked, never trusted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
from collections.abc import Callable
from typing import Any

MAGIC = b"AEF1"
HEADER = struct.Struct(">4sI")
CHUNK = 1 << 20

Frame = dict[str, Any]


class FrameError(Exception):
    """The worker's bytes are no frame: garbage on the pipe, a broken body, or too large a one."""


def encode(frame: Frame) -> bytes:
    """A frame as bytes."""
    body = json.dumps(frame, ensure_ascii=True).encode("ascii")
    return HEADER.pack(MAGIC, len(body)) + body


class FrameParser:
    """Bytes in, frames out; refuses a frame above ``limit`` before it is read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._need = HEADER.size

    def feed(self, data: bytes) -> list[Frame]:
        """The frames completed by ``data``."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= self._need:
            magic, size = HEADER.unpack_from(self._buffer)
            if magic != MAGIC:
                raise FrameError(f"not a frame: {bytes(self._buffer[:16])!r}")
            if size > self._limit:
                raise FrameError(f"a frame of {size} bytes, the limit is {self._limit}")
            self._need = HEADER.size + size
            if len(self._buffer) < self._need:
                break
            frames.append(_decode(bytes(self._buffer[HEADER.size : self._need])))
            del self._buffer[: self._need]
            self._need = HEADER.size
        return frames


def _decode(body: bytes) -> Frame:
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame that is no JSON: {error}") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("ev"), str):
        raise FrameError("a frame without a name")
    return frame


class FramePipe:
    """The pipe pair on the event loop: writes are buffered, nothing blocks."""

    def __init__(self, read_fd: int, write_fd: int, limit: int) -> None:
        self._read_fd: int | None = read_fd
        self._write_fd: int | None = write_fd
        self._parser = FrameParser(limit)
        self._pending = bytearray()
        self._on_frame: Callable[[Frame], None] = lambda _frame: None
        self._on_end: Callable[[str], None] = lambda _reason: None
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)

    def attach(self, on_frame: Callable[[Frame], None], on_end: Callable[[str], None]) -> None:
        """Begin to read. ``on_end`` is called once, with what went wrong or "" at the end of the stream."""
        self._on_frame, self._on_end = on_frame, on_end
        if self._read_fd is not None:
            asyncio.get_running_loop().add_reader(self._read_fd, self._readable)

    def send(self, frame: Frame) -> None:
        """Queue a frame; lost silently when the worker is gone, which ``on_end`` tells."""
        if self._write_fd is None:
            return
        waiting = bool(self._pending)
        self._pending += encode(frame)
        if not waiting:
            self._writable()

    def close(self) -> None:
        """Forget both descriptors. Safe to call again."""
        loop = asyncio.get_running_loop()
        for fd, remove in ((self._read_fd, loop.remove_reader), (self._write_fd, loop.remove_writer)):
            if fd is not None:
                remove(fd)
                os.close(fd)
        self._read_fd = self._write_fd = None

    def _readable(self) -> None:
        if self._read_fd is None:
            return
        try:
            data = os.read(self._read_fd, CHUNK)
            for frame in self._parser.feed(data):
                self._on_frame(frame)
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            self._ended(str(error))
            return
        if not data:
            self._ended("")

    def _ended(self, reason: str) -> None:
        if self._read_fd is not None:
            asyncio.get_running_loop().remove_reader(self._read_fd)
        self._on_end(reason)

    def _writable(self) -> None:
        if self._write_fd is None:
            return
        loop = asyncio.get_running_loop()
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self._pending:
                del self._pending[: os.write(self._write_fd, self._pending[:CHUNK])]
        if self._pending:
            loop.add_writer(self._write_fd, self._writable)
        else:
            loop.remove_writer(self._write_fd)
