"""The verdict in words: heading, reasons and next steps. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent_eval_action.gate.verdict import worse_pairs
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.differences import Cause
from agent_eval_action.reports.formatting import Name, Prose, clean, compose, joined, names, verb
from agent_eval_action.reports.view import CaseView, Group, run_counts, with_threshold
from agent_eval_action.results.decision import Decision, PairChange, Verdict
from agent_eval_action.results.findings import FindingCode
from agent_eval_action.results.run_result import CriterionInfo, ErrorKind, RunResult

_CAUSES: Final = 3
_OF_CASES: Final = frozenset(
    {FindingCode.CASES_WORSE, FindingCode.CASES_BELOW_THRESHOLD, FindingCode.CASES_STILL_BELOW_THRESHOLD}
)
_SHORTENED: Final = _OF_CASES | {FindingCode.RUN_ENDED_EARLY, FindingCode.CASES_UNDECIDED, FindingCode.TEXT}


def heading(report: ReportInput) -> Prose:
    """Summarise the verdict in a few words, without its label: ``5 of 13 cases got worse``."""
    decision, view = report.decision, report.view
    if decision.outcome is Verdict.PASS:
        worse = len(view.in_groups(Group.WORSE))
        if decision.baseline is not None and not any(case.is_compared for case in view.run):
            return Prose.join("no case can be compared with main")
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
    """Yield the number of cases or agents in each class. An agent has its worst case's class, without advisory ones."""
    order = [*_COUNTED, Group.UNCHANGED]
    worst: dict[object, Group] = {}
    for view in cases:
        advisory = view.group is Group.BELOW_THRESHOLD and not view.blocks
        group = view.group if view.group in _COUNTED and not advisory else Group.UNCHANGED
        key = view.key.agent if noun == "agent" else view.key
        worst[key] = min(group, worst.get(key, group), key=order.index)
    whole = f" of {fmt.plural(len(worst), noun)}"
    for group, (one_form, form) in _COUNTED.items():
        if found := list(worst.values()).count(group):
            yield f"{fmt.count(found)}{whole} {verb(found, one_form, form)}"
            whole = ""


_COUNTED: Final = {
    Group.REGRESSED: ("got worse", "got worse"),
    Group.BELOW_THRESHOLD: ("misses its threshold", "miss their thresholds"),
    Group.NEEDS_RUNS: ("needs more runs", "need more runs"),
    Group.NOT_MEASURED: ("could not be measured", "could not be measured"),
}


def why(report: ReportInput) -> list[Prose]:
    """Return sentences: the causes of the deciding cases, then other reasons, without repetition."""
    decision, messages = report.decision, report.view.messages
    found: list[Prose] = []
    if decision.outcome in {Verdict.PASS, Verdict.COLLECTING}:
        found += _passing(report) if decision.outcome is Verdict.PASS else []
        found += [
            messages.sentence(reason) for reason in decision.reasons if reason.code is not FindingCode.NOTHING_WORSE
        ]
        return [text.sentence for text in found if text]
    undecided = {Group.NEEDS_RUNS, Group.NOT_MEASURED} if decision.outcome is Verdict.INCONCLUSIVE else set()
    causes = [cause for cause in report.causes if cause.cases[0].blocks or cause.group in undecided]
    for cause in causes[:_CAUSES]:
        agent = [Name.shortened(cause.cases[0].key.agent, 60), ": "] if report.view.agents > 1 else []
        cases = [view.key.case for view in cause.cases]
        named: list[Prose | str] = (
            [" (", names(cases[:3], len(cases)), ")"] if len(causes) > 1 or len(cases) == 1 else []
        )
        found.append(joined([*agent, cause.text, *named], ""))
    if len(causes) > _CAUSES:
        more = sum(len(cause.cases) for cause in causes[_CAUSES:])
        found.append(Prose.join(f"{fmt.plural(len(causes) - _CAUSES, 'more cause')} in {fmt.plural(more, 'case')}"))
    found += _evidence(causes)
    for reason in decision.reasons:
        of_cases = reason.code in {*_OF_CASES, FindingCode.CASES_UNDECIDED} or reason.subject.case is not None
        if (sentence := messages.sentence(reason)) and not (causes and of_cases) and reason not in decision.weakenings:
            found.append(sentence)
    title = heading(report)
    return [text.sentence for text in found if text != title]


