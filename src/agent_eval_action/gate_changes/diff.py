"""Compare two snapshots: how a change weakens cases, references, criteria, rules and stored scores. Pure.

Stricter expectations are no weakening. Different ones are, since main's scores no longer count for them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel

from agent_eval_action import criteria
from agent_eval_action.config.models import CriterionPolicy, Mode, Policy, Settings
from agent_eval_action.config.option_info import is_looser, is_rule
from agent_eval_action.config.options import JUDGING_OPTIONS
from agent_eval_action.folders import relative
from agent_eval_action.gate.pairs import Incomparable, comparable_record, differs
from agent_eval_action.gate_changes.snapshot import CaseSnapshot, SetSnapshot, Snapshot, TurnSnapshot, case_identities
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.case_matching import CaseIdentity, CaseMatches, match_cases, with_current_names
from agent_eval_action.results.decision import CallBrief, Decision, Verdict
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
    with_severity,
)
from agent_eval_action.results.history import PairName, Quarantine, kept_digest, kept_key, kept_name
from agent_eval_action.results.run_result import CriterionInfo

_SINGLY: Final = 5
"""Up to this many removed cases of a file get a finding each; more share one."""

_NAMES: Final = 20
_EDITS: Final = 20
_ITEMS: Final = 3

_SHORTENED: Final = 0.75
"""A reference answer with less than this share of its former words is looser; otherwise it is just different."""

_CaseInSet = tuple[SetSnapshot, CaseSnapshot]
_Pair = tuple[_CaseInSet, _CaseInSet]

Edit = dict[str, Any]
"""One edit as findings store it: ``edit`` names its kind, ``turn`` its turn (from 1), if any."""

_Loss = tuple[float, PairName, dict[str, Any]]
"""The loss of a pair's stored score, the pair, and its old and new values."""

_Change = tuple[Literal["looser", "other", "stricter"], Edit]


def weakenings(base: Snapshot, head: Snapshot, *, with_merge: bool = False) -> tuple[Finding, ...]:
    """Every way in which ``head`` measures less than ``base``, the most severe first.

    A moved or renamed case stays the same case; its criteria are compared where it is now. ``with_merge``: rules and
    criteria of ``head`` only take effect with the merge.
    """
    now = {case.key: (item, case) for item in head.sets for case in item.cases}
    then = {case.key: (item, case) for item in base.sets for case in item.cases}
    current = match_snapshots(base, head).current_key
    pairs = [(old, now[current[key]]) for key, old in then.items() if key in current]
    return (
        *_removed_cases(head, [old for key, old in then.items() if key not in current]),
        *_weaker_criteria(base, pairs, with_merge=with_merge),
        *weaker_rules(base, head, with_merge=with_merge),
        *_weaker_modes(base, head, pairs, with_merge=with_merge),
        *_weaker_baseline(base, head),
        *_edited_cases(pairs),
        *_added_acceptances(base, head),
    )


def apply_weakenings(decision: Decision, found: Sequence[Finding], on_weakened: str) -> Decision:
    """The decision with these findings first; with ``on_weakened: fail`` each of them blocks."""
    if not found:
        return decision
    if on_weakened != "fail":
        return decision.model_copy(update={"weakenings": tuple(found)})
    blocking = with_severity(found, "blocks")
    weakened = finding("blocks", FindingCode.GATE_WEAKENED, more=len(found) - 1)
    return decision.model_copy(
        update={
            "weakenings": blocking,
            "findings": (*blocking, *decision.findings),
            "outcome": Verdict.FAIL,
            "reasons": decision.reasons if decision.outcome is Verdict.FAIL else (weakened, blocking[0]),
        }
    )


def match_snapshots(base: Snapshot, head: Snapshot) -> CaseMatches:
    """Match the base's cases with the head's, even if the case, its file or its agent was renamed."""
    return match_cases(case_identities(base.sets), case_identities(head.sets))


def _removed_cases(head: Snapshot, removed: Iterable[_CaseInSet]) -> Iterator[Finding]:
    """Sets without any case left, then removed cases of other sets."""
    here = {(item.agent, item.eval_set) for item in head.sets}
    by_set: dict[tuple[str, str, str], list[CaseKey]] = defaultdict(list)
    for item, case in removed:
        by_set[item.agent, item.eval_set, item.path].append(case.key)
    for (agent, eval_set, path), cases in sorted(by_set.items(), key=lambda group: group[0][:2] in here):
        subject = Subject(agent=agent, eval_set=eval_set)
        if (agent, eval_set) not in here:
            yield _finding(FindingCode.SET_REMOVED, subject, path=path, **named_cases(cases, _SINGLY))
        elif len(cases) > _SINGLY:
            yield _finding(FindingCode.CASES_REMOVED, subject, path=path, **named_cases(cases, _NAMES))
        else:
            for key in cases:
                yield _finding(FindingCode.CASE_REMOVED, Subject(**key._asdict()), path=path)


