"""The criteria in force on an event of a change: the base's, with what the change adds beside them. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from agent_eval_action.config.models import Policy
from agent_eval_action.errors import EvalFileError, Problem
from agent_eval_action.gate_changes.base import BaseSnapshot
from agent_eval_action.results.case_matching import CaseIdentity, CaseMatches
from agent_eval_action.results.run_result import CaseKey, CriterionInfo
from agent_eval_action.run.loader import unscorable_cases
from agent_eval_action.run.plan import Plan, PlannedSet, planned_digest


def plan_in_force(plan: Plan, base: BaseSnapshot, matches: CaseMatches, policy: Policy, workspace: Path) -> Plan:
    """The plan of the change with the base's criteria and simulated users.

    A set or a criterion that only the change has is kept as the change has it and marked as added: it is measured
    and blocks nothing. Raises EvalFileError for cases that a criterion of the base can never score.
    """
    partners = _partners(plan, base.sets, matches)
    problems: list[Problem] = []
    sets = []
    for planned in plan.sets:
        then = partners[planned.agent, planned.key]
        if then is None:
            # new cases that are held to thresholds are held to them whatever file they stand in
            sets.append(planned if _new_cases_block(policy) else replace(planned, infos=_added(planned.infos)))
            continue
        cases = (item.case for item in planned.cases)
        problems += unscorable_cases(cases, then.criteria, workspace / planned.path)
        sets.append(_as_on_base(planned, then))
    if problems:
        text = f"the eval files do not fit the criteria of the base commit {base.commit[:10]}, which hold here"
        raise EvalFileError(text, problems=problems)
    return replace(plan, sets=tuple(sets))


def renamed_agents(plan: Plan, base: BaseSnapshot, matches: CaseMatches) -> dict[str, str]:
    """What agents of the base are called now: by their cases, else by their eval files."""
    by_file = {
        then.agent: agent for (agent, _), then in _partners(plan, base.sets, matches).items() if then is not None
    }
    return {**by_file, **matches.current_agent}


def _as_on_base(planned: PlannedSet, then: PlannedSet) -> PlannedSet:
    known = {info.name for info in then.infos}
    more = [
        (criterion, info)
        for criterion, info in zip(planned.criteria, planned.infos, strict=True)
        if info.name not in known
    ]
    cases = planned.cases
    if planned.simulator != then.simulator:
        cases = tuple(replace(item, digest=planned_digest(item.case, then.simulator)) for item in cases)
    return replace(
        planned,
        cases=cases,
        criteria=(*then.criteria, *(criterion for criterion, _ in more)),
        infos=(*then.infos, *_added(info for _, info in more)),
        simulator=then.simulator,
    )


def _partners(
    plan: Plan, sets: Iterable[PlannedSet], matches: CaseMatches
) -> Mapping[tuple[str, str], PlannedSet | None]:
    """The base's set for each of the plan: the one most of its cases come from, else of its name, else of its file."""
    by_name = {(one.agent, one.key): one for one in sets}
    by_path = {one.path: one for one in sorted(sets, key=lambda one: one.agent)}
    origins: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
    for then, now in matches.current_key.items():
        origins[now[:2]][then[:2]] += 1
    found: dict[tuple[str, str], PlannedSet | None] = {}
    for planned in plan.sets:
        name = planned.agent, planned.key
        counts = origins[name]
        most = min(counts, key=lambda key: (-counts[key], key != name, key), default=name)
        found[name] = by_name.get(most) or by_name.get(name) or by_path.get(planned.path)
    return found


def _added(infos: Iterable[CriterionInfo]) -> tuple[CriterionInfo, ...]:
    return tuple(info.model_copy(update={"added": True}) for info in infos)


def _new_cases_block(policy: Policy) -> bool:
    return getattr(policy, "new_cases", "advise") == "block"


def identities_of_plan(plan: Plan) -> Iterable[CaseIdentity]:
    """The cases of a plan as they are matched with those of the base."""
    for planned in plan.sets:
        criteria = frozenset(info.digest for info in planned.infos)
        for item in planned.cases:
            yield CaseIdentity(CaseKey(planned.agent, planned.key, item.eval_id), item.digest, criteria)
