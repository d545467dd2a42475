"""The top of the comment: verdict, one line of numbers, the table of criteria, what concerns the whole run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import Link, ReportInput
from agent_eval_action.reports.case_text import TurnDiff, error_line, turn_diffs
from agent_eval_action.reports.escaping import code, fence, prose, text
from agent_eval_action.reports.messages import Messages, run_findings, shows_interval
from agent_eval_action.reports.next_steps import next_steps
from agent_eval_action.reports.view import (
    COLUMNS,
    GROUP_LABELS,
    CaseView,
    CriterionRow,
    Group,
    agent_tokens,
    all_of,
    cost_rows,
    cost_text,
    failed_attempt,
    has_errors,
    judge_calls,
    judged_lines,
    passed_before,
    passes,
    passing,
    score_of,
    with_threshold,
    worst_attempt,
)
from agent_eval_action.results.decision import (
    BaselineInfo,
    ChangeKind,
    Decision,
    PairChange,
    TurnBrief,
    Verdict,
)
from agent_eval_action.results.findings import Finding
from agent_eval_action.results.run_result import AttemptSummary, Conditions, ErrorKind, RunResult, ScoreStatus, Totals
from agent_eval_action.results.trajectory import format_call

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
_ALERTS: Final = {
    Verdict.FAIL: "CAUTION",
    Verdict.INCONCLUSIVE: "WARNING",
    Verdict.COLLECTING: "NOTE",
    Verdict.PASS: "TIP",
}
_VERDICTS: Final = {
    "fail": "❌ fail",
    "error": "⚠️ incomplete",
    "advisory": "🔸 advisory",
    "pass": "✅ pass",
    "not_applicable": "not applicable",
}
_SEVERITIES: Final = {"blocks": "❌", "inconclusive": "⚠️", "advisory": "🔸", "note": ""}
_FINDINGS = 10
_NOTES = 12
_WEAKENINGS = 15
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def alert(decision: Decision, messages: Messages, cases: list[CaseView]) -> str:
    """The verdict in a box, why in one sentence, and how many cases became what."""
    lines = [
        f"> [!{_ALERTS[decision.outcome]}]",
        f"> **{fmt.OUTCOME_LABELS[decision.outcome]}:** {prose(messages.headline(decision))}",
    ]
    counted = Counter(view.group for view in cases)
    classes = [f"{ICONS[g]} {fmt.count(counted[g])} {GROUP_LABELS[g]}" for g in ICONS if counted[g]]
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


def criteria_table(rows: Sequence[CriterionRow]) -> str:
    """One row per criterion, and what its columns mean."""
    if not rows:
        return "No criterion was measured."
    lines = [
        "| Criterion | Baseline | This run | Change | Threshold, limit | Verdict |",
        "| :-- | --: | --: | --: | :-- | :-- |",
        *map(_row, rows),
    ]
    legend = ["↓ lower is better"] if any(row.lower_is_better for row in rows) else []
    legend += ["(a…b) the change's 95 % interval over cases"] if any(row.interval for row in rows) else []
    # a pass says no more than that there was no drop as large
    drops = ", ".join(f"{code(row.name, 80)} {row.detectable}" for row in rows if row.detectable)
    detectable = f"Smallest drop of the mean this run could have detected (4 times out of 5): {drops}" if drops else ""
    below = filter(None, (" · ".join(legend), detectable))
    return "\n\n".join(["\n".join(lines), *(f"<sub>{line}</sub>" for line in below)])


def weakenings(decision: Decision, messages: Messages) -> str:
    """What the change does to its own judge: whoever reads anything below has to know it."""
    found = decision.weakenings
    if not found:
        return ""
    lines = [f"**This change weakens the gate** ({fmt.plural(len(found), 'way')}):", ""]
    lines += [_finding(finding, messages) for finding in found[:_WEAKENINGS]]
    if len(found) > _WEAKENINGS:
        lines.append(f"- … and {fmt.count(len(found) - _WEAKENINGS)} more in results.json")
    return "\n".join(lines)


def notes(decision: Decision, messages: Messages) -> str:
    """Findings about the whole run, and what the reader has to know beside."""
    found = run_findings(decision)
    lines = [_finding(finding, messages) for finding in found[:_FINDINGS]]
    if len(found) > _FINDINGS:
        lines.append(f"- … and {fmt.count(len(found) - _FINDINGS)} more")
    lines += [f"- {prose(messages.sentence(note))}" for note in decision.notes[:_NOTES]]
    if len(decision.notes) > _NOTES:
        lines.append(f"- … and {fmt.plural(len(decision.notes) - _NOTES, 'more note')} in results.json")
    return "\n".join(lines)


def _finding(finding: Finding, messages: Messages) -> str:
    return f"- {_SEVERITIES[finding.severity]} {prose(messages.sentence(finding))}"


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


def _row(row: CriterionRow) -> str:
    change = f"**{row.change}**" if row.tone == "bad" and row.status == "fail" else row.change
    if row.interval:  # in one piece: a browser breaks a line behind an ellipsis, in the middle of the numbers
        change += f" <sub>({row.interval.replace(' ', '&nbsp;').replace('…', '…&#8288;')})</sub>"
    name = code(row.name, 80) + (" ↓" if row.lower_is_better else "")
    cells = [name, row.baseline, row.current, change, text(row.limits, 120), _verdict(row)]
    return f"| {' | '.join(cells)} |"


def _verdict(row: CriterionRow) -> str:
    details = ", ".join(filter(None, (row.below, row.errors)))
    silent = row.status == "advisory" and not details and row.tone != "bad"
    label = "advisory" if silent else _VERDICTS[row.status]
    return f"{label}: {details}" if details else label


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


def heading(group: Group, number: int) -> str:
    """``#### ❌ 2 cases regressed``."""
    return f"#### {ICONS[group]} {fmt.plural(number, 'case')} {GROUP_LABELS[group]}"


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
    summary = f"<summary>{ICONS[group]} {fmt.plural(len(cases), 'case')} {GROUP_LABELS[group]}</summary>"
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
    if pair.reason is None:
        return f"{code(pair.criterion, 80)} {_numbers(pair)}{_spread(pair)}"
    return prose(Messages().pair(pair, with_case=False)) + _spread(pair)