def _weaker_criteria(base: Snapshot, pairs: Iterable[_Pair], *, with_merge: bool) -> Iterable[Finding]:
    """Relaxed criteria of sets that share a case; equal findings only once."""
    sets = {(then.agent, then.eval_set, now.agent, now.eval_set): (then, now) for (then, _), (now, _) in pairs}
    on_base = {(item.agent, item.eval_set): {info.name: info for info in item.criteria} for item in base.sets}
    found: list[Finding] = []
    for then, now in sets.values():
        current = {info.name: info for info in now.criteria}
        there = on_base.get((now.agent, now.eval_set), {})
        for old in then.criteria:
            if base.policy is not None and base.policy.for_criterion(old.name, old.goal).mode == "off":
                continue
            new, subject = current.get(old.name), Subject(criterion=old.name)
            # if the base's own set demands as little, cases moved there are judged that way already
            later = with_merge and new != there.get(old.name)
            source = {"source": excerpt((new or old).source, 120), "with_merge": later}
            if new is None:
                losses = [_finding(FindingCode.CRITERION_REMOVED, subject, path=now.path, **source)]
            else:
                options = _relaxations(old, new)
                losses = [_finding(FindingCode.CRITERION_LOOSENED, subject, **loss, **source) for loss in options]
            found += [loss for loss in losses if loss not in found]
    return found


def _relaxations(then: CriterionInfo, now: CriterionInfo) -> Iterator[dict[str, Any]]:
    """What a criterion demands less than before, one option at a time."""
    old, new = then.threshold, now.threshold
    if old is not None and old != new and (new is None or (new < old) == (then.goal == "maximize")):
        yield {"option": "threshold", "old": old, "new": new}
    for change in criteria.relaxes(then, now):
        values: dict[str, Any] = {"old": _option(change.old), "new": _option(change.new)}
        if change.lost:
            lost = _items(change.lost)
            values = {"old": None, "new": None, "removed": lost["items"], "count": lost["count"]}
        yield {"option": change.option, **values}


