"""The verdict on a terminal: reasons, criteria, cases with their first difference, next steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from agent_eval_action.cli.log import print_columns, print_line, print_wrapped, prose_text, terminal
from agent_eval_action.cli.progress import Verbosity
from agent_eval_action.reports import ReportInput
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.formatting import Name, Prose, compose, joined, names
from agent_eval_action.reports.messages import OUTCOME_LABELS, run_findings
from agent_eval_action.reports.verdict import ALL_WORSE, advice, heading, next_steps, why
from agent_eval_action.reports.view import CaseView, CriterionRow, Group, facts
from agent_eval_action.results.decision import Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_CASES: Final = 20
_NOTES: Final = 12
_SENTENCE: Final = 700
_NAME: Final = 300
_EXPECT: Final = "To let cases expect what the agent does now, one by one: {command}"
_STYLES: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.COLLECTING: "cyan",
}
_SIGNS: Final = {"fail": ("✗", "red"), "error": ("!", "yellow"), "advisory": ("·", "cyan"), "pass": ("✓", "green")}
_SEVERITIES: Final = {"blocks": ("✗", "red"), "inconclusive": ("!", "yellow"), "advisory": ("·", "cyan")}


def show(
    out: Console,
    report: ReportInput,
    written: Mapping[str, str],
    *,
    commands: Mapping[str, str] | None = None,
    local: bool = True,
    verbosity: Verbosity = "normal",
) -> None:
    """Print the decision. ``written``: paths of files by label. ``commands``: by label, "" to leave one out.

    ``local``: the reader's own commands find these results. *quiet* leaves out what did not affect the decision.
    """
    from rich.text import Text

    outcome, quiet = report.decision.outcome, verbosity == "quiet"
    brief = quiet or verbosity == "cases"
    if not quiet:
        out.print()
    label = Text(f"{OUTCOME_LABELS[outcome]}  ", style=f"bold {_STYLES[outcome]}")
    print_wrapped(out, label + Text(terminal(str(heading(report))), style="bold"))
    for sentence in why(report):
        print_wrapped(out, prose_text(out, sentence, _SENTENCE))
    deciding = {"fail"} if outcome is Verdict.FAIL else {"fail", "error"}
    rows = [row for row in report.view.criteria if not brief or row.status in deciding]
    if rows:
        out.print()
        print_columns(out, [_criterion(row) for row in rows])
    _print_cases(out, report, quiet=quiet)
    if brief:
        return
    _print_notes(out, report)
    out.print()
    if _print_steps(out, report, local=local):
        out.print()
    look = {"look": written["html"]} if "html" in written else {}
    others = {name: path for name, path in written.items() if name != "html"} if verbosity == "verbose" else {}
    for name, text in (look | others | dict(commands or {})).items():
        if text:  # never wrapped, so that it can be copied
            out.print(Text.assemble((f"  {name:<9}", "dim"), terminal(text, _SENTENCE)), soft_wrap=True)
    print_line(", ".join(facts(report.result)), "dim", out=out)


def _criterion(row: CriterionRow) -> list[Text]:
    from rich.text import Text

    sign, style = _SIGNS.get(row.status, (" ", "dim"))
    tone = {"bad": "red", "good": "green"}.get(row.tone, "") if row.status != "pass" else ""
    sides = row.current if row.baseline == fmt.NONE else f"{row.baseline} → {row.current}"
    name = terminal(row.name, 80) + (" ↓" if row.lower_is_better else "")
    limits = "" if row.limits == fmt.NONE else terminal(row.limits, 60)
    shown = ", ".join(filter(None, [row.cases, row.detectable] if row.status == "pass" else [limits, row.cases]))
    change = Text(row.change if row.change != fmt.NONE else "", style=tone)
    return [Text(sign, style=style), Text(name), Text(sides), change, Text(shown, style="dim")]


def _print_cases(out: Console, report: ReportInput, *, quiet: bool) -> None:
    """Print the cases that need attention with their first difference, then the unreliable ones among the others."""
    found = list(_differences(report))
    if quiet:
        groups = () if report.decision.outcome is Verdict.FAIL else (Group.NEEDS_RUNS, Group.NOT_MEASURED)
        found = [(view, text) for view, text in found if view.blocks or view.group in groups]
    if found:
        out.print()
        times = Counter(view.key.case for view, _ in found)
        rows = [_case(out, view, difference, times) for view, difference in found[:_CASES]]
        print_columns(out, rows, ("", "case", "main", "here", "first difference"))
        if len(found) > _CASES:
            more = fmt.plural(len(found) - _CASES, "more case")
            print_line(f"… and {more} in report.html", "dim", out=out, indent=2)
    unreliable = [
        joined([f"{group.label}: ", names(cases[:_CASES], len(cases))], "")
        for group in (Group.FLAKY, Group.BROKEN_ON_MAIN)
        if (cases := [view.key.case for view in report.view.in_groups(group)])
    ]
    if unreliable and not quiet:
        out.print()
        for line in unreliable:
            print_wrapped(out, prose_text(out, line, _SENTENCE), 2)


def _differences(report: ReportInput) -> Iterator[tuple[CaseView, Prose]]:
    for cause in report.causes:
        shown = list(zip(cause.cases, cause.differences, strict=True))
        if cause.group is Group.NOT_MEASURED and len(shown) > 1:  # one problem, so one line
            more = f" (the same in {fmt.plural(len(shown) - 1, 'more case')})"
            shown = [(cause.cases[0], joined([cause.differences[0], more], ""))]
        yield from shown


def _case(out: Console, view: CaseView, difference: Prose, times: Counter[str]) -> list[Text]:
    from rich.text import Text

    unmeasured = "inconclusive" if view.group <= Group.NOT_MEASURED else "advisory"
    sign, style = _SEVERITIES["blocks" if view.blocks else unmeasured]
    then, now = view.sides
    where = f" ({terminal(view.where, 80)})" if times[view.key.case] > 1 and view.where else ""
    name = Text(terminal(view.key.case, _NAME) + where)
    return [Text(sign, style=style), name, Text(then), Text(now, style=style), prose_text(out, difference, 300)]


def _print_notes(out: Console, report: ReportInput) -> None:
    """Print how the change relaxes the gate, further findings, and notes."""
    from rich.text import Text

    decision, messages = report.decision, report.view.messages
    found = [*decision.weakenings, *run_findings(decision), *decision.notes]
    if not found:
        return
    out.print()
    if decision.weakenings:
        print_line("this change loosens its own checks:", "bold yellow", out=out, indent=2)
    rows = []
    for finding in found[:_NOTES]:
        sign, style = _SEVERITIES.get(finding.severity, ("·", "dim"))
        rows.append([Text(sign, style=style), prose_text(out, messages.sentence(finding), 600)])
    print_columns(out, rows)
    if len(found) > _NOTES:
        print_line(f"… and {len(found) - _NOTES} more in the reports", "dim", out=out, indent=2)


def _print_steps(out: Console, report: ReportInput, *, local: bool) -> bool:
    """Print next steps; commands stay on one line, to be copied. Returns whether there are any."""
    from rich.text import Text

    helps = advice(report)
    if helps:
        print_wrapped(out, prose_text(out, helps, _SENTENCE), 2)
    steps = next_steps(report.result) if report.decision.outcome is not Verdict.PASS else ()
    for step in steps:
        others = tuple(line for line in step.commands if not line.startswith("agent-eval accept "))
        print_wrapped(out, prose_text(out, step.text, _SENTENCE), 2)
        for place in step.places:
            print_wrapped(out, prose_text(out, place, _SENTENCE), 4)
        for line in (ALL_WORSE, *others) if step.accepts and local else step.commands:
            out.print(Text(f"    {terminal(line, _SENTENCE)}"), soft_wrap=True)
    if local and any(step.accepts or step.places for step in steps):
        print_wrapped(out, prose_text(out, compose(_EXPECT, command=Name("agent-eval update")), _SENTENCE), 2)
    return bool(helps or steps)
