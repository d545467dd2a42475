"""Compare two sequences of tool calls: which calls are missing, extra, different or moved."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, Literal

from agent_eval_action.diagnostics.suggestions import clip, shorten
from agent_eval_action.results.decision import CallBrief
from agent_eval_action.results.evalset import FunctionCall

DifferenceKind = Literal["missing", "extra", "different", "moved"]

_MAX_EXACT_PAIRS = 250_000
"""With more pairs of equal calls than this, the alignment may be shorter than the longest common subsequence."""


Call = FunctionCall | CallBrief
"""A tool call, whole or as reports show it."""


@dataclass(frozen=True, slots=True)
class CallDifference:
    """A difference. A *missing* call has no actual call, an *extra* one no expected call; indices count from 0.

    *different*: a call of the same tool with other arguments. *moved*: an equal call at another place.
    """

    kind: DifferenceKind
    expected: Call | None = None
    actual: Call | None = None
    expected_index: int | None = None
    actual_index: int | None = None


def call_key(call: Call, *, ignore_args: bool = False) -> Hashable:
    """Return a key that is equal for equal calls: same name and equal arguments, where None equals {}."""
    return call.name if ignore_args else (call.name, _hashable(call.args or {}))


def _hashable(value: Any) -> Hashable:
    # map() needs only one Python frame per level, so that everything that a JSON parser can read can be handled
    if isinstance(value, dict):
        return "{}", frozenset(zip(value, map(_hashable, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return "[]", tuple(map(_hashable, value))
    return value if isinstance(value, Hashable) else repr(value)


def diff_calls(
    expected: Sequence[Call], actual: Sequence[Call], *, ignore_args: bool = False
) -> tuple[CallDifference, ...]:
    """Return all differences in the order of the conversation; () if the sequences are equal.

    Raises RecursionError for arguments that are nested too deeply.
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
        """Pair calls that the alignment leaves over and whose values are equal, in their order."""
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
        """Return the position between matching calls; at the same position missing calls precede extra ones."""
        if difference.expected_index is not None:
            return bisect_left(starts_want, difference.expected_index), False, difference.expected_index
        index = difference.actual_index or 0
        return bisect_left(starts_got, index), True, index

    return tuple(sorted(found, key=reading_order))


def _align(want: list[Hashable], got: list[Hashable]) -> list[tuple[int, int]]:
    """Return pairs of indices of equal items, ascending on both sides, as many as can be found cheaply."""
    head = 0
    while head < min(len(want), len(got)) and want[head] == got[head]:
        head += 1
    tail = 0
    while tail < min(len(want), len(got)) - head and want[-1 - tail] == got[-1 - tail]:
        tail += 1
    inner = _longest_common_subsequence(want[head : len(want) - tail], got[head : len(got) - tail])
    return [
        *((k, k) for k in range(head)),
        *((head + i, head + j) for i, j in inner),
        *((len(want) - k, len(got) - k) for k in range(tail, 0, -1)),
    ]


def _longest_common_subsequence(want: list[Hashable], got: list[Hashable]) -> list[tuple[int, int]]:
    """Return the longest common subsequence as pairs of indices, by the algorithm of Hunt and Szymanski."""
    places: defaultdict[Hashable, deque[int]] = defaultdict(deque)
    for j, item in enumerate(got):
        places[item].append(j)
    if sum(len(places[item]) for item in want) <= _MAX_EXACT_PAIRS:
        pairs = [(i, j) for i, item in enumerate(want) for j in reversed(places[item])]
    else:  # only the first of a call with the first equal one, the second with the second, and so on
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


_CALL_LIMIT = 120
_VALUE_LIMIT = 60
_ARGS_SHOWN = 3
_MAX_STEPS = 10_000
_ABSENT = object()


def format_call(call: Call, limit: int = _CALL_LIMIT) -> str:
    """Return a call like ``roll_die(sides=17)``, in at most ``limit`` characters."""
    text = f"{clip(str(call.name), limit)}("
    for index, (key, value) in enumerate((call.args or {}).items()):
        if len(text) > limit:
            break
        text += f"{', ' if index else ''}{clip(str(key), limit)}={format_value(value, limit)}"
    return clip(f"{text})", limit)


def format_value(value: Any, limit: int = _VALUE_LIMIT) -> str:
    """Return a value as JSON of at most ``limit`` characters, without creating the whole text."""
    try:
        return shorten(value, limit)
    except ValueError:  # Python converts no integer of more than 4300 digits
        return "a number of more digits than can be shown"


def explain(difference: CallDifference, *, ignore_args: bool = False) -> str:
    """Describe a difference in a part of a sentence, of about 500 characters at most."""

    def shown(call: Call) -> str:
        return clip(str(call.name), _CALL_LIMIT) if ignore_args else format_call(call)

    expected, actual = difference.expected, difference.actual
    if expected is None or actual is None:
        return f"missing call {shown(expected)}" if expected else f"extra call {shown(actual)}" if actual else ""
    if difference.kind == "moved":
        place, came = (difference.expected_index or 0) + 1, (difference.actual_index or 0) + 1
        return f"out of order: {shown(expected)} was expected as call {place}, came as call {came}"
    short = (format_call(expected), format_call(actual))
    if short[0] != short[1] and all(len(text) < _CALL_LIMIT for text in short):
        return f"expected {short[0]}, got {short[1]}"
    return f"{clip(str(expected.name), _VALUE_LIMIT)}: {explain_args(expected.args or {}, actual.args or {})}"


def explain_args(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    """Describe the first three arguments that differ, by path: ``seats[1].row expected 12, got 14``."""
    found = list(islice(_arg_differences(expected, actual), _ARGS_SHOWN + 1))
    parts = [f"{path} expected {want}, got {got}" for path, want, got in found[:_ARGS_SHOWN]]
    more = "; and more" if len(found) > _ARGS_SHOWN else ""
    return "; ".join(parts) + more if parts else "the arguments differ"


def _arg_differences(expected: Any, actual: Any) -> Iterator[tuple[str, str, str]]:
    stack: list[tuple[str, Any, Any]] = [("", expected, actual)]
    for _ in range(_MAX_STEPS):
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
            yield clip(path.removeprefix("."), 100), *_show_contrast(want, got)
            continue
        stack.extend((path + step, w, g) for step, w, g in reversed(children) if w is _ABSENT or g is _ABSENT or w != g)


def _show_contrast(want: Any, got: Any) -> tuple[str, str]:
    """Return both values such that their difference is visible: long texts from shortly before it."""
    if isinstance(want, str) and isinstance(got, str) and max(len(want), len(got)) > _VALUE_LIMIT // 2:
        shorter = min(len(want), len(got))
        start = max(next((k for k in range(shorter) if want[k] != got[k]), shorter) - 10, 0)
        lead, end = "…" if start else "", start + _VALUE_LIMIT
        return lead + format_value(want[start:end]), lead + format_value(got[start:end])
    before, after = ("nothing" if value is _ABSENT else format_value(value) for value in (want, got))
    return before, after
