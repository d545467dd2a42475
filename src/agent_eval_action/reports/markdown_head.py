"""The top of the comment: verdict, one line of numbers, the table of criteria, what concerns the whole run."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from typing import Final

from agent_eval_action.model.decision import BaselineInfo, CriterionChange, Decision, Outcome
from agent_eval_action.model.result import ErrorKind, RunResult, ScoreStatus
from agent_eval_action.reports import format as fmt
from agent_eval_action.reports.cases import (
    CaseView,
    Group,
    all_of,
    has_errors,
    passed_before,
    passes,
    passing,
    with_threshold,
)
from agent_eval_action.reports.costs import agent_tokens, cost_text, judge_calls
from agent_eval_action.reports.escape_markdown import code, text

ICONS: Final = {
    Group.REGRESSED: "❌",
    Group.BLOCKING: "⛔",
    Group.ERRORED: "⚠️",
    Group.FAILING: "🔸",
    Group.WORSE: "🔻",
    Group.NEW: "🆕",
    Group.REMOVED: "🗑️",
    Group.CHANGED: "✏️",
    Group.BETTER: "🟢",
}
LABELS: Final = {
    Group.REGRESSED: "regressed",
    Group.BLOCKING: "below a threshold",
    Group.ERRORED: "not measured",
    Group.FAILING: "below a threshold, not blocking",
    Group.WORSE: "worse, not blocking",
    Group.NEW: "new",
    Group.REMOVED: "removed",
    Group.CHANGED: "changed definition",
    Group.BETTER: "better",
}
_ALERTS: Final = {
    Outcome.FAIL: "CAUTION",
    Outcome.INCONCLUSIVE: "WARNING",
    Outcome.COLLECTING: "NOTE",
    Outcome.PASS: "TIP",
}
_VERDICTS: Final = {
    "fail": "❌ fail",
    "error": "⚠️ incomplete",
    "advisory": "🔸 advisory",
    "pass": "✅ pass",
    "not_applicable": "not applicable",
}
_EFFECTS: Final = {"blocks": "❌", "inconclusive": "⚠️", "advisory": "🔸"}
_FINDINGS = 10
_NOTES = 12
_WEAKENINGS = 15
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def alert(decision: Decision, cases: list[CaseView]) -> str:
    """The verdict in a box, why in one sentence, and how many cases became what."""
    lines = [
        f"> [!{_ALERTS[decision.outcome]}]",
        f"> **{fmt.OUTCOME_LABELS[decision.outcome]}:** {text(decision.reason, 700)}",
    ]
    counted = Counter(view.group for view in cases)
    classes = [f"{ICONS[g]} {fmt.count(counted[g])} {LABELS[g]}" for g in ICONS if counted[g]]
    return "\n".join([*lines, ">", f"> {' · '.join(classes)}"] if classes else lines)


def metrics(result: RunResult, decision: Decision, cases: list[CaseView]) -> str:
    """Cases, pass rate and change, errors, tokens, time, repeats, baseline: one line."""
    here = [view for view in cases if view.result is not None]
    totals = result.totals
    unmade = sum(map(_only_stopped, here))
    errors = sum((view.group is Group.ERRORED or has_errors(view)) and not _only_stopped(view) for view in here)
    parts = [fmt.plural(len(here), "case"), *_pass_rate(here)]
    parts.append(fmt.plural(errors, "case with errors", "cases with errors") if errors else "no errors")
    if unmade:
        parts.append(fmt.plural(unmade, "case not complete", "cases not complete"))
    parts += [said for said in (agent_tokens(totals), judge_calls(totals), cost_text(totals)) if said]
    parts += [fmt.duration(totals.seconds), fmt.plural(result.conditions.repeats, "repeat")]
    if totals.extra or totals.control:
        parts.append(fmt.attempts(totals))
    parts.append(_baseline(decision.baseline, result.started_at))
    return " · ".join(parts)


def criteria_table(decision: Decision) -> str:
    """One row per criterion, what fell first."""
    if not decision.criteria:
        return "No criterion was measured."
    rows = [
        "| Criterion | Baseline | This run | Change | Threshold, limit | Verdict |",
        "| :-- | --: | --: | --: | :-- | :-- |",
        *(_row(row) for row in sorted(decision.criteria, key=fmt.by_severity)),
    ]
    below = [part for part in (_legend(decision), _detectable(decision)) if part]
    return "\n\n".join(["\n".join(rows), *(f"<sub>{line}</sub>" for line in below)])


def _legend(decision: Decision) -> str:
    parts = ["↓ lower is better"] if any(row.goal == "minimize" for row in decision.criteria) else []
    if any(row.interval for row in decision.criteria):
        parts.append("(a…b) the change's 95 % interval over cases")
    return " · ".join(parts)


def _detectable(decision: Decision) -> str:
    """What a drop would have had to be: a pass says no more than that there was none as large."""
    rows = [row for row in sorted(decision.criteria, key=fmt.by_severity) if row.detectable is not None]
    said = [f"{code(row.criterion, 80)} {fmt.detectable(row)}" for row in rows]
    if not said:
        return ""
    return f"Smallest drop of the mean this run could have detected (4 times out of 5): {', '.join(said)}"


def weakenings(decision: Decision) -> str:
    """What the change does to its own judge: whoever reads anything below has to know it."""
    found = decision.weakenings
    if not found:
        return ""
    lines = [f"**This change weakens the gate** ({fmt.plural(len(found), 'way')}):", ""]
    lines += [f"- {_EFFECTS[one.effect]} {text(one.reason, 700)}" for one in found[:_WEAKENINGS]]
    if len(found) > _WEAKENINGS:
        lines.append(f"- … and {fmt.count(len(found) - _WEAKENINGS)} more in results.json")
    return "\n".join(lines)


def notes(decision: Decision) -> str:
    """Findings about the whole run, and what the reader has to know beside."""
    told = {decision.reason, "", *(one.reason for one in decision.weakenings)}
    found = [f for f in decision.findings if f.case is None and f.reason not in told]
    lines = [f"- {_EFFECTS[finding.effect]} {text(finding.reason, 700)}" for finding in found[:_FINDINGS]]
    if len(found) > _FINDINGS:
        lines.append(f"- … and {fmt.count(len(found) - _FINDINGS)} more")
    lines += [f"- {text(note, 700)}" for note in decision.notes[:_NOTES]]
    if len(decision.notes) > _NOTES:
        lines.append(f"- … and {fmt.plural(len(decision.notes) - _NOTES, 'more note')} in results.json")
    return "\n".join(lines)


def _only_stopped(view: CaseView) -> bool:
    """Whether the end of the run is all that a case lacks: what was not made is no error."""
    attempts = view.result.attempts if view.result is not None else ()
    kinds = {attempt.error.kind for attempt in attempts if attempt.error is not None}
    scores = (score.status for attempt in attempts for score in attempt.scores)
    return kinds == {ErrorKind.STOPPED} and ScoreStatus.ERROR not in scores


def _pass_rate(cases: list[CaseView]) -> list[str]:
    """Cases that meet every threshold they have; one that was not measured does not. The change is over both sides'."""
    held = with_threshold(cases)
    if not held:
        return []
    passed = sum(map(passes, held))
    rate = fmt.percent(passed, len(held))
    sides = [(all_of(map(passed_before, view.pairs)), all_of(map(passing, view.pairs))) for view in held]
    both = [(before, after) for before, after in sides if before is not None and after is not None]
    if both:
        then, now = (fmt.percent(sum(side), len(both)) for side in zip(*both, strict=True))
        change = f"{then} → {now}" if then != now else f"{now} as in the baseline"
        rate = change if len(both) == len(held) else f"{rate}; of the {fmt.count(len(both))} compared {change}"
    return [f"**{fmt.count(passed)} of {fmt.count(len(held))} pass** ({rate})"]


