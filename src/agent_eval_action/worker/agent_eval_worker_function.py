"""A Python function as an agent: ``module:function``, called once per turn. Its result becomes ADK's events.

It returns a text; a mapping (``text``, ``tool_calls``, ``messages``, ``state``, ``usage``); or a list of messages in
the format of OpenAI's or Anthropic's API, of LangChain or of Pydantic AI. Frameworks are recognised by the shape of
their objects and never imported. The spans that they make with their interpreter's OpenTelemetry are collected turn by
turn, by a processor that is added to every tracer provider the agent creates, so its own exporters keep working.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent_eval_worker_errors import WorkerError
from agent_eval_worker_protocol import encode
from agent_eval_worker_turn import Conversation, Turn

THREADS = 256
MAX_SPANS = 2000  # of a turn
MAX_TEXT = 200_000
CAPTURE = {
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "true",
    "TRACELOOP_TRACE_CONTENT": "true",
}
ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool", "developer": "system"}
PARTS = {"tool-call": "function_call", "tool-return": "function_call_output", "builtin-tool-call": "function_call"}
KINDS = {"custom_tool_call": "function_call", "custom_tool_call_output": "function_call_output"}


def load_function(name: str) -> Callable[..., Any]:
    """Import the function that ``module:function`` names."""
    module_name, _, path = name.partition(":")
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise WorkerError("import", f"`{module_name}` has no function `{path}`")
    return found


class FunctionSession:
    """The second argument of a function that takes one.

    ``state`` belongs to the session and is kept between turns. ``messages`` are those before this turn, in OpenAI's
    format. ``content`` is the user's message with all its parts.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.id = request.get("session") or request["s"]
        self.user_id = request["user"]
        self.app_name = request["app"]
        self.state = dict(request.get("state") or {})
        self.messages: list[dict[str, Any]] = []
        self.content: dict[str, Any] = {}
        for event in request.get("history") or ():
            self.state.update(event.get("state_delta") or {})
            self.messages += _as_messages(event.get("content") or {}, user=event.get("author") == "user")


class FunctionFactory:
    """Opens sessions of one function. The worker closes ``last_runner``, which only ADK's agents have."""

    last_runner = None

    def __init__(self, function: Callable[..., Any], frame_bytes: int, collector: SpanCollector | None = None) -> None:
        self.function = function
        self.collector = collector
        called = function if inspect.isroutine(function) else type(function).__call__
        self.is_async = inspect.iscoroutinefunction(called)
        self.takes_session = _positional_parameters(function) > 1
        self.frame_bytes = frame_bytes
        # A function that blocks must not hold up other sessions.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "agent"))

    async def open(self, request: dict[str, Any]) -> FunctionConversation:
        """Return a conversation with a session of its own."""
        return FunctionConversation(request["s"], self, FunctionSession(request))


class FunctionConversation(Conversation):
    """One conversation with the function, turn by turn."""

    def __init__(self, name: str, factory: FunctionFactory, session: FunctionSession) -> None:
        super().__init__(name)
        self._factory = factory
        self._session = session

    async def run_turn(self, turn: Turn, content: dict[str, Any]) -> bytes:
        del turn  # what the function does inside is not visible
        session, factory = self._session, self._factory
        session.content = content
        asked = _as_messages(content, user=True)
        text = _spoken(content)
        call = functools.partial(factory.function, *([text, session] if factory.takes_session else [text]))
        started_at, started = time.time(), time.monotonic()
        with factory.collector.turn() if factory.collector else contextlib.nullcontext([]) as spans:
            result = call() if factory.is_async else await asyncio.to_thread(call)
            if inspect.isawaitable(result):
                result = await result
        total = time.monotonic() - started
        events = list(events_of(result, session, text))
        session.messages += asked
        for event in events:
            session.messages += _as_messages(event["c"], user=False)
        frame = {
            "ev": "turn",
            "s": self.name,
            "details": {},
            "started_at": started_at,
            "seconds": [total, total, 0.0],  # models and tools inside the function are not visible
            "throttled": 0,
            "events": events,
            "trace": _as_frame(spans),
        }
        if len(spans) > MAX_SPANS:
            frame["unseen"] = f"a turn has more than {MAX_SPANS:,} spans: its tool calls are not all seen"
        body = encode(frame)
        if len(body) > factory.frame_bytes:
            raise WorkerError("output", f"the turn's events are larger than {factory.frame_bytes >> 20} MB")
        return body

    async def state(self) -> dict[str, Any]:
        """The session's state."""
        return dict(self._session.state)


def events_of(result: Any, session: FunctionSession, asked: str = "") -> Iterator[dict[str, Any]]:
    """Yield the events of a turn from the function's result, and put its ``state`` into the session.

    ``asked``: the user's text.
    """
    if result is None:
        raise WorkerError("output", "the function returned nothing; it returns a text, a mapping or a list of messages")
    if isinstance(result, str):
        yield _event([{"text": result}])
    elif isinstance(result, Mapping) and "role" not in result:
        yield from _events_of_mapping(result, session, asked)
    else:
        yield from _events_of_messages(list(result) if isinstance(result, (list, tuple)) else [result], asked)


