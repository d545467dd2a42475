"""Estimates what the first pass will ask of judges and simulated users, before any money is spent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from agent_eval_action.criteria.base import TurnCriterion
from agent_eval_action.criteria.judge.base import JudgedCriterion
from agent_eval_action.llm.budget import SIMULATED_USER
from agent_eval_action.llm.pricing import Estimate, PlannedCalls, Prices, estimate
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.results.run_result import ModelUse
from agent_eval_action.run.plan import Plan, PlannedSet, applies

_UNBOUNDED_TURNS = 20  # assumed for a conversation whose length nothing bounds

MeanTokens = Mapping[tuple[str, str], tuple[float, float]]
"""Mean input and output tokens of a call, by purpose and model."""


def estimate_plan(
    plan: Plan, prices: Prices, earlier: Iterable[ModelUse] = (), *, recorded: Collection[str] = ()
) -> Estimate:
    """Estimate the calls of the first pass. ``earlier``: model use of an earlier run, for the length of calls.

    ``recorded``: names of agents that are recordings, whose users are not simulated.
    """
    means = mean_tokens(earlier)
    asked = [calls for planned in plan.sets for calls in _judge_calls(planned, plan.repeats, means)]
    played = (planned for planned in plan.sets if planned.agent not in recorded)
    asked += [calls for planned in played for calls in _user_calls(planned, plan.repeats, means)]
    return estimate(asked, prices)


def mean_tokens(uses: Iterable[ModelUse]) -> MeanTokens:
    """Return the mean tokens of a call, where every call reported them."""
    return {
        (use.purpose, use.model): (use.input_tokens / use.calls, use.output_tokens / use.calls)
        for use in uses
        if use.calls and not use.calls_without_usage and not use.failed
    }


def _judge_calls(planned: PlannedSet, repeats: int, means: MeanTokens) -> Iterator[PlannedCalls]:
    for criterion in planned.scored_by:
        if not (models := criterion.models()):
            continue
        cases = [item.case for item in planned.run if applies(criterion, item.case)]
        by_turn = isinstance(criterion, TurnCriterion)
        questions = repeats * (sum(_turns(case, planned) for case in cases) if by_turn else len(cases))
        samples = 1
        if isinstance(criterion, JudgedCriterion):
            questions *= criterion.calls
            samples = criterion.judge_model_options.num_samples if criterion.sampled else 1
        for model in models if questions else ():
            yield PlannedCalls(
                criterion.name, model, questions, samples, *means.get((criterion.name, model), (None, None))
            )


def _user_calls(planned: PlannedSet, repeats: int, means: MeanTokens) -> Iterator[PlannedCalls]:
    if turns := sum(_turns(item.case, planned) for item in planned.run if item.has_scenario):
        model = planned.simulator.model
        mean = means.get((SIMULATED_USER, model), (None, None))
        yield PlannedCalls(SIMULATED_USER, model, repeats * turns, 1, *mean)


def _turns(case: EvalCase, planned: PlannedSet) -> int:
    """Return the turns of a fixed conversation, or the most that a simulated user may take."""
    if case.conversation is not None:
        return len(case.conversation)
    most = planned.simulator.max_allowed_invocations
    return most if most > 0 else _UNBOUNDED_TURNS
