"""Which criteria can score which cases, known before anything runs; and scenarios whose user cannot be played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from agent_eval_action.agents.simulator import reason_not_playable
from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.config.discovery import DiscoveredSet as FoundSet
from agent_eval_action.criteria.base import Criterion, Sample
from agent_eval_action.errors import Problem
from agent_eval_action.results.evalset import EvalCase, EvalSet
from agent_eval_action.results.run_result import ScoreStatus
from agent_eval_action.run.plan import PlannedSet

_SHOWN = 3


def applies(criterion: Criterion, case: EvalCase) -> bool:
    """Whether the criterion says anything about such a case. A reference is what a simulated user leaves out."""
    refused = criterion.refuse(Sample(case, ()))
    return refused is None or refused.status is not ScoreStatus.NOT_APPLICABLE


def nothing_to_measure(sets: Sequence[PlannedSet], workspace: Path) -> list[Problem]:
    """One problem per set of which no case can be scored by any of its criteria."""
    found = []
    for planned in sets:
        if any(applies(criterion, item.case) for criterion in planned.criteria for item in planned.cases):
            continue
        names = ", ".join(info.name for info in planned.infos)
        simulated = all(item.case.conversation is None for item in planned.cases)
        why = "the users of its cases are simulated" if simulated else "its cases have a fixed conversation"
        hint = (
            "criteria without a reference apply, for example rubric_based_final_response_quality_v1, "
            "hallucinations_v1, per_turn_user_simulator_quality_v1"
            if simulated
            else "add a criterion that scores the agent's answers"
        )
        message = f"none of its criteria ({names}) can score any of its cases: {why}"
        found.append(Problem(workspace / planned.path, message, hint=hint))
    return found


def skipped(sets: Sequence[PlannedSet]) -> Iterator[str]:
    """One sentence over all sets per criterion that leaves cases out, and one for cases nothing scores."""
    left_out: dict[str, int] = {}
    lost = []
    for planned in sets:
        for item in planned.cases:
            said = [applies(criterion, item.case) for criterion in planned.criteria]
            for criterion, applied in zip(planned.criteria, said, strict=True):
                if not applied:
                    left_out[criterion.name] = left_out.get(criterion.name, 0) + 1
            if not any(said):
                lost.append(f"{planned.key}:{item.eval_id}")
    for name, count in left_out.items():
        yield f"{name} is not applicable to {count} {'case' if count == 1 else 'cases'}, and skipped there"
    if lost:
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        yield f"run, and scored by no criterion: {', '.join(lost[:_SHOWN])}{more}"


def refused_users(eval_set: EvalSet, simulator: UserSimulatorConfig, found: FoundSet) -> list[Problem]:
    """What is wrong with the simulated user for the scenarios of a set, each thing once."""
    whys = {
        why: case
        for case in reversed(eval_set.eval_cases)
        if case.conversation_scenario is not None
        and (why := reason_not_playable(case.conversation_scenario, simulator))
    }
    return [Problem(found.path, f"case {case.eval_id}: {why}", case.line) for why, case in whys.items()]
