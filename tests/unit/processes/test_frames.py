"""Frames from a process that is not trusted."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.processes.protocol import HEADER, MAGIC, Frame, FrameError, encode, read_frame

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


async def read_all(pieces: list[bytes], limit: int) -> list[Frame]:
    reader = asyncio.StreamReader()

    async def feed() -> None:
        for piece in pieces:
            reader.feed_data(piece)
            await asyncio.sleep(0)
        reader.feed_eof()

    feeding = asyncio.create_task(feed())
    seen = []
    while frame := await read_frame(reader, limit):
        seen.append(frame)
    await feeding
    return seen


@given(st.lists(JSON, max_size=4), st.integers(1, 40))
def test_any_frames_in_any_pieces(values: list[object], piece: int) -> None:
    frames = [{"ev": "x", "value": value} for value in values]
    data = b"".join(encode(frame) for frame in frames)
    pieces = [data[start : start + piece] for start in range(0, len(data), piece)]
    assert asyncio.run(read_all(pieces, 1 << 20)) == frames
    assert asyncio.run(read_all([data[:-1]], 1 << 20)) == frames[:-1]


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
async def test_what_is_no_frame(data: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        await read_all([data], 1000)


async def test_nesting_without_end_is_no_frame() -> None:
    body = b'{"ev":' + b"[" * 200_000
    with pytest.raises(FrameError, match="no JSON"):
        await read_all([HEADER.pack(MAGIC, len(body)) + body], 1 << 20)


def test_ours_are_plain_ascii() -> None:
    assert json.loads(encode({"ev": "é\ud800"})[HEADER.size :].decode("ascii")) == {"ev": "é\ud800"}