def _events_of_mapping(result: Mapping[str, Any], session: FunctionSession, asked: str) -> Iterator[dict[str, Any]]:
    known = {"text", "tool_calls", "messages", "state", "usage"}
    if unknown := sorted(str(key) for key in result.keys() - known):
        raise WorkerError("output", f"the function returned `{unknown[0]}`; it may return {', '.join(sorted(known))}")
    session.state.update(result.get("state") or {})
    usage, text = _usage(result.get("usage")), result.get("text")
    yield from _events_of_messages(list(result.get("messages") or ()), asked)
    calls = list(result.get("tool_calls") or ())
    names: dict[str, str] = {}
    if calls:
        yield _event([{"function_call": _call_of(call, names)} for call in calls])
        answered = [(call, key) for call in calls for key in ("result", "response", "output") if key in call]
        if answered:
            yield _event([{"function_response": _response(_call_of(call, {}), call[key])} for call, key in answered])
    if text is not None or usage:
        yield {**_event([{"text": "" if text is None else str(text)}]), "u": usage}


def _events_of_messages(messages: list[Any], asked: str) -> Iterator[dict[str, Any]]:
    """Yield events for the messages after the user's: a function may return the whole conversation.

    Agents also send each other messages with role `user`, so the newest of these counts only if none has the user's
    text.
    """
    flat = [part for message in messages for part in _split(message)]
    by_user = [at for at, message in enumerate(flat) if _role(message) == "user"]
    matching = [at for at in by_user if _text_of(_get(flat[at], "content")) == asked]
    names: dict[str, str] = {}
    for message in flat[(matching or by_user or [-1])[-1] + 1 :]:
        kind = PARTS.get(_get(message, "part_kind"), _get(message, "type"))
        kind = KINDS.get(kind, kind) if isinstance(kind, str) else None
        if kind is None and not _role(message) and _get(message, "part_kind") is None:
            problem = f"the function returned what is no message: an object of the type {type(message).__name__}"
            raise WorkerError("output", problem)
        if kind == "function_call":
            yield _event([{"function_call": _call_of(message, names)}])
        elif kind == "function_call_output" or _role(message) == "tool":
            call_id = _first(message, "call_id", "tool_call_id")
            name = _first(message, "name", "tool_name") or names.get(call_id, "")
            found = _first(message, "output", "content", "result")
            result = _text_of(found) if isinstance(found, list) else found
            yield _event([{"function_response": _response({"id": call_id, "name": name}, result)}])
        elif _role(message) == "assistant":
            calls = [{"function_call": _call_of(call, names)} for call in _get(message, "tool_calls") or ()]
            text = _text_of(_get(message, "content"))
            yield {
                **_event([*([{"text": text}] if text or not calls else []), *calls]),
                "u": _usage(_first(message, "usage_metadata", "usage")),
                "m": _get(_get(message, "response_metadata"), "model_name"),
            }


def _event(parts: list[dict[str, Any]]) -> dict[str, Any]:
    answers = any("function_response" in part for part in parts)
    is_final = not answers and not any("function_call" in part for part in parts)
    role = "user" if answers else "model"  # ADK records tool results with this role
    return {"a": "agent", "f": is_final, "p": False, "b": None, "m": None, "c": {"role": role, "parts": parts}}


def _split(message: Any) -> list[Any]:
    """Split Pydantic AI's messages into parts, and Anthropic's into calls and results; return others whole."""
    parts = None if isinstance(message, Mapping) else getattr(message, "parts", None)
    if isinstance(parts, (list, tuple)):
        return list(parts)
    content = _get(message, "content")
    blocks = content if isinstance(content, (list, tuple)) else ()
    calls, results = ([b for b in blocks if _get(b, "type") == kind] for kind in ("tool_use", "tool_result"))
    if results:
        kind = "function_call_output"
        return [{"type": kind, "call_id": _get(b, "tool_use_id"), "content": _get(b, "content")} for b in results]
    if not calls or _get(message, "tool_calls"):  # LangChain's have both
        return [message]
    called = [{"id": _get(b, "id"), "name": _get(b, "name"), "args": _get(b, "input")} for b in calls]
    kept = {"content": [b for b in blocks if b not in calls], "usage": _get(message, "usage")}
    return [{"role": "assistant", "tool_calls": called, **kept}]


def _role(message: Any) -> str:
    part = _get(message, "part_kind")
    if part is not None:
        return {"user-prompt": "user", "text": "assistant", "tool-return": "tool"}.get(str(part), "")
    role = str(_get(message, "role") or _get(message, "type") or "")
    return ROLES.get(role, role)


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _first(thing: Any, *names: str) -> Any:
    return next((found for name in names if (found := _get(thing, name)) is not None), None)


