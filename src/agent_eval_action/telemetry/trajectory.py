"""The trajectory of a turn from its spans: tool calls in order, by which agent, tokens, and when what ran."""

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
    """What the spans of one turn say. ``calls`` are those that ran, in the order in which models asked for them."""

    spans: Sequence[TraceSpan]
    calls: list[tuple[TracedCall, str]] = field(default_factory=list)
    models: list[TraceSpan] = field(default_factory=list)
    tools: list[TraceSpan] = field(default_factory=list)

    def __post_init__(self) -> None:
        by_id = {span.span_id: span for span in self.spans}
        instrumented = [span for span in self.spans if not span.is_langsmith]
        # LangSmith's client is switched on by variables alone: what an instrumentation has made comes first.
        counted = instrumented if any(span.kind in {"tool", "model"} for span in instrumented) else self.spans
        for span in sorted(counted, key=lambda span: (span.start, span.end)):
            ancestors = list(_ancestors(span, by_id))
            if span.kind == "tool":
                # MCP's client has a span of its own inside that of the framework
                if not any(outer.kind == "tool" and outer.tool_name == span.tool_name for outer in ancestors):
                    self.tools.append(span)
            elif span.kind == "model" and not any(outer.kind == "model" for outer in ancestors):
                self.models.append(span)
        self.calls = [
            (call, _agent_of(span, by_id))
            for call, span in (_in_order(self.tools, self.models, self.spans) or self._asked_for())
        ]

    def _asked_for(self) -> list[tuple[TracedCall, TraceSpan]]:
        """Where no tool has a span: what models asked for."""
        return [(call, span) for span in self.models for call in span.model_calls()]

    def added_to(self, turn: Invocation) -> Invocation:
        """The turn with these calls, tokens and times, where it has none of its own."""
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
            model, tool = (_union(timeline, kinds) for kinds in (("model",), ("model", "tool")))
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
class _Asked:
    """A call that a model asked for in ``span``: ``place`` is when its answer ended, and the call's number in it."""

    place: tuple[int, int]
    call: TracedCall
    span: TraceSpan
    ran: bool = False


def _in_order(
    tools: Sequence[TraceSpan], models: Sequence[TraceSpan], spans: Sequence[TraceSpan]
) -> list[tuple[TracedCall, TraceSpan]]:
    """Calls that ran, in the order in which models asked for them: tools that run side by side start in any order."""
    asked = [_Asked((span.end, at), call, span) for span in models for at, call in enumerate(span.model_calls())]
    asked.sort(key=lambda one: one.place)
    alike: dict[tuple[str, ...], deque[_Asked]] = defaultdict(deque)
    for one in asked:
        for key in _likenesses(one.call):
            alike[key].append(one)
    placed: list[tuple[tuple[int, int], TracedCall, TraceSpan]] = []
    for span in tools:
        call = span.tool_call()
        first = [found for key in _likenesses(call) if (found := _first_left(alike.get(key)))]
        wanted = next((one for one in first if one.place[0] <= span.start), next(iter(first), None))
        if wanted is None:
            placed.append(((span.start, 0), call, span))
            continue
        wanted.ran = True
        args = wanted.call.args if call.args is None else call.args
        placed.append((wanted.place, replace(call, call_id=call.call_id or wanted.call.call_id, args=args), span))
    placed += _without_span(asked, {call.call_id for _, call, _ in placed}, spans)
    return [(call, span) for _, call, span in sorted(placed, key=lambda each: each[0])]


def _without_span(
    asked: Iterable[_Asked], ran: set[str], spans: Iterable[TraceSpan]
) -> Iterator[tuple[tuple[int, int], TracedCall, TraceSpan]]:
    """Calls that ran although no tool's span says so, for other spans hold the tool's answer.

    LangSmith's client works on batches in several threads where many runs end at once, and then drops the end of a run
    whose beginning another thread still has.
    """
    left = {one.call.call_id: one for one in asked if not one.ran and one.span.is_langsmith}
    if not left.keys() - ran:
        return
    for call_id, answer in _tool_messages(spans):
        if call_id not in ran and (one := left.get(call_id)):
            ran.add(call_id)
            yield one.place, replace(one.call, result={"output": answer}), one.span


def _tool_messages(spans: Iterable[TraceSpan]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the messages with which tools answered, by the id of the call, that spans of LangSmith hold."""
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


def _likenesses(call: TracedCall) -> Iterator[tuple[str, ...]]:
    """What a call that a model asked for and one that ran have in common, the surest first."""
    if call.call_id:
        yield ("id", call.name, call.call_id)
    yield ("arguments", call.name, json.dumps(_alike(call.args), sort_keys=True, default=str))
    yield ("name", call.name)


def _alike(value: Any) -> Any:
    """The value with whole numbers as such: a framework may make 2.0 of the 2 that its model wrote."""
    if isinstance(value, dict):
        return {name: _alike(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_alike(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _first_left(queue: deque[_Asked] | None) -> _Asked | None:
    while queue and queue[0].ran:
        queue.popleft()
    return queue[0] if queue else None


def _ancestors(span: TraceSpan, by_id: Mapping[str, TraceSpan]) -> Iterator[TraceSpan]:
    for _ in range(_MAX_DEPTH):  # foreign spans may name each other
        parent = by_id.get(span.parent_id)
        if parent is None:
            return
        yield parent
        span = parent


def _agent_of(span: TraceSpan, by_id: Mapping[str, TraceSpan]) -> str:
    around = (span, *_ancestors(span, by_id))
    return next((found.agent for found in around if found.agent), "agent")


def _union(spans: Iterable[Span], kinds: Sequence[str]) -> float:
    """Seconds that spans of these kinds cover, overlap counted once."""
    total, counted_to = 0.0, 0.0
    for span in sorted((span for span in spans if span.kind in kinds), key=lambda span: span.start):
        end = span.start + span.seconds
        if end > counted_to:
            total += end - max(span.start, counted_to)
            counted_to = end
    return total


def with_trace(turn: Invocation, spans: Iterable[Mapping[str, Any]]) -> Invocation:
    """A turn with what a worker's spans say. Raises KeyError, TypeError or ValueError for what are none."""
    return Trajectory([TraceSpan.read(span) for span in spans]).added_to(turn)
