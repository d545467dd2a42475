"""The rules of the gate, before and after: whose hold, which change, and which of them hold a run to less. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from agent_eval_action.config.models import AgentSettings, CriterionPolicy, Policy, Settings
from agent_eval_action.config.options import OPTIONS
from agent_eval_action.gate_changes.snapshot import Snapshot
from agent_eval_action.results.findings import RUN, Finding, FindingCode, Severity, Subject, excerpt
from agent_eval_action.results.run_result import Goal

_OF_THE_CHANGE: Final = frozenset(
    {
        *("workspace", "start", "config", "agents", "only_agents", "agent_defaults", "evals"),
        *("out", "comment", "comment_detail", "comment_key"),
        *("case", "resume", "github_token", "ca_bundle", "allow_pull_request_target"),
    }
)
"""What describes the agent, where files and the comment go, and what no file can say. All else judges: the base's."""

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
_POLICY: Final = ("threshold_on", "max_drop", "max_rise", *_WHOLE)
_ALSO_WHO_JUDGES: Final = (
    *("llm_openai_base_url", "llm_prices", "cache_dir", "reruns"),
    *("baseline", "baseline_store", "baseline_branch", "baseline_remote"),
)
"""Nobody can say which value of these asks for less, so each other one may."""

_NAMES: Final = 8
_MAX_VALUE: Final = 60


def settings_in_force(own: Settings, base: Settings) -> Settings:
    """The settings of a change that asks to be merged: the base's, with what describes the change's agents."""
    judging = {name: getattr(base, name) for name in Settings.model_fields if name not in _OF_THE_CHANGE}
    defaults = own.agent_defaults.model_copy(update={"timeout_s": base.agent_defaults.timeout_s})
    return own.model_copy(
        update={
            **judging,
            "redact": tuple(dict.fromkeys((*base.redact, *own.redact))),
            "agents": tuple(_as_judged_on_base(agent, base.agents) for agent in own.agents),
            "agent_defaults": defaults,
        }
    )


def _as_judged_on_base(agent: AgentSettings, base: tuple[AgentSettings, ...]) -> AgentSettings:
    """The agent with the base's limit of a turn's time."""
    then = counterpart(agent, base)
    return agent.model_copy(update={"timeout_s": then.timeout_s}) if then else agent


def counterpart(agent: AgentSettings, base: tuple[AgentSettings, ...]) -> AgentSettings | None:
    """The agent of the base that has this one's name, else its folder."""
    by_name = [one for one in base if one.name == agent.name]
    return next(iter(by_name or [one for one in base if one.path == agent.path]), None)


