"""The verdict and its reasons, from a comparison and a policy. Pure.

Evidence of a failure outweighs missing measurements, which outweigh a pass.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from agent_eval_action.config.models import Policy
from agent_eval_action.gate.assess import Status, SuspectTest, assess
from agent_eval_action.gate.findings import (
    Trajectories,
    count_scores,
    credentials_findings,
    criterion_findings,
    pair_findings,
    pair_reason,
    shard_finding,
    silent_models,
    unmeasured_findings,
    why_data,
)
from agent_eval_action.gate.judgement import CriterionJudgement, Improvement, improvements, pairs_of
from agent_eval_action.gate.next_step import BrokenCase, broken_code
from agent_eval_action.gate.pairs import (
    EDITED,
    NEW_CASE,
    NO_BASELINE,
    NO_CASE,
    TOLERANCE,
    Comparison,
    GateRules,
    GateState,
    Incomparable,
    Pair,
)
from agent_eval_action.results.decision import BaselineTrajectory, ChangeKind, Decision, PairChange, TurnBrief, Verdict
from agent_eval_action.results.findings import (
    NAMED,
    RUN,
    Finding,
    FindingCode,
    Severity,
    Subject,
    case_reference,
    excerpt,
    finding,
    named_cases,
    note,
    text_note,
)
from agent_eval_action.results.history import History, Quarantine, Record, kept_digest, kept_key
from agent_eval_action.results.pair_scores import score_stat
from agent_eval_action.results.run_result import RunResult, collector_paused

_SEVERITIES: Final[tuple[Severity, ...]] = ("blocks", "inconclusive", "advisory", "note")
_FELL: Final = frozenset({ChangeKind.WORSE, ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING})
_MOVED: Final = _FELL | {ChangeKind.BETTER, ChangeKind.FIXED}
_SHOWN_IN_DETAIL: Final = _FELL | {ChangeKind.FAILING, ChangeKind.ERROR, ChangeKind.CHANGED, ChangeKind.REMOVED}
_CONFIRMED: Final = frozenset({Status.CONFIRMED, Status.WITH_SUITE})


@collector_paused()
def decide(
    comparison: Comparison, result: RunResult, policy: Policy, broken: Sequence[BrokenCase] | None = None
) -> Decision:
    """Decide about ``result``, from which ``comparison`` was made.

    ``broken``: the cases that the change's code breaks, if ``result`` lacks some attempts of the base commit's agent.
    """
    all_criteria = _judgements(comparison, result, policy)
    criteria = [criterion for criterion in all_criteria if criterion.policy.mode != "off"]
    trajectories = comparison.trajectories
    silent = tuple(silent_models(criteria))
    by_criterion = {
        criterion.name: [*criterion_findings(criterion, silent=bool(silent)), *pair_findings(criterion, trajectories)]
        for criterion in criteria
    }
    left_out = credentials_findings(criteria, result, policy.withheld)
    broken = broken_code(result) if broken is None else broken
    broken = [case for case in broken if case.key not in comparison.cases_set_aside]
    findings = [
        *itertools.chain.from_iterable(by_criterion.values()),
        *unmeasured_findings(criteria, result, broken, comparison.unmeasured),
        *silent,
        *left_out,
    ]
    findings.sort(key=_order)
    severities = {found.severity for found in findings}
    if "blocks" in severities:
        outcome = Verdict.FAIL
    elif "inconclusive" in severities:
        outcome = Verdict.INCONCLUSIVE
    else:
        outcome = Verdict.COLLECTING if any(criterion.collecting for criterion in criteria) else Verdict.PASS
    doubts = [found for found in findings if found.severity == "inconclusive"]
    pairs = [_pair_change(pair, criterion, trajectories) for criterion in criteria for pair in criterion.pairs]
    aside = [pair for pair in comparison.quarantined if _is_judged(pair, policy)]
    pairs += [_pair_change(pair, None, trajectories) for pair in (*comparison.removed, *aside)]
    return Decision(
        outcome=outcome,
        reasons=tuple(_reasons(outcome, comparison, criteria, findings, left_out)),
        excused=outcome is Verdict.INCONCLUSIVE and bool(result.conditions.withheld) and doubts == list(left_out),
        findings=tuple(findings),
        criteria=tuple(criterion.row(by_criterion[criterion.name]) for criterion in criteria),
        pairs=tuple(sorted(pairs, key=lambda pair: (*pair.key, pair.criterion))),
        baseline=comparison.baseline,
        store=comparison.history.store,
        accept=policy.accept,
        on_weakened=policy.on_weakened,
        baseline_trajectories=tuple(_trajectories(comparison, criteria)),
        main_runs=comparison.history.main_runs,
        main_cases=comparison.history.main_cases,
        notes=tuple(_notes(comparison, all_criteria, result)),
    )


def _is_judged(pair: Pair, policy: Policy) -> bool:
    return policy.for_criterion(pair.criterion, pair.goal).mode != "off" and policy.sets.get(pair.key.eval_set) != "off"


def worse_pairs(decision: Decision) -> tuple[PairChange, ...]:
    """Every pair that holds the change up because it is worse than main, in the decision's order.

    These are the pairs that block by evidence, those that a limit kept from being confirmed, and, for a criterion
    that blocks over its whole suite, all its pairs that fell: accepting them lets the change pass.
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
        or (pair.criterion in suites and pair.fall > TOLERANCE and not pair.quarantined)
    )


