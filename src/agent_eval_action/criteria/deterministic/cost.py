"""Cost: USD of a turn's model calls by the price table. Lower is better; an unknown price is never zero."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from agent_eval_action.criteria.base import Sample
from agent_eval_action.criteria.deterministic.efficiency import EfficiencyCriterion, Measured
from agent_eval_action.llm.agent_use import agent_calls
from agent_eval_action.llm.prices import LISTED_ON, Prices
from agent_eval_action.model.decision import Unit
from agent_eval_action.model.evalset import Invocation
from agent_eval_action.model.result import CriterionScore


class CostUsd(EfficiencyCriterion):
    """Dollars of a turn. A turn with a call that has no price, or did not report its tokens, is not measured."""

    name: ClassVar[str] = "cost_usd_v1"
    unit: ClassVar[Unit] = "usd"
    noun: ClassVar[str] = "USD"
    unmeasured: ClassVar[str] = "no calls of a model were recorded"

    def version(self) -> str:
        """Another price table is another measure: what it says does not compare."""
        return f"{self.scoring_version} prices {LISTED_ON}"

    async def score(self, sample: Sample) -> CriterionScore:
        return self.measured(sample, partial(cost_of, prices=sample.instruments.prices or Prices()))

    def measure(self, turn: Invocation) -> Measured:
        return cost_of(turn, Prices())


def cost_of(turn: Invocation, prices: Prices) -> Measured:
    """USD of a turn, by model, and what is missing where it cannot be said."""
    models: dict[str, Any] = {}
    for call in agent_calls((turn,)):
        price = prices.find(call.model)
        if price is None:
            return None, {}, f"no price of {call.model or 'a model that does not say its name'} (llm.prices)"
        if call.usage.input_tokens is None or call.usage.output_tokens is None:
            return None, {}, f"a call of {call.model} did not report its tokens"
        models[call.model] = models.get(call.model, 0.0) + price.of(call.usage)
    return (sum(models.values()) if models else None), models, ""
