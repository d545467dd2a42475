"""The trajectory of a turn from its spans: tool calls in order, their agents, tokens and times.

From traces alone, whole conversations: also the user's messages and the answers.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agent_eval_action.results.evalset import (
    Content,
    FunctionCall,
    FunctionResponse,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
    Span,
)
from agent_eval_action.telemetry.spans import TracedCall, TraceSpan, numbered, parsed, tool_messages, with_integers

_MAX_DEPTH: Final = 100
_MESSAGE_DEPTH: Final = 8
_UNCAPTURED = (
    "the spans of its tool calls have no arguments: have its instrumentation capture content "
    "(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true)"
)

_FIELD: Final = r"\.(\d+)\.(?:message\.)?(?:contents\.\d+\.message_content\.)?(role|content|text)$"
_INDEXED: Final = {
    "in": re.compile(rf"(?:llm\.input_messages|gen_ai\.prompt){_FIELD}"),
    "out": re.compile(rf"(?:llm\.output_messages|gen_ai\.completion){_FIELD}"),
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


class Trajectory:
    """What the spans of a turn hold. ``calls`` are those that ran, in the order in which models requested them."""

    def __init__(self, spans: Sequence[TraceSpan]) -> None:
        self._spans = spans
        self._by_id = {span.span_id: span for span in spans}
        self._models: list[TraceSpan] = []
        self._tools: list[TraceSpan] = []
        instrumented = [span for span in spans if not span.is_langsmith]
        # Variables alone switch LangSmith's client on, so spans of another instrumentation take precedence.
        counted = instrumented if any(span.kind in {"tool", "model"} for span in instrumented) else spans
        for span in sorted(counted, key=lambda span: (span.start, span.end)):
            ancestors = list(self._ancestors(span))
            if span.kind == "tool":
                # MCP's client makes its own span inside the framework's
                if not any(outer.kind == "tool" and outer.tool_name == span.tool_name for outer in ancestors):
                    self._tools.append(span)
            elif span.kind == "model" and not any(outer.kind == "model" for outer in ancestors):
                self._models.append(span)
        # Calls that models requested stand in if no tool has a span.
        requested = [(call, span) for span in self._models for call in span.model_calls()]
        self.calls = [(call, self._agent_of(span)) for call, span in self._calls_that_ran() or requested]

    def _ancestors(self, span: TraceSpan) -> Iterator[TraceSpan]:
        for _ in range(_MAX_DEPTH):  # foreign spans may form a cycle
            parent = self._by_id.get(span.parent_id)
            if parent is None:
                return
            yield parent
            span = parent

    def _agent_of(self, span: TraceSpan) -> str:
        return next((found.agent for found in (span, *self._ancestors(span)) if found.agent), "agent")

    def added_to(self, turn: Invocation) -> Invocation:
        """Return the turn with these calls, tokens and times, where it has none of its own."""
        update: dict[str, Any] = {}
        has_usage = any(event.usage_metadata for event in turn.events)
        traced = [] if turn.tool_calls() else list(self._call_events())
        if traced and any(call.args is None for call, _ in self.calls):
            update["uncaptured"] = _UNCAPTURED
        if not has_usage:
            traced += self._usage_events()
        if traced:
            update["intermediate_data"] = InvocationEvents(invocation_events=(*traced, *turn.events))
        if not turn.spans and (timeline := self._timeline(turn)):
            update["spans"] = timeline
            model, tool = (_covered_seconds(timeline, kinds) for kinds in (("model",), ("model", "tool")))
            update |= {"model_duration": round(model, 6), "tool_duration": round(tool - model, 6)}
        return turn.model_copy(update=update) if update else turn

    def _call_events(self) -> Iterator[InvocationEvent]:
        for call, agent in self.calls:
            called = FunctionCall(id=call.call_id or None, name=call.name, args=call.args)
            yield InvocationEvent(author=agent, content=Content(role="model", parts=(Part(function_call=called),)))
            if call.result is not None:
                answer = FunctionResponse(id=call.call_id or None, name=call.name, response=call.result)
                yield InvocationEvent(
                    author=agent, content=Content(role="user", parts=(Part(function_response=answer),))
                )

    def _usage_events(self) -> Iterator[InvocationEvent]:
        for span in self._models:
            tokens_in, tokens_out = span.tokens
            if tokens_in is not None and tokens_out is not None:
                counts = {"prompt_token_count": tokens_in, "candidates_token_count": tokens_out}
                yield InvocationEvent(
                    author=self._agent_of(span),
                    usage_metadata=counts | {"total_token_count": tokens_in + tokens_out},
                    model_version=span.model or None,
                )

    def _timeline(self, turn: Invocation) -> tuple[Span, ...]:
        timeline = []
        for span in sorted([*self._models, *self._tools], key=lambda span: span.start):
            is_model = span.kind == "model"
            tokens = span.tokens if is_model else (None, None)
            timeline.append(
                Span(
                    kind="model" if is_model else "tool",
                    name=(span.agent or span.model) if is_model else span.tool_name,
                    start=round(max(0.0, span.start / 1e9 - turn.creation_timestamp), 4),
                    seconds=round(max(0.0, (span.end - span.start) / 1e9), 4),
                    input_tokens=tokens[0],
                    output_tokens=tokens[1],
                )
            )
        return tuple(timeline)

    def _calls_that_ran(self) -> list[tuple[TracedCall, TraceSpan]]:
        """Return the calls that ran, in the order models requested them: parallel tools start in any order."""
        requested = [
            _RequestedCall((span.end, at), call, span)
            for span in self._models
            for at, call in enumerate(span.model_calls())
        ]
        requested.sort(key=lambda request: request.place)
        by_key: dict[tuple[str, ...], list[_RequestedCall]] = defaultdict(list)
        for request in requested:
            for key in _match_keys(request.call):
                by_key[key].append(request)
        placed: list[tuple[tuple[int, int], TracedCall, TraceSpan]] = []
        for span in self._tools:
            call = span.tool_call()
            alike = (next((one for one in by_key[key] if not one.ran), None) for key in _match_keys(call))
            found = [one for one in alike if one is not None]
            match = next((one for one in found if one.place[0] <= span.start), found[0] if found else None)
            if match is None:
                placed.append(((span.start, 0), call, span))
                continue
            match.ran = True
            args = match.call.args if call.args is None else call.args
            placed.append((match.place, replace(call, call_id=call.call_id or match.call.call_id, args=args), span))
        # When many runs end at the same time, LangSmith's client handles batches in several threads, and then drops
        # the end of a run whose beginning another thread still has. Another span may hold the tool's answer.
        ran = {call.call_id for _, call, _ in placed}
        left = {each.call.call_id: each for each in requested if not each.ran and each.span.is_langsmith}
        for span in self._spans if left.keys() - ran else ():
            for name in ("gen_ai.completion", "gen_ai.prompt") if span.is_langsmith else ():
                for call_id, answer in tool_messages(parsed(span.attributes.get(name))):
                    if call_id not in ran and (lost := left.get(call_id)):
                        ran.add(call_id)
                        placed.append((lost.place, replace(lost.call, result={"output": answer}), lost.span))
        return [(call, span) for _, call, span in sorted(placed, key=lambda each: each[0])]


@dataclass(eq=False, slots=True)
class _RequestedCall:
    """A call that a model requested in ``span``. ``place``: when its answer ended, and the call's index in it."""

    place: tuple[int, int]
    call: TracedCall
    span: TraceSpan
    ran: bool = False