def _spread(pair: PairChange) -> str:
    """The change with its interval, unless the sentence of the evidence has it."""
    spread = fmt.interval(pair)
    if not spread or (pair.reason is not None and shows_interval(pair.reason)):
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


_ROWS = 20
ADDRESS = re.compile(r"https?://[A-Za-z0-9.:-]+(?:/[A-Za-z0-9._~/%?=&#+-]*)?")


def foot(report: ReportInput) -> str:
    """Everything below the cases."""
    parts = [_costs(report.result.totals), *_commands(report), _conditions(report.result.conditions)]
    if report.links:
        parts.append(f"<sub>{' · '.join(_link(link) for link in report.links)}</sub>")
    return "\n\n".join(part for part in parts if part)


def _commands(report: ReportInput) -> Iterator[str]:
    steps = next_steps(report.result)
    if not report.reproduce and not steps:
        return
    intended = "Is this change intended?" if any(step.accepts for step in steps) else "How to go on"
    yield f"<details>\n<summary>{intended if steps else 'Repeat this run'}</summary>"
    for step in steps:
        yield prose(step.text, 500)
        if step.places:
            yield "\n".join(f"* {prose(place)}" for place in step.places)
        if step.commands:
            yield fence(step.commands, "sh")
    if report.reproduce:
        yield "Repeat this run on your machine:"
        yield fence([report.reproduce], "sh")
    yield "</details>"


def _costs(totals: Totals) -> str:
    """What each criterion asked of which model, behind one line."""
    rows = cost_rows(totals)
    if not rows:
        return ""
    said = ", ".join(part for part in (judge_calls(totals), cost_text(totals)) if part) or "by purpose and model"
    shown = [
        f"| {text(purpose, 80)} | {text(model, 80)} | {' | '.join(numbers)} |"
        for purpose, model, *numbers in rows[:_ROWS]
    ]
    if len(rows) > _ROWS:
        shown.append(f"| … and {fmt.count(len(rows) - _ROWS)} more in results.json {'| ' * (len(COLUMNS) - 1)}|")
    head = [f"| {' | '.join(COLUMNS)} |", f"| :-- | :-- {'| --: ' * (len(COLUMNS) - 2)}|"]
    return "\n".join(["<details>", f"<summary>Model use: {said}</summary>", "", *head, *shown, "", "</details>"])


def _conditions(conditions: Conditions) -> str:
    said = [f"agent-eval {code(conditions.tool_version, 40)}"]
    for agent in conditions.agents[:5]:
        facts = [f"google-adk {agent.adk_version}" if agent.adk_version else "", *agent.models[:3]]
        known = ", ".join(text(fact, 80) for fact in facts if fact)
        said.append(f"{code(agent.agent, 80)}{f': {known}' if known else ''}")
    if conditions.commit:
        said.append(f"commit {code(conditions.commit[:10], 40)}")
    return f"<sub>{' · '.join(said)}</sub>"


