"""Tool calls and their differences in words, bounded whatever the calls contain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from agent_eval_action.model.trajectory import Call, CallDifference

_CALL = 120
_VALUE = 60
_ARGS_SHOWN = 3
_WALK = 10_000
_ABSENT = object()


def format_call(call: Call, limit: int = _CALL) -> str:
    """``roll_die(sides=17)``; at most ``limit`` characters."""
    return _bounded(_call_pieces(call, limit), limit)


def format_value(value: Any, limit: int = _VALUE) -> str:
    """JSON of a value, cut at ``limit`` characters without ever making the whole text."""
    return _bounded(_pieces(value, limit), limit)


def explain(difference: CallDifference, *, ignore_args: bool = False) -> str:
    """One difference in one sentence part, at most some 500 characters."""
    expected, actual = difference.expected, difference.actual
    if expected is None:
        return f"extra call {_shown(actual, ignore_args)}"
    if actual is None:
        return f"missing call {_shown(expected, ignore_args)}"
    if difference.kind == "moved":
        place, came = (difference.expected_index or 0) + 1, (difference.actual_index or 0) + 1
        return f"out of order: {_shown(expected, ignore_args)} was expected as call {place}, came as call {came}"
    short = (format_call(expected), format_call(actual))
    if short[0] != short[1] and all(len(text) < _CALL for text in short):
        return f"expected {short[0]}, got {short[1]}"
    return f"{_cut(str(expected.name), _VALUE)}: {explain_args(expected.args or {}, actual.args or {})}"


def explain_args(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    """The arguments that differ, by path: ``seats[1].row expected 12, got 14``; the first three of them."""
    found = list(islice(_arg_differences(expected, actual), _ARGS_SHOWN + 1))
    parts = [f"{path} expected {want}, got {got}" for path, want, got in found[:_ARGS_SHOWN]]
    more = "; and more" if len(found) > _ARGS_SHOWN else ""
    return "; ".join(parts) + more if parts else "the arguments differ"


def _shown(call: Call | None, ignore_args: bool) -> str:
    if call is None:
        return "nothing"
    return _cut(str(call.name), _CALL) if ignore_args else format_call(call)


def _arg_differences(expected: Any, actual: Any) -> Iterator[tuple[str, str, str]]:
    stack: list[tuple[str, Any, Any]] = [("", expected, actual)]
    for _ in range(_WALK):
        if not stack:
            return
        path, want, got = stack.pop()
        if isinstance(want, dict) and isinstance(got, dict):
            keys = [*want, *(key for key in got if key not in want)]
            children = [(f".{_cut(str(k), 40)}", want.get(k, _ABSENT), got.get(k, _ABSENT)) for k in keys]
        elif isinstance(want, list) and isinstance(got, list):
            size = max(len(want), len(got))
            children = [(f"[{k}]", _item(want, k), _item(got, k)) for k in range(size)]
        else:
            yield _cut(path.removeprefix("."), 100), *_contrast(want, got)
            continue
        stack.extend((path + step, w, g) for step, w, g in reversed(children) if w is _ABSENT or g is _ABSENT or w != g)


def _item(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _ABSENT


def _contrast(want: Any, got: Any) -> tuple[str, str]:
    """Both values so that the difference shows: long texts from just before where they part."""
    if isinstance(want, str) and isinstance(got, str) and max(len(want), len(got)) > _VALUE // 2:
        start = max(_common_prefix(want, got) - 10, 0)
        lead, end = "…" if start else "", start + _VALUE
        return lead + format_value(want[start:end]), lead + format_value(got[start:end])
    return _or_nothing(want), _or_nothing(got)


def _or_nothing(value: Any) -> str:
    return "nothing" if value is _ABSENT else format_value(value)


def _common_prefix(one: str, two: str) -> int:
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _call_pieces(call: Call, limit: int) -> Iterator[str]:
    yield f"{_cut(str(call.name), limit)}("
    for index, (key, value) in enumerate((call.args or {}).items()):
        yield f"{', ' if index else ''}{_cut(str(key), limit)}="
        yield from _pieces(value, limit)
    yield ")"


def _pieces(value: Any, limit: int) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for index, (key, inner) in enumerate(value.items()):
            yield f"{', ' if index else ''}{json.dumps(_cut(str(key), limit), ensure_ascii=False)}: "
            yield from _pieces(inner, limit)
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for index, inner in enumerate(value):
            yield ", " if index else ""
            yield from _pieces(inner, limit)
        yield "]"
    elif isinstance(value, str):
        yield json.dumps(_cut(value, limit), ensure_ascii=False)
    elif isinstance(value, int) and value.bit_length() > 4 * limit:
        yield "a number of more digits than can be shown"  # str() of it raises beyond 4300 digits
    elif value is None or isinstance(value, bool | int | float):
        yield json.dumps(value)
    else:
        yield _cut(repr(value), limit)


def _bounded(pieces: Iterator[str], limit: int) -> str:
    out, room = [], limit
    for piece in pieces:
        out.append(piece)
        room -= len(piece)
        if room < 0:
            break
    return _cut("".join(out), limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
