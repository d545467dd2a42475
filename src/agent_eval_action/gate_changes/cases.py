"""One case and one criterion, then and now: what they expect less, and what they expect otherwise. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from agent_eval_action import criteria
from agent_eval_action.criteria.base import Relaxation
from agent_eval_action.gate.wording import clip, count, listed, numbers
from agent_eval_action.gate_changes.snapshot import CaseSnapshot, ExpectedTurn
from agent_eval_action.results.decision import CallBrief
from agent_eval_action.results.run_result import CriterionInfo

_SHORTENED: Final = 0.75
"""A reference answer that keeps less than this part of its words is a looser one; otherwise it is another one."""

_SHOWN: Final = 3


@dataclass(slots=True)
class CaseEdit:
    """What an edit did, in words. Both are empty when the case only expects more."""

    looser: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)


def case_edit(then: CaseSnapshot, now: CaseSnapshot, *, exact: bool) -> CaseEdit:
    """How a case changed. ``exact``: calls must match exactly, so that one more is another expectation."""
    edit = CaseEdit()
    if then.turns is None or now.turns is None:
        edit.other.append("its definition changed")
        return edit
    if len(now.turns) < len(then.turns):
        edit.looser.append(f"turns {len(then.turns)} → {len(now.turns)}")
    before = len(edit.looser)
    stricter = len(now.turns) > len(then.turns)
    for number, (old, new) in enumerate(zip(then.turns, now.turns, strict=False), 1):
        stricter |= _turn(edit, f"turn {number}", old, new, exact)
    stricter |= _rubrics(edit, "it", then.rubrics, now.rubrics)
    if then.setting != now.setting:
        edit.other.append("how its session begins, or its scenario, changed")
    if len(edit.looser) == before and not edit.other and not stricter:
        edit.other.append("its definition changed")
    return edit


def _turn(edit: CaseEdit, where: str, old: ExpectedTurn, new: ExpectedTurn, exact: bool) -> bool:
    """Notes what changed; whether something became stricter."""
    if old.asked != new.asked:
        edit.other.append(f"{where} says something else to the agent")
    stricter = _calls(edit, where, old.calls, new.calls, exact)
    stricter |= _response(edit, where, old.response, new.response)
    return _rubrics(edit, where, old.rubrics, new.rubrics) or stricter


def _calls(edit: CaseEdit, where: str, old: tuple[CallBrief, ...], new: tuple[CallBrief, ...], exact: bool) -> bool:
    before, after = Counter(map(_call, old)), Counter(map(_call, new))
    dropped, added = list((before - after).elements()), list((after - before).elements())
    instead = [(one, other) for one in dropped if (other := _same_tool(one, added))]
    lost = [one for one in dropped if one not in {pair[0] for pair in instead}]
    edit.other += [f"{where} expects {_code(new_one)} instead of {_code(one)}" for one, new_one in instead[:_SHOWN]]
    if lost:
        edit.looser.append(f"{where} no longer expects {listed(map(_code, lost), _SHOWN)}")
    more = [one for one in added if one not in {pair[1] for pair in instead}]
    if more and (exact or lost):
        edit.other.append(f"{where} expects {listed(map(_code, more), _SHOWN)} as well")
    if not dropped and not added and old != new:
        edit.other.append(f"{where} expects its calls in another order")
    return bool(more)


def _response(edit: CaseEdit, where: str, old: str, new: str) -> bool:
    if old == new:
        return False
    words = len(old.split()), len(new.split())
    if words[0] and not words[1]:
        edit.looser.append(f"{where} has no reference answer any more")
    elif words[1] < words[0] * _SHORTENED:
        edit.looser.append(f"the reference answer of {where} was cut from {count(words[0], 'word')} to {words[1]}")
    elif words[0] and old.strip() not in new:
        edit.other.append(f"the reference answer of {where} changed")
    else:
        return True
    return False


def _rubrics(edit: CaseEdit, where: str, old: frozenset[str], new: frozenset[str]) -> bool:
    if lost := sorted(old - new):
        edit.looser.append(f"{where} lost {count(len(lost), 'rubric')} ({listed(map(_code, lost), _SHOWN)})")
    return bool(new - old)


def criterion_loosened(then: CriterionInfo, now: CriterionInfo) -> Iterator[str]:
    """What a criterion asks less than it did, in words."""
    yield from _threshold(then, now)
    for change in criteria.relaxes(then, now):
        yield _relaxation(change)


def _relaxation(change: Relaxation) -> str:
    if change.lost:
        entries = count(len(change.lost), change.option.removesuffix("s"))
        return f"{entries} removed ({listed(map(_code, change.lost), _SHOWN)})"
    old, new = (_option(value) for value in (change.old, change.new))
    return f"{change.option} {old} → {new}"


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "not set"
    if isinstance(value, str | int | float):
        return clip(str(value), 80)
    return clip(json.dumps(value, sort_keys=True, ensure_ascii=False, default=str), 80)


def _threshold(then: CriterionInfo, now: CriterionInfo) -> Iterator[str]:
    if then.threshold is None or then.threshold == now.threshold:
        return
    if now.threshold is None:
        yield f"threshold {then.threshold:g} → none"
    elif (now.threshold < then.threshold) == (then.goal == "maximize"):
        old, new = numbers(then.threshold, now.threshold)
        word = "lowered" if then.goal == "maximize" else "raised"
        yield f"threshold {word} {old} → {new}"


def _call(call: CallBrief) -> str:
    return f"{call.name}({json.dumps(call.args, sort_keys=True, ensure_ascii=False, default=str)})"


def _same_tool(call: str, others: Iterable[str]) -> str | None:
    name = call.partition("(")[0]
    return next((other for other in others if other.partition("(")[0] == name), None)


def _code(text: str) -> str:
    return f"`{clip(text, 80)}`"
