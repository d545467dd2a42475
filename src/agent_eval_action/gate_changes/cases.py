"""One case and one criterion, then and now: what they expect less, and what they expect otherwise. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent_eval_action import criteria
from agent_eval_action.criteria.base import Relaxation
from agent_eval_action.gate_changes.snapshot import CaseSnapshot, ExpectedTurn
from agent_eval_action.results.decision import CallBrief
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import CriterionInfo

_SHORTENED: Final = 0.75
"""A reference answer that keeps less than this part of its words is a looser one; otherwise it is another one."""

_SHOWN: Final = 3


Edit = dict[str, Any]
"""One edit as findings keep it: ``edit`` says what was done, ``turn`` in which turn (from 1) if in one."""


@dataclass(slots=True)
class CaseEdit:
    """What an edit did. Both are empty when the case only expects more."""

    looser: list[Edit] = field(default_factory=list)
    other: list[Edit] = field(default_factory=list)


def case_edit(then: CaseSnapshot, now: CaseSnapshot, *, exact: bool) -> CaseEdit:
    """How a case changed. ``exact``: calls must match exactly, so that one more is another expectation."""
    edit = CaseEdit()
    if then.turns is None or now.turns is None:
        edit.other.append({"edit": "definition"})
        return edit
    if len(now.turns) < len(then.turns):
        edit.looser.append({"edit": "turns", "old": len(then.turns), "new": len(now.turns)})
    before = len(edit.looser)
    stricter = len(now.turns) > len(then.turns)
    for number, (old, new) in enumerate(zip(then.turns, now.turns, strict=False), 1):
        stricter |= _turn(edit, number, old, new, exact)
    stricter |= _rubrics(edit, None, then.rubrics, now.rubrics)
    if then.setting != now.setting:
        edit.other.append({"edit": "session"})
    if len(edit.looser) == before and not edit.other and not stricter:
        edit.other.append({"edit": "definition"})
    return edit


def _turn(edit: CaseEdit, turn: int, old: ExpectedTurn, new: ExpectedTurn, exact: bool) -> bool:
    """Notes what changed; whether something became stricter."""
    if old.asked != new.asked:
        edit.other.append({"edit": "question", "turn": turn})
    stricter = _calls(edit, turn, old.calls, new.calls, exact)
    stricter |= _response(edit, turn, old.response, new.response)
    return _rubrics(edit, turn, old.rubrics, new.rubrics) or stricter


def _calls(edit: CaseEdit, turn: int, old: tuple[CallBrief, ...], new: tuple[CallBrief, ...], exact: bool) -> bool:
    before, after = Counter(map(_call, old)), Counter(map(_call, new))
    dropped, added = list((before - after).elements()), list((after - before).elements())
    instead = [(call, other) for call in dropped if (other := _same_tool(call, added))]
    lost = [call for call in dropped if call not in {pair[0] for pair in instead}]
    for call, other in instead[:_SHOWN]:
        edit.other.append({"edit": "call_replaced", "turn": turn, "old": excerpt(call, 80), "new": excerpt(other, 80)})
    if lost:
        edit.looser.append({"edit": "calls_removed", "turn": turn, **_items(lost)})
    more = [call for call in added if call not in {pair[1] for pair in instead}]
    if more and (exact or lost):
        edit.other.append({"edit": "calls_added", "turn": turn, **_items(more)})
    if not dropped and not added and old != new:
        edit.other.append({"edit": "calls_reordered", "turn": turn})
    return bool(more)


def _response(edit: CaseEdit, turn: int, old: str, new: str) -> bool:
    if old == new:
        return False
    words = len(old.split()), len(new.split())
    if words[0] and not words[1]:
        edit.looser.append({"edit": "answer_removed", "turn": turn})
    elif words[1] < words[0] * _SHORTENED:
        edit.looser.append({"edit": "answer_shortened", "turn": turn, "old": words[0], "new": words[1]})
    elif words[0] and old.strip() not in new:
        edit.other.append({"edit": "answer_changed", "turn": turn})
    else:
        return True
    return False


def _rubrics(edit: CaseEdit, turn: int | None, old: frozenset[str], new: frozenset[str]) -> bool:
    if lost := sorted(old - new):
        edit.looser.append({"edit": "rubrics_removed", "turn": turn, **_items(lost)})
    return bool(new - old)


def _items(texts: Sequence[str]) -> dict[str, Any]:
    return {"count": len(texts), "items": [excerpt(text, 80) for text in texts[:_SHOWN]]}


def criterion_loosened(then: CriterionInfo, now: CriterionInfo) -> Iterator[dict[str, Any]]:
    """What a criterion asks less than it did, one option at a time."""
    old, new = then.threshold, now.threshold
    if old is not None and old != new and (new is None or (new < old) == (then.goal == "maximize")):
        yield {"option": "threshold", "old": old, "new": new}
    for change in criteria.relaxes(then, now):
        yield _relaxation(change)


def _relaxation(change: Relaxation) -> dict[str, Any]:
    if change.lost:
        lost = _items(change.lost)
        return {"option": change.option, "old": None, "new": None, "removed": lost["items"], "count": lost["count"]}
    return {"option": change.option, "old": _option(change.old), "new": _option(change.new)}


def _option(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        return excerpt(str(value), 80)
    return excerpt(json.dumps(value, sort_keys=True, ensure_ascii=False, default=str), 80)


def _call(call: CallBrief) -> str:
    return f"{call.name}({json.dumps(call.args, sort_keys=True, ensure_ascii=False, default=str)})"


def _same_tool(call: str, others: Iterable[str]) -> str | None:
    name = call.partition("(")[0]
    return next((other for other in others if other.partition("(")[0] == name), None)
