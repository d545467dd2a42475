"""From a comparison and a policy to the verdict and its reasons. Pure.

Evidence of a failure outweighs what could not be measured; what could not be measured outweighs a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from agent_eval_action.config.models import Policy
from agent_eval_action.gate.assess import Status, SuspectTest
from agent_eval_action.gate.broken_code import BrokenCode, broken_code
from agent_eval_action.gate.findings import (
    Trajectories,
    credentials_findings,
    criterion_findings,
    pair_findings,
    pair_reason,
    silent_models,
    unmeasured_findings,
)
from agent_eval_action.gate.notes import decision_notes, outcome_reasons
from agent_eval_action.gate.pairs import ComparedPair, Comparison, criteria_of
from agent_eval_action.gate.policy import CriterionJudgement
from agent_eval_action.gate.statistics import EvidenceIndex, index_evidence
from agent_eval_action.results.decision import (
    BaselineTrajectory,
    ChangeKind,
    Decision,
    PairChange,
    Stat,
    TurnBrief,
    Verdict,
)
from agent_eval_action.results.findings import Finding, Severity
from agent_eval_action.results.pair_scores import exact_mean, meets
from agent_eval_action.results.run_result import RunResult, collector_paused

_SEVERITIES: Final[dict[Severity, int]] = {"blocks": 0, "inconclusive": 1, "advisory": 2, "note": 3}
_TOLERANCE: Final = 1e-9
_FELL: Final = frozenset({ChangeKind.WORSE, ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING})
_MOVED: Final = _FELL | {ChangeKind.BETTER, ChangeKind.FIXED}
_SHOWN_IN_DETAIL: Final = _FELL | {ChangeKind.FAILING, ChangeKind.ERROR, ChangeKind.CHANGED, ChangeKind.REMOVED}
_CONFIRMED: Final = frozenset({Status.CONFIRMED, Status.WITH_SUITE})


@collector_paused()
def decide(comparison: Comparison, result: RunResult, policy: Policy, broken: BrokenCode | None = None) -> Decision:
    """The whole conclusion about ``result``, which ``comparison`` was made of.

    ``broken``: what the change's code breaks, where ``result`` does not hold all attempts of the base commit's agent.
    """
    weighed = index_evidence(comparison, result, policy)
    every = _judgements(comparison, policy, weighed)
    judged = [one for one in every if one.policy.mode != "off"]
    trajectories = comparison.trajectories
    silent = tuple(silent_models(judged))
    by_criterion = {
        one.name: [*criterion_findings(one, silent=bool(silent)), *pair_findings(one, trajectories)] for one in judged
    }
    findings = [finding for own in by_criterion.values() for finding in own]
    broken = broken_code(result) if broken is None else broken
    findings += unmeasured_findings(judged, result, broken, comparison.unmeasured)
    findings += silent
    left_out = credentials_findings(judged, result, policy.withheld)
    findings += left_out
    findings.sort(key=_order)
    outcome = _outcome(findings, collecting=any(one.collecting for one in judged))
    doubts = [finding for finding in findings if finding.severity == "inconclusive"]
    excused = outcome is Verdict.INCONCLUSIVE and bool(result.conditions.withheld) and doubts == list(left_out)
    return Decision(
        outcome=outcome,
        reasons=tuple(outcome_reasons(outcome, comparison, judged, findings, left_out=left_out)),
        excused=excused,
        findings=tuple(findings),
        criteria=tuple(one.row(by_criterion[one.name]) for one in judged),
        pairs=tuple(_pairs(judged, comparison.removed, trajectories)),
        baseline=comparison.baseline,
        store=comparison.store,
        accept=policy.accept,
        on_weakened=policy.on_weakened,
        baseline_trajectories=tuple(_trajectories(comparison, judged)),
        notes=tuple(decision_notes(comparison, every, weighed, result)),
    )


def worse_pairs(decision: Decision) -> tuple[PairChange, ...]:
    """Every pair that holds the change up because it is worse than main, in the order of the decision.

    These are the pairs that block by evidence, those that a limit kept from being confirmed, and, where a
    criterion blocks over its whole suite, all pairs of that criterion that fell: accepting them lets the change pass.
    """
    suites = {
        found.subject.criterion for found in decision.findings if found.severity == "blocks" and not found.subject.case
    }
    doubtful = {found.subject for found in decision.findings if found.severity == "inconclusive"}
    return tuple(
        pair
        for pair in decision.pairs
        if (pair.blocking and pair.confirmed)
        or (pair.kind in _FELL and pair.subject in doubtful)
        or (pair.criterion in suites and _fell(pair))
    )


def _fell(pair: PairChange) -> bool:
    if pair.change is None:
        return False
    return (pair.change if pair.goal == "minimize" else -pair.change) > _TOLERANCE


def _judgements(comparison: Comparison, policy: Policy, weighed: EvidenceIndex) -> list[CriterionJudgement]:
    criteria = comparison.criteria
    if "off" in policy.sets.values():
        criteria = criteria_of(pair for pair in comparison.pairs if policy.sets.get(pair.key.eval_set) != "off")
    rules = [(one, policy.for_criterion(one.criterion, one.goal)) for one in criteria]
    # whoever asks for ADK's rule, or for the suite's mean, makes ADK's default thresholds their own
    own = any(
        rule.mode != "off"
        and (rule.threshold_on in {"case", "suite"} or one.criterion in comparison.own_thresholds)
        and rule.threshold_on != "off"
        for one, rule in rules
    )
    collecting = comparison.baseline is None and not own
    return [CriterionJudgement(one, rule, collecting, weighed, policy.sets, policy.new_cases) for one, rule in rules]


def _outcome(findings: Iterable[Finding], *, collecting: bool) -> Verdict:
    severities = {finding.severity for finding in findings}
    if "blocks" in severities:
        return Verdict.FAIL
    if "inconclusive" in severities:
        return Verdict.INCONCLUSIVE
    return Verdict.COLLECTING if collecting else Verdict.PASS


def _order(finding: Finding) -> tuple[int, bool, str, str, str, str]:
    """What decides first; there, what is about the whole suite first."""
    subject = finding.subject
    return (
        _SEVERITIES[finding.severity],
        subject.case is not None,
        subject.agent or "",
        subject.eval_set or "",
        subject.case or "",
        subject.criterion or "",
    )


def _pairs(
    judged: Iterable[CriterionJudgement], removed: Iterable[ComparedPair], trajectories: Trajectories
) -> list[PairChange]:
    found = [_pair(pair, one, trajectories) for one in judged for pair in one.pairs]
    found += [_pair(pair, None, trajectories) for pair in removed]
    return sorted(found, key=lambda pair: (pair.agent, pair.eval_set, pair.case, pair.criterion))


def _pair(pair: ComparedPair, judged: CriterionJudgement | None, trajectories: Trajectories) -> PairChange:
    test = judged.weighed.test(pair) if judged else None
    return PairChange(
        **pair.key._asdict(),
        criterion=pair.criterion,
        goal=pair.goal,
        unit=pair.unit,
        threshold=pair.threshold,
        kind=_kind(pair, test, improved=judged.weighed.improved(pair) if judged else False),
        baseline=pair.baseline,
        current=pair.current,
        errors=pair.measured.errors if pair.measured else 0,
        change=pair.change,
        interval=judged.weighed.interval(pair) if judged and pair.kind in _MOVED else None,
        fresh=_stat(test.fresh, pair) if test else None,
        control=_stat(test.pair.control, pair) if test else None,
        blocking=judged.blocks(pair) if judged else False,
        confirmed=test is not None and test.status in _CONFIRMED,
        misses_threshold=judged.misses_threshold(pair) if judged else False,
        accepted=pair.accepted,
        reason=pair_reason(judged, pair, trajectories),
    )


def _kind(pair: ComparedPair, test: SuspectTest | None, *, improved: bool) -> ChangeKind:
    """Cleared and as bad on main are no changes of the agent's; a confirmed one is, whatever its mean says."""
    if pair.kind in {ChangeKind.FIXED, ChangeKind.BETTER} and not improved:
        return ChangeKind.SAME  # what may be chance is no more called better than worse
    if test is None or pair.kind is ChangeKind.ERROR:
        return pair.kind
    if test.status is Status.CLEARED:
        return ChangeKind.FLAKY
    if test.status in {Status.ON_MAIN, Status.WITH_MAIN}:
        return ChangeKind.ON_MAIN
    if test.status in _CONFIRMED and pair.kind not in {ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING}:
        return ChangeKind.WORSE
    return pair.kind


def _stat(scores: Sequence[float], pair: ComparedPair) -> Stat | None:
    if not scores:
        return None
    passed = None if pair.threshold is None else sum(meets(score, pair.threshold, pair.goal) for score in scores)
    return Stat(n=len(scores), mean=exact_mean(scores), passed=passed, low=min(scores), high=max(scores))


def _trajectories(comparison: Comparison, judged: Iterable[CriterionJudgement]) -> Iterable[BaselineTrajectory]:
    """Of the cases a report goes into: 10,000 that are as they were need none."""
    shown = {pair.key for one in judged if one.gating for pair in one.pairs if pair.kind in _SHOWN_IN_DETAIL}
    shown |= {pair.key for pair in comparison.removed}
    for key in sorted(shown & comparison.trajectories.keys()):
        kept = comparison.trajectories[key]
        yield BaselineTrajectory(**key._asdict(), turns=tuple(TurnBrief(calls=calls) for calls in kept.turns))