def _option(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    return excerpt(str(value) if isinstance(value, str | int | float) else _json(value), 80)


def _edited_cases(pairs: Iterable[_Pair]) -> Iterator[Finding]:
    """Cases that expect less, then cases that expect something else."""
    looser: dict[str, list[tuple[CaseKey, list[Edit]]]] = defaultdict(list)
    edited: dict[str, list[tuple[CaseKey, list[Edit]]]] = defaultdict(list)
    for (_, then), (where, now) in pairs:
        less, other = ([], []) if then.digest == now.digest else _edits(then, now, where.criteria)
        if less or other:
            (looser if less else edited)[where.path].append((now.key, [*less, *other]))
    for code, by_path in ((FindingCode.CASE_LOOSENED, looser), (FindingCode.CASE_EDITED, edited)):
        for path, cases in by_path.items():
            for key, edits in cases[:_NAMES]:
                more = {"more": len(edits) - _EDITS} if len(edits) > _EDITS else {}
                yield _finding(code, Subject(**key._asdict()), path=path, edits=edits[:_EDITS], **more)
            if rest := [key for key, _ in cases[_NAMES:]]:
                subject = Subject(agent=rest[0].agent, eval_set=rest[0].eval_set)
                yield _finding(FindingCode.CASES_EDITED, subject, path=path, **named_cases(rest, _NAMES))


def _edits(then: CaseSnapshot, now: CaseSnapshot, infos: Iterable[CriterionInfo]) -> tuple[list[Edit], list[Edit]]:
    """What a case expects less, and what it expects differently; both empty if it only expects more."""
    if then.turns is None or now.turns is None:
        return [], [{"edit": "definition"}]
    # if calls must match exactly, an additional call changes the expectation
    exact = any(criteria.expected_calls(info) == "exact" for info in infos)
    changes: list[_Change] = []
    for number, (old, new) in enumerate(zip(then.turns, now.turns, strict=False), 1):
        changes += _turn_changes(number, old, new, exact=exact)
    changes += _rubric_changes(None, then.rubrics, now.rubrics)
    if then.setting != now.setting:
        changes.append(("other", {"edit": "session"}))
    if now.recorded and not then.recorded:
        changes.insert(0, ("looser", {"edit": "recorded"}))
    elif then.rest != now.rest or (not changes and len(now.turns) <= len(then.turns)):
        changes.append(("other", {"edit": "definition"}))
    if len(now.turns) < len(then.turns):
        changes.insert(0, ("looser", {"edit": "turns", "old": len(then.turns), "new": len(now.turns)}))
    looser, other = ([edit for effect, edit in changes if effect == wanted] for wanted in ("looser", "other"))
    return looser, other


def _turn_changes(turn: int, old: TurnSnapshot, new: TurnSnapshot, *, exact: bool) -> Iterator[_Change]:
    if old.asked != new.asked:
        yield "other", {"edit": "question", "turn": turn}
    yield from _call_changes(turn, old.calls, new.calls, exact=exact)
    words = len(old.response.split()), len(new.response.split())
    if words[0] and not words[1]:
        yield "looser", {"edit": "answer_removed", "turn": turn}
    elif words[1] < words[0] * _SHORTENED:
        yield "looser", {"edit": "answer_shortened", "turn": turn, "old": words[0], "new": words[1]}
    elif words[0] and old.response.strip() not in new.response:
        yield "other", {"edit": "answer_changed", "turn": turn}
    elif old.response != new.response:
        yield "stricter", {}
    yield from _rubric_changes(turn, old.rubrics, new.rubrics)


def _call_changes(turn: int, old: Sequence[CallBrief], new: Sequence[CallBrief], *, exact: bool) -> Iterator[_Change]:
    before, after = (Counter(f"{call.name}({_json(call.args)})" for call in calls) for calls in (old, new))
    dropped, added = list((before - after).elements()), list((after - before).elements())
    tool_of = {other.partition("(")[0]: other for other in reversed(added)}
    replaced = [(call, tool_of[tool]) for call in dropped if (tool := call.partition("(")[0]) in tool_of]
    lost = [call for call in dropped if call.partition("(")[0] not in tool_of]
    more = [call for call in added if call not in {other for _, other in replaced}]
    for call, other in replaced[:_ITEMS]:
        yield "other", {"edit": "call_replaced", "turn": turn, "old": excerpt(call, 80), "new": excerpt(other, 80)}
    if lost:
        yield "looser", {"edit": "calls_removed", "turn": turn, **_items(lost)}
    if more:
        yield "stricter", {}
    if more and (exact or lost):
        yield "other", {"edit": "calls_added", "turn": turn, **_items(more)}
    if not dropped and not added and tuple(old) != tuple(new):
        yield "other", {"edit": "calls_reordered", "turn": turn}


def _rubric_changes(turn: int | None, old: frozenset[str], new: frozenset[str]) -> Iterator[_Change]:
    if lost := sorted(old - new):
        yield "looser", {"edit": "rubrics_removed", "turn": turn, **_items(lost)}
    if new - old:
        yield "stricter", {}


def _items(texts: Sequence[str]) -> dict[str, Any]:
    return {"count": len(texts), "items": [excerpt(text, 80) for text in texts[:_ITEMS]]}


def _json(value: Any) -> str:
    def plain(item: Any) -> Any:
        return item.model_dump(exclude_none=True) if isinstance(item, BaseModel) else str(item)

    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=plain)


def _weaker_baseline(base: Snapshot, head: Snapshot) -> Iterator[Finding]:
    """Scores in the committed baseline that the change lowers or removes, so that later runs must meet less.

    Only for pairs whose stored scores still count; edited cases and criteria are reported as such.
    """
    if base.baseline is None or base.baseline == head.baseline:
        return
    if head.baseline is None:
        pairs = sum(len(record.criteria) for record in base.baseline.cases)
        yield _finding(FindingCode.BASELINE_REMOVED, scores=pairs)
        return
    current = [
        CaseIdentity(kept_key(case.key), kept_digest(case.digest), frozenset(map(kept_digest, case.criteria)))
        for case in case_identities(head.sets)
    ]
    before, after = (
        {record.key: record for record in with_current_names(stored, current).cases}
        for stored in (base.baseline, head.baseline)
    )
    removed: list[_Loss] = []
    lowered: list[_Loss] = []
    thinned: list[_Loss] = []
    for case, info in ((case, info) for item in head.sets for case in item.cases for info in item.criteria):
        key = kept_key(case.key)
        then, now = (comparable_record(case.digest, info, side.get(key)) for side in (before, after))
        if isinstance(then, Incomparable):
            continue
        pair = key, kept_name(info.name)
        if isinstance(now, Incomparable):
            removed.append((1.0, pair, {}))
            continue
        fall = then.average - now.average if info.goal == "maximize" else now.average - then.average
        if fall > 0 and differs(then.average, now.average):
            change = {"old": float(then.average), "new": float(now.average)}
            lowered.append((fall, pair, change))
        elif now.n < then.n:
            thinned.append((then.n - now.n, pair, {"old": then.n, "new": now.n}))
    for code, found in (
        (FindingCode.BASELINE_SCORES_REMOVED, removed),
        (FindingCode.BASELINE_SCORES_LOWERED, lowered),
        (FindingCode.BASELINE_SCORES_THINNED, thinned),
    ):
        if worst := sorted(found, key=lambda loss: (-loss[0], loss[1])):
            named = [case_reference(*key, criterion=name, **change) for _, (key, name), change in worst[:NAMED]]
            key, name = worst[0][1]
            subject = Subject(**key._asdict(), criterion=name) if len(worst) == 1 else RUN
            yield _finding(code, subject, scores=len(worst), named=named)


