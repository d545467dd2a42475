"""Frames from a process that is not trusted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.processes.protocol import HEADER, MAGIC, FrameError, FrameParser, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(st.lists(JSON, max_size=4), st.integers(1, 40))
def test_any_frames_in_any_pieces(values: list[object], piece: int) -> None:
    frames = [{"ev": "x", "value": value} for value in values]
    data = b"".join(encode(frame) for frame in frames)
    parser, seen = FrameParser(1 << 20), []
    for start in range(0, len(data), piece):
        seen += parser.feed(data[start : start + piece])
    assert seen == frames


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"garbage!", "not a frame"),
        (HEADER.pack(MAGIC, 2000), "a frame of 2000 bytes, the limit is 1000"),
        (HEADER.pack(MAGIC, 3) + b"{]}", "no JSON"),
        (HEADER.pack(MAGIC, 2) + b"[]", "without a name"),
        (HEADER.pack(MAGIC, 8) + b'{"ev":1}', "without a name"),
        (HEADER.pack(MAGIC, 5000) + b"[" * 5000, "limit is 1000"),
        (HEADER.pack(MAGIC, 1) + b"\xff", "no JSON"),
    ],
)
def test_what_is_no_frame(data: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        FrameParser(1000).feed(data)


def test_nesting_without_end_is_no_frame() -> None:
    body = b'{"ev":' + b"[" * 200_000
    with pytest.raises(FrameError, match="no JSON"):
        FrameParser(1 << 20).feed(HEADER.pack(MAGIC, len(body)) + body)


def test_ours_are_plain_ascii() -> None:
    assert json.loads(encode({"ev": "é\ud800"})[HEADER.size :].decode("ascii")) == {"ev": "é\ud800"}
