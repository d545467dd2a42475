"""What of a result the comment may show, and what of it makes two comments say the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.results.decision import Decision, Finding, Verdict
from agent_eval_action.results.run_result import AttemptSummary, CaseResult

_ELSEWHERE = "said in results.json"
_EFFECTS: Final[dict[str, Callable[[int], str]]] = {
    "blocks": lambda n: f"{fmt.plural(n, 'finding')} {'blocks' if n == 1 else 'block'}",
    "inconclusive": lambda n: f"{fmt.plural(n, 'finding')} {'leaves' if n == 1 else 'leave'} it inconclusive",
    "advisory": lambda n: f"{fmt.plural(n, 'finding')} to know of",
}


def scores_only(report: ReportInput) -> ReportInput:
    """The report without a word of an agent, a judge or a user: names, numbers and verdicts are left.

    Sentences of the gate may quote them, errors and rubrics too; so nothing is kept that is not known to be a
    name or a number.
    """
    result = report.result
    sets = tuple(one.model_copy(update={"cases": tuple(_case(case) for case in one.cases)}) for one in result.sets)
    bare = result.model_copy(update={"sets": sets, "decision": _decision(report.decision)})
    return replace(report, result=bare)


def state_of(decision: Decision) -> str:
    """The outcome and what it rests on: equal where a comment of one run holds for another."""
    pairs = {(pair.agent, pair.eval_set, pair.case, pair.criterion) for pair in decision.pairs if pair.blocking}
    told = [one for one in (*decision.findings, *decision.weakenings) if one.effect != "advisory"]
    found = {(one.effect, one.agent or "", one.eval_set or "", one.case or "", one.criterion or "") for one in told}
    what = json.dumps([sorted(pairs), sorted(found), len(decision.weakenings)])
    return f"{decision.outcome.value} {hashlib.sha256(what.encode()).hexdigest()[:16]}"


def _case(case: CaseResult) -> CaseResult:
    return case.model_copy(
        update={
            "expected": (),
            "attempts": tuple(map(_attempt, case.attempts)),
            "control": tuple(map(_attempt, case.control)),
        }
    )


def _attempt(attempt: AttemptSummary) -> AttemptSummary:
    error = attempt.error
    if error is not None:
        error = error.model_copy(update={"message": _ELSEWHERE, "traceback": ""})
    bare = {"reason": "", "turns": (), "rubrics": (), "details": {}}
    scores = tuple(score.model_copy(update=bare) for score in attempt.scores)
    return attempt.model_copy(update={"error": error, "turns": (), "scores": scores})


def _decision(decision: Decision) -> Decision:
    untold = [one for one in decision.findings if one.case is None]
    notes = []
    if untold:
        notes.append(f"of the whole run: {_named(untold)}; why is {_ELSEWHERE}")
    if decision.notes:
        notes.append(f"{fmt.plural(len(decision.notes), 'note')} in results.json")
    return decision.model_copy(
        update={
            "reason": _reason(decision),
            "findings": (),
            "notes": tuple(notes),
            "weakenings": tuple(_weakening(one) for one in decision.weakenings),
            "baseline_trajectories": (),
            "pairs": tuple(pair.model_copy(update={"reason": ""}) for pair in decision.pairs),
            "criteria": tuple(row.model_copy(update={"reason": ""}) for row in decision.criteria),
        }
    )


def _reason(decision: Decision) -> str:
    blocking = [pair for pair in decision.pairs if pair.blocking]
    cases = {(pair.agent, pair.eval_set, pair.case) for pair in blocking}
    if blocking:
        return f"{fmt.plural(len(blocking), 'score')} of {fmt.plural(len(cases), 'case')} block"
    blocks = [one for one in decision.findings if one.effect == "blocks"]
    if blocks:
        return f"{_named(blocks)} over the whole run"
    missing = [one for one in decision.findings if one.effect == "inconclusive"]
    if missing:
        return f"{fmt.plural(len(missing), 'thing')} could not be measured"
    return {
        Verdict.PASS: "nothing blocks",
        Verdict.COLLECTING: "there is nothing to compare with yet",
    }.get(decision.outcome, _ELSEWHERE)


def _named(findings: Iterable[Finding]) -> str:
    """How many do what, and to which criteria."""
    groups: dict[str, list[Finding]] = {}
    for one in findings:
        groups.setdefault(one.effect, []).append(one)
    return "; ".join(f"{_EFFECTS[effect](len(many))}{_criteria(many)}" for effect, many in groups.items())


def _criteria(findings: Iterable[Finding]) -> str:
    names = dict.fromkeys(f"`{one.criterion}`" for one in findings if one.criterion)
    return f" ({', '.join(names)})" if names else ""


def _weakening(finding: Finding) -> Finding:
    where = " › ".join(part for part in (finding.agent, finding.eval_set, finding.case, finding.criterion) if part)
    return finding.model_copy(update={"reason": f"`{where}`: how is {_ELSEWHERE}" if where else f"how is {_ELSEWHERE}"})
