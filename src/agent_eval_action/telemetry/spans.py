"""One span of any instrumentation: its kind of work, and its fields under the names that instrumentations use.

Supported: OpenTelemetry's conventions for generative AI (current and former), ADK's own attributes, OpenInference,
OpenLLMetry (``traceloop.*``) and LangSmith (``langsmith.*``).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

SpanKind = Literal["tool", "model", "agent", ""]

_OPERATIONS: Final[Mapping[str, SpanKind]] = {
    "execute_tool": "tool",
    "chat": "model",
    "generate_content": "model",
    "text_completion": "model",
    "completion": "model",
    "invoke_agent": "agent",
    "create_agent": "",
}
_KINDS: Final[Mapping[str, SpanKind]] = {"TOOL": "tool", "LLM": "model", "AGENT": "agent"}
_TOOL_NAMES: Final = ("gen_ai.tool.name", "tool.name", "tool_call.function.name", "traceloop.entity.name")
_ARGUMENTS: Final = (
    "gcp.vertex.agent.tool_call_args",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.arguments",
    "tool_arguments",
    "tool_call.function.arguments",
    "input.value",
    "traceloop.entity.input",
    "gen_ai.prompt",
)
_RESULTS: Final = (
    "gcp.vertex.agent.tool_response",
    "gen_ai.tool.call.result",
    "gen_ai.tool.result",
    "tool_response",
    "output.value",
    "traceloop.entity.output",
    "gen_ai.completion",
)
_CALL_IDS: Final = ("gen_ai.tool.call.id", "tool_call.id", "tool.id")
_AGENTS: Final = ("gen_ai.agent.name", "agent.name", "graph.node.id", "traceloop.entity.name")
_CONVERSATIONS: Final = ("gen_ai.conversation.id", "gcp.vertex.agent.session_id", "session.id")
_MODELS: Final = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
_TOKENS_IN: Final = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_TOKENS_OUT: Final = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion")
_INDEXED: Final = re.compile(
    r"(?:llm\.output_messages\.(\d+)\.message\.tool_calls\.(\d+)\.tool_call\."
    r"|gen_ai\.completion\.(\d+)\.tool_calls\.(\d+)\.)(?:function\.)?(id|name|arguments)"
)
_LANGCHAIN: Final = ("generations", "kwargs")
_PARSED_BYTES: Final = 1_000_000
_ANSWER_DEPTH: Final = 8
_MESSAGE_DEPTH: Final = 8


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A tool call. ``args`` None: not captured. ``result`` None: not captured, or the tool returned none."""

    name: str
    args: dict[str, Any] | None
    call_id: str = ""
    result: dict[str, Any] | None = None


@dataclass(frozen=True)
class TraceSpan:
    """A finished span. Times are nanoseconds since the epoch; ``events`` are names with attributes, and log records.

    Ids are lower-case hexadecimal; ``parent_id`` is "" if there is none, ``trace_id`` also if there is only one trace.
    """

    name: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    trace_id: str = ""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> TraceSpan:
        """Convert a span that the worker reported. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            name=str(values["name"]),
            span_id=str(values["id"]),
            parent_id=str(values.get("parent") or ""),
            start=int(values["start"]),
            end=int(values["end"]),
            attributes=dict(values.get("attributes") or {}),
            events=tuple((str(name), dict(attributes)) for name, attributes in values.get("events") or ()),
        )

    @cached_property
    def kind(self) -> SpanKind:
        """The kind of work; "" for a step that only contains others."""
        known = self.attributes
        if (operation := known.get("gen_ai.operation.name")) is not None:
            return _OPERATIONS.get(str(operation), "")
        if known.get("mcp.method.name") == "tools/call" or "gcp.vertex.agent.tool_call_args" in known:
            return "tool"
        if (kind := _first(known, ("openinference.span.kind", "traceloop.span.kind"))) is not None:
            return _KINDS.get(str(kind).upper(), "")
        is_model = "gen_ai.system" in known or "gen_ai.provider.name" in known
        is_model = "gcp.vertex.agent.llm_request" in known or (is_model and _first(known, _MODELS) is not None)
        return "model" if is_model else ""

    @cached_property
    def agent(self) -> str:
        """The agent that the span names; "" if none."""
        return str(_first(self.attributes, _AGENTS[: None if self.kind == "agent" else 2]) or "")

    @property
    def is_langsmith(self) -> bool:
        """Whether LangSmith's client made the span."""
        return "langsmith.span.kind" in self.attributes

    @property
    def conversation(self) -> str:
        """The id of its conversation; "" if the span names none."""
        return str(_first(self.attributes, _CONVERSATIONS) or "")

    @property
    def model(self) -> str:
        """The model's name."""
        return str(_first(self.attributes, _MODELS) or "")

    @property
    def tokens(self) -> tuple[int | None, int | None]:
        """Input and output tokens; None if not reported."""
        tokens_in, tokens_out = _first(self.attributes, _TOKENS_IN), _first(self.attributes, _TOKENS_OUT)
        return _count(tokens_in), _count(tokens_out)

    @cached_property
    def tool_name(self) -> str:
        """The tool's name, for a span of a tool."""
        return str(_first(self.attributes, _TOOL_NAMES) or re.sub(r"^(execute_tool|tools/call) ", "", self.name))

    def tool_call(self) -> TracedCall:
        """Return the call, for a span of a tool."""
        arguments, result = _first(self.attributes, _ARGUMENTS), _first(self.attributes, _RESULTS)
        for event, attributes in self.events:
            if event in {"gen_ai.tool.message", "gen_ai.choice"}:
                result = attributes.get("content", attributes.get("message", result)) if result is None else result
        call_id = str(_first(self.attributes, _CALL_IDS) or "")
        parsed = None if result is None else _mapping(result, "result")
        if not call_id:
            call_id = next((answered for answered, _ in tool_messages(parsed)), "")
        return TracedCall(self.tool_name, None if arguments is None else _mapping(arguments, "input"), call_id, parsed)

    def model_calls(self) -> Iterator[TracedCall]:
        """Yield the calls that a model requested, in its order, for a span of a model."""
        known = self.attributes
        if (messages := known.get("gen_ai.output.messages")) is not None:
            yield from _calls_in(parsed(messages))
        elif (answer := known.get("gcp.vertex.agent.llm_response")) is not None:
            yield from _calls_in(parsed(answer))
        elif indexed := numbered(known, _INDEXED):
            yield from map(_call, indexed)
        elif (answer := known.get("gen_ai.completion")) is not None:
            yield from _calls_in(parsed(answer))
        else:
            for event, attributes in self.events:
                if event == "gen_ai.choice":
                    yield from (call for value in attributes.values() for call in _calls_in(parsed(value)))
                elif event == "gen_ai.client.inference.operation.details":
                    yield from _calls_in(parsed(attributes.get("gen_ai.output.messages")))


