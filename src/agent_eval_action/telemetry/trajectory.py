"""The trajectory of a turn from its spans: tool calls in order, their agents, tokens and times."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
from agent_eval_action.telemetry.spans import TracedCall, TraceSpan, parsed

_MAX_DEPTH = 100
_MESSAGE_DEPTH = 8
_UNCAPTURED = (
    "the spans of its tool calls have no arguments: have its instrumentation capture content "
    "(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true)"
)


@dataclass
class Trajectory:
    """What the spans of a turn hold. ``calls`` are those that ran, in the order in which models requested them."""

    spans: Sequence[TraceSpan]
    calls: list[tuple[TracedCall, str]] = field(default_factory=list)
    models: list[TraceSpan] = field(default_factory=list)
    tools: list[TraceSpan] = field(default_factory=list)

    def __post_init__(self) -> None:
        by_id = {span.span_id: span for span in self.spans}
        instrumented = [span for span in self.spans if not span.is_langsmith]
        # Variables alone switch LangSmith's client on, so spans of another instrumentation take precedence.
        counted = instrumented if any(span.kind in {"tool", "model"} for span in instrumented) else self.spans
        for span in sorted(counted, key=lambda span: (span.start, span.end)):
            ancestors = list(_ancestors(span, by_id))
            if span.kind == "tool":
                # MCP's client makes its own span inside the framework's
                if not any(outer.kind == "tool" and outer.tool_name == span.tool_name for outer in ancestors):
                    self.tools.append(span)
            elif span.kind == "model" and not any(outer.kind == "model" for outer in ancestors):
                self.models.append(span)
        self.calls = [
            (call, _agent_of(span, by_id))
            for call, span in (_in_order(self.tools, self.models, self.spans) or self._requested_calls())
        ]

    def _requested_calls(self) -> list[tuple[TracedCall, TraceSpan]]:
        """Return the calls that models requested, which stand in if no tool has a span."""
        return [(call, span) for span in self.models for call in span.model_calls()]

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
        by_id = {span.span_id: span for span in self.spans}
        for span in self.models:
            tokens_in, tokens_out = span.tokens
            if tokens_in is None or tokens_out is None:
                continue
            counts = {"prompt_token_count": tokens_in, "candidates_token_count": tokens_out}
            yield InvocationEvent(
                author=_agent_of(span, by_id),
                usage_metadata=counts | {"total_token_count": tokens_in + tokens_out},
                model_version=span.model or None,
            )

    def _timeline(self, turn: Invocation) -> tuple[Span, ...]:
        began = turn.creation_timestamp
        found = [
            *(("model", span.agent or span.model, span, span.tokens) for span in self.models),
            *(("tool", span.tool_name, span, (None, None)) for span in self.tools),
        ]
        return tuple(
            Span(
                kind="model" if kind == "model" else "tool",
                name=name,
                start=round(max(0.0, span.start / 1e9 - began), 4),
                seconds=round(max(0.0, (span.end - span.start) / 1e9), 4),
                input_tokens=tokens[0],
                output_tokens=tokens[1],
            )
            for kind, name, span, tokens in sorted(found, key=lambda each: each[2].start)
        )


@dataclass(eq=False, slots=True)
class _RequestedCall:
    """A call that a model requested in ``span``. ``place``: when its answer ended, and the call's index in it."""

    place: tuple[int, int]
    call: TracedCall
    span: TraceSpan
    ran: bool = False


def _in_order(
    tools: Sequence[TraceSpan], models: Sequence[TraceSpan], spans: Sequence[TraceSpan]
) -> list[tuple[TracedCall, TraceSpan]]:
    """Return the calls that ran, in the order models requested them: parallel tools start in any order."""
    requested = [
        _RequestedCall((span.end, at), call, span) for span in models for at, call in enumerate(span.model_calls())
    ]
    requested.sort(key=lambda request: request.place)
    by_key: dict[tuple[str, ...], deque[_RequestedCall]] = defaultdict(deque)
    for request in requested:
        for key in _match_keys(request.call):
            by_key[key].append(request)
    placed: list[tuple[tuple[int, int], TracedCall, TraceSpan]] = []
    for span in tools:
        call = span.tool_call()
        first = [found for key in _match_keys(call) if (found := _first_unmatched(by_key.get(key)))]
        match = next((request for request in first if request.place[0] <= span.start), next(iter(first), None))
        if match is None:
            placed.append(((span.start, 0), call, span))
            continue
        match.ran = True
        args = match.call.args if call.args is None else call.args
        placed.append((match.place, replace(call, call_id=call.call_id or match.call.call_id, args=args), span))
    placed += _without_span(requested, {call.call_id for _, call, _ in placed}, spans)
    return [(call, span) for _, call, span in sorted(placed, key=lambda each: each[0])]


def _without_span(
    requested: Iterable[_RequestedCall], ran: set[str], spans: Iterable[TraceSpan]
) -> Iterator[tuple[tuple[int, int], TracedCall, TraceSpan]]:
    """Yield calls that ran but have no tool span, if another span holds the tool's answer.

    When many runs end at the same time, LangSmith's client handles batches in several threads, and then drops the end
    of a run whose beginning another thread still has.
    """
    left = {request.call.call_id: request for request in requested if not request.ran and request.span.is_langsmith}
    if not left.keys() - ran:
        return
    for call_id, answer in _tool_messages(spans):
        if call_id not in ran and (request := left.get(call_id)):
            ran.add(call_id)
            yield request.place, replace(request.call, result={"output": answer}), request.span


def _tool_messages(spans: Iterable[TraceSpan]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each tool message in LangSmith's spans, with the id of the call it answers."""
    for span in spans:
        if span.is_langsmith:
            for name in ("gen_ai.completion", "gen_ai.prompt"):
                yield from _tool_messages_in(parsed(span.attributes.get(name)))


def _tool_messages_in(value: Any, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict) and isinstance(call_id := value.get("tool_call_id"), str):
        yield call_id, value
    elif isinstance(value, dict | list) and depth < _MESSAGE_DEPTH:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _tool_messages_in(inner, depth + 1)


def _match_keys(call: TracedCall) -> Iterator[tuple[str, ...]]:
    """Yield the keys by which a requested call and a call that ran may match, the surest first."""
    if call.call_id:
        yield ("id", call.name, call.call_id)
    yield ("arguments", call.name, json.dumps(_with_integers(call.args), sort_keys=True, default=str))
    yield ("name", call.name)


def _with_integers(value: Any) -> Any:
    """Turn whole floats into integers: a framework may make 2.0 of the 2 that its model wrote."""
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _first_unmatched(queue: deque[_RequestedCall] | None) -> _RequestedCall | None:
    while queue and queue[0].ran:
        queue.popleft()
    return queue[0] if queue else None


def _ancestors(span: TraceSpan, by_id: Mapping[str, TraceSpan]) -> Iterator[TraceSpan]:
    for _ in range(_MAX_DEPTH):  # foreign spans may form a cycle
        parent = by_id.get(span.parent_id)
        if parent is None:
            return
        yield parent
        span = parent


def _agent_of(span: TraceSpan, by_id: Mapping[str, TraceSpan]) -> str:
    around = (span, *_ancestors(span, by_id))
    return next((found.agent for found in around if found.agent), "agent")


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
