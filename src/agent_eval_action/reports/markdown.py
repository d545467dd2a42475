r"""The comment and the step's summary: verdict, reasons, changes, next steps; everything else is folded.

Untrusted text is escaped by character references, not backslashes: they work alike in a paragraph, a table cell (where
``\|`` after a backslash still ends the cell) and an HTML block such as a summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final
from urllib.parse import quote

from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.differences import Cause, error_line, turn_diffs
from agent_eval_action.reports.formatting import Prose, clean
from agent_eval_action.reports.messages import OUTCOME_LABELS, run_findings
from agent_eval_action.reports.verdict import Step, advice, heading, next_steps, rerun_commands, why
from agent_eval_action.reports.view import (
    COLUMNS,
    CaseView,
    CriterionRow,
    Group,
    cost_rows,
    facts,
    objections,
    passing,
    score_of,
    with_threshold,
)
from agent_eval_action.results.decision import BaselineInfo, ChangeKind, Decision, PairChange, Verdict
from agent_eval_action.results.findings import Finding, FindingCode
from agent_eval_action.results.run_result import Conditions, CriterionScore

BUDGET: Final = 65_000
"""Bytes of UTF-8, with some to spare: GitHub refuses comments over 65,536 characters."""
SUMMARY_BUDGET: Final = 1_000_000
"""Bytes of UTF-8: GitHub drops a step's whole summary if it is larger than 1,048,576 bytes."""
_NAME: Final = 4_000
ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.:-]+(?:/[A-Za-z0-9._~/%?=&#+-]*)?")

_OUTCOMES: Final = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.INCONCLUSIVE: "⚠️", Verdict.COLLECTING: "🆕"}
_STATUS: Final = {"fail": "❌", "error": "⚠️", "advisory": "🔸", "pass": "✅", "not_applicable": ""}
_SEVERITIES: Final = {"blocks": "❌ ", "inconclusive": "⚠️ ", "advisory": "🔸 ", "note": ""}
_QUARANTINE_ICONS: Final = {FindingCode.QUARANTINED: "🚧 ", FindingCode.QUARANTINE_OVERDUE: "⏰ "}
_FINDINGS, _NOTES, _WEAKENINGS, _COSTS = 10, 12, 15, 20
_ROWS_OPEN, _ROWS = 4, 30
_SECTIONS, _OPEN_SECTIONS, _ALIKE, _AGENTS = 5, 3, 20, 10
_TURNS, _DIFF_LINES, _OBJECTIONS, _TRACEBACK = 4, 30, 8, 12
_NAMED, _REMARK = 10, 120  # bytes for the sentence on what was left out
_ELSEWHERE: Final = "all of them are in the step's summary and in report.html"
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")

# Underscores inside words are not emphasis, and names are full of them
_MARKUP = re.compile(r"[&<>`|\\*~\[\]$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_BLOCK_START = re.compile(r"^(?:[-+=#:]|\d+(?=[.)]))")
# GitHub's filters after Markdown link mentions, issues and addresses even if they are escaped: only an invisible
# character prevents it (renovate and dependabot do the same).
_REFERENCE = re.compile(r"@|#(?=\w)|(?i:\bgh-)(?=\d)|:(?=//)|(?i:www)(?=\.)|(?i:mailto|xmpp)(?=:)")
_APART = "&#8203;"
_BACKTICKS = re.compile(r"`+")
_LINE = 400


def markdown(report: ReportInput, budget: int | None = None) -> str:
    """Render the report as GitHub's Markdown in at most ``budget`` bytes of UTF-8.

    To fit, it drops in this order: folded parts, sections of cases from the last, commands, the table of criteria,
    reasons. The marker line always stays.
    """
    return _render(report, BUDGET if budget is None else budget, report.marker)


def summary(report: ReportInput, budget: int | None = None) -> str:
    """Render the report for a run's page: like the comment, without its marker, with a row for every case."""
    room = SUMMARY_BUDGET if budget is None else budget
    return _render(report, room, "", _all_cases(report, room // 2))


def _render(report: ReportInput, room: int, marker: str, every_case: str = "") -> str:
    """Render blocks in reading order; each has a number, and those with the highest are dropped first."""
    decision, view = report.decision, report.view
    loud, passed = decision.outcome is Verdict.FAIL, decision.outcome is Verdict.PASS
    sentences = [prose(sentence) for sentence in why(report)]
    lead = "**Why:** " if decision.outcome in {Verdict.FAIL, Verdict.INCONCLUSIVE} else ""
    # above the fold, so that they are not forgotten
    quarantines = [note for note in decision.notes if note.code in _QUARANTINE_ICONS]
    several = view.agents > 1
    title = f"{text(report.title, 200)} · " if report.title else ""
    head = f"## {_OUTCOMES[decision.outcome]} {title}{OUTCOME_LABELS[decision.outcome]}"
    table = _criteria_table(_changed(view.criteria)) if loud else ""
    if several and not passed:
        table = _agents_table(report)
    sections = list(_sections(report))
    blocks = [
        (0, marker),
        (1, f"{head}: {prose(heading(report), 300)}".removesuffix(": ")),
        (2, f"{lead}{' '.join(sentences)}" if sentences else ""),
        (3, _weakenings(report)),
        (6, "\n".join(_items(quarantines, report, _FINDINGS))),
        (4, table),
        *((10 + number, block) for number, (_, block) in enumerate(sections)),
        (5, _what_to_do(report)),
        (90, every_case),
        (91, _intended(report)),
        (92, _folded(report, whole_table=several or not loud)),
    ]
    kept = _drop_to_fit(blocks, room - (_REMARK if sections else 0))
    dropped = sum(cases for number, (cases, _) in enumerate(sections) if 10 + number not in kept)
    if dropped and kept:
        kept[89] = f"Not shown here for length: {fmt.plural(dropped, 'case')}, {_ELSEWHERE}."
    order = [number for number, _ in blocks[:-3]] + [89, 90, 91, 92]
    rendered = "\n\n".join(kept[number] for number in order if kept.get(number)) + "\n"
    return rendered if kept and len(rendered.encode()) <= room else f"{marker}\n"


def _drop_to_fit(blocks: Iterable[tuple[int, str]], room: int) -> dict[int, str]:
    """Keep blocks, lowest number first, while there is room."""
    kept: dict[int, str] = {}
    for number, block in sorted(blocks, key=lambda item: item[0]):
        room -= len(block.encode()) + 2 if block else 0
        if room < 0:
            break
        kept[number] = block
    return kept


def _weakenings(report: ReportInput) -> str:
    """List how the change relaxes the gate; shown first, because it affects everything below."""
    found = report.decision.weakenings
    if not found:
        return ""
    lead = f"**This change loosens its own checks** ({fmt.plural(len(found), 'way')}):"
    return "\n".join([lead, "", *_items(found, report, _WEAKENINGS)])


def _items(found: Sequence[Finding], report: ReportInput, most: int, noun: str = "") -> Iterator[str]:
    """Yield a line for each of the first ``most`` findings, and one with the number of others."""
    for finding in found[:most]:
        icon = _QUARANTINE_ICONS.get(finding.code, _SEVERITIES[finding.severity])
        yield f"- {icon}{prose(report.view.messages.sentence(finding))}"
    if (more := len(found) - most) > 0:
        yield f"- … and {fmt.plural(more, noun) if noun else f'{fmt.count(more)} more'} in results.json"


# --- tables ----------------------------------------------------------------------------------------


def _changed(rows: Sequence[CriterionRow]) -> list[CriterionRow]:
    """Return the deciding criteria, which are shown above the fold."""
    return [row for row in rows if row.status in {"fail", "error", "pass"}][:_ROWS_OPEN]


def _criteria_table(rows: Sequence[CriterionRow]) -> str:
    """Put sign and change first: narrow screens show only the first columns."""
    compared = any(row.baseline != fmt.NONE for row in rows)
    lines = (
        ["| | Change | Criterion | main → here | Cases |", "| :-: | --: | :-- | :-: | :-- |"]
        if compared
        else ["| | Criterion | Mean | Needs | Cases |", "| :-: | :-- | --: | :-- | :-- |"]
    )
    for row in rows:
        bold = "**" if row.status == "fail" else ""
        title = name(row.name, 80) + (" ↓" if row.lower_is_better else "")
        quiet = row.status == "advisory" and row.tone != "bad" and not row.cases
        sign = "" if quiet else _STATUS[row.status]
        sides = row.current if row.baseline == fmt.NONE else f"{row.baseline}&nbsp;→&nbsp;{bold}{row.current}{bold}"
        cells = (f"{bold}{row.change}{bold}", title, sides) if compared else (title, row.current, text(row.limits, 120))
        lines.append(f"| {sign} | {' | '.join(cells)} | {row.cases} |")
    return "\n".join(lines) if rows else ""


def _agents_table(report: ReportInput) -> str:
    """List agents that do not pass, worst first, and count the others."""
    by_agent: dict[str, list[CaseView]] = {}
    for case in report.view.run:
        by_agent.setdefault(case.key.agent, []).append(case)
    bad: list[tuple[Group, str, str]] = []
    good: list[CaseView] = []
    for agent, cases in by_agent.items():
        worst = min((case.urgency for case in cases if case.needs_attention), default=None)
        if worst is None:
            good += cases
            continue
        group = worst[2]
        worse = [case for case in cases if case.group is group and case.needs_attention]
        what = f"{len(worse):,} of {fmt.plural(len(cases), 'case')} {_PLAIN[group]}: {_names(worse, _ROWS_OPEN)}"
        bad.append((group, agent, f"| {group.icon} | **{text(agent, 80)}** | {what} |"))
    lines = [line for _, _, line in sorted(bad)[:_AGENTS]]
    if len(bad) > _AGENTS:
        lines.append(f"| | {fmt.count(len(bad) - _AGENTS)} more | |")
    if good:
        others = fmt.plural(len({case.key.agent for case in good}), "other" if bad else "agent")
        counted = with_threshold(good)
        lines.append(
            f"| ✅ | {others} | {sum(view.passes for view in counted):,} of {fmt.plural(len(counted), 'case')} pass |"
        )
    return "\n".join(["| | Agent | What happened |", "| :-: | :-- | :-- |", *lines])


_PLAIN: Final = {
    Group.REGRESSED: "worse",
    Group.NEEDS_RUNS: "in need of more runs",
    Group.NOT_MEASURED: "not measured",
    Group.BELOW_THRESHOLD: "below a threshold",
    Group.WORSE: "worse, with the criterion's mean",
}


def _all_cases(report: ReportInput, room: int) -> str:
    """List every case with every score, in the order of the eval sets; "" if that takes more than ``room`` bytes."""
    criteria = [row.criterion for row in report.decision.criteria]
    here = [view for view in report.view.cases if view.result is not None]
    if not criteria or not here:
        return ""
    lines = [
        f"<details>\n<summary>All {fmt.plural(len(here), 'case')}</summary>\n",
        f"| Case | {' | '.join(name(criterion, 60) for criterion in criteria)} |",
        f"| :-- |{' --: |' * len(criteria)}",
    ]
    for view in here:
        lines.append(f"| {_case(view)} | {' | '.join(_cell(view.pair(criterion)) for criterion in criteria)} |")
        room -= len(lines[-1].encode()) + 1
        if room < 0:
            return ""
    return "\n".join([*lines, "", "</details>"])


def _case(view: CaseView) -> str:
    return f"{code(view.key.case)} <sub>{text(view.where, 160)}</sub>" if view.where else code(view.key.case)


def _cell(pair: PairChange | None) -> str:
    if pair is None or pair.kind is ChangeKind.NOT_APPLICABLE:
        return fmt.NONE
    if pair.current is None:
        return "⚠️"
    mark = "❌ " if pair.blocking else "🔸 " if passing(pair) is False else ""
    return f"{mark}{fmt.number(pair.current.mean, pair.unit)}"


# --- cases, one section for each cause -------------------------------------------------------------


def _sections(report: ReportInput) -> Iterator[tuple[int, str]]:
    """Yield the number of cases and the text of each section; after a few causes, one table for the rest."""
    causes, several = report.causes, report.view.agents > 1
    for number, cause in enumerate(causes[:_SECTIONS]):
        worst, *more = cause.cases
        if cause.group is Group.NOT_MEASURED:
            error = attempt.error if (attempt := worst.failed_attempt()) is not None else None
            trace = error.traceback.strip().splitlines()[-_TRACEBACK:] if error is not None else []
            body = prose(cause.differences[0]) if error is None else fence([error_line(error), *trace], "text")
            yield len(cause.cases), _details(f"⚠️ Not measured: {_names(cause.cases)}", [body])
            continue
        is_open = worst.blocks and number < _OPEN_SECTIONS and not several
        yield 1, _details(_title(cause, several=several), _evidence(worst, report), is_open=is_open)
        if more:
            rows = list(zip(more, cause.differences[1:], strict=True))
            yield len(more), _details(f"{len(more):,} more with the same cause: {_names(more)}", _case_rows(rows))
    rest = [pair for cause in causes[_SECTIONS:] for pair in zip(cause.cases, cause.differences, strict=True)]
    if rest:
        summary_line = f"{fmt.plural(len(causes) - _SECTIONS, 'more cause')} in {fmt.plural(len(rest), 'case')}"
        yield len(rest), _details(summary_line, _case_rows(rest))


def _details(summary_line: str, lines: Iterable[str], *, is_open: bool = False) -> str:
    body = "\n".join(lines)
    return f"<details{' open' if is_open else ''}>\n<summary>{summary_line}</summary>\n\n{body}\n\n</details>"


def _title(cause: Cause, *, several: bool) -> str:
    view = cause.cases[0]
    icon = "" if view.group is Group.REGRESSED else "⛔ " if view.blocks else f"{view.group.icon} "
    if several:
        return f"{view.group.icon} <b>{text(view.key.agent, 80)}</b>: {prose(cause.text)}"
    numbers = fmt.pair_text(view.pairs[0]) if view.pairs else ""
    then, now = view.sides
    tested = f" · passed {then} on main, {now} here" if "/" in now else ""
    where = f" <sub>{text(view.where, 160)}</sub>" if view.where else ""
    label = "" if view.group is Group.REGRESSED or view.in_failed_criterion else f" · {view.group.label}"
    return f"{icon}<b>{code(view.key.case)}</b>{where} {numbers}{tested}{label}"


def _names(cases: Sequence[CaseView], most: int = _NAMED) -> str:
    return shortlist(cases, most, lambda view: code(view.key.case, 60))


def _case_rows(rows: Sequence[tuple[CaseView, Prose]]) -> Iterator[str]:
    yield "| Case | main | here | First difference |\n| :-- | :-: | :-: | :-- |"
    for view, difference in rows[:_ALIKE]:
        then, now = view.sides
        yield f"| {_case(view)} | {then} | {now} | {prose(difference, 300)} |"
    if len(rows) > _ALIKE:
        yield f"\n… and {fmt.plural(len(rows) - _ALIKE, 'more case')}, {_ELSEWHERE}"


def _evidence(view: CaseView, report: ReportInput) -> Iterator[str]:
    """Yield the most telling attempt's diff, judges' objections, the criteria behind the class, and a link."""
    attempt, telling = view.telling_attempt(), view.reasons
    lines: list[str] = []
    quoted: list[str] = []
    if attempt is not None:
        diffs = turn_diffs(view.expected, view.baseline_turns, attempt.turns)
        lines = [line for diff in diffs[:_TURNS] for line in diff.text()]
        quoted = [line for pair in telling for line in _objections(pair, score_of(attempt, pair.criterion))]
    if lines:
        more = len(lines) - _DIFF_LINES
        yield fence([*lines[:_DIFF_LINES], *([f"… {fmt.plural(more, 'more line')}"] if more > 0 else [])], "diff")
        yield ""
    if quoted:
        yield from (*quoted[:_OBJECTIONS], "")
    if not lines and not quoted:
        yield from (f"- {prose(report.view.messages.pair(pair, with_case=False))}" for pair in telling if pair.reason)
        yield ""
    numbers = [
        f"{name(pair.criterion, 80)} {fmt.pair_text(pair)}"
        + (f" (needs {text(fmt.limits(pair), 60)})" if pair.threshold is not None else "")
        for pair in telling
    ]
    where = [code(f"{view.owner.path}:{view.line}", 200)] if view.line and view.owner is not None else []
    yield f"<sub>{' · '.join([*numbers, *where])}</sub>"
    parts = (quote(fmt.clean(part, _NAME, lines=True), safe="") for part in view.key)
    address = f"{report.page}#/case/{'/'.join(parts)}"
    if report.page and ADDRESS.fullmatch(address):
        yield f"\n[This case in the full report]({address})"


def _objections(pair: PairChange, score: CriterionScore | None) -> Iterator[str]:
    """Quote judges as block quotes, which wrap, unlike code blocks."""
    if score is None:
        return
    found = list(objections(score))
    for turn, kind, what, why_not in found:
        if kind == "rubric":
            yield f"> **Turn {turn}, rubric {code(what, 80)} not met:** {text(why_not, 400)}"
        else:
            yield f"> **Turn {turn}, {text(kind, 40)}:** “{text(what, 300)}” {text(why_not, 400)}".rstrip()
    if not found and any(turn.votes is not None for turn in score.turns):
        yield f"> **{code(pair.criterion, 80)}:** {text(score.reason, 400)}"


# --- next steps, and the folded rest ---------------------------------------------------------------


def _what_to_do(report: ReportInput) -> str:
    """Return links, the command that re-runs the cases that need attention, and advice for an inconclusive run."""
    if report.decision.outcome is Verdict.PASS:
        return ""
    links = _links(report)
    step = advice(report)
    parts = [f"**What to do:** {prose(step)}"] if step else []
    commands = rerun_commands(report)
    if commands:
        cases = sum(view.needs_attention for view in report.view.run)
        these = "this case" if cases == 1 else f"these {cases:,} cases"
        parts += [f"{links} · run {these}:" if links else f"Run {these}:", fence(commands, "sh")]
    elif links:
        parts.append(links)
    if report.decision.outcome is Verdict.COLLECTING:
        parts += [block for one in next_steps(report.result) for block in _step(one)]
    return "\n\n".join(parts)


def _links(report: ReportInput) -> str:
    return " · ".join(
        f"[{text(link.label, 80)}]({link.target})"
        if ADDRESS.fullmatch(link.target)
        else f"{text(link.label, 80)}: {code(link.target, 200)}"
        for link in report.links
    )


def _step(step: Step) -> Iterator[str]:
    yield prose(step.text, 500)
    if step.places:
        yield "\n".join(f"* {prose(place)}" for place in step.places)
    if step.commands:
        yield fence(step.commands, "sh")


def _intended(report: ReportInput) -> str:
    steps = next_steps(report.result)
    if not steps or report.decision.outcome in {Verdict.PASS, Verdict.COLLECTING}:
        return ""
    title = "Is this change intended?" if any(step.accepts for step in steps) else "How to go on"
    return _details(title, ["\n\n".join(block for step in steps for block in _step(step))])


def _folded(report: ReportInput, *, whole_table: bool) -> str:
    """Return scores, notes, the other classes of cases, costs, and the command that repeats the run."""
    decision, result, view = report.decision, report.result, report.view
    base, passed = _baseline(decision.baseline, result.started_at), decision.outcome is Verdict.PASS
    lead = "Scores · " if whole_table and view.criteria else ""
    above = () if whole_table else _changed(view.criteria)
    rows = [row for row in view.criteria if row not in above]
    rest = [note for note in decision.notes if note.code not in _QUARANTINE_ICONS]
    notes = [*_items(run_findings(decision)[:_FINDINGS], report, _FINDINGS), *_items(rest, report, _NOTES, "more note")]
    parts = [
        _criteria_table(rows[:_ROWS]) if view.criteria else "No criterion was measured.",
        "\n".join(_classes(report)),
        "\n".join(notes),
        *_limits(view.criteria, decision),
        _costs(report),
        *((*(block for step in next_steps(result) for block in _step(step)), _links(report)) if passed else ()),
        f"Repeat the whole run on your machine:\n\n{fence([report.reproduce], 'sh')}" if report.reproduce else "",
        _conditions(result.conditions, decision),
    ]
    return _details(f"{lead}{' · '.join([*facts(result), base])}", ["\n\n".join(filter(None, parts))])


def _classes(report: ReportInput) -> Iterator[str]:
    """Yield a line for each class of cases without a section."""

    def shown(view: CaseView) -> str:
        numbers = view.telling and view.group not in {Group.NEW, Group.CHANGED}
        return f"{_case(view)}{' {} → {}'.format(*view.sides) if numbers else ''}"

    for group in Group:
        cases = [view for view in report.view.in_groups(group) if not view.needs_attention]
        if cases and group is not Group.UNCHANGED:
            yield f"- {group.icon} {len(cases):,} {group.label}: {shortlist(cases, _NAMED, shown)}"


def _limits(rows: Sequence[CriterionRow], decision: Decision) -> Iterator[str]:
    """Yield the limits, and which drop this run would have noticed: a pass excludes no smaller one."""
    needs = [f"{name(row.name, 80)} {text(row.limits, 120)}" for row in rows[:_ROWS] if row.limits != fmt.NONE]
    if needs and decision.baseline is not None:
        yield f"Limits: {'; '.join(needs)}."
    drops = [f"{name(row.name, 80)} {row.detectable}" for row in rows if row.detectable]
    if drops and decision.outcome is Verdict.PASS:
        yield f"Four times out of five, {'; '.join(drops[:_ROWS])}."


def _baseline(base: BaselineInfo | None, started_at: str) -> str:
    if base is None:
        return "no baseline"
    if not base.commit:
        return "compared with the baseline"
    commit = code(base.commit[:7] if _COMMIT.fullmatch(base.commit) else base.commit, 40)
    age = -1.0
    with suppress(ValueError, TypeError):  # not a date, or only one of the two has a time zone
        age = (datetime.fromisoformat(started_at) - datetime.fromisoformat(base.created_at or "")).total_seconds()
    return f"compared with main at {commit}" + (f", {fmt.age(age)} old" if age >= 0 else "")


def _costs(report: ReportInput) -> str:
    """Return a table of model usage by criterion."""
    rows = cost_rows(report.result.totals)
    if not rows:
        return ""
    lines = [
        f"| {text(purpose, 80)} | {text(model, 80)} | {' | '.join(numbers)} |"
        for purpose, model, *numbers in rows[:_COSTS]
    ]
    if len(rows) > _COSTS:
        lines.append(f"| … and {fmt.count(len(rows) - _COSTS)} more in results.json {'| ' * (len(COLUMNS) - 1)}|")
    return "\n".join([f"| {' | '.join(COLUMNS)} |", f"| :-- | :-- {'| --: ' * (len(COLUMNS) - 2)}|", *lines])


def _conditions(conditions: Conditions, decision: Decision) -> str:
    parts = [f"agent-eval {code(conditions.tool_version, 40)}"]
    for agent in conditions.agents[:5]:
        known = [f"google-adk {agent.adk_version}" if agent.adk_version else "", *agent.models[:3]]
        known_text = ", ".join(text(fact, 80) for fact in known if fact)
        parts.append(f"{code(agent.agent, 80)}{f': {known_text}' if known_text else ''}")
    if conditions.commit:
        parts.append(f"commit {code(conditions.commit[:10], 40)}")
    if decision.baseline is not None:
        parts.append(f"baseline {code(decision.baseline.path, 200)}")
    return f"<sub>{' · '.join(parts)}</sub>"


# --- escaping of untrusted text for GitHub's Markdown ------------------------------------------------


def text(value: str, limit: int = 300) -> str:
    """Escape ``value`` as one line of text for a paragraph, a table cell or a summary."""
    return _BLOCK_START.sub(_escape_block_start, _inline(clean(value, limit)))


def prose(value: Prose, limit: int = 700) -> str:
    """Escape one of our sentences for the same places, with names in code type."""
    shown = value.cleaned(limit).render(_inline, lambda name: f"<code>{_inline(name) or _APART}</code>")
    return _BLOCK_START.sub(_escape_block_start, shown)


def code(value: str, limit: int = 120) -> str:
    """Escape ``value`` in code type, for the same places; in a table cell a code span cannot hold every text."""
    return f"<code>{_inline(clean(value, limit)) or _APART}</code>"


def name(value: str, limit: int = 120) -> str:
    """Like ``code``, but a narrow column may break it after underscores."""
    return code(value, limit).replace("_", "_<wbr>")


def fence(lines: Iterable[str], language: str = "") -> str:
    """Return a code block that no text in it can end. Lines are cleaned and bounded; indentation stays."""
    body = [clean(line, _LINE, lines=True).replace("\n", " ") for line in lines]
    longest = max((len(run) for line in body for run in _BACKTICKS.findall(line)), default=0)
    mark = "`" * max(3, longest + 1)
    return "\n".join([f"{mark}{language}", *body, mark])


def _inline(value: str) -> str:
    value = _REFERENCE.sub(lambda found: f"{found.group()}\N{ZERO WIDTH SPACE}", value)
    value = _MARKUP.sub(lambda found: f"&#{ord(found.group())};", value)
    return value.replace("\N{ZERO WIDTH SPACE}", _APART)


def _escape_block_start(found: re.Match[str]) -> str:
    start = found.group()
    return f"{start}{_APART}" if start.isdigit() else f"&#{ord(start)};"
