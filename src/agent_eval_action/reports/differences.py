"""What a turn was to be, what it was in the baseline and what it is now. Text is not escaped yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_eval_action.results.decision import CallBrief, TurnBrief
from agent_eval_action.results.history import short_call
from agent_eval_action.results.trajectory import call_key, diff_calls, format_call

_CALL = 300
_USER = 160
_CONTEXT = 2
_LINES = 80


@dataclass(frozen=True, slots=True)
class Hunk:
    """Two sides of one thing. Lines are (sign, text): ``-`` the first side only, ``+`` this run only, `` `` both."""

    what: Literal["tool calls", "answer"]
    first: Literal["expected", "baseline"]
    aside: str
    lines: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        return f"{self.what}: - {self.first}, + this run{self.aside}"


@dataclass(frozen=True, slots=True)
class TurnDiff:
    """The differences of one turn; ``number`` counts from 1."""

    number: int
    user: str
    hunks: tuple[Hunk, ...]

    def text(self) -> Iterator[str]:
        """The lines of a diff; a hunk has its title where the turn is compared with the baseline as well."""
        yield f"@@ turn {self.number} · {self.user[:_USER]} @@"
        titled = any(hunk.first == "baseline" for hunk in self.hunks)
        for hunk in self.hunks:
            if titled:
                yield f"# {hunk.title}"
            following = [*(sign for sign, _ in hunk.lines[1:]), " "]
            for (sign, line), after in zip(hunk.lines, following, strict=True):
                missing = sign == "-" and after != "+" and hunk.what == "tool calls" and hunk.first == "expected"
                yield f"{sign} {line}{'          not called' if missing else ''}"


def turn_diffs(
    expected: Sequence[TurnBrief], baseline: Sequence[TurnBrief], actual: Sequence[TurnBrief]
) -> list[TurnDiff]:
    """The turns in which this run differs from what was expected or from the baseline."""
    calls_expected = any(turn.calls for turn in expected)
    found = []
    for index in range(max(len(expected), len(actual))):
        want, then, now = turn_at(expected, index), turn_at(baseline, index), turn_at(actual, index)
        if want is None and expected:  # a turn that nobody expected
            want = TurnBrief()
        hunks = (*_call_hunks(want if calls_expected else None, want, then, now), *_answer_hunks(want, now))
        user = next((turn.user for turn in (want, now, then) if turn and turn.user), "")
        if hunks:
            found.append(TurnDiff(index + 1, user, hunks))
    return found


def turn_at(turns: Sequence[TurnBrief], index: int) -> TurnBrief | None:
    """The turn with that index, None beyond the last."""
    return turns[index] if index < len(turns) else None


def _call_hunks(
    want: TurnBrief | None, written: TurnBrief | None, then: TurnBrief | None, now: TurnBrief | None
) -> Iterator[Hunk]:
    """``want`` is None where the case names no calls at all: then they count only if the baseline's differ."""
    calls = now.calls if now else ()
    old = same_form(then.calls, calls) if then is not None else calls
    changed = bool(diff_calls(old, calls))
    if then is not None and want is None and not changed:
        return
    aims = (want or written or TurnBrief(calls=calls)).calls
    off = bool(diff_calls(aims, calls))
    as_expected = then is not None and not diff_calls(same_form(then.calls, aims), aims)
    if off:
        aside = " (the baseline's were as expected)" if as_expected else ""
        if then is not None and not changed:
            aside = " (the baseline's were the same)"
        yield Hunk("tool calls", "expected", aside, _call_lines(aims, calls))
    if changed and not (off and as_expected):
        aside = " (now as expected)" if want is not None and not off else ""
        yield Hunk("tool calls", "baseline", aside, _call_lines(old, calls))


def same_form(old: Sequence[CallBrief], new: Sequence[CallBrief]) -> list[CallBrief]:
    """The baseline's calls; one that it keeps in short only is replaced by the call of which it is the short form."""
    short = {call_key(short_call(call)): call for call in new}
    known = {call_key(call) for call in new}
    return [call if call_key(call) in known else short.get(call_key(call), call) for call in old]


def _answer_hunks(want: TurnBrief | None, now: TurnBrief | None) -> Iterator[Hunk]:
    """Each line of both answers: a baseline keeps no answers, so there is no third side."""
    answer = now.response if now else ""
    if want is not None and want.response and want.response != answer:
        sides = (("-", want.response), ("+", answer))
        lines = [(sign, line) for sign, text in sides for line in text.splitlines() or ["(no answer)"]]
        yield Hunk("answer", "expected", "", tuple(lines[:_LINES]))


def _call_lines(one: Sequence[CallBrief], two: Sequence[CallBrief]) -> tuple[tuple[str, str], ...]:
    differences = diff_calls(one, two)
    lost = {d.expected_index: d for d in differences if d.expected_index is not None}
    came = {d.actual_index for d in differences if d.actual_index is not None}
    lines: list[tuple[str, str]] = []
    i = j = 0
    while i < len(one) or j < len(two):
        if i < len(one) and i in lost:
            lines.append(("-", format_call(one[i], _CALL)))
            if j in came and lost[i].actual_index == j:  # the same tool with other arguments: one under the other
                lines.append(("+", format_call(two[j], _CALL)))
                j += 1
            i += 1
        elif j < len(two) and j in came:
            lines.append(("+", format_call(two[j], _CALL)))
            j += 1
        else:
            lines.append((" ", format_call(two[j], _CALL)))
            i, j = i + 1, j + 1
    return tuple(_shortened(lines))


def _shortened(lines: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Long unchanged stretches lose their middle; what is longer still loses its end."""
    end = len(lines)
    changed = [index for index, (sign, _) in enumerate(lines) if sign != " "]
    near = {at for index in changed for at in range(index - _CONTEXT, index + _CONTEXT + 1) if 0 <= at < end}
    last = -1
    for shown, index in enumerate([*sorted(near), end]):
        gap = lines[last + 1 : index]
        yield from gap if len(gap) <= 1 else [(" ", f"… {len(gap)} the same")]
        if index == end:
            return
        if shown == _LINES:
            yield " ", f"… {end - index} more"
            return
        yield lines[index]
        last = index
