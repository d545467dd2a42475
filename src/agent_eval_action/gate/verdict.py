"""From a comparison and a policy to the verdict and its reasons. Pure.

Evidence of a failure outweighs what could not be measured; what could not be measured outweighs a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from agent_eval_action.config.models import Policy
from agent_eval_action.gate.assess import Status, SuspectTest, assess
from agent_eval_action.gate.broken_code import BrokenCase, broken_code
from agent_eval_action.gate.findings import (
    Trajectories,
    credentials_findings,
    criterion_findings,
    pair_findings,
    pair_reason,
    silent_models,
    unmeasured_findings,
)
from agent_eval_action.gate.judgement import CriterionJudgement, Improvement, improvements
from agent_eval_action.gate.notes import decision_notes
from agent_eval_action.gate.pairs import NO_CASE, TOLERANCE, Comparison, GateRules, GateState, Pair
from agent_eval_action.results.decision import (
    BaselineTrajectory,
    ChangeKind,
    Decision,
    PairChange,
    Stat,
    TurnBrief,
    Verdict,
)
from agent_eval_action.results.findings import Finding, FindingCode, Severity, Subject, named_cases, note
from agent_eval_action.results.pair_scores import exact_mean, meets
from agent_eval_action.results.run_result import CaseKey, RunResult, collector_paused

_SEVERITIES: Final[dict[Severity, int]] = {"blocks": 0, "inconclusive": 1, "advisory": 2, "note": 3}
_FELL: Final = frozenset({ChangeKind.WORSE, ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING})
_MOVED: Final = _FELL | {ChangeKind.BETTER, ChangeKind.FIXED}
_SHOWN_IN_DETAIL: Final = _FELL | {ChangeKind.FAILING, ChangeKind.ERROR, ChangeKind.CHANGED, ChangeKind.REMOVED}
_CONFIRMED: Final = frozenset({Status.CONFIRMED, Status.WITH_SUITE})


@collector_paused()
def decide(
    comparison: Comparison, result: RunResult, policy: Policy, broken: Sequence[BrokenCase] | None = None
) -> Decision:
    """The whole conclusion about ``result``, which ``comparison`` was made of.

    ``broken``: what the change's code breaks, where ``result`` does not hold all attempts of the base commit's agent.
    """
    every = _judgements(comparison, result, policy)
    judged = [one for one in every if one.policy.mode != "off"]
    trajectories = comparison.trajectories
    silent = tuple(silent_models(judged))
    by_criterion = {
        one.name: [*criterion_findings(one, silent=bool(silent)), *pair_findings(one, trajectories)] for one in judged
    }
    left_out = credentials_findings(judged, result, policy.withheld)
    broken = broken_code(result) if broken is None else broken
    findings = [
        *(finding for own in by_criterion.values() for finding in own),
        *unmeasured_findings(judged, result, broken, comparison.unmeasured),
        *silent,
        *left_out,
    ]
    findings.sort(key=_order)
    outcome = _outcome({finding.severity for finding in findings}, collecting=any(one.collecting for one in judged))
    doubts = [finding for finding in findings if finding.severity == "inconclusive"]
    pairs = [_pair_change(pair, one, trajectories) for one in judged for pair in one.pairs]
    pairs += [_pair_change(pair, None, trajectories) for pair in comparison.removed]
    return Decision(
        outcome=outcome,
        reasons=tuple(_reasons(outcome, comparison, judged, findings, left_out)),
        excused=outcome is Verdict.INCONCLUSIVE and bool(result.conditions.withheld) and doubts == list(left_out),
        findings=tuple(findings),
        criteria=tuple(one.row(by_criterion[one.name]) for one in judged),
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.agent, pair.eval_set, pair.case, pair.criterion))),
        baseline=comparison.baseline,
        store=comparison.store,
        accept=policy.accept,
        on_weakened=policy.on_weakened,
        baseline_trajectories=tuple(_trajectories(comparison, judged)),
        notes=tuple(decision_notes(comparison, every, result)),
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
    return (pair.change if pair.goal == "minimize" else -pair.change) > TOLERANCE


def _judgements(comparison: Comparison, result: RunResult, policy: Policy) -> list[CriterionJudgement]:
    """Every criterion, sorted by name, with the evidence and the rules it is judged by."""
    base = result.base is not None and not result.base.unavailable
    rules = GateRules(policy, adaptive=result.conditions.adaptive)
    evidence = assess(GateState(comparison.pairs, control=base), rules)
    better = improvements(comparison.pairs, rules)
    groups: dict[str, list[Pair]] = {}
    for pair in comparison.pairs:
        if policy.sets.get(pair.key.eval_set) != "off":
            groups.setdefault(pair.criterion, []).append(pair)
    own_thresholds = {
        info.name
        for measured in result.sets
        for info in measured.criteria
        if info.threshold is not None and info.source != "default"
    }
    own = {name: policy.for_criterion(name, groups[name][0].goal) for name in sorted(groups)}
    # whoever asks for ADK's rule, or for the suite's mean, makes ADK's default thresholds their own
    configured = any(
        rule.mode != "off"
        and (rule.threshold_on in {"case", "suite"} or name in own_thresholds)
        and rule.threshold_on != "off"
        for name, rule in own.items()
    )
    return [
        CriterionJudgement(
            name=name,
            pairs=tuple(groups[name]),
            rules=policy,
            policy=rule,
            evidence=evidence.get(name),
            improvement=better.get(name, Improvement()),
            collecting=comparison.baseline is None and not configured,
            cut_short=result.cut_short,
        )
        for name, rule in own.items()
    ]


def _outcome(severities: set[Severity], *, collecting: bool) -> Verdict:
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


def _pair_change(pair: Pair, judged: CriterionJudgement | None, trajectories: Trajectories) -> PairChange:
    test = judged.test(pair) if judged else None
    return PairChange(
        **pair.key._asdict(),
        criterion=pair.criterion,
        goal=pair.goal,
        unit=pair.unit,
        threshold=pair.threshold,
        kind=_kind(pair, test, improved=judged is not None and pair.key in judged.improvement.cases),
        baseline=pair.baseline,
        current=pair.current,
        errors=pair.errors,
        change=pair.change,
        interval=judged.interval(pair) if judged and pair.kind in _MOVED else None,
        fresh=_stat(test.fresh, pair) if test else None,
        control=_stat(test.pair.control, pair) if test else None,
        blocking=judged.blocks(pair) if judged else False,
        confirmed=test is not None and test.status in _CONFIRMED,
        misses_threshold=judged.misses_threshold(pair) if judged else False,
        accepted=pair.accepted,
        reason=pair_reason(judged, pair, trajectories),
    )


def _kind(pair: Pair, test: SuspectTest | None, *, improved: bool) -> ChangeKind:
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


def _stat(scores: Sequence[float], pair: Pair) -> Stat | None:
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


# --- why the outcome is what it is -----------------------------------------------------------------


def _reasons(
    outcome: Verdict,
    comparison: Comparison,
    judged: Sequence[CriterionJudgement],
    findings: Sequence[Finding],
    left_out: Sequence[Finding],
) -> Iterator[Finding]:
    """What the headline says. ``left_out``: the findings about missing credentials, which it names of a pass too."""
    if outcome is Verdict.FAIL:
        yield from _failures(judged, findings)
        yield from _undecided(findings)
    elif outcome is Verdict.INCONCLUSIVE:
        yield from _undecided(findings)
        pairs = [pair for one in judged for pair in one.pairs]
        unmeasured = any(pair.left_out for pair in pairs)
        doubts = sum(found.severity == "inconclusive" for found in findings)
        if unmeasured and doubts == 1 and any(pair.current is not None for pair in pairs):
            yield _nothing_wrong(comparison, judged, findings, rest=True)
    elif outcome is Verdict.COLLECTING:
        missed = {found.subject.model_copy(update={"criterion": None}) for found in findings if _is_advice(found)}
        yield note(FindingCode.COLLECTING, **_extent(judged), below=len(missed), store=comparison.store)
    else:
        yield _nothing_wrong(comparison, judged, findings, rest=False)
        yield from left_out


def _is_advice(found: Finding) -> bool:
    return found.severity == "advisory" and found.subject.case is not None


def _failures(judged: Sequence[CriterionJudgement], findings: Sequence[Finding]) -> Iterator[Finding]:
    blocking = [(one, pair) for one in judged for pair in one.pairs if one.blocks(pair)]
    total = len(_cases_run(judged))
    fell = {ChangeKind.NEWLY_FAILING, ChangeKind.WORSE}
    worse = {pair.key for one, pair in blocking if pair.kind in fell or one.status(pair) is Status.CONFIRMED}
    still = {pair.key for _, pair in blocking if pair.kind is ChangeKind.STILL_FAILING} - worse
    alone = {pair.key for _, pair in blocking} - worse - still  # by its threshold, whatever became of it otherwise
    for code, keys in (
        (FindingCode.CASES_WORSE, worse),
        (FindingCode.CASES_BELOW_THRESHOLD, alone),
        (FindingCode.CASES_STILL_BELOW_THRESHOLD, still),
    ):
        if keys:
            yield Finding(code=code, severity="blocks", data={**named_cases(sorted(keys)), "total": total})
    for found in findings:
        if found.severity == "blocks" and found.subject.case is None:
            # which cases moved it is known already, where they are named as worse
            named = worse and found.data.get("worst")
            yield found.model_copy(update={"data": {**found.data, "worst": []}}) if named else found


def _undecided(findings: Sequence[Finding]) -> Iterator[Finding]:
    missing = [found for found in findings if found.severity == "inconclusive"]
    yield from (found for found in missing if found.subject.case is None)
    cases: dict[Subject, Finding] = {}
    for found in missing:
        if found.subject.case is not None:
            cases[found.subject.model_copy(update={"criterion": None})] = found
    if len(cases) > 1:
        yield Finding(code=FindingCode.CASES_UNDECIDED, severity="inconclusive", data={"cases": len(cases)})
    yield from list(cases.values())[:1]


def _nothing_wrong(
    comparison: Comparison, judged: Sequence[CriterionJudgement], findings: Sequence[Finding], *, rest: bool
) -> Finding:
    advisories = sum(found.severity == "advisory" for found in findings)
    if comparison.baseline is None:
        return note(FindingCode.THRESHOLDS_MET, **_extent(judged), advisories=advisories, rest=rest)
    improved = [pair for one in judged for pair in one.pairs if pair.key in one.improvement.cases]
    return note(
        FindingCode.NOTHING_WORSE,
        **_extent(judged),
        compared=sum(len(one.compared) for one in judged),
        scores=sum(pair.current is not None for one in judged for pair in one.pairs),
        gone=len({pair.key for pair in comparison.removed if pair.incomparable == NO_CASE}),
        fixed=len({pair.key for pair in improved if pair.kind is ChangeKind.FIXED}),
        better=[{"criterion": one.name, "p": one.improvement.p} for one in judged if one.improvement.mean],
        advisories=advisories,
        rest=rest,
    )


def _extent(judged: Sequence[CriterionJudgement]) -> dict[str, Any]:
    criteria = sum(any(pair.current is not None for pair in one.pairs) for one in judged)
    return {"cases": len(_cases_run(judged)), "criteria": criteria}


def _cases_run(judged: Sequence[CriterionJudgement]) -> set[CaseKey]:
    """Those that were run: one this run left out was not measured on anything."""
    return {pair.key for one in judged for pair in one.pairs if not pair.left_out}
