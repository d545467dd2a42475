"""What a plan will ask of judges and simulated users, for the word before anything is spent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from agent_eval_action.criteria.base import Criterion, TurnCriterion
from agent_eval_action.criteria.judge.base import JudgedCriterion
from agent_eval_action.llm.budget import SIMULATED_USER
from agent_eval_action.llm.pricing import Estimate, PlannedCalls, Prices, estimate
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.results.run_result import ModelUse
from agent_eval_action.run.applicable import applies
from agent_eval_action.run.plan import Plan, PlannedSet

_UNLIMITED = 20  # turns taken for a conversation whose length nothing bounds

Means = Mapping[tuple[str, str], tuple[float, float]]
"""Mean input and output tokens of a call, by purpose and model."""


def estimate_plan(
    plan: Plan, prices: Prices, earlier: Iterable[ModelUse] = (), *, recorded: Collection[str] = ()
) -> Estimate:
    """The first pass's calls. ``earlier``: what a run before used, whose calls were as long as these will be.

    ``recorded``: names of agents that are recordings, whose users are asked nothing.
    """
    means = mean_tokens(earlier)
    asked = [one for planned in plan.sets for one in _of_criteria(planned, plan.repeats, means)]
    asked += [
        one for planned in plan.sets if planned.agent not in recorded for one in _of_user(planned, plan.repeats, means)
    ]
    return estimate(asked, prices)


def mean_tokens(uses: Iterable[ModelUse]) -> Means:
    """What a call took on average, where every call reported it."""
    return {
        (use.purpose, use.model): (use.input_tokens / use.calls, use.output_tokens / use.calls)
        for use in uses
        if use.calls and not use.calls_without_usage and not use.failed
    }


def _of_criteria(planned: PlannedSet, repeats: int, means: Means) -> Iterator[PlannedCalls]:
    for criterion in planned.scored_by:
        if not (models := criterion.models()):
            continue
        questions, samples = repeats * _questions(criterion, planned), 1
        if isinstance(criterion, JudgedCriterion):
            questions *= criterion.calls
            samples = criterion.judge_model_options.num_samples if criterion.sampled else 1
        for model in models if questions else ():
            mean = means.get((criterion.name, model), (None, None))
            yield PlannedCalls(criterion.name, model, questions, samples, *mean)


def _of_user(planned: PlannedSet, repeats: int, means: Means) -> Iterator[PlannedCalls]:
    if played := sum(_turns(item.case, planned) for item in planned.run if item.has_scenario):
        model = planned.simulator.model
        mean = means.get((SIMULATED_USER, model), (None, None))
        yield PlannedCalls(SIMULATED_USER, model, repeats * played, 1, *mean)


def _questions(criterion: Criterion, planned: PlannedSet) -> int:
    """How many turns it judges, or conversations."""
    by_turn = isinstance(criterion, TurnCriterion)
    cases = (item.case for item in planned.run if applies(criterion, item.case))
    return sum(_turns(case, planned) if by_turn else 1 for case in cases)


def _turns(case: EvalCase, planned: PlannedSet) -> int:
    """Turns of a fixed conversation, or the most that a simulated user may have."""
    if case.conversation is not None:
        return len(case.conversation)
    most = planned.simulator.max_allowed_invocations
    return most if most > 0 else _UNLIMITED
