"""One case in the comment: a line that says what happened, and behind it the difference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agent_eval_action.model.brief import TurnBrief
from agent_eval_action.model.decision import ChangeKind, Decision, PairChange
from agent_eval_action.model.result import AttemptSummary
from agent_eval_action.model.trajectory_text import format_call
from agent_eval_action.reports import format as fmt
from agent_eval_action.reports.cases import CaseView, Group, failed_attempt, passing, score_of, worst_attempt
from agent_eval_action.reports.escape_markdown import code, fence, text
from agent_eval_action.reports.judged import judged_lines
from agent_eval_action.reports.junit_text import error_line
from agent_eval_action.reports.markdown_head import ICONS, LABELS
from agent_eval_action.reports.turn_diff import TurnDiff, turn_diffs
from agent_eval_action.source import plural

_TURNS = 4
_TRACEBACK = 12
_DIFF_LINES = 30
_LISTED = 40
_QUIET = frozenset(
    {
        ChangeKind.SAME,
        ChangeKind.PASSING,
        ChangeKind.NOT_APPLICABLE,
        ChangeKind.BETTER,
        ChangeKind.NEW,
        ChangeKind.REMOVED,
    }
)
_REST = {Group.NEW: "scores", Group.REMOVED: "scores in the baseline"}
_CASE_AND_CRITERION = re.compile(r"^`[^`]*› ")


def heading(group: Group, number: int) -> str:
    """``#### ❌ 2 cases regressed``."""
    return f"#### {ICONS[group]} {fmt.plural(number, 'case')} {LABELS[group]}"


def details(view: CaseView, *, is_open: bool = False) -> str:
    """The case behind a summary line."""
    parts = [
        f"<details{' open' if is_open else ''}>",
        f"<summary>{ICONS[view.group]} {_title(view)}</summary>",
        "",
        *(f"- {line}" for line in _pair_lines(view)),
        *_evidence(view),
        "",
        "</details>",
    ]
    return "\n".join(parts)


def listing(group: Group, cases: Sequence[CaseView]) -> str:
    """Cases that need no evidence, one line each, behind one summary."""
    lines = [f"- {_title(view)}" for view in cases[:_LISTED]]
    if len(cases) > _LISTED:
        lines.append(f"- … and {fmt.count(len(cases) - _LISTED)} more")
    summary = f"<summary>{ICONS[group]} {fmt.plural(len(cases), 'case')} {LABELS[group]}</summary>"
    return "\n".join(["<details>", summary, "", *lines, "", "</details>"])


def all_cases(cases: Sequence[CaseView], decision: Decision, room: int) -> str | None:
    """Every case with every score, in the order of the eval sets; None when it is larger than ``room`` bytes."""
    names = [row.criterion for row in decision.criteria]
    here = [view for view in cases if view.result is not None]
    if not names or not here:
        return None
    lines = [
        "<details>",
        f"<summary>All {fmt.plural(len(here), 'case')}</summary>",
        "",
        f"| Case | {' | '.join(code(name, 60) for name in names)} |",
        f"| :-- |{' --: |' * len(names)}",
    ]
    room -= sum(len(line.encode()) + 1 for line in lines) + 20
    for view in here:
        row = f"| {_name(view)} | {' | '.join(_cell(view.pair(name)) for name in names)} |"
        room -= len(row.encode()) + 1
        if room < 0:
            return None
        lines.append(row)
    return "\n".join([*lines, "", "</details>"])


def _name(view: CaseView) -> str:
    return f"{code(view.key.case)} <sub>{text(view.where, 160)}</sub>" if view.where else code(view.key.case)


def _title(view: CaseView) -> str:
    """Name, and the pair that put the case where it is."""
    if not view.telling or view.group in {Group.NEW, Group.CHANGED}:
        return _name(view)
    if view.group is Group.ERRORED:
        return f"{_name(view)} has no score on {fmt.plural(view.telling, 'criterion', 'criteria')}"
    first = view.pairs[0]
    others = f", and {fmt.count(view.telling - 1)} more" if view.telling > 1 else ""
    return f"{_name(view)}: {code(first.criterion, 80)} {_numbers(first)}{others}"


def _numbers(pair: PairChange) -> str:
    if pair.kind is ChangeKind.ERROR:
        return "not measured"
    label = f", {fmt.KIND_LABELS[pair.kind]}" if pair.kind is not ChangeKind.NEW else ""
    return f"{fmt.pair_text(pair)}{label}"


def _cell(pair: PairChange | None) -> str:
    if pair is None or pair.kind is ChangeKind.NOT_APPLICABLE:
        return fmt.NONE
    if pair.current is None:
        return "⚠️"
    mark = "❌ " if pair.blocking else "🔸 " if passing(pair) is False else ""
    return f"{mark}{fmt.number(pair.current.mean, pair.unit)}"


