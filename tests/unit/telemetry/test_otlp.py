"""Payloads of OTLP, and what is none."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.telemetry.otlp import MAX_BODY, OtlpError, decode_payload, decompress_gzip

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
VALUES = st.dictionaries(st.sampled_from(["stringValue", "intValue", "doubleValue", "arrayValue", "x"]), JSON)
NAMES = st.sampled_from(
    ["gen_ai.operation.name", "gen_ai.output.messages", "gen_ai.tool.call.arguments", "input.value", "output.value"]
)
ATTRIBUTES = st.lists(st.fixed_dictionaries({"key": NAMES, "value": VALUES | JSON}), max_size=4)
SPANS = st.fixed_dictionaries(
    {"spanId": JSON, "attributes": ATTRIBUTES | JSON}, optional={"startTimeUnixNano": JSON, "events": JSON}
)


def request(*spans: object) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()


def attribute_of(value: object) -> object:
    item = {"spanId": "01", "attributes": [{"key": "k", "value": value}]}
    return decode_payload(request(item), protobuf=False, signal="traces").spans[0].attributes["k"]


@given(st.lists(SPANS | JSON, max_size=3))
def test_hostile_json_is_refused_or_read(spans: list[object]) -> None:
    try:
        telemetry = decode_payload(request(*spans), protobuf=False, signal="traces")
    except OtlpError:
        return
    assert {span.span_id for span in telemetry.whole_spans()} == {span.span_id for span in telemetry.spans}


@given(st.binary(max_size=200), st.sampled_from(["traces", "logs"]))
def test_hostile_bytes_are_refused_or_read(body: bytes, signal: str) -> None:
    try:
        decode_payload(body, protobuf=True, signal=signal)
    except OtlpError:
        return


@pytest.mark.parametrize(
    "body",
    [b"", b"[", b"[]", b"1", b"[" * 100_000, b'{"resourceSpans": [1]}', b'{"resourceSpans": [{"scopeSpans": 7}]}'],
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(OtlpError):
        decode_payload(body, protobuf=False, signal="traces")


@pytest.mark.parametrize("body", [b"\x0a\xff", b"\x0b", b"\xff" * 11, b"\x0a\x80\x80\x80\x80\x10"])
def test_broken_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(OtlpError):
        decode_payload(body, protobuf=True, signal="traces")


def test_ids_are_hexadecimal_in_json_and_bytes_in_protobuf() -> None:
    item = {"traceId": "AB" * 16, "spanId": "0" * 15 + "7", "parentSpanId": "00" * 8, "attributes": []}
    (span,) = decode_payload(request(item), protobuf=False, signal="traces").spans
    assert (span.trace_id, span.span_id, span.parent_id) == ("ab" * 16, "0" * 15 + "7", "")


def test_text_that_no_file_can_hold_is_made_whole() -> None:
    assert attribute_of({"stringValue": "a\ud800b"}) == "a?b"
    assert attribute_of({"doubleValue": "NaN"}) == "nan"


def test_an_integer_may_be_text_as_protobufs_json_has_it() -> None:
    assert attribute_of({"intValue": "12"}) == 12


def test_nesting_is_limited() -> None:
    value: dict = {"stringValue": "x"}
    for _ in range(100):
        value = {"arrayValue": {"values": [value]}}
    with pytest.raises(OtlpError):
        attribute_of(value)


def test_a_small_body_that_unpacks_to_much_is_refused() -> None:
    with pytest.raises(OtlpError):
        decompress_gzip(gzip.compress(b"\0" * (MAX_BODY + 1)))
    with pytest.raises(OtlpError):
        decompress_gzip(gzip.compress(b"abc")[:-4])
    assert decompress_gzip(gzip.compress(b"abc")) == b"abc"