def _match_keys(call: TracedCall) -> Iterator[tuple[str, ...]]:
    """Yield the keys by which a requested call and a call that ran may match, the surest first."""
    if call.call_id:
        yield ("id", call.name, call.call_id)
    yield ("arguments", call.name, json.dumps(with_integers(call.args), sort_keys=True, default=str))
    yield ("name", call.name)


def _covered_seconds(spans: Iterable[Span], kinds: Sequence[str]) -> float:
    """Return the seconds that spans of these kinds cover, counting overlaps once."""
    total, counted_to = 0.0, 0.0
    for span in sorted((span for span in spans if span.kind in kinds), key=lambda span: span.start):
        end = span.start + span.seconds
        if end > counted_to:
            total += end - max(span.start, counted_to)
            counted_to = end
    return total


def with_trace(turn: Invocation, spans: Iterable[Mapping[str, Any]]) -> Invocation:
    """Return the turn with what a worker's spans add. Raises KeyError, TypeError or ValueError for invalid spans."""
    return Trajectory([TraceSpan.read(span) for span in spans]).added_to(turn)


def recorded_conversations(spans: Iterable[TraceSpan]) -> list[tuple[str, tuple[Invocation, ...]]]:
    """Return each conversation with the id that its spans name, else with its trace id.

    A trace is a turn; the traces of a conversation are its turns, in order of their start. Traces without a user
    message are left out.
    """
    traces: dict[str, list[TraceSpan]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    conversations: dict[str, list[Invocation]] = {}
    for trace_id, trace in sorted(traces.items(), key=lambda item: min(span.start for span in item[1])):
        if (turn := _turn(trace_id, trace)) is not None:
            named = next((span.conversation for span in trace if span.conversation), trace_id)
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


def _messages_of(span: TraceSpan, way: str) -> list[tuple[str, str]]:
    """Return a span's input or output messages, in whichever format it has them."""
    known = span.attributes
    role = "user" if way == "in" else "assistant"
    for name in _WHOLE[way]:
        if name in known:
            return list(_messages(parsed(known[name]), role))
    if indexed := numbered(known, _INDEXED[way]):
        return [(str(item.get("role", role)), str(item.get("content", item.get("text", "")))) for item in indexed]
    found: list[tuple[str, str]] = []
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


def _messages(value: Any, role: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the roles and texts of a message, or of a list of messages, from any provider."""
    if depth > _MESSAGE_DEPTH:
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
