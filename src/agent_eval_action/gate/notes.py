"""What a reader must know beside the verdict, each thing once and briefly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent_eval_action.gate.assess import Status
from agent_eval_action.gate.findings import count_scores, why_data
from agent_eval_action.gate.judgement import CriterionJudgement
from agent_eval_action.gate.pairs import EDITED, NEW_CASE, NO_BASELINE, NO_CASE, Comparison, Incomparable, Pair
from agent_eval_action.results.decision import ChangeKind
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
from agent_eval_action.results.history import History, Record, kept_digest, kept_key
from agent_eval_action.results.run_result import CaseKey, RunResult


def decision_notes(
    comparison: Comparison, judged: Sequence[CriterionJudgement], result: RunResult
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
    yield from _not_applicable(judged)
    yield from _flaky(judged)
    yield from _not_controlled(result)


def _policy_notes(comparison: Comparison, judged: Sequence[CriterionJudgement]) -> Iterator[Finding]:
    if comparison.baseline is None and any(not one.collecting for one in judged):
        yield note(FindingCode.NO_BASELINE, store=comparison.store)
    off = [one.name for one in judged if one.policy.mode == "off"]
    blocking = [one for one in judged if one.policy.mode == "blocking" and one.goal == "maximize"]
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


def _removed(pairs: Sequence[Pair]) -> Iterator[Finding]:
    cases = {pair.key for pair in pairs if pair.incomparable == NO_CASE}
    failed = {pair.key for pair in pairs if pair.key in cases and pair.below}
    if cases:
        yield note(FindingCode.CASES_GONE, **named_cases(sorted(cases)), below=named_cases(sorted(failed)))
    dropped = Counter(pair.criterion for pair in pairs if pair.key not in cases)
    for criterion, lost in sorted(dropped.items()):
        below = sum(pair.below for pair in pairs if pair.key not in cases and pair.criterion == criterion)
        yield note(FindingCode.CRITERION_NOT_CONFIGURED, Subject(criterion=criterion), cases=lost, below=below)


def _incomparable(pairs: Iterable[Pair]) -> Iterator[Finding]:
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


def _accepted(pairs: Iterable[Pair]) -> Iterator[Finding]:
    """Accepted changes: neither main's scores nor a threshold that main met holds for them until the merge."""
    found: dict[Incomparable, list[dict[str, Any]]] = {}
    for pair in pairs:
        if pair.accepted and pair.incomparable:
            found.setdefault(pair.incomparable, []).append(case_reference(*pair.key, criterion=pair.criterion))
    for why, named in sorted(found.items(), key=lambda item: item[0]):
        yield note(FindingCode.CHANGE_ACCEPTED, **why_data(why), pairs=len(named), named=named[:NAMED])


def _moved_thresholds(pairs: Iterable[Pair]) -> Iterator[Finding]:
    moved = Counter(
        (pair.criterion, pair.old_threshold, pair.threshold)
        for pair in pairs
        if pair.change is not None and pair.old_threshold != pair.threshold
    )
    for (criterion, old, new), cases in sorted(moved.items(), key=str):
        yield note(FindingCode.THRESHOLD_MOVED, Subject(criterion=criterion), old=old, new=new, cases=cases)


def _not_applicable(judged: Iterable[CriterionJudgement]) -> Iterator[Finding]:
    for one in judged:
        if all(pair.kind is ChangeKind.NOT_APPLICABLE for pair in one.pairs):
            reason = next((pair.measured.reason for pair in one.pairs if pair.measured and pair.measured.reason), "")
            yield note(
                FindingCode.CRITERION_NOT_APPLICABLE, Subject(criterion=one.name), judgement=excerpt(reason, 200)
            )


def _flaky(judged: Iterable[CriterionJudgement]) -> Iterator[Finding]:
    """What was worse at first, and as on main when it was run again: how often."""
    tests = [test for one in judged if one.evidence for test in one.evidence.tests.values()]
    cleared = [test for test in tests if test.status is Status.CLEARED]
    cleared.sort(key=lambda test: (test.pair.key, test.pair.criterion))
    if cleared:
        named = [
            case_reference(
                *test.pair.key,
                criterion=test.pair.criterion,
                binary=test.pair.binary,
                **count_scores(test.fresh),
            )
            for test in cleared[:NAMED]
        ]
        yield note(FindingCode.CASES_FLAKY, scores=len(cleared), named=named)


def _not_controlled(result: RunResult) -> Iterator[Finding]:
    base = result.base
    if base is None:
        return
    if base.unavailable:
        yield note(FindingCode.NO_CONTROL, error=excerpt(base.unavailable, 300))
    for agent, reason in sorted(base.unavailable_agents.items()):
        yield note(FindingCode.NO_CONTROL, Subject(agent=agent), error=excerpt(reason, 300))
