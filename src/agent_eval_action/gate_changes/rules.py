"""The rules of the gate, then and now: which of them differ, and which demand less of a run. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from agent_eval_action.config.models import CriterionPolicy, Mode, Policy, Settings
from agent_eval_action.config.option_info import is_looser, is_rule
from agent_eval_action.config.options import JUDGING_OPTIONS
from agent_eval_action.gate_changes.snapshot import Snapshot
from agent_eval_action.results.findings import RUN, Finding, FindingCode, Severity, Subject, excerpt, finding, note

_FOR_ALL_CRITERIA: Final = tuple(name for name in CriterionPolicy.model_fields if name in Policy.model_fields)
_WHOLE: Final = tuple(name for name in Policy.model_fields if name not in _FOR_ALL_CRITERIA and is_rule(Policy, name))

_NAMES: Final = 8
_MAX_VALUE: Final = 60


def weaker_rules(base: Snapshot, head: Snapshot, *, with_merge: bool = False) -> Iterator[Finding]:
    """Rules that are weaker in ``head``: of the whole run, then of single criteria, then of whole eval sets.

    ``with_merge``: the weaker rules take effect with the merge only.
    """
    if base.policy is None or head.policy is None:
        return
    where: dict[str, Any] = {"file": excerpt(head.policy_file, 120), "with_merge": with_merge}
    if is_looser(Settings, "repeats", base.repeats, head.repeats):
        yield _loosened("repeats cut", base.repeats, head.repeats, **where)
    if is_looser(Settings, "fail_on", base.fail_on, head.fail_on):
        yield _loosened("gate.fail_on", base.fail_on, head.fail_on, **where)
    for name in _WHOLE:
        old, new = getattr(base.policy, name), getattr(head.policy, name)
        if is_looser(Policy, name, old, new):
            yield _loosened(f"gate.{name}", old, new, **where)
    yield from _weaker_for_criteria(base, base.policy, head, head.policy, where)
    for name, old, new in _set_modes(base.policy, head.policy):
        if is_looser(CriterionPolicy, "mode", old, new):
            yield _loosened("gate.mode", old, new, eval_set=name, **where)


def _weaker_for_criteria(
    base: Snapshot, base_policy: Policy, head: Snapshot, head_policy: Policy, where: Mapping[str, Any]
) -> Iterator[Finding]:
    """Rules of the criteria that anyone scores; those of others do no harm."""
    goals = {info.name: info.goal for side in (base, head) for item in side.sets for info in item.criteria}
    by_change: dict[tuple[str, Any, Any], list[str]] = {}
    for name, goal in sorted(goals.items()):
        then, now = (policy.for_criterion(name, goal) for policy in (base_policy, head_policy))
        for rule in CriterionPolicy.model_fields:
            old, new = getattr(then, rule), getattr(now, rule)
            if is_looser(CriterionPolicy, rule, old, new):
                by_change.setdefault((rule, old, new), []).append(name)
    for (rule, old, new), names in by_change.items():
        subject = Subject(criterion=names[0] if len(names) == 1 else None)
        named = {"criteria": names[:_NAMES], "total": len(names)}
        yield _loosened(f"gate.{rule}", old, new, subject=subject, **named, **where)


def setting_changes(own: Settings, base: Settings) -> Iterator[Finding]:
    """Options of the change that differ from those in force: those that may ask for less, and the rest as notes.

    ``weaker_rules`` reports the rules that are surely looser.
    """
    path, workspace = own.config, own.workspace
    file = "no configuration file"
    if path is not None:
        file = excerpt(path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else str(path), 120)
    where: dict[str, Any] = {"file": file, "with_merge": True}
    for option in JUDGING_OPTIONS:
        if option.field[0] == "policy":
            continue
        then, now = option.of_settings(base), option.of_settings(own)
        if then != now and not is_looser(Settings, option.name, then, now):
            severity: Severity = "advisory" if option.info.may_loosen else "note"
            values: dict[str, Any] = {"old": _shown(then, base.workspace), "new": _shown(now, workspace)}
            yield finding(severity, FindingCode.RULE_CHANGED, rule=option.key or option.name, **where, **values)
    for rule, old, new in _stricter_rules(base.policy, own.policy):
        yield note(FindingCode.RULE_CHANGED, rule=rule, **where, old=_shown(old), new=_shown(new))


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


def _shown(value: Any, workspace: Path | None = None) -> str:
    if value is None or value in ((), {}):
        return "no limit" if workspace is None else "not set"
    if isinstance(value, Path) and workspace and value.is_relative_to(workspace):
        value = value.relative_to(workspace)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    text = json.dumps(value, default=_plain, sort_keys=True) if isinstance(value, dict | tuple) else str(value)
    return excerpt(text, _MAX_VALUE)


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else str(value)


def _loosened(rule: str, old: Any, new: Any, subject: Subject = RUN, **data: Any) -> Finding:
    return finding("advisory", FindingCode.RULE_LOOSENED, subject, rule=rule, old=_shown(old), new=_shown(new), **data)
