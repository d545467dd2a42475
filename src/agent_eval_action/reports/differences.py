"""How a case differs: turn by turn, its first difference, and the cases that share a cause. Asks no model.

The texts are not escaped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.formatting import Name, Prose, compose, joined
from agent_eval_action.reports.messages import KIND_LABELS
from agent_eval_action.reports.view import CaseView, Group, objections, passing, score_of
from agent_eval_action.results.decision import CallBrief, ChangeKind, PairChange, TurnBrief
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.history import short_call
from agent_eval_action.results.run_result import AttemptError, AttemptSummary, CriterionScore, ErrorKind, ScoreStatus
from agent_eval_action.results.trajectory import CallDifference, call_key, diff_calls, format_call

_CALL, _NAME, _WORDS, _USER = 300, 80, 160, 160
_CONTEXT, _LINES = 2, 80
_LIMIT, _LOGGED, _TRACEBACK = 16_000, 300, 4_000


@dataclass(frozen=True, slots=True)
class Hunk:
    """A difference between two sides. Lines are (sign, text): ``-`` first side, ``+`` this run, `` `` both."""

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
        """Yield diff lines; hunks have titles if the turn is also compared with the baseline."""
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
    """Return the turns in which this run differs from the expectations or from the baseline."""
    calls_expected = any(turn.calls for turn in expected)
    found = []
    for number, (want, then, now) in enumerate(_side_by_side(expected, baseline, actual), 1):
        wanted = want or (TurnBrief() if expected else None)  # without one: an unexpected extra turn
        hunks = (*_call_hunks(wanted if calls_expected else None, wanted, then, now), *_answer_hunks(wanted, now))
        if hunks:
            user = next((turn.user for turn in (wanted, now, then) if turn and turn.user), "")
            found.append(TurnDiff(number, user, hunks))
    return found


def _side_by_side(
    expected: Sequence[TurnBrief], baseline: Sequence[TurnBrief], actual: Sequence[TurnBrief]
) -> Iterator[tuple[TurnBrief | None, TurnBrief | None, TurnBrief | None]]:
    """Yield the turns that are expected or were made, each with that of the baseline."""
    return zip_longest(expected, baseline[: max(len(expected), len(actual))], actual)


def _call_hunks(
    want: TurnBrief | None, written: TurnBrief | None, then: TurnBrief | None, now: TurnBrief | None
) -> Iterator[Hunk]:
    """Compare calls. ``want`` is None if the case expects no calls: then only the baseline's calls are compared."""
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
    """Replace calls that the baseline stores only in shortened form by the matching full calls of this run."""
    short = {call_key(short_call(call)): call for call in new}
    known = {call_key(call) for call in new}
    return [call if call_key(call) in known else short.get(call_key(call), call) for call in old]


def _answer_hunks(want: TurnBrief | None, now: TurnBrief | None) -> Iterator[Hunk]:
    """Compare the lines of both answers; a baseline stores no answers, so there is no third side."""
    answer = now.response if now else ""
    if want is not None and want.response and want.response != answer:
        sides = (("-", want.response), ("+", answer))
        lines = [(sign, line) for sign, text in sides for line in text.splitlines() or ["(no answer)"]]
        yield Hunk("answer", "expected", "", tuple(lines[:_LINES]))


