"""Two sequences of tool calls side by side: which call is missing, extra, different or moved."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol

from agent_eval_action.diagnostics.suggestions import clip

DifferenceKind = Literal["missing", "extra", "different", "moved"]

_DP_CELLS = 250_000
"""Up to here the alignment is a longest common subsequence; beyond, one in n log n that is nearly as long."""


class Call(Protocol):
    """A tool call: ``evalset.FunctionCall`` and ``brief.CallBrief`` both are one."""

    @property
    def name(self) -> str | None: ...
    @property
    def args(self) -> dict[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class CallDifference:
    """One difference. ``missing`` has no actual call, ``extra`` no expected one; indices count from 0.

    ``different``: a call of the same tool with other arguments. ``moved``: an equal call, out of order.
    """

    kind: DifferenceKind
    expected: Call | None = None
    actual: Call | None = None
    expected_index: int | None = None
    actual_index: int | None = None


def call_key(call: Call, *, ignore_args: bool = False) -> Hashable:
    """Equal exactly for calls that are equal: same name, args equal as Python values, absent args = {}."""
    return call.name if ignore_args else (call.name, _frozen(call.args or {}))


def _frozen(value: Any) -> Hashable:
    # map() keeps it at one Python frame a level, so that whatever a JSON parser can nest can be frozen.
    if isinstance(value, dict):
        return "{}", frozenset(zip(value, map(_frozen, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return "[]", tuple(map(_frozen, value))
    return value if isinstance(value, Hashable) else repr(value)


def diff_calls(
    expected: Sequence[Call], actual: Sequence[Call], *, ignore_args: bool = False
) -> tuple[CallDifference, ...]:
    """Every difference, in the order of the conversation. Empty exactly when the sequences are equal.

    Raises RecursionError when arguments are nested beyond what Python can walk.
    """
    want = [call_key(call, ignore_args=ignore_args) for call in expected]
    got = [call_key(call, ignore_args=ignore_args) for call in actual]
    matched = _align(want, got)
    pairs = _pair_leftovers(want, got, expected, actual, matched)
    found = [CallDifference(kind, expected[i], actual[j], i, j) for i, j, kind in pairs]
    missing = _unmatched(len(want), [*(i for i, _ in matched), *(i for i, _, _ in pairs)])
    extra = _unmatched(len(got), [*(j for _, j in matched), *(j for _, j, _ in pairs)])
    found += [CallDifference("missing", expected=expected[i], expected_index=i) for i in missing]
    found += [CallDifference("extra", actual=actual[j], actual_index=j) for j in extra]
    return tuple(sorted(found, key=_reading_order(matched)))


def _pair_leftovers(
    want: list[Hashable],
    got: list[Hashable],
    expected: Sequence[Call],
    actual: Sequence[Call],
    matched: list[tuple[int, int]],
) -> list[tuple[int, int, DifferenceKind]]:
    """Pairs what the alignment left over: equal calls, then the same tool at the same place, then anywhere."""
    left = list(_unmatched(len(want), (i for i, _ in matched)))
    right = list(_unmatched(len(got), (j for _, j in matched)))
    starts_want, starts_got = [i for i, _ in matched], [j for _, j in matched]
    rounds: list[tuple[DifferenceKind, Callable[[int], Hashable], Callable[[int], Hashable]]] = [
        ("moved", lambda i: want[i], lambda j: got[j]),
        (
            "different",
            lambda i: (expected[i].name, bisect_left(starts_want, i)),
            lambda j: (actual[j].name, bisect_left(starts_got, j)),
        ),
        ("different", lambda i: expected[i].name, lambda j: actual[j].name),
    ]
    pairs: list[tuple[int, int, DifferenceKind]] = []
    for kind, key_want, key_got in rounds:
        waiting: defaultdict[Hashable, deque[int]] = defaultdict(deque)
        for j in right:
            waiting[key_got(j)].append(j)
        new = [(i, waiting[key].popleft(), kind) for i in left if waiting[key := key_want(i)]]
        pairs += new
        done_want, done_got = {i for i, _, _ in new}, {j for _, j, _ in new}
        left = [i for i in left if i not in done_want]
        right = [j for j in right if j not in done_got]
    return pairs


def _unmatched(length: int, matched: Iterable[int]) -> Iterable[int]:
    taken = set(matched)
    return (index for index in range(length) if index not in taken)


def _reading_order(matched: list[tuple[int, int]]) -> Callable[[CallDifference], tuple[int, bool, int]]:
    """Sort key: by place between the calls that match; there, what was expected comes before what is extra."""
    starts_want, starts_got = [i for i, _ in matched], [j for _, j in matched]

    def key(difference: CallDifference) -> tuple[int, bool, int]:
        if difference.expected_index is not None:
            return bisect_left(starts_want, difference.expected_index), False, difference.expected_index
        index = difference.actual_index or 0
        return bisect_left(starts_got, index), True, index

    return key


def _align(want: list[Hashable], got: list[Hashable]) -> list[tuple[int, int]]:
    """Indices of equal items, increasing on both sides, as many as can be found cheaply."""
    head = 0
    while head < min(len(want), len(got)) and want[head] == got[head]:
        head += 1
    tail = 0
    while tail < min(len(want), len(got)) - head and want[-1 - tail] == got[-1 - tail]:
        tail += 1
    inner_want, inner_got = want[head : len(want) - tail], got[head : len(got) - tail]
    small = len(inner_want) * len(inner_got) <= _DP_CELLS
    inner = _longest_common(inner_want, inner_got) if small else _longest_increasing(inner_want, inner_got)
    return [
        *((k, k) for k in range(head)),
        *((head + i, head + j) for i, j in inner),
        *((len(want) - k, len(got) - k) for k in range(tail, 0, -1)),
    ]


def _longest_common(want: list[Hashable], got: list[Hashable]) -> list[tuple[int, int]]:
    """The textbook table, filled from the end so that it is read from the start."""
    table = [[0] * (len(got) + 1) for _ in range(len(want) + 1)]
    for i in range(len(want) - 1, -1, -1):
        row, below = table[i], table[i + 1]
        for j in range(len(got) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if want[i] == got[j] else max(below[j], row[j + 1])
    pairs, i, j = [], 0, 0
    while i < len(want) and j < len(got):
        if want[i] == got[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif table[i + 1][j] >= table[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _longest_increasing(want: list[Hashable], got: list[Hashable]) -> list[tuple[int, int]]:
    """Pairs the k-th of each call with its k-th, then keeps the longest run in order (patience sorting)."""
    places: defaultdict[Hashable, deque[int]] = defaultdict(deque)
    for j, item in enumerate(got):
        places[item].append(j)
    pairs = [(i, places[item].popleft()) for i, item in enumerate(want) if places[item]]
    tops: list[int] = []
    ends: list[int] = []
    previous: list[int | None] = []
    for index, (_, j) in enumerate(pairs):
        pile = bisect_left(tops, j)
        previous.append(ends[pile - 1] if pile else None)
        tops[pile : pile + 1] = [j]
        ends[pile : pile + 1] = [index]
    chain: list[tuple[int, int]] = []
    at = ends[-1] if ends else None
    while at is not None:
        chain.append(pairs[at])
        at = previous[at]
    return chain[::-1]


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
    return f"{clip(str(expected.name), _VALUE)}: {explain_args(expected.args or {}, actual.args or {})}"


def explain_args(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    """The arguments that differ, by path: ``seats[1].row expected 12, got 14``; the first three of them."""
    found = list(islice(_arg_differences(expected, actual), _ARGS_SHOWN + 1))
    parts = [f"{path} expected {want}, got {got}" for path, want, got in found[:_ARGS_SHOWN]]
    more = "; and more" if len(found) > _ARGS_SHOWN else ""
    return "; ".join(parts) + more if parts else "the arguments differ"


def _shown(call: Call | None, ignore_args: bool) -> str:
    if call is None:
        return "nothing"
    return clip(str(call.name), _CALL) if ignore_args else format_call(call)


def _arg_differences(expected: Any, actual: Any) -> Iterator[tuple[str, str, str]]:
    stack: list[tuple[str, Any, Any]] = [("", expected, actual)]
    for _ in range(_WALK):
        if not stack:
            return
        path, want, got = stack.pop()
        if isinstance(want, dict) and isinstance(got, dict):
            keys = [*want, *(key for key in got if key not in want)]
            children = [(f".{clip(str(k), 40)}", want.get(k, _ABSENT), got.get(k, _ABSENT)) for k in keys]
        elif isinstance(want, list) and isinstance(got, list):
            size = max(len(want), len(got))
            children = [(f"[{k}]", _item(want, k), _item(got, k)) for k in range(size)]
        else:
            yield clip(path.removeprefix("."), 100), *_contrast(want, got)
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
    yield f"{clip(str(call.name), limit)}("
    for index, (key, value) in enumerate((call.args or {}).items()):
        yield f"{', ' if index else ''}{clip(str(key), limit)}="
        yield from _pieces(value, limit)
    yield ")"


def _pieces(value: Any, limit: int) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for index, (key, inner) in enumerate(value.items()):
            yield f"{', ' if index else ''}{json.dumps(clip(str(key), limit), ensure_ascii=False)}: "
            yield from _pieces(inner, limit)
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for index, inner in enumerate(value):
            yield ", " if index else ""
            yield from _pieces(inner, limit)
        yield "]"
    elif isinstance(value, str):
        yield json.dumps(clip(value, limit), ensure_ascii=False)
    elif isinstance(value, int) and value.bit_length() > 4 * limit:
        yield "a number of more digits than can be shown"  # str() of it raises beyond 4300 digits
    elif value is None or isinstance(value, bool | int | float):
        yield json.dumps(value)
    else:
        yield clip(repr(value), limit)


def _bounded(pieces: Iterator[str], limit: int) -> str:
    out, room = [], limit
    for piece in pieces:
        out.append(piece)
        room -= len(piece)
        if room < 0:
            break
    return clip("".join(out), limit)