def _baseline(base: BaselineInfo | None, started_at: str) -> str:
    if base is None:
        return "no baseline"
    words = ["baseline", code(base.path, 200)]
    if base.commit:
        known = _COMMIT.fullmatch(base.commit)
        words += ["of", code(base.commit[:10] if known else base.commit, 40)]
    age = _age(base.created_at, started_at)
    return " ".join(words) + (f", {age} old" if age else "")


def _age(created_at: str | None, started_at: str) -> str:
    try:
        seconds = (datetime.fromisoformat(started_at) - datetime.fromisoformat(created_at or "")).total_seconds()
    except (ValueError, TypeError):  # no date, or one with and one without a zone
        return ""
    return fmt.age(seconds) if seconds >= 0 else ""


def _row(row: CriterionChange) -> str:
    now = row.paired if row.paired is not None else row.current
    change = fmt.signed(row.change, row.unit)
    interval = fmt.change(row).removeprefix(change).strip()
    if fmt.is_worse(row.change, row.goal) and row.status == "fail":
        change = f"**{change}**"
    if interval:  # in one piece: a browser breaks a line behind an ellipsis, in the middle of the numbers
        change += f" <sub>{interval.replace(' ', '&nbsp;').replace('…', '…&#8288;')}</sub>"
    cells = [
        code(row.criterion, 80) + (" ↓" if row.goal == "minimize" else ""),
        fmt.number(row.baseline, row.unit),
        fmt.number(now, row.unit),
        change,
        text(fmt.limits(row.unit, row.goal, row.threshold, row.limit), 120),
        _verdict(row),
    ]
    return f"| {' | '.join(cells)} |"


def _verdict(row: CriterionChange) -> str:
    said = []
    if row.failing:
        side = "above" if row.goal == "minimize" else "below"
        said.append(f"{fmt.count(row.failing)} of {fmt.plural(row.pairs, 'case')} {side}")
    if row.errors:
        said.append(fmt.plural(row.errors, "error"))
    silent = row.status == "advisory" and not said and not fmt.is_worse(row.change, row.goal)
    label = "advisory" if silent else _VERDICTS[row.status]
    return f"{label}: {', '.join(said)}" if said else label