def _pair_lines(view: CaseView) -> Iterator[str]:
    """What is wrong first, each with its reason; the rest in one line."""
    broken = failed_attempt(view.result) if view.result else None
    told = set()
    if broken is not None and broken.error is not None:  # one reason for all criteria, shown in full below
        unmeasured = [pair for pair in view.pairs if pair.kind is ChangeKind.ERROR]
        told = {pair.criterion for pair in unmeasured}
        if unmeasured:
            yield f"no score: {', '.join(code(pair.criterion, 80) for pair in unmeasured)}"
    rest = []
    for pair in view.pairs:
        if pair.criterion in told:
            continue
        if pair.kind in _QUIET and not pair.errors and passing(pair) is not False:
            rest.append(f"{code(pair.criterion, 80)} {fmt.pair_text(pair)}{_spread(pair)}")
        else:
            yield _sentence(pair)
    if rest:
        yield f"{_REST.get(view.group, 'the rest')}: {', '.join(rest)}"


def _sentence(pair: PairChange) -> str:
    """The pair's reason without the case's name, which stands above."""
    if not pair.reason:
        return f"{code(pair.criterion, 80)} {_numbers(pair)}{_spread(pair)}"
    return text(_CASE_AND_CRITERION.sub("`", pair.reason, count=1), 700) + _spread(pair)


def _spread(pair: PairChange) -> str:
    """The change with its interval, unless the sentence of the evidence has it."""
    spread = fmt.interval(pair)
    if not spread or "95 %" in pair.reason:
        return ""
    return f" ({fmt.signed(pair.change, pair.unit)}, 95 %: {spread})"


def _evidence(view: CaseView) -> Iterator[str]:
    if view.result is None:
        calls = [f"turn {n}: {_calls(turn)}" for n, turn in enumerate(view.baseline_turns[:_TURNS], 1)]
        if calls:
            yield from ("", "Tool calls in the baseline:", "", fence(calls, "text"))
        return
    if view.result.line is not None and view.owner is not None:
        yield f"- defined in {code(f'{view.owner.path}:{view.result.line}', 200)}"
    broken = failed_attempt(view.result)
    if broken is not None and broken.error is not None:
        lines = [error_line(broken.error), *broken.error.traceback.strip().splitlines()[-_TRACEBACK:]]
        yield from (*_which(view, broken), "", fence(lines, "text"))
    shown = _telling_attempt(view)
    if shown is not None:
        yield from _judged(view, shown)
        yield from _difference(view, shown)


def _calls(turn: TurnBrief) -> str:
    return ", ".join(format_call(call, 120) for call in turn.calls[:10]) or "none"


def _telling_attempt(view: CaseView) -> AttemptSummary | None:
    """The attempt with the worst score of the first pair that fell or is below."""
    if view.result is None or view.group in {Group.SAME, Group.BETTER}:
        return None
    for pair in view.pairs:
        if pair.blocking or pair.kind is ChangeKind.WORSE or passing(pair) is False:
            return worst_attempt(view.result, pair.criterion, pair.goal)
    return None


def _difference(view: CaseView, attempt: AttemptSummary) -> Iterator[str]:
    expected = view.result.expected if view.result else ()
    diffs = turn_diffs(expected, view.baseline_turns, attempt.turns)
    if not diffs:
        return
    yield from _which(view, attempt)
    yield from ("", fence(_bounded([line for diff in diffs[:_TURNS] for line in _diff_lines(diff)]), "diff"))
    if len(diffs) > _TURNS:
        yield from ("", f"… and {fmt.plural(len(diffs) - _TURNS, 'more turn')} that differ")


def _judged(view: CaseView, attempt: AttemptSummary) -> Iterator[str]:
    """What judges said of the attempt, criterion by criterion of those that fell or are below."""
    for pair in view.pairs:
        score = score_of(attempt, pair.criterion)
        if score is None or not (pair.blocking or pair.kind is ChangeKind.WORSE or passing(pair) is False):
            continue
        if lines := judged_lines(score):
            yield from (*_which(view, attempt), "", fence(_bounded([pair.criterion, *lines]), "text"))


def _diff_lines(diff: TurnDiff) -> Iterator[str]:
    yield f"@@ turn {diff.number}: {diff.user[:160]} @@"
    for hunk in diff.hunks:
        yield f"# {hunk.title}"
        yield from (f"{sign} {line}" for sign, line in hunk.lines)


def _bounded(lines: list[str]) -> list[str]:
    if len(lines) <= _DIFF_LINES:
        return lines
    return [*lines[:_DIFF_LINES], f"… {plural(len(lines) - _DIFF_LINES, 'more line')}"]


def _which(view: CaseView, attempt: AttemptSummary) -> tuple[str, ...]:
    total = len(view.result.attempts) if view.result else 1
    return ("", f"Repeat {attempt.repeat + 1} of {total}:") if total > 1 else ()
