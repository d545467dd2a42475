"""Two sequences of tool calls side by side: which call is missing, extra, different or moved."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, Literal, Protocol

from agent_eval_action.diagnostics.suggestions import clip, shorten

DifferenceKind = Literal["missing", "extra", "different", "moved"]

_PAIRS = 250_000
"""Up to so many pairs of equal calls the alignment is a longest common subsequence; beyond, nearly as long."""


class Call(Protocol):
    """A tool call: ``evalset.FunctionCall`` and ``decision.CallBrief`` both are one."""

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
    if want == got:
        return ()
    matched = _align(want, got)
    starts_want, starts_got = [i for i, _ in matched], [j for _, j in matched]
    left = sorted(set(range(len(want))) - set(starts_want))
    right = sorted(set(range(len(got))) - set(starts_got))
    found: list[CallDifference] = []

    def pair(kind: DifferenceKind, want_value: Callable[[int], Hashable], got_value: Callable[[int], Hashable]) -> None:
        """Pair calls that the alignment left over and that have equal values, first with first."""
        waiting: defaultdict[Hashable, deque[int]] = defaultdict(deque)
        for j in right:
            waiting[got_value(j)].append(j)
        for i in list(left):
            if same := waiting[want_value(i)]:
                j = same.popleft()
                found.append(CallDifference(kind, expected[i], actual[j], i, j))
                left.remove(i)
                right.remove(j)

    pair("moved", lambda i: want[i], lambda j: got[j])
    pair(
        "different",
        lambda i: (expected[i].name, bisect_left(starts_want, i)),
        lambda j: (actual[j].name, bisect_left(starts_got, j)),
    )
    pair("different", lambda i: expected[i].name, lambda j: actual[j].name)
    found += [CallDifference("missing", expected=expected[i], expected_index=i) for i in left]
    found += [CallDifference("extra", actual=actual[j], actual_index=j) for j in right]

    def reading_order(difference: CallDifference) -> tuple[int, bool, int]:
        """Ordered by position between matching calls; at one position missing calls come before extra ones."""
        if difference.expected_index is not None:
            return bisect_left(starts_want, difference.expected_index), False, difference.expected_index
        index = difference.actual_index or 0
        return bisect_left(starts_got, index), True, index

    return tuple(sorted(found, key=reading_order))


def _align(want: list[Hashable], got: list[Hashable]) -> list[tuple[int, int]]:
    """Indices of equal items, increasing on both sides, as many as can be found cheaply."""
    head = 0
    while head < min(len(want), len(got)) and want[head] == got[head]:
        head += 1
    tail = 0
    while tail < min(len(want), len(got)) - head and want[-1 - tail] == got[-1 - tail]:
        tail += 1
    inner = _longest_common(want[head : len(want) - tail], got[head : len(got) - tail])
    return [
        *((k, k) for k in range(head)),
        *((head + i, head + j) for i, j in inner),
        *((len(want) - k, len(got) - k) for k in range(tail, 0, -1)),
    ]


def _longest_common(want: list[Hashable], got: list[Hashable]) -> list[tuple[int, int]]:
    """The longest run of equal items that is in order on both sides, by patience sorting (Hunt and Szymanski)."""
    places: defaultdict[Hashable, deque[int]] = defaultdict(deque)
    for j, item in enumerate(got):
        places[item].append(j)
    if sum(len(places[item]) for item in want) <= _PAIRS:
        pairs = [(i, j) for i, item in enumerate(want) for j in reversed(places[item])]
    else:  # the k-th of each call with its k-th
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
    text = f"{clip(str(call.name), limit)}("
    for index, (key, value) in enumerate((call.args or {}).items()):
        if len(text) > limit:
            break
        text += f"{', ' if index else ''}{clip(str(key), limit)}={format_value(value, limit)}"
    return clip(f"{text})", limit)


def format_value(value: Any, limit: int = _VALUE) -> str:
    """JSON of a value, cut at ``limit`` characters without ever making the whole text."""
    try:
        return shorten(value, limit)
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a number of more digits than can be shown"


def explain(difference: CallDifference, *, ignore_args: bool = False) -> str:
    """One difference in one sentence part, at most some 500 characters."""

    def shown(call: Call) -> str:
        return clip(str(call.name), _CALL) if ignore_args else format_call(call)

    expected, actual = difference.expected, difference.actual
    if expected is None or actual is None:
        return f"missing call {shown(expected)}" if expected else f"extra call {shown(actual)}" if actual else ""
    if difference.kind == "moved":
        place, came = (difference.expected_index or 0) + 1, (difference.actual_index or 0) + 1
        return f"out of order: {shown(expected)} was expected as call {place}, came as call {came}"
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
            both = enumerate(zip_longest(want, got, fillvalue=_ABSENT))
            children = [(f"[{k}]", before, after) for k, (before, after) in both]
        else:
            yield clip(path.removeprefix("."), 100), *_contrast(want, got)
            continue
        stack.extend((path + step, w, g) for step, w, g in reversed(children) if w is _ABSENT or g is _ABSENT or w != g)


def _contrast(want: Any, got: Any) -> tuple[str, str]:
    """Both values so that the difference shows: long texts from just before where they part."""
    if isinstance(want, str) and isinstance(got, str) and max(len(want), len(got)) > _VALUE // 2:
        shorter = min(len(want), len(got))
        start = max(next((k for k in range(shorter) if want[k] != got[k]), shorter) - 10, 0)
        lead, end = "…" if start else "", start + _VALUE
        return lead + format_value(want[start:end]), lead + format_value(got[start:end])
    before, after = ("nothing" if value is _ABSENT else format_value(value) for value in (want, got))
    return before, after
