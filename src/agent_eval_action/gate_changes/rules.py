"""The rules of the gate, then and now: which of them hold a run to less. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent_eval_action.config.policy import Policy
from agent_eval_action.gate.wording import clip, listed
from agent_eval_action.gate_changes.snapshot import Snapshot
from agent_eval_action.model.decision import Finding
from agent_eval_action.model.result import Goal

_STRICTEST_FIRST: Final[Mapping[str, tuple[Any, ...]]] = {
    "mode": ("blocking", "advisory", "off"),
    "threshold_on": ("case", "regression", "suite", "off"),
    "fail_on": ("inconclusive", "fail", "never"),
    "on_weakened": ("fail", "warn"),
    "accept": ("ignore", "honour"),
    "new_cases": ("block", "advise"),
    "withheld": ("fail", "neutral", "pass"),
    "agents_see_evals": (False, True),
}
_LOOSER_WHEN_RAISED: Final = ("max_drop", "max_rise", "confidence", "min_effect")
"""Limits of which None is no limit at all."""

_WHOLE: Final = (
    *("on_weakened", "accept", "new_cases", "withheld", "agents_see_evals"),
    *("confidence", "min_effect"),
)
_NAMES: Final = 8


def weaker_rules(base: Snapshot, head: Snapshot) -> Iterator[Finding]:
    """Rules that are weaker in ``head``: of the whole run, then of single criteria, then of whole eval sets."""
    if base.policy is None or head.policy is None:
        return
    where = f" ({clip(head.policy_file, 120)})"
    if head.repeats < base.repeats:
        yield _said(f"repeats cut {base.repeats} → {head.repeats}{where}")
    if text := looser("fail_on", base.fail_on, head.fail_on):
        yield _said(f"{text}{where}")
    for name in _WHOLE:
        if text := looser(name, getattr(base.policy, name), getattr(head.policy, name)):
            yield _said(f"{text}{where}")
    told: dict[str, list[str]] = {}
    for name, goal in _criteria(base, head).items():
        old, new = (policy.for_criterion(name, goal) for policy in (base.policy, head.policy))
        for rule in type(old).model_fields:
            if text := looser(rule, getattr(old, rule), getattr(new, rule)):
                told.setdefault(text, []).append(name)
    for text, names in told.items():
        of = listed((f"`{clip(name, 80)}`" for name in names), _NAMES)
        yield _said(f"{text} for {of}{where}", criterion=names[0] if len(names) == 1 else None)
    yield from _eval_sets(base.policy, head.policy, where)


def looser(rule: str, old: Any, new: Any) -> str:
    """``rule old → new`` when the new value holds a run to less; "" otherwise."""
    if old == new:
        return ""
    order = _STRICTEST_FIRST.get(rule)
    if order is not None:
        weaker = old in order and new in order and order.index(new) > order.index(old)
    elif rule in _LOOSER_WHEN_RAISED:
        weaker = old is not None and (new is None or new > old)
    else:
        weaker = False
    return f"{rule} {_shown(old)} → {_shown(new)}" if weaker else ""


def _criteria(*both: Snapshot) -> dict[str, Goal]:
    """Every criterion anyone scores or has rules for; rules for what nobody scores do no harm."""
    found = {info.name: info.goal for one in both for item in one.sets for info in item.criteria}
    return {name: found[name] for name in sorted(found)}


def _eval_sets(old: Policy, new: Policy, where: str) -> Iterator[Finding]:
    """Modes of whole eval sets."""
    for name in sorted(old.sets.keys() | new.sets.keys()):
        if text := looser("mode", old.sets.get(name, "blocking"), new.sets.get(name, "blocking")):
            yield _said(f"{text} for the eval set `{clip(name, 80)}`{where}")


def _shown(value: Any) -> str:
    if value is None:
        return "no limit"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _said(text: str, criterion: str | None = None) -> Finding:
    return Finding(effect="advisory", reason=text, criterion=criterion)
