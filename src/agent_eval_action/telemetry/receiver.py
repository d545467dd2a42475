"""A local OTLP receiver (HTTP) that assigns what agents report to their turns.

A turn's spans are those of the trace that its ``traceparent`` names. Traces that an agent began itself are matched by
the conversation that their spans name, else by time, if no other turn was open meanwhile. The rest is dropped.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from aiohttp import web

from agent_eval_action.telemetry.otlp import (
    MAX_BODY,
    LoggedEvent,
    OtlpError,
    Telemetry,
    decode_payload,
    decompress_gzip,
)
from agent_eval_action.telemetry.spans import TraceSpan

_QUIET_TREE_S = 0.5
"""Seconds without a new span after the answer, if no span's parent is missing. Exports are 0.2 s apart."""
_QUIET_S = 1.0
"""The same for single spans, and for agents that never report some of the parents."""
_POLL = 0.02
_MAX_RECORDS = 20_000
"""Maximum number of spans and log records per trace: an agent in a loop must not fill our memory."""
_MAX_TRACES = 2_000
_REMEMBERED = 1_000
"""Number of ended turns whose traces are remembered, to notice spans that arrive late."""
_MISSES = 3
"""After so many turns in a row without spans, wait for an agent that has reported some only ``_QUIET_S``."""
_MAX_HELD = 256 * 1024 * 1024
"""Maximum size of payloads that no turn has taken yet, in bytes; beyond it the oldest traces are dropped."""
_PROTOBUF, _JSON = "application/x-protobuf", "application/json"


@dataclass(slots=True)
class _Trace:
    source: str
    spans: list[TraceSpan] = field(default_factory=list)
    logs: list[LoggedEvent] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    parents: set[str] = field(default_factory=set)
    conversation: str = ""
    start: int = 0
    changed: float = 0.0
    size: int = 0
    dropped: int = 0

    def add(self, record: TraceSpan | LoggedEvent) -> None:
        self.changed = time.monotonic()
        if len(self.spans) + len(self.logs) >= _MAX_RECORDS:
            self.dropped += 1
        elif isinstance(record, TraceSpan):
            self.start = min(record.start, self.start) if self.spans else record.start
            self.spans.append(record)
            self.ids.add(record.span_id)
            self.parents.add(record.parent_id)
            self.conversation = self.conversation or record.conversation
        else:
            self.logs.append(record)

    def has_calls(self, *, without_langsmith: bool) -> bool:
        """Whether it has a span of a tool or model. LangSmith's spans may only repeat other instrumentations'."""
        return any(
            span.kind in ("tool", "model") and not (without_langsmith and span.is_langsmith) for span in self.spans
        )


