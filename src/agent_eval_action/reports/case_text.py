"""What a turn was to be, what it was in the baseline and what it is now, as a diff. Text is not escaped yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.messages import Messages
from agent_eval_action.reports.view import (
    CaseView,
    CriterionRow,
    criterion_row,
    failed_attempt,
    judged_lines,
    score_of,
    worst_attempt,
)
from agent_eval_action.results.decision import (
    CallBrief,
    Decision,
    PairChange,
    TurnBrief,
    Unit,
)
from agent_eval_action.results.findings import Finding
from agent_eval_action.results.history import short_call
from agent_eval_action.results.run_result import AttemptError, AttemptSummary, ScoreStatus, TurnScore
from agent_eval_action.results.trajectory import call_key, diff_calls, format_call

_CALL = 300
_CONTEXT = 2
_LINES = 80


@dataclass(frozen=True, slots=True)
class Hunk:
    """Two sides of one thing. Lines are (sign, text): ``-`` the first side only, ``+`` the second only, `` `` both."""

    title: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TurnDiff:
    """The differences of one turn; ``number`` counts from 1."""

    number: int
    user: str
    hunks: tuple[Hunk, ...]


def turn_diffs(
    expected: Sequence[TurnBrief], baseline: Sequence[TurnBrief], actual: Sequence[TurnBrief]
) -> list[TurnDiff]:
    """The turns in which this run differs from what was expected or from the baseline."""
    calls_expected = any(turn.calls for turn in expected)
    found = []
    for index in range(max(len(expected), len(actual))):
        want, then, now = _at(expected, index), _at(baseline, index), _at(actual, index)
        if want is None and expected:  # a turn that nobody expected
            want = TurnBrief()
        hunks = (*_call_hunks(want if calls_expected else None, want, then, now), *_answer_hunks(want, now))
        user = next((turn.user for turn in (want, now, then) if turn and turn.user), "")
        if hunks:
            found.append(TurnDiff(index + 1, user, hunks))
    return found


def _at(turns: Sequence[TurnBrief], index: int) -> TurnBrief | None:
    return turns[index] if index < len(turns) else None


def _call_hunks(
    want: TurnBrief | None, written: TurnBrief | None, then: TurnBrief | None, now: TurnBrief | None
) -> Iterator[Hunk]:
    """``want`` is None where the case names no calls at all: then they count only if the baseline's differ."""
    calls = now.calls if now else ()
    old = _same_form(then.calls, calls) if then is not None else calls
    changed = bool(diff_calls(old, calls))
    if then is not None and want is None and not changed:
        return
    aims = (want or written or TurnBrief(calls=calls)).calls
    off = bool(diff_calls(aims, calls))
    as_expected = then is not None and not diff_calls(_same_form(then.calls, aims), aims)
    if off:
        aside = " (the baseline's were as expected)" if as_expected else ""
        if then is not None and not changed:
            aside = " (the baseline's were the same)"
        yield Hunk(f"tool calls: - expected, + this run{aside}", _call_lines(aims, calls))
    if changed and not (off and as_expected):
        aside = " (now as expected)" if want is not None and not off else ""
        yield Hunk(f"tool calls: - baseline, + this run{aside}", _call_lines(old, calls))


def _same_form(old: Sequence[CallBrief], new: Sequence[CallBrief]) -> list[CallBrief]:
    """The baseline's calls; one that it keeps in short only is replaced by the call of which it is the short form."""
    short = {call_key(short_call(call)): call for call in new}
    known = {call_key(call) for call in new}
    return [call if call_key(call) in known else short.get(call_key(call), call) for call in old]


def _answer_hunks(want: TurnBrief | None, now: TurnBrief | None) -> Iterator[Hunk]:
    answer = now.response if now else ""
    if want is not None and want.response and want.response != answer:
        yield Hunk("answer: - expected, + this run", _sides(want.response, answer))


def _sides(one: str, two: str) -> tuple[tuple[str, str], ...]:
    """Each line of both answers: a baseline keeps no answers, so there is no third side."""
    lines = [(sign, line) for sign, text in (("-", one), ("+", two)) for line in text.splitlines() or ["(no answer)"]]
    return tuple(lines[:_LINES])


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


LIMIT = 8_000
_ANSWER = 600
_HEAD = 1_000


def failure(view: CaseView, pair: PairChange, messages: Messages) -> tuple[str, str]:
    """Message and text of a pair that is below its threshold or fell."""
    numbers = f"{pair.criterion} {fmt.pair_text(pair)}"
    keeps = fmt.limits(pair.unit, pair.goal, pair.threshold)
    message = str(messages.pair(pair)) or f"{numbers} ({fmt.KIND_LABELS[pair.kind]}, threshold {keeps})"
    lines = [f"{view.key}", f"{numbers}, threshold {keeps}: {fmt.KIND_LABELS[pair.kind]}"]
    if spread := fmt.interval(pair):
        lines.append(f"change with 95 % confidence: {spread}")
    attempt = worst_attempt(view.result, pair.criterion, pair.goal) if view.result else None
    if attempt is not None and view.result is not None:
        lines += _attempt(attempt, pair, len(view.result.attempts))
        lines += _differences(view, attempt)
    return message, "\n".join(lines)


