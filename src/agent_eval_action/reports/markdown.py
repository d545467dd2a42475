"""comment.md: the verdict first, then as much of the evidence as the budget holds, worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from agent_eval_action.model.decision import Decision
from agent_eval_action.reports import format as fmt
from agent_eval_action.reports import markdown_head as head
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.cases import CaseView, Group, severity, views
from agent_eval_action.reports.markdown_case import all_cases, details, heading, listing
from agent_eval_action.reports.markdown_foot import foot

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
    in_order = views(report.result, decision)
    cases = sorted(in_order, key=severity)
    verdict = head.alert(decision, cases)
    top = [report.marker, verdict, head.weakenings(decision), head.metrics(report.result, decision, cases)]
    table = head.criteria_table(decision)
    around = [*top, table, head.notes(decision), foot(report)]
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
    cases: list[CaseView], in_order: list[CaseView], decision: Decision, room: int, *, table_first: bool
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
    by_group = {group: [view for view in cases if view.group is group] for group in head.ICONS}
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
    said = ", ".join(f"{fmt.count(dropped[group])} {head.LABELS[group]}" for group in head.ICONS if dropped[group])
    return f"Not shown here for length: {said} ({_ELSEWHERE})."


def _size(parts: Sequence[str]) -> int:
    return len(_joined(parts).encode())


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