def _added_acceptances(base: Snapshot, head: Snapshot) -> Iterator[Finding]:
    known = {entry.id for entry in base.accepted}
    rules = base.policy or head.policy
    ignored = rules is not None and rules.accept == "ignore"
    for entry in head.accepted:
        if entry.id not in known:
            names = {"agent": entry.agent, "eval_set": entry.eval_set, "case": entry.case, "criterion": entry.criterion}
            data: dict[str, Any] = {"text": excerpt(entry.reason), "ignored": ignored}
            code = FindingCode.ACCEPTANCE_ADDED
            if isinstance(entry, Quarantine):
                code = FindingCode.QUARANTINE_ADDED
                data |= {"owner": excerpt(entry.owner, 120), "until": entry.until}
            yield _finding(code, Subject(**names), **data)


def _finding(code: FindingCode, subject: Subject = RUN, **data: Any) -> Finding:
    return finding("advisory", code, subject, **data)


# --- the rules of the gate: which of them differ, and which demand less ------------------------------

_FOR_ALL_CRITERIA: Final = tuple(name for name in CriterionPolicy.model_fields if name in Policy.model_fields)
_WHOLE: Final = tuple(name for name in Policy.model_fields if name not in _FOR_ALL_CRITERIA and is_rule(Policy, name))

_CRITERIA: Final = 8
_MAX_VALUE: Final = 60


def weaker_rules(base: Snapshot, head: Snapshot, *, with_merge: bool = False) -> Iterator[Finding]:
    """Rules that are weaker in ``head``: those of the whole run, then those of single criteria.

    ``with_merge``: the weaker rules only take effect with the merge.
    """
    if base.policy is None or head.policy is None:
        return
    where: dict[str, Any] = {"file": excerpt(head.policy_file, 120), "with_merge": with_merge}
    rules: list[tuple[str, type[BaseModel], str, Any, Any]] = [
        ("repeats cut", Settings, "repeats", base.repeats, head.repeats),
        ("gate.fail_on", Settings, "fail_on", base.fail_on, head.fail_on),
        *((f"gate.{name}", Policy, name, getattr(base.policy, name), getattr(head.policy, name)) for name in _WHOLE),
    ]
    for rule, model, name, old, new in rules:
        if is_looser(model, name, old, new):
            yield _loosened(rule, old, new, **where)
    goals = {info.name: info.goal for side in (base, head) for item in side.sets for info in item.criteria}
    by_change: dict[tuple[str, Any, Any], list[str]] = {}
    for name, goal in sorted(goals.items()):  # rules of criteria that score no set have no effect
        then, now = (policy.for_criterion(name, goal) for policy in (base.policy, head.policy))
        for rule in CriterionPolicy.model_fields:
            old, new = getattr(then, rule), getattr(now, rule)
            if is_looser(CriterionPolicy, rule, old, new):
                by_change.setdefault((rule, old, new), []).append(name)
    for (rule, old, new), names in by_change.items():
        subject = Subject(criterion=names[0] if len(names) == 1 else None)
        named = {"criteria": names[:_CRITERIA], "total": len(names)}
        yield _loosened(f"gate.{rule}", old, new, subject=subject, **named, **where)