def _calls_in(value: Any, depth: int = 0) -> Iterator[TracedCall]:
    """Yield every tool call in an answer, whatever its format."""
    if isinstance(value, list):
        for item in value:
            yield from _calls_in(item, depth + 1) if depth < _ANSWER_DEPTH else ()
    elif isinstance(value, dict):
        call = value.get("function_call") or value.get("functionCall")
        if isinstance(call, dict):
            yield _call(call)
        elif value.get("type") in {"tool_call", "function_call", "function"} and (
            "name" in value or isinstance(value.get("function"), dict)
        ):
            yield _call(value)
        else:
            for key in ("parts", "content", "tool_calls", "message", "body", "candidates", "choices", *_LANGCHAIN):
                yield from _calls_in(value.get(key), depth + 1) if depth < _ANSWER_DEPTH else ()


def _call(fields: Mapping[str, Any]) -> TracedCall:
    function = fields.get("function")
    source = function if isinstance(function, Mapping) else fields
    arguments = _first(source, ("args", "arguments"))
    call_id = str(_first(fields, ("id", "call_id")) or "")
    return TracedCall(str(source.get("name") or ""), _mapping(arguments or {}, "input"), call_id)


def numbered(attributes: Mapping[str, Any], names: re.Pattern[str]) -> list[dict[str, Any]]:
    """Return objects whose fields are separate attributes: of the groups of ``names`` the last is the field."""
    found: dict[tuple[int, ...], dict[str, Any]] = {}
    for name, value in attributes.items():
        if match := names.search(name):
            *place, field = filter(None, match.groups())
            found.setdefault(tuple(map(int, place)), {}).setdefault(field, value)
    return [found[place] for place in sorted(found)]


def _first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def parsed(value: Any) -> Any:
    """Parse a text as JSON, or as a Python value, which older instrumentations print; else return it unchanged."""
    if not isinstance(value, str) or len(value) > _PARSED_BYTES:
        return value
    try:
        found = json.loads(value, parse_constant=str)
        # An escape may be half a surrogate pair, which UTF-8 cannot encode.
        halved = "\\ud" in value.lower()
        return json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")) if halved else found
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(value) if value[:1] in "{[(" else value
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return value


def _mapping(value: Any, key: str) -> dict[str, Any]:
    found = parsed(value)
    return {str(name): item for name, item in found.items()} if isinstance(found, dict) else {key: found}


def tool_messages(value: Any, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tool messages anywhere in a value, with the id of the call that each answers."""
    if isinstance(value, dict) and isinstance(call_id := value.get("tool_call_id"), str):
        yield call_id, value
    elif isinstance(value, dict | list) and depth < _MESSAGE_DEPTH:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from tool_messages(inner, depth + 1)


def with_integers(value: Any) -> Any:
    """Turn whole floats into integers: a framework may make 2.0 of the 2 that its model wrote, protobuf always does."""
    if isinstance(value, dict):
        return {name: with_integers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
