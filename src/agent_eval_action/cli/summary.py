"""The verdict on a terminal: headline, criteria table, findings, where the reports lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_eval_action.cli.log import terminal
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.messages import Messages
from agent_eval_action.reports.next_steps import ALL_WORSE, next_steps
from agent_eval_action.reports.view import CriterionRow, criterion_rows, facts
from agent_eval_action.results.decision import Verdict
from agent_eval_action.results.findings import Finding
from agent_eval_action.results.run_result import RunResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_FINDINGS_SHOWN = 12
_STYLE = {
    Verdict.PASS: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.COLLECTING: "bold cyan",
}
_STATUS = {
    "pass": ("pass", "green"),
    "fail": ("FAIL", "bold red"),
    "error": ("error", "bold yellow"),
    "advisory": ("advisory", "cyan"),
    "not_applicable": ("n/a", "dim"),
}
_SEVERITY = {"blocks": ("✗", "red"), "inconclusive": ("?", "yellow"), "advisory": ("·", "cyan"), "note": ("·", "dim")}


def show(console: Console, result: RunResult, written: Sequence[tuple[str, str]] = (), *, rest: str = "") -> None:
    """Print what was decided. ``written``: (label, path) of the files; ``rest``: the command for what is missing."""
    decision = result.decision
    if decision is None:
        return
    from rich.text import Text

    messages = Messages.for_decision(decision)
    label = f" {fmt.OUTCOME_LABELS[decision.outcome].upper()} "
    console.print()
    headline = terminal(str(messages.headline(decision)))
    _line(console, Text.assemble((label, f"reverse {_STYLE[decision.outcome]}"), " ", headline))
    console.print(Text(terminal(" · ".join(facts(result, decision))), style="dim"))
    console.print()
    if rows := criterion_rows(decision):
        _table(console, rows)
    if decision.weakenings:
        console.print(Text("  this change weakens the gate:", style="bold yellow"))
        _findings(console, decision.weakenings, messages)
    shown = (*decision.weakenings, *decision.reasons)
    _findings(console, [finding for finding in decision.findings if finding not in shown], messages, decision.reasons)
    for note in decision.notes:
        _line(console, Text(f"  {terminal(str(messages.sentence(note)))}", style="dim"))
    _next_steps(console, result)
    if written:
        console.print()
        for name, path in written:
            console.print(Text.assemble((f"  {name:<9}", "dim"), path))
    if rest:
        _line(console, Text.assemble(("\n  what was measured is kept; only the rest: ", "dim"), terminal(rest)))


def _next_steps(console: Console, result: RunResult) -> None:
    """On the machine that made the run one command accepts all of it; where a threshold blocks, what to edit."""
    from rich.text import Text

    decision = result.decision
    if decision is None or decision.outcome not in {Verdict.FAIL, Verdict.INCONCLUSIVE}:
        return
    for step in next_steps(result):
        rest = tuple(line for line in step.commands if not line.startswith("agent-eval accept "))
        commands = (ALL_WORSE, *rest) if step.accepts else step.commands
        _line(console, Text(f"  {terminal(str(step.text))}"))
        for line in (*map(str, step.places), *commands):
            _line(console, Text(f"    {terminal(line, 700)}", style="" if line in commands else "dim"))


def _line(console: Console, text: Text) -> None:
    """A sentence: folded on a terminal, whole in a log, where it is searched."""
    console.print(text, soft_wrap=not console.is_terminal)


def _item(console: Console, mark: Text, text: Text) -> None:
    """One of a list: on a terminal what is folded stands behind its mark, by the width of its characters."""
    if not console.is_terminal:
        _line(console, mark + text)
        return
    from rich.table import Table

    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(mark, text)
    console.print(grid)


def _table(console: Console, rows: Sequence[CriterionRow]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("Criterion", overflow="fold")
    for column in ("Baseline", "This run", "Change"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("Limit")
    table.add_column("Verdict", no_wrap=True)
    for row in rows:
        word, style = _STATUS[row.status]
        change = Text(row.change_and_interval, style={"bad": "red", "good": "green"}.get(row.tone, ""))
        name = terminal(row.name, 80) + (" ↓" if row.lower_is_better else "")
        texts = map(Text, (name, row.baseline, row.current))
        table.add_row(*texts, change, Text(terminal(row.limits, 60)), Text(word, style=style))
    console.print(table)
    drops = ", ".join(f"{terminal(row.name, 80)} {row.detectable}" for row in rows if row.detectable)
    if drops:
        _line(console, Text(f"  smallest drop of a mean this run could have detected: {drops}", style="dim"))


def _groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that say the same of different cases, together: an agent that does not start is one problem."""
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        groups.setdefault(_said_of_any_case(finding) or number, []).append(finding)
    return list(groups.values())


def _said_of_any_case(finding: Finding) -> tuple[str, ...]:
    """What two findings share that say the same of different cases; empty where a finding is about no case."""
    return (finding.code, finding.severity, repr(finding.data)) if finding.subject.case is not None else ()


def _findings(
    console: Console, findings: Sequence[Finding], messages: Messages, headline: Sequence[Finding] = ()
) -> None:
    """Print findings, those that say the same as one line. What the headline says of one case is not said again."""
    from rich.text import Text

    groups = _groups(findings)
    for first, *same in groups[:_FINDINGS_SHOWN]:
        mark, style = _SEVERITY[first.severity]
        if (same_words := _said_of_any_case(first)) and same_words in map(_said_of_any_case, headline):
            more = f"(the same for {fmt.plural(len(same) + 1, 'case')} more)"
            _item(console, Text(f"  {mark} ", style=style), Text(more, style="dim"))
            continue
        more = f" (the same for {fmt.plural(len(same), 'case')} more)" if same else ""
        _item(
            console,
            Text(f"  {mark} ", style=style),
            Text.assemble(terminal(str(messages.sentence(first)), 600), (more, "dim")),
        )
    if len(groups) > _FINDINGS_SHOWN:
        left = sum(map(len, groups[_FINDINGS_SHOWN:]))
        console.print(Text(f"  … and {left} more in the reports", style="dim"))
    if findings:
        console.print()