def _judgements(comparison: Comparison, result: RunResult, policy: Policy) -> list[CriterionJudgement]:
    base = result.base is not None and not result.base.unavailable
    rules = GateRules(policy, adaptive=result.conditions.adaptive)
    evidence = assess(GateState(comparison.pairs, control=base), rules)
    better = improvements(comparison.pairs, rules)
    groups: dict[str, list[Pair]] = {}
    for pair in comparison.pairs:
        if policy.sets.get(pair.key.eval_set) != "off":
            groups.setdefault(pair.criterion, []).append(pair)
    sources = {
        (info.name, info.source) for owner in result.sets for info in owner.criteria if info.threshold is not None
    }
    own_thresholds = {name for name, source in sources if source not in ("default", "recording")}
    recorded = {name for name, source in sources if source == "recording"}  # what passed in the recording must pass now
    own = {name: evidence[name].policy for name in sorted(groups)}
    # configuring ADK's rule, or a threshold on the suite's mean, adopts ADK's default thresholds
    configured = any(
        rule.mode != "off"
        and (rule.threshold_on in {"case", "suite"} or name in own_thresholds)
        and rule.threshold_on != "off"
        for name, rule in own.items()
    )
    return [
        CriterionJudgement(
            pairs=tuple(groups[name]),
            evidence=evidence[name],
            improvement=better.get(name, Improvement()),
            collecting=comparison.baseline is None and not configured and name not in recorded,
            cut_short=result.cut_short,
        )
        for name in own
    ]


def _order(found: Finding) -> tuple[object, ...]:
    """Sort key: deciding findings first, among them those about the whole suite first."""
    subject = found.subject
    names = (subject.agent, subject.eval_set, subject.case, subject.criterion)
    return _SEVERITIES.index(found.severity), subject.case is not None, *(name or "" for name in names)


def _pair_change(pair: Pair, criterion: CriterionJudgement | None, trajectories: Trajectories) -> PairChange:
    test = criterion.test(pair) if criterion else None
    return PairChange(
        **pair.key._asdict(),
        criterion=pair.criterion,
        goal=pair.goal,
        unit=pair.unit,
        threshold=pair.threshold,
        kind=_kind(pair, test, improved=criterion is not None and pair.key in criterion.improvement.cases),
        baseline=pair.baseline,
        current=pair.current,
        errors=pair.errors,
        change=pair.change,
        interval=criterion.interval(pair) if criterion and pair.kind in _MOVED else None,
        fresh=score_stat(test.fresh, pair.threshold, pair.goal) if test else None,
        control=score_stat(pair.control, pair.threshold, pair.goal) if test else None,
        blocking=criterion.blocks(pair) if criterion else False,
        confirmed=test is not None and test.status in _CONFIRMED,
        misses_threshold=criterion.misses_threshold(pair) if criterion else False,
        accepted=pair.accepted,
        quarantined=pair.quarantine is not None,
        reason=pair_reason(criterion, pair, trajectories),
    )


def _kind(pair: Pair, test: SuspectTest | None, *, improved: bool) -> ChangeKind:
    """Cleared and broken-on-main pairs are not changes of the agent; confirmed ones are, whatever the mean says."""
    if pair.kind in {ChangeKind.FIXED, ChangeKind.BETTER} and not improved:
        return ChangeKind.SAME  # an improvement within chance counts as no change, as a decline does
    if test is None or pair.kind is ChangeKind.ERROR:
        return pair.kind
    if test.status is Status.CLEARED:
        return ChangeKind.FLAKY
    if test.status in {Status.ON_MAIN, Status.WITH_MAIN}:
        return ChangeKind.ON_MAIN
    if test.status in _CONFIRMED and pair.kind not in {ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING}:
        return ChangeKind.WORSE
    return pair.kind