def error(view: CaseView, pair: PairChange, messages: Messages) -> tuple[str, str, str]:
    """Message, text and kind of a pair that could not be measured."""
    attempt = failed_attempt(view.result, pair.criterion) if view.result else None
    if attempt is None:
        return str(messages.pair(pair)) or f"{pair.criterion} has no score", str(view.key), "unmeasured"
    where = f"{str(view.key)[:_HEAD]}, repeat {attempt.repeat + 1}"
    if attempt.error is not None:
        head = error_line(attempt.error)
        trace = attempt.error.traceback[-LIMIT // 2 :]  # its last lines say what broke
        return head, f"{where}\n{head[:_HEAD]}\n{trace}".rstrip(), str(attempt.error.kind)
    score = score_of(attempt, pair.criterion)
    reason = score.reason if score else "the criterion gave no score"
    return str(messages.pair(pair)) or reason, f"{where}\n{reason}", "scoring"


def error_line(error: AttemptError) -> str:
    """``timeout in turn 2: no answer within 60 s``."""
    turn = f" in turn {error.turn + 1}" if error.turn is not None else ""
    return f"{error.kind}{turn}: {error.message}"


def whole_run(decision: Decision, messages: Messages) -> Iterator[tuple[str, str, str, str]]:
    """Name, status, message and text of each rule over the whole suite, and of what befell the run itself."""
    of_run = [f for f in decision.findings if f.subject.case is None and f not in decision.weakenings]
    for row in decision.criteria:
        mine = [f for f in of_run if f.subject.criterion == row.criterion]
        if mine or fmt.allowed_change(row):
            sentence = str(messages.criterion(row, decision))
            yield row.criterion, _status(mine), _joined(mine, messages), f"{_row(criterion_row(row))}\n{sentence}"
    known = {row.criterion for row in decision.criteria}
    rest = [f for f in of_run if f.subject.criterion not in known and f.severity != "advisory"]
    for number, finding in enumerate(rest, 1):
        # what GitHub's withheld secrets left out is nobody's error
        left_out = decision.excused and finding.severity == "inconclusive"
        name, sentence = finding.subject.criterion or f"run {number}", str(messages.sentence(finding))
        yield name, "skipped" if left_out else _status([finding]), sentence, ""
    if blocking := [finding for finding in decision.weakenings if finding.severity == "blocks"]:
        # one of them may be about a case that is gone, which has no testcase to fail
        sentences = [str(messages.sentence(finding)) for finding in blocking]
        yield "weakened gate", "failure", "; ".join(sentences), "\n".join(sentences)


def _status(findings: list[Finding]) -> str:
    found = {finding.severity for finding in findings}
    return "failure" if "blocks" in found else "error" if "inconclusive" in found else "passed"


def _joined(findings: list[Finding], messages: Messages) -> str:
    return "; ".join(str(messages.sentence(finding)) for finding in findings if finding.severity != "advisory")


def _row(row: CriterionRow) -> str:
    lines = [f"baseline {row.baseline}", f"this run {row.current}", f"change   {row.change_and_interval}"]
    lines += [f"could detect a drop of {row.detectable}"] if row.detectable else []
    return "\n".join([*lines, f"limit    {row.limits}"])


def _attempt(attempt: AttemptSummary, pair: PairChange, attempts: int) -> Iterator[str]:
    score = score_of(attempt, pair.criterion)
    if attempts > 1:
        yield f"the worst of {attempts} repeats, number {attempt.repeat + 1}:"
    if score is None:
        return
    if score.reason:
        yield score.reason
    if len(score.turns) > 1:
        for turn in score.turns:
            yield _turn(turn, pair.unit)
    yield from judged_lines(score)


def _turn(turn: TurnScore, unit: Unit) -> str:
    value = fmt.number(turn.score, unit) if turn.status is ScoreStatus.SCORED else str(turn.status)
    return f"turn {turn.turn + 1}: {value}{f', {turn.reason}' if turn.reason else ''}"


def _differences(view: CaseView, attempt: AttemptSummary) -> Iterator[str]:
    expected = view.result.expected if view.result else ()
    for diff in turn_diffs(expected, view.baseline_turns, attempt.turns):
        yield f"\n@@ turn {diff.number}: {diff.user[:_ANSWER]}"
        for hunk in diff.hunks:
            yield f"@@ {hunk.title}"
            for sign, line in hunk.lines:
                yield f"{sign} {line[:_ANSWER]}"
