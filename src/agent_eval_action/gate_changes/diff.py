"""What a change does to the gate itself: cases, references, criteria and rules, then and now. Pure.

What only became stricter is no weakening; what became something else is, for main's verdict on it is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from agent_eval_action.gate_changes.cases import Edit, case_edit, criterion_loosened
from agent_eval_action.gate_changes.rules import weaker_rules
from agent_eval_action.gate_changes.snapshot import CaseSnapshot, SetSnapshot, Snapshot, case_identities
from agent_eval_action.gate_changes.stored_scores import weaker_baseline
from agent_eval_action.results.case_matching import CaseMatches, match_cases
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.findings import RUN, Finding, FindingCode, Subject, excerpt, named_cases, with_severity
from agent_eval_action.results.run_result import CriterionInfo

_SINGLY: Final = 5
"""Up to here each removed case of a file has a finding of its own, beyond it they share one."""

_NAMES: Final = 20
_EDITS: Final = 20

_Held = tuple[SetSnapshot, CaseSnapshot]


def weakenings(base: Snapshot, head: Snapshot, *, with_merge: bool = False) -> tuple[Finding, ...]:
    """Every way in which ``head`` measures less than ``base``, what takes the most away first.

    A case that was only moved or renamed is the same case; its criteria are compared where it is now.
    ``with_merge``: rules and criteria of ``head`` take effect with the merge only.
    """
    pairs, gone = _matched(base, head)
    return (
        *_gone_sets(base, head, gone),
        *_gone_cases(head, gone),
        *_criteria(base, pairs, with_merge=with_merge),
        *weaker_rules(base, head, with_merge=with_merge),
        *weaker_baseline(base, head),
        *_edits(pairs),
        *_accepted(base, head),
    )


def apply_weakenings(decision: Decision, found: Sequence[Finding], on_weakened: str) -> Decision:
    """The decision with what was found, first; under ``on_weakened: fail`` each of them blocks."""
    if not found:
        return decision
    if on_weakened != "fail":
        return decision.model_copy(update={"weakenings": tuple(found)})
    blocking = with_severity(found, "blocks")
    weakened = Finding(code=FindingCode.GATE_WEAKENED, severity="blocks", data={"more": len(found) - 1})
    return decision.model_copy(
        update={
            "weakenings": blocking,
            "findings": (*blocking, *decision.findings),
            "outcome": Verdict.FAIL,
            "reasons": decision.reasons if decision.outcome is Verdict.FAIL else (weakened, blocking[0]),
        }
    )


def _matched(base: Snapshot, head: Snapshot) -> tuple[list[tuple[_Held, _Held]], list[_Held]]:
    """Cases of both sides, whatever they are called, and those of the base that are gone."""
    now = {case.key: (one, case) for one in head.sets for case in one.cases}
    then = {case.key: (one, case) for one in base.sets for case in one.cases}
    current = match_snapshots(base, head).current_key
    pairs = [(held, now[current[key]]) for key, held in then.items() if key in current]
    return pairs, [held for key, held in then.items() if key not in current]


def match_snapshots(base: Snapshot, head: Snapshot) -> CaseMatches:
    """Which case of the base is which of the head, whatever it, its file or its agent is called."""
    return match_cases(case_identities(base.sets), case_identities(head.sets))


def only_matched_agents(base: Snapshot, head: Snapshot) -> Snapshot:
    """The base without agents of which the head has no case: a run of chosen agents says nothing about others."""
    matched = {key.agent for key in match_snapshots(base, head).current_key}
    return replace(base, sets=tuple(one for one in base.sets if one.agent in matched))


def _gone_sets(base: Snapshot, head: Snapshot, gone: Sequence[_Held]) -> Iterator[Finding]:
    """Sets of which nothing is run any more."""
    here = {(one.agent, one.eval_set) for one in head.sets}
    for one in base.sets:
        cases = [case for held, case in gone if held is one]
        if cases and (one.agent, one.eval_set) not in here:
            subject = Subject(agent=one.agent, eval_set=one.eval_set)
            yield _finding(FindingCode.SET_REMOVED, subject, path=one.path, **_named(cases, _SINGLY))


def _gone_cases(head: Snapshot, gone: Sequence[_Held]) -> Iterator[Finding]:
    here = {(one.agent, one.eval_set) for one in head.sets}
    by_set: dict[tuple[str, str, str], list[CaseSnapshot]] = defaultdict(list)
    for one, case in gone:
        if (one.agent, one.eval_set) in here:
            by_set[one.agent, one.eval_set, one.path].append(case)
    for (agent, eval_set, path), cases in by_set.items():
        if len(cases) <= _SINGLY:
            for case in cases:
                subject = Subject(agent=agent, eval_set=eval_set, case=case.key.case)
                yield _finding(FindingCode.CASE_REMOVED, subject, path=path)
        else:
            subject = Subject(agent=agent, eval_set=eval_set)
            yield _finding(FindingCode.CASES_REMOVED, subject, path=path, **_named(cases, _NAMES))


def _criteria(base: Snapshot, pairs: Iterable[tuple[_Held, _Held]], *, with_merge: bool) -> Iterator[Finding]:
    """What criteria lost, set by set, for sets that share a case; one finding for whatever shares a file."""
    met: dict[tuple[str, str, str, str], tuple[SetSnapshot, SetSnapshot]] = {}
    for (then, _), (now, _) in pairs:
        met.setdefault((then.agent, then.eval_set, now.agent, now.eval_set), (then, now))
    off = _switched_off(base)
    found: list[Finding] = []
    for then, now in met.values():
        mine = {info.name: info for info in now.criteria}
        for info in then.criteria:
            for loss in _criterion(info, mine.get(info.name), now, with_merge) if info.name not in off else ():
                if loss not in found:
                    found.append(loss)
    yield from found


def _criterion(
    then: CriterionInfo, now: CriterionInfo | None, where: SetSnapshot, with_merge: bool
) -> Iterator[Finding]:
    subject = Subject(criterion=then.name)
    source = {"source": excerpt((now or then).source, 120), "with_merge": with_merge}
    if now is None:
        yield _finding(FindingCode.CRITERION_REMOVED, subject, path=where.path, **source)
        return
    for loss in criterion_loosened(then, now):
        yield _finding(FindingCode.CRITERION_LOOSENED, subject, **loss, **source)


def _switched_off(base: Snapshot) -> frozenset[str]:
    if base.policy is None:
        return frozenset()
    infos = {info.name: info for one in base.sets for info in one.criteria}
    return frozenset(n for n, info in infos.items() if base.policy.for_criterion(n, info.goal).mode == "off")


def _edits(pairs: Iterable[tuple[_Held, _Held]]) -> Iterator[Finding]:
    """Cases that expect less, before those that expect something else."""
    loosened: list[tuple[_Held, list[Edit]]] = []
    edited: list[tuple[_Held, list[Edit]]] = []
    for (_, then), (now_set, now) in pairs:
        if then.digest == now.digest:
            continue
        edit = case_edit(then, now, exact=_is_exact(now_set.criteria))
        if edit.looser:
            loosened.append(((now_set, now), [*edit.looser, *edit.other]))
        elif edit.other:
            edited.append(((now_set, now), edit.other))
    yield from _edited(FindingCode.CASE_LOOSENED, loosened)
    yield from _edited(FindingCode.CASE_EDITED, edited)


def _edited(code: FindingCode, found: Sequence[tuple[_Held, list[Edit]]]) -> Iterator[Finding]:
    by_path: dict[str, list[tuple[_Held, list[Edit]]]] = defaultdict(list)
    for held, edits in found:
        by_path[held[0].path].append((held, edits))
    for path, own in by_path.items():
        for (_, case), edits in own[:_NAMES]:
            more = {"more": len(edits) - _EDITS} if len(edits) > _EDITS else {}
            yield _finding(code, Subject(**case.key._asdict()), path=path, edits=edits[:_EDITS], **more)
        if rest := own[_NAMES:]:
            where = rest[0][0][0]
            subject = Subject(agent=where.agent, eval_set=where.eval_set)
            cases = [case for (_, case), _ in rest]
            yield _finding(FindingCode.CASES_EDITED, subject, path=path, **_named(cases, _NAMES))


def _is_exact(criteria: Iterable[CriterionInfo]) -> bool:
    """Whether a call more is another expectation rather than one more."""
    return any(info.options.get("match_type") == "EXACT" for info in criteria)


def _accepted(base: Snapshot, head: Snapshot) -> Iterator[Finding]:
    known = {entry.id for entry in base.accepted}
    rules = base.policy or head.policy
    ignored = rules is not None and rules.accept == "ignore"
    for entry in head.accepted:
        if entry.id not in known:
            names = {"agent": entry.agent, "eval_set": entry.eval_set, "case": entry.case, "criterion": entry.criterion}
            yield _finding(FindingCode.ACCEPTANCE_ADDED, Subject(**names), text=excerpt(entry.reason), ignored=ignored)


def _named(cases: Sequence[CaseSnapshot], most: int) -> dict[str, Any]:
    return named_cases([case.key for case in cases], most)


def _finding(code: FindingCode, subject: Subject = RUN, **data: Any) -> Finding:
    return Finding(code=code, severity="advisory", subject=subject, data=data)
