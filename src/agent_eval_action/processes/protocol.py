"""Frames over a worker's pipe, and what a turn's frames say as an Invocation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from agent_eval_action.results.evalset import (
    AgentDetails,
    AppDetails,
    Content,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
)
from agent_eval_action.results.run_result import AttemptError, ErrorKind

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


_Event = tuple[dict[str, Any], Content | None]


def to_invocation(frame: Frame, sent: Content, invocation_id: str) -> Invocation | AttemptError:
    """The turn, or a protocol error where the worker's frame is not what it should be."""
    try:
        return _convert(frame, sent, invocation_id)
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        return AttemptError(kind=ErrorKind.PROTOCOL, message=f"the worker's report of the turn cannot be read: {error}")


def _convert(frame: Frame, sent: Content, invocation_id: str) -> Invocation:
    events = _without_partials([(e, _content(e.get("c"))) for e in frame["events"]])
    final = _final(events)
    user = [content for e, content in events if _is_user(e) and content is not None]
    total, model, tool = frame["seconds"]
    return Invocation(
        invocation_id=invocation_id,
        user_content=user[-1] if user else sent,
        final_response=_without_thoughts(final[1]) if final and final[1] else None,
        intermediate_data=InvocationEvents(
            invocation_events=tuple(
                _recorded(e, content, e is (final or ({},))[0]) for e, content in events if _counts(e, content)
            )
        ),
        app_details=_app_details(frame["details"], {str(e["a"]) for e, _ in events}),
        creation_timestamp=float(frame["started_at"]),
        duration=round(total, 6),
        model_duration=round(model, 6),
        tool_duration=round(tool, 6),
    )


def _content(wire: dict[str, Any] | None) -> Content | None:
    return None if wire is None else Content.model_validate(wire)


def _is_user(event: dict[str, Any]) -> bool:
    return str(event["a"] or "agent").lower() == "user"


def _without_partials(events: Sequence[_Event]) -> list[_Event]:
    """Drop partial events whose author goes on to say the whole."""
    kept: list[_Event] = []
    whole: set[tuple[str, str]] = set()
    for event, content in reversed(events):
        key = (str(event["a"]), str(event.get("b")))
        if event["p"] and key in whole:
            continue
        if not event["p"] and content is not None:
            whole.add(key)
        kept.append((event, content))
    return kept[::-1]


def _final(events: Sequence[_Event]) -> _Event | None:
    """The last final event with text; one without text never replaces one that has some."""
    final: _Event | None = None
    for event, content in events:
        if _is_user(event) or event["p"] or not event["f"] or not content or not content.parts:
            continue
        if final is None or not (final[1] and final[1].text) or content.text:
            final = (event, content)
    return final


def _counts(event: dict[str, Any], content: Content | None) -> bool:
    """Whether an event is one of the turn's recorded events."""
    if _is_user(event):
        return False
    if event.get("g") is not None:
        return True
    parts = (content.parts if content else None) or ()
    return any(p.function_call or p.function_response or p.text or p.inline_data for p in parts)


def _recorded(event: dict[str, Any], content: Content | None, is_final: bool) -> InvocationEvent:
    if is_final and content and not any(p.function_call for p in content.parts or ()):
        # The text is the final response; here it would count twice. The thoughts stay.
        thoughts = tuple(p for p in content.parts or () if p.thought)
        content = Content(role=content.role, parts=thoughts) if thoughts else None
    return InvocationEvent(
        author=str(event["a"] or "agent"),
        content=content,
        grounding_metadata=event.get("g"),
        usage_metadata=event.get("u"),
        model_version=event.get("m"),
    )


def _without_thoughts(content: Content) -> Content:
    return Content(role=content.role, parts=tuple(p for p in content.parts or () if not _is_thought(p)))


def _is_thought(part: Part) -> bool:
    return bool(part.thought)


def _app_details(details: dict[str, Any], authors: set[str]) -> AppDetails:
    return AppDetails(
        agent_details={
            name: AgentDetails(
                name=name, instructions=str(detail["instructions"]), tool_declarations=tuple(detail["tools"])
            )
            for name, detail in details.items()
            if name in authors
        }
    )
