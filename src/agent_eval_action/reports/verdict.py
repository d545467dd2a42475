"""What a report says first: the verdict in a heading, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.causes import Cause
from agent_eval_action.reports.prose import Name, Prose, joined, names, verb
from agent_eval_action.reports.view import CaseView, Group, passes, run_counts, with_threshold
from agent_eval_action.results.decision import Verdict
from agent_eval_action.results.findings import FindingCode

_CAUSES: Final = 3
_OF_CASES: Final = frozenset(
    {FindingCode.CASES_WORSE, FindingCode.CASES_BELOW_THRESHOLD, FindingCode.CASES_STILL_BELOW_THRESHOLD}
)
_SHORTENED: Final = _OF_CASES | {FindingCode.RUN_ENDED_EARLY, FindingCode.CASES_UNDECIDED, FindingCode.TEXT}


def heading(report: ReportInput) -> Prose:
    """The verdict in a few words, without its label: ``5 of 13 cases got worse``."""
    decision, view = report.decision, report.view
    if decision.outcome is Verdict.PASS:
        worse = len(view.in_groups(Group.WORSE))
        return Prose.join(
            f"{fmt.plural(worse, 'case')} got worse, within what is allowed" if worse else "no case got worse"
        )
    if decision.outcome is Verdict.COLLECTING:
        return Prose.join("nothing to compare with yet")
    first = decision.reasons[0] if decision.reasons else None
    counted = list(_counted(view.run, "agent" if view.agents > 1 else "case"))
    if counted and (first is None or first.code in _SHORTENED or first.subject.case is not None):
        return Prose.join(", ".join(counted))
    return view.messages.heading(first) if first is not None else Prose()


def _counted(cases: list[CaseView], noun: str) -> Iterator[str]:
    """How many cases or agents became what. Of an agent the worst case counts; an advisory threshold does not."""
    order = [*_COUNTED, Group.UNCHANGED]
    worst: dict[object, Group] = {}
    for view in cases:
        advisory = view.group is Group.BELOW_THRESHOLD and not view.blocks
        group = view.group if view.group in _COUNTED and not advisory else Group.UNCHANGED
        key = view.key.agent if noun == "agent" else view.key
        worst[key] = min(group, worst.get(key, group), key=order.index)
    groups = list(worst.values())
    whole = f" of {fmt.plural(len(groups), noun)}"
    for group, words in _COUNTED.items():
        if found := groups.count(group):
            yield f"{fmt.count(found)}{whole} {words(found)}"
            whole = ""


_COUNTED: Final[dict[Group, Callable[[int], str]]] = {
    Group.REGRESSED: lambda _: "got worse",
    Group.BELOW_THRESHOLD: lambda n: verb(n, "misses its threshold", "miss their thresholds"),
    Group.NEEDS_RUNS: lambda n: verb(n, "needs more runs", "need more runs"),
    Group.NOT_MEASURED: lambda _: "could not be measured",
}


def why(report: ReportInput) -> list[Prose]:
    """Whole sentences: what the cases that decide have in common, then what else decides, and nothing twice."""
    decision, messages = report.decision, report.view.messages
    found: list[Prose] = []
    if decision.outcome in {Verdict.PASS, Verdict.COLLECTING}:
        found += _passing(report) if decision.outcome is Verdict.PASS else []
        found += [messages.sentence(one) for one in decision.reasons if one.code is not FindingCode.NOTHING_WORSE]
        return [text.sentence for text in found if text]
    causes = [cause for cause in report.causes if _decides(cause, decision.outcome)]
    found += [_cause(cause, named=len(causes) > 1, by_agent=report.view.agents > 1) for cause in causes[:_CAUSES]]
    if len(causes) > _CAUSES:
        cases = sum(len(cause.cases) for cause in causes[_CAUSES:])
        found.append(Prose.join(f"{fmt.plural(len(causes) - _CAUSES, 'more cause')} in {fmt.plural(cases, 'case')}"))
    found += _evidence(causes)
    for one in decision.reasons:
        of_cases = one.code in _OF_CASES or one.code is FindingCode.CASES_UNDECIDED or one.subject.case is not None
        if (sentence := messages.sentence(one)) and not (causes and of_cases) and one not in decision.weakenings:
            found.append(sentence)
    title = heading(report)
    return [text.sentence for text in found if text != title]


def _decides(cause: Cause, outcome: Verdict) -> bool:
    view = cause.cases[0]
    undecided = view.group in {Group.NEEDS_RUNS, Group.NOT_MEASURED}
    return view.blocks or (undecided and outcome is Verdict.INCONCLUSIVE)


def _cause(cause: Cause, *, named: bool, by_agent: bool) -> Prose:
    agent = joined([Name.shortened(cause.cases[0].key.agent, 60), ": "], "") if by_agent else Prose()
    cases = [view.key.case for view in cause.cases]
    where = joined([" (", names(cases[:3], len(cases)), ")"], "") if named or len(cases) == 1 else Prose()
    return joined([agent, cause.text, where], "")


def _evidence(causes: Iterable[Cause]) -> Iterator[Prose]:
    """The runs of all pairs that pass or fail, of the cases that got worse."""
    pairs = [view.pairs[0] for cause in causes if cause.group is Group.REGRESSED for view in cause.cases if view.pairs]
    counts = [found for pair in pairs if (found := run_counts(pair)) is not None]
    if counts:
        main, of_main, here, of_here = (sum(column) for column in zip(*counts, strict=True))
        some = f"{len(counts):,} of these cases" if len(counts) < len(pairs) else "these cases"
        who = "it" if len(pairs) == 1 else some
        yield Prose.join(
            f"{who} passed {here:,} of {fmt.plural(of_here, 'run')} here and {main:,} of {of_main:,} on main"
        )


def _passing(report: ReportInput) -> Iterator[Prose]:
    held = with_threshold(report.view.run)
    as_on_main = ", as on main" if report.decision.baseline is not None else ""
    if held:
        yield Prose.join(f"{fmt.count(sum(map(passes, held)))} of {fmt.plural(len(held), 'case')} pass{as_on_main}")
    better = [view.key.case for view in report.view.in_groups(Group.BETTER)]
    if better:
        yield joined([names(better[:3], len(better)), " got better"], "")
