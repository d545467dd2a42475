"""Frames over a worker's pipe, and the conversion of a turn's frame to an Invocation."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from agent_eval_action.results.evalset import (
    AgentDetails,
    AppDetails,
    Content,
    InnerEvent,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Span,
)
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from agent_eval_action.telemetry.trajectory import with_trace

MAGIC = b"AEF1"
HEADER = struct.Struct(">4sI")

Frame = dict[str, Any]


class FrameError(Exception):
    """The worker's bytes are not a frame: garbage on the pipe, a broken body, or a body too large."""


def encode(frame: Frame) -> bytes:
    """Return a frame as bytes."""
    body = json.dumps(frame, ensure_ascii=True).encode("ascii")
    return HEADER.pack(MAGIC, len(body)) + body


async def read_frame(reader: asyncio.StreamReader, limit: int) -> Frame | None:
    """Return the next frame; None at the end. Raises FrameError; bodies over ``limit`` bytes are not read."""
    try:
        head = await reader.readexactly(HEADER.size)
        magic, size = HEADER.unpack(head)
        if magic != MAGIC:
            raise FrameError(f"not a frame: {head!r}")
        if size > limit:
            raise FrameError(f"a frame of {size} bytes, the limit is {limit}")
        frame = json.loads(await reader.readexactly(size))
    except asyncio.IncompleteReadError:
        return None
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame that is no JSON: {error}") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("ev"), str):
        raise FrameError("a frame without a name")
    return frame


_Event = tuple[dict[str, Any], Content | None]


def to_invocation(frame: Frame, sent: Content, invocation_id: str) -> Invocation | AttemptError:
    """Return the turn, or a protocol error if the worker's frame is not as expected."""
    try:
        return _convert(frame, sent, invocation_id)
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        return AttemptError(kind=ErrorKind.PROTOCOL, message=f"the worker's report of the turn cannot be read: {error}")


def _convert(frame: Frame, sent: Content, invocation_id: str) -> Invocation:
    contents = [None if event.get("c") is None else Content.model_validate(event["c"]) for event in frame["events"]]
    events = _without_partials(list(zip(frame["events"], contents, strict=True)))
    final, final_content = _final(events)
    user = [content for event, content in events if _is_user(event) and content is not None]
    total, model, tool = frame["seconds"]
    if final_content:
        spoken = tuple(part for part in final_content.parts or () if not part.thought)
        final_content = Content(role=final_content.role, parts=spoken)
    recorded = (_recorded(event, content, event is final) for event, content in events if not _is_user(event))
    authors = {str(event["a"]) for event, _ in events}
    turn = Invocation(
        invocation_id=invocation_id,
        user_content=user[-1] if user else sent,
        final_response=final_content,
        intermediate_data=InvocationEvents(invocation_events=tuple(filter(None, recorded))),
        app_details=AppDetails(
            agent_details={
                name: AgentDetails(name=name, **detail) for name, detail in frame["details"].items() if name in authors
            }
        ),
        creation_timestamp=float(frame["started_at"]),
        duration=round(total, 6),
        model_duration=round(model, 6),
        tool_duration=round(tool, 6),
        spans=tuple(map(Span.model_validate, frame.get("spans", ()))),
        inner_events=tuple(map(InnerEvent.model_validate, frame.get("inner", ()))),
        raw_events=tuple(frame["raw_events"]) if "raw_events" in frame else None,
    )
    if not turn.tool_calls() and (why := frame.get("unseen")):
        turn = turn.model_copy(update={"unseen": str(why)})
    return with_trace(turn, trace) if (trace := frame.get("trace")) else turn


def _is_user(event: dict[str, Any]) -> bool:
    return str(event["a"] or "agent").lower() == "user"


def _without_partials(events: Sequence[_Event]) -> list[_Event]:
    """Drop partial events whose author later sends the whole one."""
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


def _final(events: Sequence[_Event]) -> tuple[dict[str, Any] | None, Content | None]:
    """Return the last final event with text; one without text never replaces one that has some."""
    final, text = None, None
    for event, content in events:
        if _is_user(event) or event["p"] or not event["f"] or not content or not content.parts:
            continue
        if final is None or not (text and text.text) or content.text:
            final, text = event, content
    return final, text


def _recorded(event: dict[str, Any], content: Content | None, is_final: bool) -> InvocationEvent | None:
    parts = (content.parts if content else None) or ()
    shown = any(p.function_call or p.function_response or p.text or p.inline_data for p in parts)
    if not shown and event.get("g") is None:
        return None
    if is_final and content and not any(p.function_call for p in parts):
        # The text is the final response and must not count twice. The thoughts stay.
        thoughts = tuple(p for p in parts if p.thought)
        content = Content(role=content.role, parts=thoughts) if thoughts else None
    return InvocationEvent(
        author=str(event["a"] or "agent"),
        content=content,
        grounding_metadata=event.get("g"),
        usage_metadata=event.get("u"),
        model_version=event.get("m"),
    )
