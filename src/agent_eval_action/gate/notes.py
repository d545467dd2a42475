"""Why the outcome is what it is, and what a reader must know beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent_eval_action.gate.assess import Status, SuspectTest
from agent_eval_action.gate.evidence import mean
from agent_eval_action.gate.findings import is_binary, score_counts, why_data
from agent_eval_action.gate.pairs import EDITED, NEW_CASE, NO_BASELINE, NO_CASE, ComparedPair, Comparison, Incomparable
from agent_eval_action.gate.policy import CriterionJudgement
from agent_eval_action.gate.statistics import EvidenceIndex
from agent_eval_action.results.decision import ChangeKind, Verdict
from agent_eval_action.results.findings import (
    NAMED,
    Finding,
    FindingCode,
    Subject,
    case_reference,
    excerpt,
    named_cases,
    note,
    text_note,
)
from agent_eval_action.results.history import (
    History,
    Record,
    kept_digest,
    kept_key,
)
from agent_eval_action.results.run_result import (
    CaseKey,
    RunResult,
)

# --- why the outcome is what it is -----------------------------------------------------------------


def outcome_reasons(
    outcome: Verdict,
    comparison: Comparison,
    judged: Sequence[CriterionJudgement],
    findings: Sequence[Finding],
    *,
    left_out: Sequence[Finding] = (),
) -> Iterator[Finding]:
    """What the headline says. ``left_out``: the findings about missing credentials, which it names of a pass too."""
    if outcome is Verdict.FAIL:
        yield from _failures(judged, findings)
        yield from _undecided(findings)
    elif outcome is Verdict.INCONCLUSIVE:
        yield from _undecided(findings)
        pairs = [pair for one in judged for pair in one.pairs]
        unmeasured = any(pair.measured is not None and pair.measured.unmeasured for pair in pairs)
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
    worse = {pair.key for one, pair in blocking if pair.kind in fell or one.weighed.status(pair) is Status.CONFIRMED}
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
    improved = [pair for one in judged for pair in one.pairs if one.weighed.improved(pair)]
    better = [found for one in judged if (found := one.weighed.better.get(one.name)) and found.mean is not None]
    return note(
        FindingCode.NOTHING_WORSE,
        **_extent(judged),
        compared=sum(one.compared.compared for one in judged),
        scores=sum(pair.current is not None for one in judged for pair in one.pairs),
        gone=len({pair.key for pair in comparison.removed if pair.incomparable == NO_CASE}),
        fixed=len({pair.key for pair in improved if pair.kind is ChangeKind.FIXED}),
        better=[{"criterion": found.criterion, "p": found.p} for found in better],
        advisories=advisories,
        rest=rest,
    )


def _extent(judged: Sequence[CriterionJudgement]) -> dict[str, Any]:
    criteria = sum(any(pair.current is not None for pair in one.pairs) for one in judged)
    return {"cases": len(_cases_run(judged)), "criteria": criteria}


def _cases_run(judged: Sequence[CriterionJudgement]) -> set[CaseKey]:
    """Those that were run: one this run left out was not measured on anything."""
    pairs = (pair for one in judged for pair in one.pairs)
    return {pair.key for pair in pairs if not (pair.measured and pair.measured.unmeasured)}


# --- what to know beside the verdict ---------------------------------------------------------------


def decision_notes(
    comparison: Comparison,
    judged: Sequence[CriterionJudgement],
    weighed: EvidenceIndex,
    result: RunResult,
) -> Iterator[Finding]:
    """What a reader must know beside the scores, each thing once and briefly."""
    if result.conditions.fail_on == "never":
        yield note(FindingCode.REPORT_ONLY)
    yield from _policy_notes(comparison, judged)
    yield from map(text_note, comparison.history.notes if comparison.history else ())
    if comparison.stored is not None and comparison.stored.cases:
        yield from _condition_notes(comparison.stored, result)
        yield from _restarted(comparison.history)
    yield from _removed(comparison.removed)
    yield from _incomparable(comparison.pairs)
    yield from _accepted(comparison.pairs)
    yield from _moved_thresholds(comparison.pairs)
    yield from _not_applicable(comparison)
    yield from _flaky(weighed)
    yield from _not_controlled(result)


def _policy_notes(comparison: Comparison, judged: Sequence[CriterionJudgement]) -> Iterator[Finding]:
    if comparison.baseline is None and any(not one.collecting for one in judged):
        yield note(FindingCode.NO_BASELINE, store=comparison.store)
    off = [one.name for one in judged if one.policy.mode == "off"]
    blocking = [one for one in judged if one.policy.mode == "blocking" and one.compared.goal == "maximize"]
    limitless = [one.name for one in blocking if not one.has_limit]
    for code, names in ((FindingCode.CRITERIA_OFF, off), (FindingCode.CRITERIA_WITHOUT_LIMIT, limitless)):
        if names:
            yield note(code, criteria=names[:NAMED], total=len(names))


def _condition_notes(baseline: Record, result: RunResult) -> Iterator[Finding]:
    """What differs between the conditions of both sides: shown, never a reason not to compare."""
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
    ran = {kept_key(CaseKey(one.agent, one.eval_set, case.case)) for one in result.sets for case in one.cases}
    covers = result.conditions.covers
    left = sum(record.key not in ran and not covers(record.agent) for record in baseline.cases)
    if left:
        chosen = ", ".join((*result.conditions.only_agents, *result.conditions.selection))
        yield note(FindingCode.CASES_NOT_RUN, cases=left, selection=excerpt(chosen, 120))


def _restarted(history: History | None) -> Iterator[Finding]:
    """Accepted changes from whose merge on the scores of a pair count, by their reasons."""
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for (key, criterion), pair in sorted(history.pairs.items()) if history else ():
        if pair.anew and pair.scores:
            by_reason.setdefault(pair.anew, []).append(case_reference(*key, criterion=criterion))
    for reason, pairs in by_reason.items():
        yield note(FindingCode.HISTORY_RESTARTED, text=excerpt(reason, 200), pairs=len(pairs), named=pairs[:NAMED])


def _removed(pairs: Sequence[ComparedPair]) -> Iterator[Finding]:
    cases = {pair.key for pair in pairs if pair.incomparable == NO_CASE}
    failed = {pair.key for pair in pairs if pair.key in cases and pair.below}
    if cases:
        yield note(FindingCode.CASES_GONE, **named_cases(sorted(cases)), below=named_cases(sorted(failed)))
    dropped = Counter(pair.criterion for pair in pairs if pair.key not in cases)
    for criterion, lost in sorted(dropped.items()):
        below = sum(pair.below for pair in pairs if pair.key not in cases and pair.criterion == criterion)
        yield note(FindingCode.CRITERION_NOT_CONFIGURED, Subject(criterion=criterion), cases=lost, below=below)


def _incomparable(pairs: Iterable[ComparedPair]) -> Iterator[Finding]:
    reasons: dict[Incomparable, set[CaseKey]] = {}
    criteria: dict[Incomparable, set[str]] = {}
    for pair in pairs:
        why = pair.incomparable
        if why and not pair.accepted and pair.kind is not ChangeKind.NOT_APPLICABLE:
            reasons.setdefault(why, set()).add(pair.key)
            if why.why not in {NEW_CASE.why, NO_BASELINE.why, EDITED.why}:  # these are about whole cases
                criteria.setdefault(why, set()).add(pair.criterion)
    if set(reasons) == {NO_BASELINE}:
        return
    for why, cases in sorted(reasons.items()):
        names = sorted(criteria.get(why, ()))
        yield note(FindingCode.CASES_NOT_COMPARED, **why_data(why), **named_cases(sorted(cases)), criteria=names)


def _accepted(pairs: Iterable[ComparedPair]) -> Iterator[Finding]:
    """Accepted changes: neither main's scores nor a threshold that main met holds for them until the merge."""
    found: dict[Incomparable, list[dict[str, Any]]] = {}
    for pair in pairs:
        if pair.accepted and pair.incomparable:
            found.setdefault(pair.incomparable, []).append(case_reference(*pair.key, criterion=pair.criterion))
    for why, named in sorted(found.items(), key=lambda item: item[0]):
        yield note(FindingCode.CHANGE_ACCEPTED, **why_data(why), pairs=len(named), named=named[:NAMED])