def _weaker_modes(base: Snapshot, head: Snapshot, pairs: Iterable[_Pair], *, with_merge: bool) -> Iterator[Finding]:
    """Eval sets whose mode is weaker, then cases that are now in a set with a weaker mode.

    A set that was renamed together with its mode is not reported.
    """
    if base.policy is None or head.policy is None:
        return
    then, now = base.policy.sets, head.policy.sets
    file = excerpt(head.policy_file, 120)
    kept: set[str] = set()
    weaker: dict[tuple[str, Mode, Mode], list[CaseKey]] = defaultdict(list)
    for (old_set, _), (new_set, case) in pairs:
        old, new = then.get(old_set.eval_set, "blocking"), now.get(new_set.eval_set, "blocking")
        if is_looser(CriterionPolicy, "mode", old, new):
            weaker[new_set.eval_set, old, new].append(case.key)
        else:
            kept.add(new_set.eval_set)
    kept -= {name for name, _, _ in weaker}
    reported = {
        name: (old, new)
        for name, old, new in _set_modes(base.policy, head.policy)
        if is_looser(CriterionPolicy, "mode", old, new) and name not in kept
    }
    for name, (old, new) in reported.items():
        yield _loosened("gate.mode", old, new, eval_set=name, file=file, with_merge=with_merge)
    for (name, old, new), cases in sorted(weaker.items(), key=lambda item: item[0]):
        if name not in reported:
            later = with_merge and not is_looser(CriterionPolicy, "mode", old, then.get(name, "blocking"))
            named = named_cases(cases, _SINGLY)
            yield _loosened("gate.mode", old, new, eval_set=name, **named, file=file, with_merge=later)


def setting_changes(own: Settings, base: Settings) -> Iterator[Finding]:
    """The change's options that differ from those in force: advisory if they may demand less, else notes.

    ``weaker_rules`` reports the rules that are certainly looser.
    """
    file = excerpt(relative(own.config, own.workspace), 120) if own.config else "no configuration file"
    where: dict[str, Any] = {"file": file, "with_merge": True}
    for option in JUDGING_OPTIONS:
        if option.field[0] == "policy":
            continue
        then, now = option.of_settings(base), option.of_settings(own)
        if then != now and not is_looser(Settings, option.name, then, now):
            severity: Severity = "advisory" if option.info.may_loosen else "note"
            values: dict[str, Any] = {
                "old": _show_value(then, base.workspace),
                "new": _show_value(now, own.workspace),
            }
            yield finding(severity, FindingCode.RULE_CHANGED, rule=option.key or option.name, **where, **values)
    for rule, old, new in _stricter_rules(base.policy, own.policy):
        yield note(FindingCode.RULE_CHANGED, rule=rule, **where, old=_show_value(old), new=_show_value(new))


def _stricter_rules(then: Policy, now: Policy) -> Iterator[tuple[str, Any, Any]]:
    for name in (*_FOR_ALL_CRITERIA, *_WHOLE):
        old, new = getattr(then, name), getattr(now, name)
        if old != new and not is_looser(Policy, name, old, new):
            yield f"gate.{name}", old, new
    for criterion in sorted(then.criteria.keys() | now.criteria.keys()):
        both = [policy.criteria.get(criterion) or policy.inherited(criterion) for policy in (then, now)]
        for rule in CriterionPolicy.model_fields:
            old, new = (getattr(policy, rule) for policy in both)
            if old != new and not is_looser(CriterionPolicy, rule, old, new) and old != getattr(then, rule, None):
                yield f"gate.criteria.{excerpt(criterion, 80)}.{rule}", old, new
    for name, mode, new_mode in _set_modes(then, now):
        if mode != new_mode and not is_looser(CriterionPolicy, "mode", mode, new_mode):
            yield f"gate.sets.{excerpt(name, 80)}", mode, new_mode


def _set_modes(then: Policy, now: Policy) -> Iterator[tuple[str, Mode, Mode]]:
    for name in sorted(then.sets.keys() | now.sets.keys()):
        yield name, then.sets.get(name, "blocking"), now.sets.get(name, "blocking")


def _show_value(value: Any, workspace: Path | None = None) -> str:
    if value is None or value in ((), {}):
        return "no limit" if workspace is None else "not set"
    if isinstance(value, Path) and workspace and value.is_relative_to(workspace):
        value = value.relative_to(workspace)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return excerpt(_json(value) if isinstance(value, dict | tuple) else str(value), _MAX_VALUE)


def _loosened(rule: str, old: Any, new: Any, subject: Subject = RUN, **data: Any) -> Finding:
    return _finding(FindingCode.RULE_LOOSENED, subject, rule=rule, old=_show_value(old), new=_show_value(new), **data)
