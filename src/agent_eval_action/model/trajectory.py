"""Two sequences of tool calls side by side: which call is missing, extra, different or moved."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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
