"""Conversations from traces alone: the user's messages, the answers and the trajectory of each turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent_eval_action.results.evalset import Content, Invocation, Part
from agent_eval_action.telemetry.otlp import Telemetry
from agent_eval_action.telemetry.spans import TraceSpan, parsed
from agent_eval_action.telemetry.trajectory import Trajectory

RoleAndText = tuple[str, str]
"""A role and a text."""

_INDEXED: Final = {
    "in": re.compile(
        r"(?:llm\.input_messages|gen_ai\.prompt)\.(\d+)\.(?:message\.)?(?:contents\.\d+\.message_content\.)?(role|content|text)$"
    ),
    "out": re.compile(
        r"(?:llm\.output_messages|gen_ai\.completion)\.(\d+)\.(?:message\.)?(?:contents\.\d+\.message_content\.)?(role|content|text)$"
    ),
}
_WHOLE: Final = {
    "in": ("gen_ai.input.messages", "gcp.vertex.agent.llm_request", "gen_ai.prompt"),
    "out": ("gen_ai.output.messages", "gcp.vertex.agent.llm_response", "gen_ai.completion"),
}
_EVENTS: Final = {
    "in": {"gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant", "gen_ai.tool.message": "tool"},
    "out": {"gen_ai.choice": "assistant"},
}
_DETAILS: Final = "gen_ai.client.inference.operation.details"
_INNER: Final = ("messages", "contents", "message", "choices", "generations", "kwargs")
_USERS: Final = frozenset({"user", "human"})
_MAX_DEPTH: Final = 8


def recorded_conversations(telemetry: Telemetry) -> list[tuple[str, tuple[Invocation, ...]]]:
    """Return each conversation with the id that its spans name, else with its trace id.

    A trace is a turn; the traces of a conversation are its turns, in order of their start. Traces without a user
    message are left out.
    """
    traces: dict[str, list[TraceSpan]] = {}
    for span in telemetry.whole_spans():
        traces.setdefault(span.trace_id, []).append(span)
    conversations: dict[str, list[Invocation]] = {}
    for trace_id, spans in sorted(traces.items(), key=lambda item: min(span.start for span in item[1])):
        if (turn := _turn(trace_id, spans)) is not None:
            named = next((span.conversation for span in spans if span.conversation), trace_id)
            conversations.setdefault(named, []).append(turn)
    return [(name, tuple(turns)) for name, turns in conversations.items()]


def _turn(trace_id: str, spans: list[TraceSpan]) -> Invocation | None:
    """Return the turn of a trace; None if no span holds a user message."""
    ordered = sorted(spans, key=lambda span: span.start)
    user_texts = (
        text for span in ordered for role, text in reversed(_messages_of(span, "in")) if role in _USERS and text
    )
    question = next(user_texts, "")
    if not question:
        return None
    models = sorted((span for span in spans if span.kind == "model"), key=lambda span: span.end)
    answers = (text for span in reversed(models) for role, text in reversed(_messages_of(span, "out")) if text)
    answer = next(answers, "") or next((text for span in ordered for _, text in _messages_of(span, "out") if text), "")
    turn = Invocation(
        invocation_id=trace_id,
        user_content=Content(role="user", parts=(Part(text=question),)),
        final_response=Content(role="model", parts=(Part(text=answer),)) if answer else None,
        creation_timestamp=ordered[0].start / 1e9,
        duration=round((max(span.end for span in spans) - ordered[0].start) / 1e9, 6),
    )
    return Trajectory(spans).added_to(turn)


def _messages_of(span: TraceSpan, way: str) -> list[RoleAndText]:
    """Return a span's input or output messages, in whichever format it has them."""
    known = span.attributes
    role = "user" if way == "in" else "assistant"
    for name in _WHOLE[way]:
        if name in known:
            return list(_messages(parsed(known[name]), role))
    if indexed := _indexed(known, _INDEXED[way], role):
        return indexed
    found: list[RoleAndText] = []
    for event, attributes in span.events:
        if event == _DETAILS and (listed := attributes.get(_WHOLE[way][0])) is not None:
            found += _messages(parsed(listed), role)
        elif event in _EVENTS[way]:
            found += _messages({"role": _EVENTS[way][event], **attributes}, role)
    plain = known.get("input.value" if way == "in" else "output.value")
    if not found and span.kind in {"agent", ""} and isinstance(plain, str):
        value = parsed(plain)
        found = [(role, plain)] if isinstance(value, str) else list(_messages(value, role))
    return found


def _indexed(attributes: Mapping[str, Any], names: re.Pattern[str], role: str) -> list[RoleAndText]:
    """Return messages whose fields are separate, numbered attributes."""
    found: dict[int, dict[str, str]] = {}
    for name, value in attributes.items():
        if match := names.search(name):
            found.setdefault(int(match[1]), {}).setdefault("role" if match[2] == "role" else "content", str(value))
    return [(found[at].get("role", role), found[at].get("content", "")) for at in sorted(found)]


def _messages(value: Any, role: str, depth: int = 0) -> Iterator[RoleAndText]:
    """Yield the roles and texts of a message, or of a list of messages, from any provider."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _messages(item, role, depth + 1)
    elif isinstance(value, dict):
        inner = next((value[key] for key in _INNER if value.get(key)), None)
        own = str(value.get("role") or value.get("type") or role)
        body = next((value[key] for key in ("content", "parts", "text") if value.get(key)), None)
        if inner is not None and body is None:
            yield from _messages(parsed(inner), own if value.get("role") else role, depth + 1)
        elif isinstance(body, dict):  # ADK's answers hold a message under `content`
            yield from _messages(body, role, depth + 1)
        elif body is not None:
            yield own, "".join(_texts(parsed(body) if isinstance(body, str) and body[:1] in "[{" else body))


def _texts(body: Any) -> Iterator[str]:
    if isinstance(body, str):
        yield body
    elif isinstance(body, list):
        for part in body:
            text = part.get("text", part.get("content")) if isinstance(part, dict) else part
            if isinstance(text, str) and not (isinstance(part, dict) and part.get("thought")):
                yield text
    elif isinstance(body, Mapping):
        yield json.dumps(body, ensure_ascii=False)