@dataclass(eq=False, slots=True)
class TurnTrace:
    """The trace of a turn in progress. ``traceparent`` is the header to send with the turn."""

    conversation: str
    source: str
    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))
    began: int = field(default_factory=time.time_ns)
    began_at: float = field(default_factory=time.monotonic)
    overlapped: bool = False
    refused: str = ""

    @property
    def traceparent(self) -> str:
        """The W3C header, with the flag that the trace is recorded."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class TraceReceiver:
    """Listens on 127.0.0.1. The path contains a secret, so that other processes cannot write to it."""

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(24)
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._traces: OrderedDict[str, _Trace] = OrderedDict()
        self._held_bytes = 0
        self._open: set[TurnTrace] = set()
        self._has_reported = False
        self._omits_parents = False
        self._misses = 0
        self._ended: OrderedDict[str, tuple[float, frozenset[str]]] = OrderedDict()
        self.on_late: Callable[[float], None] | None = None
        """Called with the seconds since the turn's end if a span of a tool or model comes too late for its turn."""

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application(client_max_size=MAX_BODY)
        for signal in ("traces", "logs"):
            app.router.add_post(f"/{self._token}/{{source}}/v1/{signal}", self._receive)
        runner = web.AppRunner(app, access_log=None, auto_decompress=False)
        self._runner = runner
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self._port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and discard what was received. Safe to call twice."""
        runner, self._runner = self._runner, None
        if runner:
            await runner.cleanup()
        self._traces.clear()

    def endpoint(self, source: str = "agent") -> str:
        """Return the base URL for a process; exporters add ``/v1/traces`` and ``/v1/logs``."""
        return f"http://127.0.0.1:{self._port}/{self._token}/{source}"

    def environment(self, source: str = "agent") -> dict[str, str]:
        """Return the variables that make a process's SDK export here, soon and with message contents."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint(source),
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_LOGS_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_TRACES_SAMPLER": "always_on",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "OTEL_BLRP_SCHEDULE_DELAY": "200",
            # The default, 2,048, is too small for many sessions of a framework that makes a span of each step.
            "OTEL_BSP_MAX_QUEUE_SIZE": "65536",
            "OTEL_BLRP_MAX_QUEUE_SIZE": "65536",
            "OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED": "false",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
            "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "true",
            "TRACELOOP_TRACE_CONTENT": "true",
            "LANGSMITH_OTEL_ENABLED": "true",
            "LANGSMITH_OTEL_ONLY": "true",
            "LANGSMITH_TRACING": "true",
        }

    def begin_turn(self, conversation: str = "", source: str = "agent") -> TurnTrace:
        """Open a turn of a process. ``conversation`` is the session's id, if the agent knows it."""
        turn = TurnTrace(conversation, source)
        for other in self._open:
            if other.source == source:
                other.overlapped = turn.overlapped = True
        self._open.add(turn)
        return turn

    async def finish(self, turn: TurnTrace, timeout: float) -> Telemetry:  # noqa: ASYNC109 - reaching it is no error
        """End a turn: wait until its spans have come and no more arrive, at most ``timeout`` seconds.

        An agent that reports nothing is waited for only once, not at each turn.
        """
        ended, ended_at = time.time_ns(), time.monotonic()
        deadline = ended_at + (timeout if self._misses < _MISSES else _QUIET_S if self._has_reported else 0.0)
        try:
            # Polls, because no event signals silence.
            while not self._is_complete(turn, ended, ended_at):
                if time.monotonic() >= deadline:
                    self._omits_parents |= self._is_complete(turn, ended, ended_at, needs_parents=False)
                    break
                await asyncio.sleep(_POLL)
            traces = [self._take(trace_id) for trace_id in self._traces_of(turn, ended)]
            others = {other.trace_id for other in self._open}
            strays = any(
                trace.source == turn.source
                and turn.began <= trace.start <= ended
                and trace.has_calls(without_langsmith=bool(traces))
                for trace_id, trace in self._traces.items()
                if trace_id not in others
            )
        finally:
            self._open.discard(turn)
            # Traces that ended before any open turn began belong to none.
            began = min((other.began_at for other in self._open), default=time.monotonic())
            for trace_id in [trace_id for trace_id, trace in self._traces.items() if trace.changed < began]:
                self._take(trace_id)
        self._ended[turn.trace_id] = ended_at, frozenset().union(*(trace.ids for trace in traces))
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        self._misses = 0 if traces else self._misses + (1 if self._has_reported else _MISSES)
        found = Telemetry.joined([Telemetry(tuple(each.spans), tuple(each.logs), each.dropped) for each in traces])
        return replace(found, is_ambiguous=strays and turn.overlapped, refused=turn.refused)

    def abandon(self, turn: TurnTrace) -> None:
        """End a turn without its spans, unless it has ended."""
        self._open.discard(turn)
        if turn.trace_id in self._traces:
            self._take(turn.trace_id)

    def _take(self, trace_id: str) -> _Trace:
        trace = self._traces.pop(trace_id)
        self._held_bytes -= trace.size
        return trace

    def _is_complete(self, turn: TurnTrace, ended: int, ended_at: float, *, needs_parents: bool = True) -> bool:
        """Whether no more spans will come. Silence counts only after the answer: models may be slow before it."""
        traces = [self._traces[trace_id] for trace_id in self._traces_of(turn, ended)]
        quiet = time.monotonic() - max(ended_at, *(trace.changed for trace in traces), 0.0)
        if quiet < _QUIET_TREE_S or not any(trace.spans for trace in traces):
            return False
        ids = set[str]().union(*(trace.ids for trace in traces))
        parents = set[str]().union(*(trace.parents for trace in traces))
        is_whole = parents <= ids | {"", turn.span_id}
        if not is_whole and needs_parents and not self._omits_parents:
            return False
        return quiet >= _QUIET_S or (is_whole and not parents.isdisjoint(ids))

    def _traces_of(self, turn: TurnTrace, ended: int) -> list[str]:
        """Return the turn's own trace, and those of its program that can be no other turn's."""
        taken = {other.trace_id for other in self._open if other is not turn}
        named = {other.conversation for other in self._open} - {""}

        def is_likely(trace: _Trace) -> bool:
            within = turn.began <= trace.start <= ended and trace.source == turn.source and bool(trace.spans)
            if turn.conversation and trace.conversation == turn.conversation:
                return within
            return within and not turn.overlapped and trace.conversation not in named

        return [
            trace_id
            for trace_id, trace in self._traces.items()
            if trace_id == turn.trace_id or (trace_id not in taken and is_likely(trace))
        ]

    async def _receive(self, request: web.Request) -> web.Response:
        kind = request.content_type
        if kind not in (_PROTOBUF, _JSON):
            return web.Response(status=415)
        signal, source = request.path.rpartition("/")[2], request.match_info["source"]
        try:
            body = await request.read()
            if request.headers.get("Content-Encoding", "identity").lower() == "gzip":
                body = decompress_gzip(body)
            # In a thread: a large body takes seconds, and this loop serves every session of the run.
            telemetry = await asyncio.to_thread(decode_payload, body, protobuf=kind == _PROTOBUF, signal=signal)
        except OtlpError as error:
            self._refuse(source, str(error))
            return web.Response(status=400, text=str(error))
        except web.HTTPRequestEntityTooLarge:
            self._refuse(source, f"more than {MAX_BODY >> 20} MB in one request")
            raise
        self._keep(telemetry, source, len(body))
        # An empty message says that everything was accepted.
        return web.Response(body=b"" if kind == _PROTOBUF else json.dumps({}).encode(), content_type=kind)

    def _refuse(self, source: str, why: str) -> None:
        """Note in each turn that a payload may belong to why it was not read."""
        for turn in self._open:
            if turn.source == source:
                turn.refused = why

    def _keep(self, telemetry: Telemetry, source: str, size: int) -> None:
        records: tuple[TraceSpan | LoggedEvent, ...] = (*telemetry.spans, *telemetry.logs)
        if records and not self._has_reported:
            self._has_reported, self._misses = True, 0
        for record in records:
            if record.trace_id in self._ended:
                ended_at, known = self._ended[record.trace_id]
                is_call = isinstance(record, TraceSpan) and record.kind in ("tool", "model")
                if is_call and record.span_id not in known and self.on_late:
                    self.on_late(time.monotonic() - ended_at)
                continue
            if record.trace_id not in self._traces:
                self._traces[record.trace_id] = _Trace(source)
            trace = self._traces[record.trace_id]
            trace.add(record)
            trace.size += size // len(records)
            self._held_bytes += size // len(records)
        while len(self._traces) > _MAX_TRACES or self._held_bytes > _MAX_HELD:
            self._refuse(self._take(next(iter(self._traces))).source, "more of them at a time than are held")