def _evidence(causes: Iterable[Cause]) -> Iterator[Prose]:
    """Count passed runs, here and on main, of regressed cases with a pass/fail criterion."""
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
    counted = with_threshold(report.view.run)
    if counted:
        compared = sum(case.is_compared for case in counted)
        share = f"{fmt.count(compared) if compared else 'none'} of them {verb(compared or 1, 'is', 'are')}"
        main = ", as on main" if compared == len(counted) else f"; {share} compared with main"
        passing = f"{fmt.count(sum(case.passes for case in counted))} of {fmt.plural(len(counted), 'case')}"
        known = report.decision.baseline is not None
        yield Prose.join(f"{passing} {verb(len(counted), 'passes', 'pass')}{main if known else ''}")
    better = [view.key.case for view in report.view.in_groups(Group.BETTER)]
    if better:
        yield joined([names(better[:3], len(better)), " got better"], "")


# --- next steps: run again, accept an intended change, edit a threshold, begin a baseline ----------

REASON: Final = '--reason "why this is intended"'
ALL_WORSE: Final = f"agent-eval accept --worse {REASON}"
_UNTIL: Final = " (a pull request is judged by main's thresholds: a lower one counts after the merge)"
_LINE: Final = 360
"""The longest code line, in characters, that every report shows in full."""
_COMMANDS: Final = 12
_PLACES: Final = 10


@dataclass(frozen=True, slots=True)
class Step:
    """A sentence, the places it concerns, and one-line commands. ``accepts``: they accept everything that got worse."""

    text: Prose
    places: tuple[Prose, ...] = ()
    commands: tuple[str, ...] = ()
    accepts: bool = False


def rerun_commands(report: ReportInput) -> tuple[str, ...]:
    """Return the command that re-runs the cases that need attention; () if there are none or it would be too long."""
    chosen: dict[str, list[str]] = {}
    for view in report.view.worst_first:
        if view.needs_attention and view.owner is not None:
            if not (selected := select_case(view)):
                return ()
            chosen.setdefault(selected[0], []).append(selected[1])
    words = [shlex.quote(f"{path}:{','.join(cases)}") for path, cases in chosen.items()]
    command = " ".join(["agent-eval run", *words])
    return (command,) if words and len(command) <= _LINE else ()


def select_case(view: CaseView) -> tuple[str, ...]:
    """Return path and case as in an EVALSET argument, before and after its colon; () if they cannot be typed."""
    path, case = view.owner.path if view.owner is not None else "", view.key.case
    if any(clean(word) != word or not word for word in (path, case)):
        return ()
    return path, quoted_case(case)


def quoted_case(case: str) -> str:
    """Quote a case id, if necessary, for use after the colon of an EVALSET argument."""
    plain = "," not in case and case == case.strip() and case[:1] not in ("", '"', "'")
    return case if plain else '"' + case.replace("\\", "\\\\").replace('"', '\\"') + '"'


_ADVICE: Final[dict[ErrorKind, str]] = {
    ErrorKind.RATE_LIMITED: "run the job again; if it happens often, lower `concurrency` or raise `max_time`",
    ErrorKind.UNAVAILABLE: "run the job again when the model's service answers",
    ErrorKind.TIMEOUT: "run the job again; if it happens often, make the agent faster or raise `agent.timeout_s`",
    ErrorKind.BLOCKED: "make the agent's tools asynchronous, or raise `agent.timeout_s`",
    ErrorKind.STOPPED: "run the job again with more `max_time`",
    ErrorKind.CREDENTIALS: "give the job the credentials that are missing",
}


def advice(report: ReportInput) -> Prose:
    """Return advice for an inconclusive run; empty for any other."""
    view = report.view
    if report.decision.outcome is not Verdict.INCONCLUSIVE:
        return Prose()
    if report.result.merge and any(problem.undecided for problem in report.result.merge.problems):
        return Prose.join("Run the jobs of these shards again, then the merge.")
    for case in view.in_groups(Group.NOT_MEASURED):
        attempt = case.failed_attempt()
        kind = attempt.error.kind if attempt is not None and attempt.error is not None else ErrorKind.SCORING
        text = _ADVICE.get(kind, "read the errors and the step's log, then run the job again")
        return Prose.marked(text).sentence
    if view.in_groups(Group.NEEDS_RUNS):
        return Prose.marked("run the job again, or raise `max_extra_runs`").sentence
    return Prose.join("Fix the problem above, then run the job again.")


