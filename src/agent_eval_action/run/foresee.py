"""What a plan will ask of judges and simulated users, for the word before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent_eval_action.criteria.judged.base import JudgedCriterion
from agent_eval_action.llm.estimate import Asked, Estimate, estimate
from agent_eval_action.llm.prices import Prices
from agent_eval_action.model.judged import ModelUse
from agent_eval_action.run.plan import Plan, PlannedSet

SIMULATED = "user_simulator"
_UNLIMITED = 20  # turns taken for a conversation whose length nothing bounds

Means = Mapping[tuple[str, str], tuple[float, float]]
"""Mean input and output tokens of a call, by purpose and model."""


def foreseen(plan: Plan, prices: Prices, earlier: Iterable[ModelUse] = ()) -> Estimate:
    """The first pass's calls. ``earlier``: what a run before used, whose calls were as long as these will be."""
    return estimate(_asked(plan, means_of(earlier)), prices)


def means_of(uses: Iterable[ModelUse]) -> Means:
    """What a call took on average, where every call reported it."""
    return {
        (use.purpose, use.model): (use.input_tokens / use.calls, use.output_tokens / use.calls)
        for use in uses
        if use.calls and not use.calls_without_usage and not use.failed
    }


def _asked(plan: Plan, means: Means) -> Iterator[Asked]:
    for planned in plan.sets:
        fixed, played = (plan.repeats * turns for turns in _turns(planned))
        for criterion in planned.scored_by:
            samples = criterion.judge_model_options.num_samples if isinstance(criterion, JudgedCriterion) else 1
            for model in criterion.models():
                mean = means.get((criterion.name, model), (None, None))
                yield Asked(criterion.name, model, fixed + played, samples, *mean)
        if played:
            model = planned.simulator.model
            yield Asked(SIMULATED, model, played, 1, *means.get((SIMULATED, model), (None, None)))


def _turns(planned: PlannedSet) -> tuple[int, int]:
    """Turns of fixed conversations, and the most that simulated users may have."""
    most = planned.simulator.max_allowed_invocations
    scenarios = sum(item.case.conversation_scenario is not None for item in planned.run)
    fixed = sum(len(item.case.turns) for item in planned.run if item.case.conversation_scenario is None)
    return fixed, scenarios * (most if most > 0 else _UNLIMITED)