def _moved_thresholds(pairs: Iterable[ComparedPair]) -> Iterator[Finding]:
    moved = Counter(
        (pair.criterion, pair.old_threshold, pair.threshold)
        for pair in pairs
        if pair.change is not None and pair.old_threshold != pair.threshold
    )
    for (criterion, old, new), cases in sorted(moved.items(), key=str):
        yield note(FindingCode.THRESHOLD_MOVED, Subject(criterion=criterion), old=old, new=new, cases=cases)


def _not_applicable(comparison: Comparison) -> Iterator[Finding]:
    for one in comparison.criteria:
        if all(pair.kind is ChangeKind.NOT_APPLICABLE for pair in one.pairs):
            reason = next((pair.measured.reason for pair in one.pairs if pair.measured and pair.measured.reason), "")
            subject = Subject(criterion=one.criterion)
            yield note(FindingCode.CRITERION_NOT_APPLICABLE, subject, judgement=excerpt(reason, 200))


def _flaky(weighed: EvidenceIndex) -> Iterator[Finding]:
    """What was worse at first, and as on main when it was run again: how often."""
    cleared = sorted(((*key, test) for key, test in weighed.tests.items() if test.status is Status.CLEARED), key=_name)
    if cleared:
        named = [
            case_reference(
                *key,
                criterion=name,
                binary=is_binary(test.pair),
                **score_counts([(score, 1) for score in test.fresh], mean(test.fresh)),
            )
            for key, name, test in cleared[:NAMED]
        ]
        yield note(FindingCode.CASES_FLAKY, scores=len(cleared), named=named)


def _name(found: tuple[CaseKey, str, SuspectTest]) -> tuple[CaseKey, str]:
    return found[:2]


def _not_controlled(result: RunResult) -> Iterator[Finding]:
    base = result.base
    if base is None:
        return
    if base.unavailable:
        yield note(FindingCode.NO_CONTROL, error=excerpt(base.unavailable, 300))
    for agent, reason in sorted(base.unavailable_agents.items()):
        yield note(FindingCode.NO_CONTROL, Subject(agent=agent), error=excerpt(reason, 300))