def _link(link: Link) -> str:
    if ADDRESS.fullmatch(link.target):
        return f"[{text(link.label, 80)}]({link.target})"
    return f"{text(link.label, 80)}: {code(link.target, 200)}"


BUDGET = 65_000
"""GitHub refuses a comment over 65,536 characters; bytes, and some to spare, are on the safe side."""

_REMARK = 600
"""Room kept for the sentence that says what was left out."""

_DETAILED: dict[Group, int | None] = {
    Group.REGRESSED: None,
    Group.BLOCKING: None,
    Group.ERRORED: None,
    Group.FAILING: None,
    Group.NEW: 20,
    Group.REMOVED: 20,
}
"""Groups whose cases are shown with their evidence, and how many of them; the others are listed by name."""

_ELSEWHERE = "all of them are in the JUnit file and in results.json"


def markdown(report: ReportInput, budget: int | None = None) -> str:
    """The report as GitHub's Markdown in at most ``budget`` bytes of UTF-8.

    Given up in this order: the table of all cases, cases' details from the last, everything but the table of
    criteria, everything but the headline. The marker line is there however small the budget is.
    """
    return rendered(report, BUDGET if budget is None else budget)


def rendered(report: ReportInput, room: int, *, table_first: bool = False) -> str:
    """The same in at most ``room`` bytes. ``table_first``: the table of all cases is kept before any case's details."""
    decision = report.decision
    in_order, cases = report.view.cases, report.view.worst_first
    messages = report.view.messages
    verdict = alert(decision, messages, cases)
    top = [report.marker, verdict, weakenings(decision, messages), metrics(report.result, decision, cases)]
    table = criteria_table(report.view.criteria)
    around = [*top, table, notes(decision, messages), foot(report)]
    left = room - _size(around)
    if left > _REMARK:
        body = _body(cases, in_order, decision, left, table_first=table_first)
        return _joined([*around[:-1], *body, around[-1]])
    remark = f"No case is shown here for length: {_ELSEWHERE}."
    for parts in ([*top, table, remark], [*top, remark], top, [report.marker, verdict]):
        if _size(parts) <= room:
            return _joined(parts)
    short = [report.marker, f"**{fmt.OUTCOME_LABELS[decision.outcome]}**"]
    return _joined(short) if _size(short) <= room else report.marker + "\n"


def _body(
    cases: list[CaseView], in_order: Sequence[CaseView], decision: Decision, room: int, *, table_first: bool
) -> list[str]:
    """Details and lists in reading order while they fit, what did not, and the table of all cases if it does."""
    parts: list[str] = []
    dropped: Counter[Group] = Counter()
    room -= _REMARK
    table = all_cases(in_order, decision, room) if table_first else None
    room -= len(table.encode()) + 2 if table else 0
    for group, number, render in _blocks(cases):
        block = "" if dropped else render()
        size = len(block.encode()) + 2
        if dropped or size > room:
            dropped[group] += number
            continue
        parts.append(block)
        room -= size
    if dropped:
        parts.append(_left_out(dropped))
    elif not table_first:
        table = all_cases(in_order, decision, room)
    return [*parts, table] if table else parts


def _blocks(cases: list[CaseView]) -> Iterator[tuple[Group, int, Callable[[], str]]]:
    """Group, cases in it, and what makes the text: nothing is made that has no room."""
    by_group = {group: [view for view in cases if view.group is group] for group in ICONS}
    for group, members in by_group.items():
        shown = members[: _DETAILED.get(group, 0)]
        for index, view in enumerate(shown):
            yield group, 1, partial(_detail, view, len(members) if index == 0 else 0)
        rest = members[len(shown) :]
        if rest:
            yield group, len(rest), partial(listing, group, rest)


def _detail(view: CaseView, members: int) -> str:
    """``members`` of the group when this is its first. The first case that blocks stands open."""
    is_open = bool(members) and view.group in {Group.REGRESSED, Group.BLOCKING}
    block = details(view, is_open=is_open)
    return f"{heading(view.group, members)}\n\n{block}" if members else block


def _left_out(dropped: Counter[Group]) -> str:
    said = ", ".join(f"{fmt.count(dropped[group])} {GROUP_LABELS[group]}" for group in ICONS if dropped[group])
    return f"Not shown here for length: {said} ({_ELSEWHERE})."


def _size(parts: Sequence[str]) -> int:
    return len(_joined(parts).encode())


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
