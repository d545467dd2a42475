"""How much of its judges and simulated users a plan will ask, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent_eval_action.agents.simulator import PURPOSE
from agent_eval_action.criteria.base import Criterion, TurnwiseCriterion
from agent_eval_action.criteria.judged.base import JudgedCriterion
from agent_eval_action.llm.estimate import Asked
from agent_eval_action.model.evalset import EvalCase
from agent_eval_action.run.plan import Plan, PlannedSet

_PLAYED_TURNS: Final = 5
"""What a conversation with a simulated user is taken to be long, unless its limit is lower."""


def asked_of(plan: Plan) -> Iterator[Asked]:
    """What each criterion, and each simulated user, asks of its model over the first pass."""
    for one in plan.sets:
        for criterion in one.criteria:
            for model in criterion.models():
                yield _of_criterion(criterion, model, one, plan.repeats)
        played = [item.case for item in one.cases if item.case.conversation_scenario is not None]
        if played:
            turns = sum(_turns(case, one) - 1 for case in played)  # the first message is the scenario's own
            yield Asked(PURPOSE, one.simulator.model, turns * plan.repeats)


def _of_criterion(criterion: Criterion, model: str, one: PlannedSet, repeats: int) -> Asked:
    by_turn = isinstance(criterion, TurnwiseCriterion)
    questions = sum(_turns(item.case, one) if by_turn else 1 for item in one.cases if _applies(criterion, item.case))
    samples, calls = 1, 1
    if isinstance(criterion, JudgedCriterion):
        samples = criterion.judge_model_options.num_samples if criterion.sampled else 1
        calls = criterion.calls
    return Asked(criterion.name, model, questions * calls * repeats, samples)


def _applies(criterion: Criterion, case: EvalCase) -> bool:
    return case.conversation is not None or not criterion.needs_reference


def _turns(case: EvalCase, one: PlannedSet) -> int:
    if case.conversation is not None:
        return len(case.conversation)
    limit = one.simulator.max_allowed_invocations
    return _PLAYED_TURNS if limit < 0 else min(limit, _PLAYED_TURNS)