def _trajectories(comparison: Comparison, criteria: Iterable[CriterionJudgement]) -> Iterable[BaselineTrajectory]:
    """Only of the cases that reports show in detail, not of 10,000 unchanged ones."""
    shown = {pair.key for pair in pairs_of(criteria, gating=True) if pair.kind in _SHOWN_IN_DETAIL}
    shown |= {pair.key for pair in comparison.removed}
    for key in sorted(shown & comparison.trajectories.keys()):
        kept = comparison.trajectories[key]
        turns = tuple(TurnBrief(calls=calls) for calls in kept.turns)
        yield BaselineTrajectory(**key._asdict(), turns=turns, seen=kept.seen, attempts=kept.attempts)


# --- the reasons for the outcome --------------------------------------------------------------------


def _reasons(
    outcome: Verdict,
    comparison: Comparison,
    criteria: Sequence[CriterionJudgement],
    findings: Sequence[Finding],
    left_out: Sequence[Finding],
) -> Iterator[Finding]:
    """The headline's findings. ``left_out``: those about missing credentials, which it names even for a pass."""
    if outcome is Verdict.FAIL:
        yield from _failure_reasons(criteria, findings)
        yield from _undecided_reasons(findings)
    elif outcome is Verdict.INCONCLUSIVE:
        yield from _undecided_reasons(findings)
        pairs = pairs_of(criteria)
        unmeasured = any(pair.left_out for pair in pairs)
        doubts = sum(found.severity == "inconclusive" for found in findings)
        if unmeasured and doubts == 1 and any(pair.current is not None for pair in pairs):
            yield _nothing_wrong(comparison, criteria, findings, rest=True)
    elif outcome is Verdict.COLLECTING:
        missed = {_case_of(found) for found in findings if found.severity == "advisory" and found.subject.case}
        yield note(FindingCode.COLLECTING, **_extent(criteria), below=len(missed), store=comparison.history.store)
    else:
        yield _nothing_wrong(comparison, criteria, findings, rest=False)
        yield from left_out


def _failure_reasons(criteria: Sequence[CriterionJudgement], findings: Sequence[Finding]) -> Iterator[Finding]:
    blocking = [(criterion, pair) for criterion in criteria for pair in criterion.pairs if criterion.blocks(pair)]
    fell = {ChangeKind.NEWLY_FAILING, ChangeKind.WORSE}
    worse = {
        pair.key for criterion, pair in blocking if pair.kind in fell or criterion.status(pair) is Status.CONFIRMED
    }
    still = {pair.key for _, pair in blocking if pair.kind is ChangeKind.STILL_FAILING} - worse
    alone = {pair.key for _, pair in blocking} - worse - still  # by its threshold, however it compares with main
    for code, keys in (
        (FindingCode.CASES_WORSE, worse),
        (FindingCode.CASES_BELOW_THRESHOLD, alone),
        (FindingCode.CASES_STILL_BELOW_THRESHOLD, still),
    ):
        if keys:
            yield finding("blocks", code, **named_cases(sorted(keys)), total=_extent(criteria)["cases"])
    for found in findings:
        if found.severity == "blocks" and found.subject.case is None:
            # the cases that moved the mean are already named as worse
            named = worse and found.data.get("worst")
            yield found.model_copy(update={"data": {**found.data, "worst": []}}) if named else found


def _undecided_reasons(findings: Sequence[Finding]) -> Iterator[Finding]:
    missing = [found for found in findings if found.severity == "inconclusive"]
    yield from (found for found in missing if found.subject.case is None)
    cases = {_case_of(found): found for found in missing if found.subject.case is not None}
    if len(cases) > 1:
        yield finding("inconclusive", FindingCode.CASES_UNDECIDED, cases=len(cases))
    yield from list(cases.values())[:1]


def _case_of(found: Finding) -> Subject:
    return found.subject.model_copy(update={"criterion": None})


def _nothing_wrong(
    comparison: Comparison, criteria: Sequence[CriterionJudgement], findings: Sequence[Finding], *, rest: bool
) -> Finding:
    advisories = sum(found.severity == "advisory" for found in findings)
    if comparison.baseline is None:
        return note(FindingCode.THRESHOLDS_MET, **_extent(criteria), advisories=advisories, rest=rest)
    improved = [pair for criterion in criteria for pair in criterion.pairs if pair.key in criterion.improvement.cases]
    return note(
        FindingCode.NOTHING_WORSE,
        **_extent(criteria),
        compared=sum(len(criterion.compared) for criterion in criteria),
        scores=sum(pair.current is not None for pair in pairs_of(criteria)),
        gone=len({pair.key for pair in comparison.removed if pair.incomparable == NO_CASE}),
        fixed=len({pair.key for pair in improved if pair.kind is ChangeKind.FIXED}),
        better=[{"criterion": one.name, "p": one.improvement.p} for one in criteria if one.improvement.mean],
        advisories=advisories,
        rest=rest,
    )


