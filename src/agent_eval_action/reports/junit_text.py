"""What a failing, broken or advisory testcase says: one sentence, then expected against actual."""

from __future__ import annotations

from collections.abc import Iterator

from agent_eval_action.model.decision import CriterionChange, Decision, Finding, PairChange, Unit
from agent_eval_action.model.result import AttemptError, AttemptSummary, ScoreStatus, TurnScore
from agent_eval_action.reports import format as fmt
from agent_eval_action.reports.cases import CaseView, failed_attempt, score_of, worst_attempt
from agent_eval_action.reports.judged import judged_lines
from agent_eval_action.reports.turn_diff import turn_diffs

LIMIT = 8_000
_ANSWER = 600
_HEAD = 1_000


def failure(view: CaseView, pair: PairChange) -> tuple[str, str]:
    """Message and text of a pair that is below its threshold or fell."""
    numbers = f"{pair.criterion} {fmt.pair_text(pair)}"
    keeps = fmt.limits(pair.unit, pair.goal, pair.threshold)
    message = pair.reason or f"{numbers} ({fmt.KIND_LABELS[pair.kind]}, threshold {keeps})"
    lines = [f"{view.key}", f"{numbers}, threshold {keeps}: {fmt.KIND_LABELS[pair.kind]}"]
    if spread := fmt.interval(pair):
        lines.append(f"change with 95 % confidence: {spread}")
    attempt = worst_attempt(view.result, pair.criterion, pair.goal) if view.result else None
    if attempt is not None and view.result is not None:
        lines += _attempt(attempt, pair, len(view.result.attempts))
        lines += _differences(view, attempt)
    return message, "\n".join(lines)


def error(view: CaseView, pair: PairChange) -> tuple[str, str, str]:
    """Message, text and kind of a pair that could not be measured."""
    attempt = failed_attempt(view.result, pair.criterion) if view.result else None
    if attempt is None:
        return pair.reason or f"{pair.criterion} has no score", str(view.key), "unmeasured"
    where = f"{str(view.key)[:_HEAD]}, repeat {attempt.repeat + 1}"
    if attempt.error is not None:
        head = error_line(attempt.error)
        trace = attempt.error.traceback[-LIMIT // 2 :]  # its last lines say what broke
        return head, f"{where}\n{head[:_HEAD]}\n{trace}".rstrip(), str(attempt.error.kind)
    score = score_of(attempt, pair.criterion)
    reason = score.reason if score else "the criterion gave no score"
    return pair.reason or reason, f"{where}\n{reason}", "scoring"


def error_line(error: AttemptError) -> str:
    """``timeout in turn 2: no answer within 60 s``."""
    turn = f" in turn {error.turn + 1}" if error.turn is not None else ""
    return f"{error.kind}{turn}: {error.message}"


def whole_run(decision: Decision) -> Iterator[tuple[str, str, str, str]]:
    """Name, status, message and text of each rule over the whole suite, and of what befell the run itself."""
    told = decision.weakenings
    over_all = [finding for finding in decision.findings if finding.case is None and finding not in told]
    for row in decision.criteria:
        mine = [f for f in over_all if f.criterion == row.criterion]
        if mine or row.limit:
            yield row.criterion, _status(mine), _joined(mine), _row(row)
    known = {row.criterion for row in decision.criteria}
    rest = [f for f in over_all if f.criterion not in known and f.effect != "advisory"]
    for number, finding in enumerate(rest, 1):
        # what GitHub's withheld secrets left out is nobody's error
        left_out = decision.excused and finding.effect == "inconclusive"
        yield finding.criterion or f"run {number}", "skipped" if left_out else _status([finding]), finding.reason, ""
    if blocking := [finding for finding in told if finding.effect == "blocks"]:
        # one of them may be about a case that is gone, which has no testcase to fail
        yield "weakened gate", "failure", _joined(blocking), "\n".join(finding.reason for finding in blocking)


def _status(findings: list[Finding]) -> str:
    effects = {finding.effect for finding in findings}
    return "failure" if "blocks" in effects else "error" if "inconclusive" in effects else "passed"


def _joined(findings: list[Finding]) -> str:
    return "; ".join(f.reason for f in findings if f.effect != "advisory")


def _row(row: CriterionChange) -> str:
    now = row.paired if row.paired is not None else row.current
    detectable = [f"could detect a drop of {fmt.detectable(row)}"] if row.detectable is not None else []
    return "\n".join(
        [
            f"baseline {fmt.number(row.baseline, row.unit)}",
            f"this run {fmt.number(now, row.unit)}",
            f"change   {fmt.change(row)}",
            *detectable,
            f"limit    {fmt.limits(row.unit, row.goal, row.threshold, row.limit)}",
            row.reason,
        ]
    )


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
