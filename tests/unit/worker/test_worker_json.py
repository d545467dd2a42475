"""JSON of anything an agent can hold."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from agent_eval_worker_errors import WorkerError
from agent_eval_worker_protocol import MAX_DEPTH, encode, encode_model
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text(st.characters(categories=["Cs"]))
    | st.binary()
    | st.dates()
    | st.complex_numbers()
    | st.just(object),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.binary() | st.none() | st.floats(), inner)
    ),
)


class Holder(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    value: Any = None
    nothing: str | None = None


@given(ODD)
def test_anything_becomes_strict_utf8_json(value: Any) -> None:
    for body in (encode(value), encode_model(Holder(value=value))):
        found = json.loads(body.decode("utf-8"), parse_constant=_refuse)
        json.dumps(found, ensure_ascii=False).encode("utf-8")


def _refuse(name: str) -> None:
    raise AssertionError(name)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_json_stays_itself(value: Any) -> None:
    assert json.loads(encode(value)) == value


class Mean:
    def __str__(self) -> str:
        raise SystemExit(1)


class Point(BaseModel):
    x: float


def test_what_json_cannot_say() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    value = {
        "nan": float("nan"),
        "bytes": b"\xfb\xff",
        "huge": 1 << 20_000,
        "loop": loop,
        "mean": Mean(),
        "model": Point(x=float("inf")),
        "day": dt.date(2026, 1, 2),
        ("a", 1): {2},
        "text": "\ud83d\ude00 \ud800 \x00",
    }
    found = json.loads(encode(value))
    assert found.pop("huge").startswith("0x1000")
    assert found == {
        "nan": "nan",
        "bytes": "-_8=",
        "loop": [1, "<refers to itself>"],
        "mean": "<Mean whose text raises SystemExit>",
        "model": {"x": "inf"},
        "day": "2026-01-02",
        "('a', 1)": [2],
        "text": "😀 \ufffd \x00",
    }


def test_depth_and_breadth_end() -> None:
    deep: Any = "bottom"
    for _ in range(50_000):
        deep = [deep]
    text = encode(deep).decode()
    assert f"<deeper than {MAX_DEPTH} levels>" in text
    wide: Any = ["x"]
    for _ in range(60):
        wide = [wide, wide]
    with pytest.raises(WorkerError, match="values in one object"):
        encode([float("nan"), wide])
