"""Collect the spans that a function's frameworks make with their interpreter's OpenTelemetry, turn by turn.

Our processor is added to every tracer provider that the agent creates, so its own exporters keep working; if it creates
none, we do. Without opentelemetry-sdk nothing is collected.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import Any

MAX_SPANS = 2000  # of a turn
MAX_TEXT = 200_000
CAPTURE = {
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "true",
    "TRACELOOP_TRACE_CONTENT": "true",
}


class SpanCollector:
    """A span processor of the SDK, which requires these four methods. Spans may end in any thread."""

    def __init__(self) -> None:
        self._open: dict[int, list[Any]] = {}

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Do nothing: a span has no attributes yet."""

    def on_end(self, span: Any) -> None:
        """Keep the span if its turn is in progress."""
        kept = self._open.get(span.context.trace_id)
        if kept is not None and len(kept) <= MAX_SPANS:  # one extra shows that there were more
            kept.append(span)

    def shutdown(self) -> None:
        """Do nothing: no span is exported."""

    def force_flush(self, timeout_millis: int = 0) -> bool:  # noqa: ARG002 - the SDK's signature
        """Do nothing: no span is buffered."""
        return True

    _on_ending = on_start

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


def as_frame(spans: list[Any]) -> list[dict[str, Any]]:
    """Return spans in the form of a turn's frame."""
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


def unseen(spans: list[Any]) -> str:
    """Return why a turn's calls may be missing in its frame; "" if none are."""
    return (
        f"a turn has more than {MAX_SPANS:,} spans: its tool calls are not all seen" if len(spans) > MAX_SPANS else ""
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {str(name): _cut(value) for name, value in (attributes or {}).items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    return [_cut(item) for item in value[:1000]] if isinstance(value, (list, tuple)) else value