def setting_changes(own: Settings, base: Settings) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Options of the change that differ from those in force: those that may ask for less, and the rest as notes.

    ``weaker_rules`` reports the rules that are surely looser.
    """
    file = excerpt(_file(own), 120)
    findings: list[Finding] = []
    notes: list[Finding] = []
    for option in OPTIONS:
        key = option.key or option.name
        if option.info.scope != "run" or option.field[0] in (*_OF_THE_CHANGE, "policy"):
            continue
        then, now = option.of_settings(base), option.of_settings(own)
        if then == now or is_looser(option.name, then, now):
            continue
        severity: Severity = "advisory" if option.name in _ALSO_WHO_JUDGES else "note"
        values: dict[str, Any] = {"old": _shown(then, base.workspace), "new": _shown(now, own.workspace)}
        changed = _finding(FindingCode.RULE_CHANGED, key, severity=severity, file=file, with_merge=True, **values)
        (findings if severity == "advisory" else notes).append(changed)
    for rule, old, new in _stricter_rules(base.policy, own.policy):
        values = {"old": _shown(old), "new": _shown(new)}
        notes.append(_finding(FindingCode.RULE_CHANGED, rule, severity="note", file=file, with_merge=True, **values))
    return tuple(findings), tuple(notes)


def _stricter_rules(then: Policy, now: Policy) -> Iterator[tuple[str, Any, Any]]:
    for name in _POLICY:
        old, new = getattr(then, name, None), getattr(now, name, None)
        if old != new and not is_looser(name, old, new):
            yield f"gate.{name}", old, new
    for criterion in sorted(then.criteria.keys() | now.criteria.keys()):
        both = [policy.criteria.get(criterion) or policy.inherited(criterion) for policy in (then, now)]
        for rule in CriterionPolicy.model_fields:
            old, new = (getattr(policy, rule) for policy in both)
            if old != new and not is_looser(rule, old, new) and old != getattr(then, rule, None):
                yield f"gate.criteria.{excerpt(criterion, 80)}.{rule}", old, new
    for name in sorted(then.sets.keys() | now.sets.keys()):
        old, new = then.sets.get(name, "blocking"), now.sets.get(name, "blocking")
        if old != new and not is_looser("mode", old, new):
            yield f"gate.sets.{excerpt(name, 80)}", old, new


def weaker_rules(base: Snapshot, head: Snapshot, *, with_merge: bool = False) -> Iterator[Finding]:
    """Rules that are weaker in ``head``: of the whole run, then of single criteria, then of whole eval sets.

    ``with_merge``: the weaker rules take effect with the merge only.
    """
    if base.policy is None or head.policy is None:
        return
    where: dict[str, Any] = {"file": excerpt(head.policy_file, 120), "with_merge": with_merge}
    whole: list[tuple[str, Any, Any]] = [("fail_on", base.fail_on, head.fail_on)]
    whole += [(name, getattr(base.policy, name, None), getattr(head.policy, name, None)) for name in _WHOLE]
    if head.repeats < base.repeats:
        yield _loosened("repeats cut", base.repeats, head.repeats, **where)
    for name, old, new in whole:
        if is_looser(name, old, new):
            yield _loosened(f"gate.{name}", old, new, **where)
    yield from _weaker_for_criteria(base.policy, head.policy, _criteria(base, head), where)
    for name in sorted(base.policy.sets.keys() | head.policy.sets.keys()):
        old, new = (policy.sets.get(name, "blocking") for policy in (base.policy, head.policy))
        if is_looser("mode", old, new):
            yield _loosened("gate.mode", old, new, eval_set=name, **where)


def _weaker_for_criteria(
    base: Policy, head: Policy, criteria: Mapping[str, Goal], where: Mapping[str, Any]
) -> Iterator[Finding]:
    by_change: dict[tuple[str, Any, Any], list[str]] = {}
    for name, goal in criteria.items():
        then, now = (policy.for_criterion(name, goal) for policy in (base, head))
        for rule in type(then).model_fields:
            old, new = getattr(then, rule), getattr(now, rule)
            if is_looser(rule, old, new):
                by_change.setdefault((rule, old, new), []).append(name)
    for (rule, old, new), names in by_change.items():
        subject = Subject(criterion=names[0] if len(names) == 1 else None)
        named = {"criteria": names[:_NAMES], "total": len(names)}
        yield _loosened(f"gate.{rule}", old, new, subject=subject, **named, **where)


def is_looser(rule: str, old: Any, new: Any) -> bool:
    """Whether the new value of a rule demands less of a run."""
    if old == new:
        return False
    order = _STRICTEST_FIRST.get(rule)
    if order is not None:
        return old in order and new in order and order.index(new) > order.index(old)
    if rule in _LOOSER_WHEN_RAISED:
        return old is not None and (new is None or bool(new > old))
    return rule == "repeats" and bool(new < old)


def _criteria(*both: Snapshot) -> dict[str, Goal]:
    """Every criterion anyone scores or has rules for; rules for what nobody scores do no harm."""
    found = {info.name: info.goal for snapshot in both for item in snapshot.sets for info in item.criteria}
    return {name: found[name] for name in sorted(found)}


def _file(settings: Settings) -> str:
    path, workspace = settings.config, settings.workspace
    if path is None:
        return "no configuration file"
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else str(path)


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
    return _finding(FindingCode.RULE_LOOSENED, rule, subject=subject, old=_shown(old), new=_shown(new), **data)


def _finding(
    code: FindingCode, rule: str, *, severity: Severity = "advisory", subject: Subject = RUN, **data: Any
) -> Finding:
    return Finding(code=code, severity=severity, subject=subject, data={"rule": rule, **data})
