"""The verdict on a terminal: why, criteria, a line for each case with its first difference, what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from agent_eval_action.cli.log import terminal
from agent_eval_action.reports import ReportInput
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.messages import run_findings
from agent_eval_action.reports.next_steps import ALL_WORSE, advice, next_steps, rerun_commands
from agent_eval_action.reports.prose import joined, names
from agent_eval_action.reports.verdict import heading, why
from agent_eval_action.reports.view import CriterionRow, Group, facts, main_and_here
from agent_eval_action.results.decision import Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_CASES: Final = 20
_NOTES: Final = 12
_WIDE: Final = 40  # columns of a name that is not folded
_STYLES: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.COLLECTING: "cyan",
}
_SIGNS: Final = {"fail": ("✗", "red"), "error": ("!", "yellow"), "advisory": ("·", "cyan"), "pass": ("✓", "green")}
_SEVERITIES: Final = {"blocks": ("✗", "red"), "inconclusive": ("!", "yellow"), "advisory": ("·", "cyan")}


def show(console: Console, report: ReportInput, written: Mapping[str, str], *, rest: str = "") -> None:
    """Print what was decided. ``written``: the files' paths by label; ``rest``: the command for what is missing."""
    from rich.text import Text

    decision = report.decision
    console.print()
    label = Text(fmt.OUTCOME_LABELS[decision.outcome], style=f"bold {_STYLES[decision.outcome]}")
    _line(console, Text.assemble(label, "  ", (terminal(str(heading(report))), "bold")))
    for sentence in why(report):
        _line(console, Text(terminal(str(sentence), 700)))
    console.print()
    _grid(console, [_criterion(row) for row in report.view.criteria])
    _cases(console, report)
    _notes(console, report)
    _next(console, report, written, rest)
    console.print(Text(terminal(", ".join(facts(report.result))), style="dim"), soft_wrap=not console.is_terminal)


def _criterion(row: CriterionRow) -> list[Text]:
    from rich.text import Text

    sign, style = _SIGNS.get(row.status, (" ", "dim"))
    tone = {"bad": "red", "good": "green"}.get(row.tone, "")
    sides = row.current if row.baseline == fmt.NONE else f"{row.baseline} → {row.current}"
    name = terminal(row.name, 80) + (" ↓" if row.lower_is_better else "")
    limits = "" if row.limits == fmt.NONE else terminal(row.limits, 60)
    shown = [limits, row.cases, row.detectable if row.status == "pass" else ""]
    change = row.change if row.change != fmt.NONE else ""
    return [
        Text(sign, style=style),
        Text(name),
        Text(sides),
        Text(change, style=tone),
        Text(", ".join(filter(None, shown)), style="dim"),
    ]


def _cases(console: Console, report: ReportInput) -> None:
    from rich.text import Text

    found = []
    for cause in report.causes:
        shown = list(zip(cause.cases, cause.differences, strict=True))
        if cause.group is Group.NOT_MEASURED and len(shown) > 1:  # one problem, however many cases it has
            more = f" (the same in {fmt.plural(len(shown) - 1, 'more case')})"
            shown = [(cause.cases[0], joined([cause.differences[0], more], ""))]
        found += shown
    console.print()
    for group in (Group.FLAKY, Group.BROKEN_ON_MAIN):
        if cases := [view.key.case for view in report.view.in_groups(group)]:
            line = joined([f"{group.label}: ", names(cases[:_CASES], len(cases))], "")
            _line(console, Text(f"  {terminal(str(line), 700)}", style="dim"))
    if not found:
        return
    rows = [[Text(word, style="dim") for word in ("", "case", "main", "here", "first difference")]]
    for view, difference in found[:_CASES]:
        sign, style = (
            ("✗", "red") if view.blocks else ("!", "yellow") if view.group <= Group.NOT_MEASURED else ("·", "cyan")
        )
        then, now = main_and_here(view.pairs[0]) if view.pairs else (fmt.NONE, fmt.NONE)
        where = f" ({terminal(view.where, 80)})" if view.where else ""
        name = terminal(view.key.case, 120) + where
        rows.append(
            [
                Text(sign, style=style),
                Text(name),
                Text(then),
                Text(now, style=style),
                Text(terminal(str(difference), 300)),
            ]
        )
    _grid(console, rows)
    if len(found) > _CASES:
        console.print(Text(f"  … and {fmt.plural(len(found) - _CASES, 'more case')} in report.html", style="dim"))


def _notes(console: Console, report: ReportInput) -> None:
    """What the change does to the gate, what is found of the run beside its reasons, and notes."""
    from rich.text import Text

    decision, messages = report.decision, report.view.messages
    found = [*decision.weakenings, *run_findings(decision), *decision.notes]
    if not found:
        return
    console.print()
    if decision.weakenings:
        console.print(Text("  this change loosens its own checks:", style="bold yellow"))
    rows = []
    for finding in found[:_NOTES]:
        sign, style = _SEVERITIES.get(finding.severity, ("·", "dim"))
        rows.append([Text(sign, style=style), Text(terminal(str(messages.sentence(finding)), 600))])
    _grid(console, rows)
    if len(found) > _NOTES:
        console.print(Text(f"  … and {len(found) - _NOTES} more in the reports", style="dim"))


def _next(console: Console, report: ReportInput, written: Mapping[str, str], rest: str) -> None:
    """Where to look, what to run again, how to accept; where a threshold blocks, what to edit."""
    from rich.text import Text

    console.print()
    undecided = report.decision.outcome in {Verdict.FAIL, Verdict.INCONCLUSIVE}
    if step := advice(report):
        _line(console, Text(f"  {terminal(str(step))}"))
    steps = next_steps(report.result) if undecided or report.decision.outcome is Verdict.COLLECTING else ()
    for one in steps:
        other = tuple(line for line in one.commands if not line.startswith("agent-eval accept "))
        commands = (ALL_WORSE, *other) if one.accepts else one.commands
        _line(console, Text(f"  {terminal(str(one.text))}"))
        for place in one.places:
            _line(console, Text(f"    {terminal(str(place), 700)}", style="dim"))
        for line in commands:
            console.print(Text(f"    {terminal(line, 700)}"), soft_wrap=True)
    labels = {"html": "look"}
    lines = [(labels.get(name, name), path) for name, path in sorted(written.items(), key=lambda one: one[0] != "html")]
    lines += [("again", terminal(line, 700)) for line in rerun_commands(report)]
    lines += [("the rest", terminal(rest, 700))] if rest else []
    for name, path in lines:  # to be copied: never folded
        console.print(Text.assemble((f"  {name:<9}", "dim"), path), soft_wrap=True)


def _line(console: Console, text: Text) -> None:
    """A sentence: folded on a terminal, whole in a log, where it is searched."""
    console.print(text, soft_wrap=not console.is_terminal)


def _grid(console: Console, rows: Iterable[Sequence[Text]]) -> None:
    """Aligned columns: on a terminal the last is folded behind its place, and long names are; in a log nothing is."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    lines = list(rows)
    widths = [max(cell_len(cell.plain) for cell in column) for column in zip(*lines, strict=True)]
    if not console.is_terminal:
        for line in lines:
            padded = [cell + " " * (width - cell_len(cell.plain)) for cell, width in zip(line, widths, strict=True)]
            text = Text("  ").join(padded)
            text.rstrip()
            _line(console, Text("  ") + text)
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    for width in widths[:-1]:
        grid.add_column(overflow="fold", no_wrap=width <= _WIDE and width * 2 <= console.width)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("", *line)
    console.print(grid)
