"""Decode OTLP payloads, protobuf or JSON, to spans. They come from the agent, so the bytes may be anything."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from agent_eval_action.telemetry.spans import TraceSpan

MAX_BODY: Final = 32 * 1024 * 1024
"""Maximum size of a payload, in bytes, after decompression."""
_MALFORMED: Final = (DecodeError, json_format.ParseError, ValueError, RecursionError)
_BASE64_IDS: Final = (12, 24)
"""Lengths of ids wrongly decoded as base64: OTLP's JSON writes ids in hex where protobuf's expects base64."""

_Event = tuple[str, Mapping[str, Any]]


class OtlpError(ValueError):
    """The payload is not OTLP, or larger than ``MAX_BODY``."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A log record with the ids of the trace and span in which it was written."""

    trace_id: str
    span_id: str
    event: _Event


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The content of payloads, in their order. ``dropped`` counts the records over the limit.

    ``is_ambiguous``: some spans may belong to this turn or to another, so neither has them. ``refused``: why a payload
    that may have held spans of the turn was not read; "" if there was none.
    """

    spans: tuple[TraceSpan, ...] = ()
    logs: tuple[LoggedEvent, ...] = ()
    dropped: int = 0
    is_ambiguous: bool = False
    refused: str = ""

    @classmethod
    def joined(cls, parts: Sequence[Telemetry]) -> Telemetry:
        """Return the spans and log records of all parts."""
        spans = tuple(span for part in parts for span in part.spans)
        logs = tuple(log for part in parts for log in part.logs)
        return cls(spans, logs, sum(part.dropped for part in parts))

    def whole_spans(self) -> list[TraceSpan]:
        """Return each span once, with the log records that were written in it among its events."""
        # A program with two exporters, or one that resends what was not acknowledged, reports everything twice.
        # Spans that only share an id are different ones.
        once = {(span.trace_id, span.span_id, span.name, span.start, span.end): span for span in self.spans}
        written: dict[str, dict[str, _Event]] = {}
        for log in self.logs:
            written.setdefault(log.span_id, {})[repr(log.event)] = log.event
        return [
            replace(span, events=(*span.events, *written[span.span_id].values())) if span.span_id in written else span
            for span in once.values()
        ]


def decode_payload(body: bytes, *, protobuf: bool, signal: str) -> Telemetry:
    """Decode a request body. ``signal`` is ``traces`` or ``logs``. Raises OtlpError."""
    request = ExportLogsServiceRequest() if signal == "logs" else ExportTraceServiceRequest()
    try:
        if protobuf:
            request.ParseFromString(body)
        else:
            # JSON may hold half a surrogate pair, which UTF-8 cannot encode.
            text = json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "replace")
            if not text.startswith(b"{"):
                raise OtlpError("it is no JSON object")
            json_format.Parse(text, request, ignore_unknown_fields=True)
    except _MALFORMED as error:
        raise OtlpError(f"no OTLP {signal}: {type(error).__name__}") from error
    if isinstance(request, ExportLogsServiceRequest):
        records = (
            log for resource in request.resource_logs for scope in resource.scope_logs for log in scope.log_records
        )
        return Telemetry(logs=tuple(map(_logged, records)))
    spans = (span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans)
    return Telemetry(spans=tuple(map(_span, spans)))


def decompress_gzip(body: bytes) -> bytes:
    """Decompress a body up to the limit: a small body may unpack to gigabytes. Raises OtlpError."""
    stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        data = stream.decompress(body, MAX_BODY + 1)
    except zlib.error as error:
        raise OtlpError("the body is not gzip") from error
    if len(data) > MAX_BODY or not stream.eof:
        raise OtlpError("the body is too large or cut off")
    return data


def read_otlp_file(path: Path) -> Telemetry:
    """Read a file of OTLP JSON: one request, or one per line, as file exporters write them.

    Requests of other signals are skipped. Raises OSError, or OtlpError with the line number.
    """
    data = path.read_bytes()
    with contextlib.suppress(OtlpError):
        return _decode_request(data)
    parts = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            parts.append(_decode_request(line) if line.strip() else Telemetry())
        except OtlpError as error:
            raise OtlpError(f"line {number}: {error}") from error
    return Telemetry.joined(parts)


def _decode_request(text: bytes) -> Telemetry:
    return Telemetry.joined([decode_payload(text, protobuf=False, signal=signal) for signal in ("traces", "logs")])


def _span(span: Span) -> TraceSpan:
    parent = _hexadecimal(span.parent_span_id)
    return TraceSpan(
        name=span.name,
        span_id=_hexadecimal(span.span_id),
        parent_id=parent if parent.strip("0") else "",
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        events=tuple((event.name, _attributes(event.attributes)) for event in span.events),
        trace_id=_hexadecimal(span.trace_id),
    )


def _logged(record: LogRecord) -> LoggedEvent:
    attributes, body = _attributes(record.attributes), _value(record.body)
    # The event's name was an attribute before it became a field.
    name = record.event_name or str(attributes.get("event.name") or "")
    event = name, {**attributes, **body} if isinstance(body, dict) else attributes
    return LoggedEvent(_hexadecimal(record.trace_id), _hexadecimal(record.span_id), event)


def _hexadecimal(found: bytes) -> str:
    return base64.b64encode(found).decode().lower() if len(found) in _BASE64_IDS else found.hex()


def _attributes(items: Iterable[KeyValue]) -> dict[str, Any]:
    return {item.key: _value(item.value) for item in items}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    match kind:
        case "array_value":
            return [_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "double_value":
            return value.double_value if math.isfinite(value.double_value) else str(value.double_value)
        case None:
            return None
    return getattr(value, kind)
