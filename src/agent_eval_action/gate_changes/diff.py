"""What a change does to the gate itself: cases, references, criteria and rules, then and now. Pure.

What only became stricter is no weakening; what became something else is, for main's verdict on it is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from agent_eval_action.gate.wording import SENTENCE, clip, count, listed
from agent_eval_action.gate_changes.cases import case_edit, criterion_loosened
from agent_eval_action.gate_changes.rules import weaker_rules
from agent_eval_action.gate_changes.snapshot import CaseSnapshot, SetSnapshot, Snapshot, case_identities
from agent_eval_action.gate_changes.stored_scores import weaker_baseline
from agent_eval_action.results.case_matching import CaseMatches, match_cases
from agent_eval_action.results.decision import Decision, Finding, Verdict
from agent_eval_action.results.run_result import CriterionInfo

_SINGLY: Final = 5
"""Up to here cases of one file are told one by one, beyond it in one sentence."""

_NAMES: Final = 20

_Held = tuple[SetSnapshot, CaseSnapshot]


def weakenings(base: Snapshot, head: Snapshot, when: str = "") -> tuple[Finding, ...]:
    """Every way in which ``head`` measures less than ``base``, what takes the most away first.

    A case that was only moved or renamed is the same case; its criteria are compared where it is now. ``when``
    ends the sentences about rules and criteria: from when on those of ``head`` hold.
    """
    pairs, gone = _matched(base, head)
    return (
        *_gone_sets(base, head, gone),
        *_gone_cases(head, gone),
        *_criteria(base, pairs, when),
        *weaker_rules(base, head, when),
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
    blocking = tuple(one.model_copy(update={"effect": "blocks"}) for one in found)
    failed = decision.outcome is Verdict.FAIL
    more = f" (and {count(len(found) - 1, 'more change')} to what the agent is measured by)" if found[1:] else ""
    why = f"this change weakens the gate, which on_weakened: fail forbids: {found[0].reason}{more}"
    return decision.model_copy(
        update={
            "weakenings": blocking,
            "findings": (*blocking, *decision.findings),
            "outcome": Verdict.FAIL,
            "reason": decision.reason if failed else clip(why, SENTENCE),
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
            names = listed((_quoted(case.key.case) for case in cases), _SINGLY)
            many = "its case is" if len(cases) == 1 else f"its {count(len(cases), 'case')} are"
            text = f"{_quoted(one.path)} is no longer run: {many} not measured ({names})"
            yield _finding(text, agent=one.agent, eval_set=one.eval_set)


def _gone_cases(head: Snapshot, gone: Sequence[_Held]) -> Iterator[Finding]:
    here = {(one.agent, one.eval_set) for one in head.sets}
    by_set: dict[tuple[str, str, str], list[CaseSnapshot]] = defaultdict(list)
    for one, case in gone:
        if (one.agent, one.eval_set) in here:
            by_set[one.agent, one.eval_set, one.path].append(case)
    for (agent, eval_set, path), cases in by_set.items():
        if len(cases) <= _SINGLY:
            for case in cases:
                text = f"case {_quoted(case.key.case)} was removed from {_quoted(path)}"
                yield _finding(text, agent=agent, eval_set=eval_set, case=case.key.case)
        else:
            names = listed((_quoted(case.key.case) for case in cases), _NAMES)
            text = f"{count(len(cases), 'case')} were removed from {_quoted(path)}: {names}"
            yield _finding(text, agent=agent, eval_set=eval_set)


def _criteria(base: Snapshot, pairs: Iterable[tuple[_Held, _Held]], when: str) -> Iterator[Finding]:
    """What criteria lost, set by set, for sets that share a case; one sentence for whatever shares a file."""
    met: dict[tuple[str, str, str, str], tuple[SetSnapshot, SetSnapshot]] = {}
    for (then, _), (now, _) in pairs:
        met.setdefault((then.agent, then.eval_set, now.agent, now.eval_set), (then, now))
    off = _switched_off(base)
    told: dict[tuple[str, str], Finding] = {}
    for then, now in met.values():
        mine = {info.name: info for info in now.criteria}
        for info in then.criteria:
            if info.name not in off:
                for text in _criterion(info, mine.get(info.name), now):
                    told.setdefault((info.name, text), _finding(f"{text}{when}", criterion=info.name))
    yield from told.values()


def _criterion(then: CriterionInfo, now: CriterionInfo | None, where: SetSnapshot) -> Iterator[str]:
    name = _quoted(then.name)
    if now is None:
        yield f"{name} is no longer scored in {_quoted(where.path)}{_source(then)}"
        return
    for what in criterion_loosened(then, now):
        yield f"{name}{_source(now)}: {what}"


def _source(info: CriterionInfo) -> str:
    if info.source == "default":
        return " (by ADK's defaults)"
    return f" ({clip(info.source, 120)})" if info.source else ""


def _switched_off(base: Snapshot) -> frozenset[str]:
    if base.policy is None:
        return frozenset()
    infos = {info.name: info for one in base.sets for info in one.criteria}
    return frozenset(n for n, info in infos.items() if base.policy.for_criterion(n, info.goal).mode == "off")


def _edits(pairs: Iterable[tuple[_Held, _Held]]) -> Iterator[Finding]:
    """Cases that expect less, before those that expect something else."""
    loosened: list[tuple[_Held, str]] = []
    edited: list[tuple[_Held, str]] = []
    for (_, then), (now_set, now) in pairs:
        if then.digest == now.digest:
            continue
        edit = case_edit(then, now, exact=_is_exact(now_set.criteria))
        if edit.looser:
            loosened.append(((now_set, now), "; ".join((*edit.looser, *edit.other))))
        elif edit.other:
            edited.append(((now_set, now), "; ".join(edit.other)))
    yield from _told(loosened, "expects less")
    yield from _told(edited, "was edited, so main's scores of it no longer count")


def _told(found: Sequence[tuple[_Held, str]], what: str) -> Iterator[Finding]:
    by_path: dict[str, list[tuple[_Held, str]]] = defaultdict(list)
    for held, text in found:
        by_path[held[0].path].append((held, text))
    for path, own in by_path.items():
        for (_, case), text in own[:_NAMES]:
            said = f"case {_quoted(case.key.case)} in {_quoted(path)} {what}: {text}"
            yield _finding(said, **case.key._asdict())
        if rest := own[_NAMES:]:
            names = listed((_quoted(case.key.case) for (_, case), _ in rest), _NAMES)
            where = rest[0][0][0]
            more = f"{count(len(rest), 'more case')} in {_quoted(path)} changed likewise: {names}"
            yield _finding(more, agent=where.agent, eval_set=where.eval_set)


def _is_exact(criteria: Iterable[CriterionInfo]) -> bool:
    """Whether a call more is another expectation rather than one more."""
    return any(info.options.get("match_type") == "EXACT" for info in criteria)


def _accepted(base: Snapshot, head: Snapshot) -> Iterator[Finding]:
    known = {entry.id for entry in base.accepted}
    rules = base.policy or head.policy
    ignored = "; gate.accept: ignore, so main's scores of it still count" if rules and rules.accept == "ignore" else ""
    for entry in head.accepted:
        if entry.id not in known:
            which = _quoted(entry.case) + (f" › {_quoted(entry.criterion)}" if entry.criterion else "")
            why = f": {entry.reason}" if entry.reason else " without a reason"
            text = f"accept.yaml accepts a change of {which}{why}{ignored}"
            yield _finding(text, agent=entry.agent, eval_set=entry.eval_set, case=entry.case, criterion=entry.criterion)


def _finding(text: str, **about: str | None) -> Finding:
    return Finding(effect="advisory", reason=clip(text, SENTENCE), **about)


def _quoted(name: str) -> str:
    return f"`{clip(name, 120)}`"