def _call_of(call: Any, names: dict[str, str]) -> dict[str, Any]:
    """Return a call in ADK's form. ``names`` collects the names of calls by id: answers may omit them."""
    function = _get(call, "function")
    source = call if function is None or isinstance(function, str) else function
    name = str(_first(source, "name", "tool_name") or function or "")
    arguments = _first(source, "args", "arguments", "input")
    if isinstance(arguments, str):
        arguments = _parsed(arguments, "arguments")
    call_id = _first(call, "call_id", "id", "tool_call_id")
    if call_id is not None:
        names[str(call_id)] = name
    arguments = dict(arguments) if isinstance(arguments, Mapping) else {} if arguments is None else {"args": arguments}
    return {"id": None if call_id is None else str(call_id), "name": name, "args": arguments}


def _response(call: Mapping[str, Any], result: Any) -> dict[str, Any]:
    if isinstance(result, str):
        result = _parsed(result, "result")
    fields = dict(result) if isinstance(result, Mapping) else {"result": result}
    return {"id": call["id"], "name": call["name"], "response": fields}


def _parsed(text: str, key: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {key: text}


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, (list, tuple)) else [content]
    return "".join(block if isinstance(block, str) else str(_get(block, "text") or "") for block in blocks)


def _usage(usage: Any) -> dict[str, Any] | None:
    tokens_in = _first(usage, "input_tokens", "prompt_tokens")
    tokens_out = _first(usage, "output_tokens", "completion_tokens")
    if not isinstance(tokens_in, int) or not isinstance(tokens_out, int):
        return None
    counts = {"prompt_token_count": tokens_in, "candidates_token_count": tokens_out}
    return {**counts, "total_token_count": tokens_in + tokens_out}


def _as_messages(content: Mapping[str, Any], *, user: bool) -> list[dict[str, Any]]:
    """Convert a content to OpenAI's messages."""
    calls, answers = [], []
    for part in content.get("parts") or ():
        if call := part.get("function_call"):
            called = {"name": call["name"], "arguments": json.dumps(call.get("args") or {})}
            calls.append({"id": call.get("id"), "type": "function", "function": called})
        if found := part.get("function_response"):
            answer = {"name": found["name"], "content": json.dumps(found.get("response") or {})}
            answers.append({"role": "tool", "tool_call_id": found.get("id"), **answer})
    message = {"role": "user" if user else "assistant", "content": _spoken(content)}
    return answers or [message | ({"tool_calls": calls} if calls else {})]


def _spoken(content: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in content.get("parts") or () if part.get("text"))


def _positional_parameters(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return 1
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )


class SpanCollector:
    """A span processor of the SDK, which requires these methods. Spans may end in any thread."""

    def __init__(self) -> None:
        self._open: dict[int, list[Any]] = {}

    def on_end(self, span: Any) -> None:
        """Keep the span if its turn is in progress."""
        kept = self._open.get(span.context.trace_id)
        if kept is not None and len(kept) <= MAX_SPANS:  # one extra shows that there were more
            kept.append(span)

    def force_flush(self, *_: Any, **__: Any) -> bool:
        """Do nothing: a span that starts has no attributes yet, and none is buffered or exported."""
        return True

    on_start = _on_ending = shutdown = force_flush

    @contextlib.contextmanager
    def turn(self) -> Iterator[list[Any]]:
        """Put everything inside into a trace of its own; yields the list to which its spans are added as they end."""
        from opentelemetry import context, trace

        trace_id = secrets.randbits(127) + 1
        parent = trace.SpanContext(trace_id, secrets.randbits(63) + 1, True, trace.TraceFlags(1))
        spans = self._open[trace_id] = []
        token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
        try:
            yield spans
        finally:
            context.detach(token)
            del self._open[trace_id]


def collect_spans() -> SpanCollector | None:
    """Start to collect spans; call it before the agent is imported. None without opentelemetry-sdk."""
    for name, value in CAPTURE.items():
        os.environ.setdefault(name, value)
    try:
        from opentelemetry.sdk.trace import TracerProvider
    except Exception:  # noqa: BLE001 - any version, which may raise anything on import
        return None
    collector, begin = SpanCollector(), TracerProvider.__init__

    def begin_with_collector(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.add_span_processor(collector)

    TracerProvider.__init__ = begin_with_collector
    return collector


def provide_tracers() -> None:
    """Create a tracer provider if the agent, now imported, has created none."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))


def _as_frame(spans: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": span.name,
            "id": f"{span.context.span_id:016x}",
            "parent": f"{span.parent.span_id:016x}" if span.parent is not None else "",
            "start": span.start_time,
            "end": span.end_time,
            "attributes": _plain(span.attributes),
            "events": [[event.name, _plain(event.attributes)] for event in span.events[:100]],
        }
        for span in spans[:MAX_SPANS]
    ]


def _plain(attributes: Any) -> dict[str, Any]:
    return {str(name): _cut(value) for name, value in (attributes or {}).items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    return [_cut(item) for item in value[:1000]] if isinstance(value, (list, tuple)) else value