def next_steps(result: RunResult) -> tuple[Step, ...]:
    """Return how to go on after a run; () if nothing is to be done or no command does it."""
    decision = result.decision
    if decision is None:
        return ()
    update = " ".join(["agent-eval baseline update", *map(shlex.quote, result.conditions.arguments)])
    if decision.outcome is Verdict.COLLECTING:
        return (Step(Prose.join("Begin a baseline:"), commands=(update,)),) if decision.store == "file" else ()
    steps = [*_accepting(decision, update), *_thresholds(result, decision)]
    if not steps and decision.outcome is Verdict.PASS and decision.store == "file":
        steps.append(Step(Prose.join("Store what this run scored as the new baseline:"), commands=(update,)))
    return tuple(steps)


def _accepting(decision: Decision, update: str) -> Iterator[Step]:
    worse = worse_pairs(decision)
    if not worse:
        return
    if decision.accept == "ignore":
        yield Step(Prose.marked("What got worse cannot be accepted: the rules say `gate.accept: ignore`."))
        return
    commands, more, baseline = _accept_commands(worse), "", ""
    if not commands:
        commands = (f"agent-eval accept --worse --from results.json {REASON}",)
        more = " (`results.json` is the one that this run wrote)"
    if decision.store == "file":
        commands, baseline = (*commands, update), " and the baseline"
    text = f"If the change is intended, accept everything that got worse{more} and commit `.agent-eval/accept.yaml`"
    yield Step(Prose.marked(f"{text}{baseline}:"), commands=commands, accepts=True)
    if decision.on_weakened == "fail":
        text = "The rules say `on_weakened: fail`, so an accepted change blocks too: someone who may bypass this check"
        yield Step(Prose.marked(f"{text} has to merge it."))


def _accept_commands(worse: Sequence[PairChange]) -> tuple[str, ...]:
    """Return commands that accept every pair by name; () if names cannot be typed or the commands are too long."""
    times = Counter(key.case for key in {pair.key for pair in worse})
    groups: dict[tuple[str, ...], list[str]] = {}
    for pair in worse:
        where = ("--agent", pair.agent, "--eval-set", pair.eval_set) if times[pair.case] > 1 else ()
        if any(clean(name) != name for name in (*pair.key, pair.criterion)):
            return ()
        groups.setdefault((*where, "--criterion", pair.criterion), []).append(pair.case)
    commands = []
    for options, named in groups.items():
        dashes = ["--"] if any(case.startswith("-") for case in named) else []
        commands.append(f"agent-eval accept {shlex.join(options)} {REASON} {shlex.join([*dashes, *named])}")
    return tuple(commands) if len(commands) <= _COMMANDS and max(map(len, commands)) <= _LINE else ()


def _thresholds(result: RunResult, decision: Decision) -> Iterator[Step]:
    """Yield the step for pairs that only a threshold blocks, with file and line to edit."""
    owners = {(owner.agent, owner.eval_set): owner for owner in result.sets}
    missed = [pair for pair in decision.pairs if pair.misses_threshold and (pair.agent, pair.eval_set) in owners]
    if missed:
        cases = len({pair.key for pair in missed})
        blocked = "1 case is" if cases == 1 else f"{cases:,} cases are"
        places = []
        for pair in missed[:_PLACES]:  # finding a place searches all cases, so only for the pairs shown
            owner = owners[pair.agent, pair.eval_set]
            line = next((case.line for case in owner.cases if case.case == pair.case), None)
            info = next((known for known in owner.criteria if known.name == pair.criterion), None)
            where = f" at {fmt.place(owner.path, line)}, "
            places.append(joined(["case ", Name(pair.case), where, _threshold(info)], ""))
        if len(missed) > _PLACES:
            places.append(Prose.join(f"and {len(missed) - _PLACES:,} more, in results.json"))
        text = (
            f"{blocked} blocked by a threshold, which accepting does not change; "
            f"make the agent meet it, or edit what the case expects or the threshold{_UNTIL}:"
        )
        yield Step(Prose.join(text), tuple(places))
    for row in decision.criteria:
        if row.misses_suite_threshold:
            text = (
                "The mean of {criterion} misses its threshold, which accepting does not change; "
                "make the agent meet it, or edit the threshold{until}:"
            )
            infos = [info for owner in result.sets for info in owner.criteria if info.name == row.criterion]
            sentence = compose(text, criterion=Name(row.criterion), until=_UNTIL)
            yield Step(sentence, tuple(dict.fromkeys(map(_threshold, infos))))


def _threshold(info: CriterionInfo | None) -> Prose:
    if info is None:
        return Prose.join("its threshold")
    where = {
        "recording": ", of every recording",
        "default": ", ADK's default (a test_config.json beside the eval file sets another)",
    }.get(info.source, f" at {fmt.place(info.source, info.line)}")
    return joined([f"threshold {fmt.number(info.threshold, info.unit)} of ", Name(info.name), where], "")