def _extent(criteria: Sequence[CriterionJudgement]) -> dict[str, Any]:
    scored = {pair.criterion for pair in pairs_of(criteria) if pair.current is not None}
    return {"cases": len({pair.key for pair in pairs_of(criteria) if not pair.left_out}), "criteria": len(scored)}


# --- the notes --------------------------------------------------------------------------------------


def _notes(comparison: Comparison, criteria: Sequence[CriterionJudgement], result: RunResult) -> Iterator[Finding]:
    """What a reader must know besides the scores, each fact once."""
    yield from _quarantine_notes(comparison)
    if result.conditions.fail_on == "never":
        yield note(FindingCode.REPORT_ONLY)
    yield from _policy_notes(comparison, criteria)
    yield from map(text_note, comparison.history.notes)
    if comparison.history.pooled is not None and comparison.history.pooled.cases:
        yield from _condition_notes(comparison.history.pooled, result)
        yield from _restart_notes(comparison.history)
    yield from _removal_notes(comparison.removed)
    yield from _incomparable_notes(comparison.pairs)
    yield from _criterion_notes(comparison.pairs, criteria)
    if (base := result.base) is not None:
        unavailable = [(RUN, base.unavailable)] if base.unavailable else []
        unavailable += [(Subject(agent=agent), why) for agent, why in sorted(base.unavailable_agents.items())]
        for subject, reason in unavailable:
            yield note(FindingCode.NO_CONTROL, subject, error=excerpt(reason, 300))
    problems = result.merge.problems if result.merge else ()
    yield from (shard_finding(problem) for problem in problems if not problem.undecided)


def _quarantine_notes(comparison: Comparison) -> Iterator[Finding]:
    """Overdue quarantines, then active ones with the state of their pairs."""

    def data(entry: Quarantine) -> dict[str, Any]:
        names = {"case": excerpt(entry.case), "criterion": excerpt(entry.criterion or "")}
        return {**names, "owner": excerpt(entry.owner, 120), "until": entry.until, "text": excerpt(entry.reason)}

    for entry in comparison.overdue:
        yield note(FindingCode.QUARANTINE_OVERDUE, **data(entry))
    for entry in comparison.history.quarantines:
        if pairs := [pair for pair in comparison.quarantined if pair.quarantine == entry]:
            failing = any(pair.below or pair.kind in _FELL for pair in pairs)
            state = "failing" if failing else "unmeasured" if any(pair.errors for pair in pairs) else "passing"
            yield note(FindingCode.QUARANTINED, **data(entry), state=state)


def _policy_notes(comparison: Comparison, criteria: Sequence[CriterionJudgement]) -> Iterator[Finding]:
    if comparison.baseline is None and any(not criterion.collecting for criterion in criteria):
        yield note(FindingCode.NO_BASELINE, store=comparison.history.store)
    off = [criterion.name for criterion in criteria if criterion.policy.mode == "off"]
    unlimited = [criterion for criterion in criteria if criterion.goal == "maximize" and not criterion.has_limit]
    limitless = [criterion.name for criterion in unlimited if criterion.policy.mode == "blocking"]
    for code, names in ((FindingCode.CRITERIA_OFF, off), (FindingCode.CRITERIA_WITHOUT_LIMIT, limitless)):
        if names:
            yield note(code, criteria=names[:NAMED], total=len(names))


def _condition_notes(baseline: Record, result: RunResult) -> Iterator[Finding]:
    """Differences between the conditions of both sides. They are shown, but never prevent the comparison."""
    then = {agent.agent: agent for agent in baseline.agents}
    for now in result.conditions.agents:
        old, subject = then.get(now.agent), Subject(agent=now.agent)
        if old is None:
            continue
        if old.models and now.models and set(old.models) != set(now.models):
            models = [[excerpt(name, 60) for name in side.models] for side in (old, now)]
            yield note(FindingCode.MODEL_CHANGED, subject, old=models[0], new=models[1])
        if old.adk_version and now.adk_version and old.adk_version != now.adk_version:
            versions = excerpt(old.adk_version, 40), excerpt(now.adk_version, 40)
            yield note(FindingCode.ADK_CHANGED, subject, old=versions[0], new=versions[1])
        if old.packages_digest and now.packages_digest and old.packages_digest != kept_digest(now.packages_digest):
            yield note(FindingCode.PACKAGES_CHANGED, subject)
    ran = {kept_key(key) for key, _ in result.keyed_cases()}
    covers = result.conditions.covers
    left = sum(record.key not in ran and not covers(record.agent) for record in baseline.cases)
    if left:
        chosen = ", ".join((*result.conditions.only_agents, *result.conditions.selection))
        yield note(FindingCode.CASES_NOT_RUN, cases=left, selection=excerpt(chosen, 120))