def _call_lines(old: Sequence[CallBrief], new: Sequence[CallBrief]) -> tuple[tuple[str, str], ...]:
    differences = diff_calls(old, new)
    lost = {d.expected_index: d for d in differences if d.expected_index is not None}
    came = {d.actual_index for d in differences if d.actual_index is not None}
    lines: list[tuple[str, str]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and i in lost:
            lines.append(("-", format_call(old[i], _CALL)))
            if j in came and lost[i].actual_index == j:  # the same tool with other arguments: show both lines together
                lines.append(("+", format_call(new[j], _CALL)))
                j += 1
            i += 1
        elif j < len(new) and j in came:
            lines.append(("+", format_call(new[j], _CALL)))
            j += 1
        else:
            lines.append((" ", format_call(new[j], _CALL)))
            i, j = i + 1, j + 1
    return tuple(_shorten_diff(lines))


def _shorten_diff(lines: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Cut the middle of long unchanged stretches, then the end of a diff that is still too long."""
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


# --- causes of cases that need attention -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """A case's first difference: ``text`` describes this case, ``cause`` every case with the same cause."""

    cause: Prose
    text: Prose


@dataclass(frozen=True, slots=True)
class Cause:
    """Cases of one agent and one class with the same cause, worst first, with the first difference of each."""

    text: Prose
    cases: tuple[CaseView, ...]
    differences: tuple[Prose, ...]

    @property
    def group(self) -> Group:
        return self.cases[0].group


def find_causes(cases: Iterable[CaseView]) -> tuple[Cause, ...]:
    """Return the causes of those ``cases`` that need attention, in their order."""
    found: dict[tuple[str, Group, bool, Prose], list[tuple[CaseView, Prose]]] = {}
    for view in cases:
        if view.needs_attention:
            difference = first_difference(view)
            alike = view.key.agent, view.group, view.blocks, difference.cause
            found.setdefault(alike, []).append((view, difference.text))
    return tuple(
        Cause(text, tuple(view for view, _ in members), tuple(first for _, first in members))
        for (_, _, _, text), members in found.items()
    )


def first_difference(view: CaseView) -> Difference:
    """Return the case's error, else the first different call, else a judge's objection, else only the score."""
    return next(_differences(view))


def _differences(view: CaseView) -> Iterator[Difference]:
    measured = view.group is not Group.NOT_MEASURED
    attempt = view.telling_attempt() if measured else view.failed_attempt()
    if attempt is not None and measured:
        yield from _calls(view, attempt)
        for pair in view.reasons:
            yield from _objections(score_of(attempt, pair.criterion))
    if attempt is not None and attempt.error is not None:
        message = excerpt(attempt.error.message, _WORDS)
        cause = f"{_ERRORS[attempt.error.kind]}{f': {message}' if message else ''}"
        yield Difference(Prose.join(cause), Prose.join(excerpt(error_line(attempt.error), _WORDS)))
    for score in attempt.scores if attempt is not None and not measured else ():
        if score.status is ScoreStatus.ERROR:
            text = joined([_name(score.criterion), f" has no score: {excerpt(score.reason, _WORDS)}"], "")
            yield Difference(text, text)
    if not view.pairs:
        yield Difference(Prose.join("nothing is known of it"), Prose())
        return
    pair = view.pairs[0]
    what = {Group.BELOW_THRESHOLD: "misses its threshold", Group.NOT_MEASURED: "has no score"}
    only_score = joined([_name(pair.criterion), f" {what.get(view.group, 'got worse')}"], "")
    data = pair.reason.data if pair.reason is not None else {}
    why = excerpt(data.get("judgement") or data.get("error") or data.get("text") or "", _WORDS)
    yield Difference(only_score, joined([_name(pair.criterion), f": {why}"], "") if why else only_score)


_ERRORS: Final = {
    ErrorKind.ENVIRONMENT: "the agent does not start",
    ErrorKind.IMPORT: "the agent does not start",
    ErrorKind.EXCEPTION: "the agent raised an error",
    ErrorKind.TIMEOUT: "the agent did not answer in time",
    ErrorKind.BLOCKED: "the agent blocked its event loop",
    ErrorKind.DIED: "the agent's process ended",
    ErrorKind.OUTPUT: "the agent's output is too large",
    ErrorKind.RATE_LIMITED: "the model refused calls because there were too many",
    ErrorKind.UNAVAILABLE: "the model's service did not answer",
    ErrorKind.PROTOCOL: "the agent's process sent something invalid",
    ErrorKind.CREDENTIALS: "credentials are missing",
    ErrorKind.NOT_ASKED: "the agent did not ask what the case answers",
    ErrorKind.USER: "the simulated user could not go on",
    ErrorKind.SCORING: "the answer could not be scored",
    ErrorKind.STOPPED: "the run ended first",
}


def error_line(error: AttemptError) -> str:
    """Format an error: ``timeout in turn 2: no answer within 60 s``."""
    turn = f" in turn {error.turn + 1}" if error.turn is not None else ""
    return f"{error.kind}{turn}: {error.message}"


def _objections(score: CriterionScore | None) -> Iterator[Difference]:
    for turn, kind, text, why in objections(score) if score is not None else ():
        if kind == "rubric":
            cause = compose("the rubric {rubric} is not met", rubric=_name(text))
            words = joined([f"turn {turn}: rubric ", _name(text), f" not met: {excerpt(why, _WORDS)}"], "")
        else:
            cause = Prose.join(f"the agent makes {kind} statements")
            words = Prose.join(f"turn {turn}: {kind}: “{excerpt(text, _WORDS)}”")
        yield Difference(cause, words)


def _calls(view: CaseView, attempt: AttemptSummary) -> Iterator[Difference]:
    """Yield differences in calls. Those that main has too explain a score below its threshold, but not a drop."""
    reference = view.expected if any(turn.calls for turn in view.expected) else view.baseline_turns
    turns = _side_by_side(reference, view.baseline_turns, attempt.turns) if reference else ()
    for number, (want, then, now) in enumerate(turns, 1):
        calls = now.calls if now else ()
        old = None if then is None else same_form(then.calls, calls)
        if old is not None and view.group is not Group.BELOW_THRESHOLD and not diff_calls(old, calls):
            continue
        for found in diff_calls(same_form(want.calls, calls) if want else (), calls):
            yield _call(found, number, on_main={call.name for call in old or ()})


def _call(found: CallDifference, turn: int, *, on_main: Collection[str]) -> Difference:
    want, got = found.expected, found.actual
    changed = Prose()
    if got is None:
        no_longer = want is not None and want.name in on_main
        cause = "the agent no longer calls {tool}" if no_longer else "the agent does not call {tool}"
        text = "turn {turn}: {then} not called"
    elif want is None:
        cause, text = "the agent also calls {tool}", "turn {turn}: {now} called as well"
    elif found.kind == "moved":
        cause, text = "the agent calls {tool} at another place", "turn {turn}: {now} out of order"
    else:
        old, new = want.args or {}, got.args or {}
        names = sorted(name for name in old.keys() | new.keys() if name not in old or old.get(name) != new.get(name))
        cause, text = "the agent calls {tool} with another {names}", "turn {turn}: {now}, not {then}"
        changed = joined([_name(name) for name in names[:3] or ["argument"]], ", ")
    tool = next((_name(str(call.name)) for call in (want, got) if call), Name(""))
    then, now = (Name(format_call(call, _WORDS)) if call else Name("") for call in (want, got))
    return Difference(compose(cause, tool=tool, names=changed), compose(text, turn=str(turn), now=now, then=then))


def _name(text: str) -> Name:
    return Name.shortened(text, _NAME)


# --- a case as plain text, for test logs -----------------------------------------------------------


def failure_text(view: CaseView) -> str:
    """Explain why a case fails: its first difference, each criterion, the diff, and the agent's turns."""
    lines = [str(first_difference(view).text), ""]
    for pair in view.pairs:
        needs = f", needs {fmt.limits(pair)}" if pair.threshold is not None else ""
        sign, text = {True: "✓", False: "✗", None: "·"}[passing(pair)], f"{fmt.pair_text(pair)}{needs}"
        if pair.kind is ChangeKind.ERROR or pair.errors:
            sign, text = "!", KIND_LABELS[ChangeKind.ERROR]
        lines.append(f"{sign} {pair.criterion}: {text}")
        attempt = view.worst_attempt(pair)
        if passing(pair) is False and attempt is not None:
            lines += (f"  {line}" for line in attempt_lines(attempt, pair, len(view.attempts)))
    if (attempt := view.telling_attempt()) is not None:
        diffs = turn_diffs(view.expected, (), attempt.turns)
        lines += ["", *(line for diff in diffs for line in diff.text())]
        lines += ["", "the agent's run:", *_trajectory(attempt.turns)]
    return _text(lines)


def error_text(view: CaseView) -> str:
    """Explain why a case has no score, with the end of the agent's output or traceback."""
    attempt = view.failed_attempt()
    if attempt is None:
        return _text(["the case was not measured: the run ended first"])
    if attempt.error is not None:
        trace = attempt.error.traceback[-_TRACEBACK:]
        return _text([f"not measured: {error_line(attempt.error)}", *trace.splitlines(), *_trajectory(attempt.turns)])
    unscored = [score for score in attempt.scores if score.status is ScoreStatus.ERROR]
    return _text([f"not measured: {score.criterion} has no score: {score.reason}" for score in unscored])


def attempt_lines(attempt: AttemptSummary, pair: PairChange, attempts: int) -> Iterator[str]:
    """Yield a criterion's reason, turn scores and judges' objections for an attempt, one of ``attempts``."""
    score = score_of(attempt, pair.criterion)
    if attempts > 1:
        yield f"the worst of {attempts} repeats, number {attempt.repeat + 1}:"
    if score is None:
        return
    yield score.reason
    for turn in score.turns if len(score.turns) > 1 else ():
        value = fmt.number(turn.score, pair.unit) if turn.status is ScoreStatus.SCORED else str(turn.status)
        yield f"turn {turn.turn + 1}: {value}{f', {turn.reason}' if turn.reason else ''}"
    for number, kind, what, why in objections(score):
        yield f"turn {number}, {kind}: {what}{f' – {why}' if why else ''}"


def _trajectory(turns: Iterable[TurnBrief]) -> Iterator[str]:
    for number, turn in enumerate(turns, 1):
        yield f"  {number}. user: {fmt.clean(turn.user, _LOGGED)}"
        yield from (f"     call: {fmt.clean(format_call(call, _LOGGED), 2 * _LOGGED)}" for call in turn.calls)
        yield f"     agent: {fmt.clean(turn.response, _LOGGED) or '(no answer)'}"


def _text(lines: Iterable[str]) -> str:
    return fmt.clean("\n".join(lines), _LIMIT, lines=True).strip()