def _restart_notes(history: History) -> Iterator[Finding]:
    """Accepted changes whose merge restarted the history of pairs, by reason."""
    by_reason: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (key, criterion), pair in sorted(history.pairs.items()):
        if pair.anew and pair.scores:
            by_reason[pair.anew].append(case_reference(*key, criterion=criterion))
    for reason, pairs in by_reason.items():
        yield note(FindingCode.HISTORY_RESTARTED, text=excerpt(reason, 200), pairs=len(pairs), named=pairs[:NAMED])


def _removal_notes(pairs: Sequence[Pair]) -> Iterator[Finding]:
    cases = {pair.key for pair in pairs if pair.incomparable == NO_CASE}
    failed = {pair.key for pair in pairs if pair.key in cases and pair.below}
    if cases:
        yield note(FindingCode.CASES_GONE, **named_cases(sorted(cases)), below=named_cases(sorted(failed)))
    dropped = Counter(pair.criterion for pair in pairs if pair.key not in cases)
    for criterion, lost in sorted(dropped.items()):
        below = sum(pair.below for pair in pairs if pair.key not in cases and pair.criterion == criterion)
        yield note(FindingCode.CRITERION_NOT_CONFIGURED, Subject(criterion=criterion), cases=lost, below=below)


def _incomparable_notes(pairs: Iterable[Pair]) -> Iterator[Finding]:
    """Pairs without comparable history. For accepted changes neither main's scores nor its thresholds apply."""
    reasons: dict[Incomparable, list[Pair]] = defaultdict(list)
    accepted: dict[Incomparable, list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.incomparable and pair.accepted:
            accepted[pair.incomparable].append(pair)
        elif pair.incomparable and pair.kind is not ChangeKind.NOT_APPLICABLE:
            reasons[pair.incomparable].append(pair)
    for why, found in sorted(reasons.items()) if set(reasons) != {NO_BASELINE} else ():
        whole_cases = why.why in {NEW_CASE.why, NO_BASELINE.why, EDITED.why}
        criteria = [] if whole_cases else sorted({pair.criterion for pair in found})
        cases = named_cases(sorted({pair.key for pair in found}))
        yield note(FindingCode.CASES_NOT_COMPARED, **why_data(why), **cases, criteria=criteria)
    for why, found in sorted(accepted.items()):
        named = [case_reference(*pair.key, criterion=pair.criterion) for pair in found[:NAMED]]
        yield note(FindingCode.CHANGE_ACCEPTED, **why_data(why), pairs=len(found), named=named)


def _criterion_notes(pairs: Iterable[Pair], criteria: Sequence[CriterionJudgement]) -> Iterator[Finding]:
    """Moved thresholds, criteria that apply to no case, and suspects that were cleared."""
    moved = Counter(
        (pair.criterion, pair.old_threshold, pair.threshold)
        for pair in pairs
        if pair.change is not None and pair.old_threshold != pair.threshold
    )
    for (name, old, new), cases in sorted(moved.items(), key=str):
        yield note(FindingCode.THRESHOLD_MOVED, Subject(criterion=name), old=old, new=new, cases=cases)
    for criterion in criteria:
        if all(pair.kind is ChangeKind.NOT_APPLICABLE for pair in criterion.pairs):
            reasons = (pair.measured.reason for pair in criterion.pairs if pair.measured and pair.measured.reason)
            data = {"judgement": excerpt(next(reasons, ""), 200)}
            yield note(FindingCode.CRITERION_NOT_APPLICABLE, Subject(criterion=criterion.name), **data)
    cleared = [
        (pair.key, pair.criterion, pair, test.fresh)
        for criterion in criteria
        for pair in criterion.pairs
        if (test := criterion.test(pair)) is not None and test.status is Status.CLEARED
    ]
    named = [
        case_reference(*key, criterion=name, binary=pair.binary, **count_scores(fresh))
        for key, name, pair, fresh in sorted(cleared, key=lambda item: item[:2])[:NAMED]
    ]
    if named:
        yield note(FindingCode.CASES_FLAKY, scores=len(cleared), named=named)
