"""Efficiency criteria: tool calls, model calls, tokens, seconds and cost per turn. Unmeasured values are never zero."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from agent_eval_action.criteria.base import Sample, TurnCriterion
from agent_eval_action.llm.budget import Prices, agent_calls, listed_on
from agent_eval_action.llm.client import token_count
from agent_eval_action.results.decision import Unit
from agent_eval_action.results.evalset import Invocation, InvocationEvents, JsonObject
from agent_eval_action.results.run_result import CriterionScore, Goal, ScoreStatus, TurnScore

_TURNS_SHOWN = 10
_NAMES_SHOWN = 5

_TOKENS = {
    "prompt_tokens": "prompt_token_count",
    "cached_tokens": "cached_content_token_count",
    "tool_use_tokens": "tool_use_prompt_token_count",
    "candidates_tokens": "candidates_token_count",
    "reasoning_tokens": "thoughts_token_count",
}

Measured = tuple[float | None, dict[str, Any], str]


class EfficiencyCriterion(TurnCriterion, abc.ABC):
    """Measures each turn; the case's value is the mean over the turns that could be measured."""

    goal: ClassVar[Goal] = "minimize"
    scale: ClassVar[tuple[float, float]] = (0.0, float("inf"))
    noun: ClassVar[str]
    unmeasured: ClassVar[str]

    @abc.abstractmethod
    def measure(self, turn: Invocation, prices: Prices) -> Measured:
        """The value of a turn (None: not measured), its parts, and a remark for people."""

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        value, details, remark = self.measure(sample.actual[turn], sample.context.prices or Prices())
        if value is None:
            return self.unscored(turn, remark or self.unmeasured, details=details)
        reason = f"{value:.6g} {self.noun}" + (f" ({remark})" if remark else "")
        return TurnScore(turn=turn, score=value, reason=reason, details=details)

    async def aggregate(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        del sample
        measured = [turn for turn in turns if turn.score is not None]
        if not measured:
            return self.no_score(ScoreStatus.ERROR, self.unmeasured, turns=tuple(turns))
        mean = sum(turn.score or 0.0 for turn in measured) / len(measured)
        # a missing part counts as 0 so that the means of the parts add up
        parts = {name for turn in measured for name, value in turn.details.items() if value is not None}
        details = {
            name: sum(turn.details.get(name) or 0 for turn in measured) / len(measured) for name in sorted(parts)
        }
        reason = turns[0].reason
        if len(turns) > 1:
            shown = [turn.score for turn in turns[:_TURNS_SHOWN]]
            each = ", ".join("not measured" if score is None else f"{score:.6g}" for score in shown)
            more = ", …" if len(turns) > _TURNS_SHOWN else ""
            reason = f"{mean:.6g} {self.noun} a turn ({each}{more})"
        return self.result(mean, reason=reason, turns=tuple(turns), details=details)


class ToolCallCount(EfficiencyCriterion):
    """Tool calls in a turn, transfers to other agents included."""

    name: ClassVar[str] = "tool_call_count_v1"
    by_events: ClassVar[bool] = True
    unit: ClassVar[Unit] = "calls"
    noun: ClassVar[str] = "tool calls"
    unmeasured: ClassVar[str] = "tool calls were not recorded"

    def measure(self, turn: Invocation, _: Prices) -> Measured:
        calls = turn.tool_calls()
        common = Counter(str(call.name)[:60] for call in calls).most_common(_NAMES_SHOWN + 1)
        names = [name if times == 1 else f"{name} x{times}" for name, times in common[:_NAMES_SHOWN]]
        return float(len(calls)), {}, ", ".join(names) + (", …" if len(common) > _NAMES_SHOWN else "")


class InferenceCallCount(EfficiencyCriterion):
    """Model calls in a turn: events with usage or a model version."""

    name: ClassVar[str] = "inference_call_count_v1"
    by_events: ClassVar[bool] = True
    unit: ClassVar[Unit] = "calls"
    noun: ClassVar[str] = "model calls"
    unmeasured: ClassVar[str] = "the events of the turn were not recorded"

    def measure(self, turn: Invocation, _: Prices) -> Measured:
        recorded = isinstance(turn.intermediate_data, InvocationEvents)
        return (float(sum(event.is_model_call for event in turn.events)) if recorded else None), {}, ""


class TokenUsage(EfficiencyCriterion):
    """Input and output tokens of a turn's model calls, as the model reported them."""

    name: ClassVar[str] = "token_usage_v1"
    unit: ClassVar[Unit] = "tokens"
    noun: ClassVar[str] = "tokens"
    unmeasured: ClassVar[str] = "the model reported no usage"

    def measure(self, turn: Invocation, _: Prices) -> Measured:
        calls = [event for event in turn.events if event.is_model_call]
        reports = [counts for event in calls if (counts := _counts(event.usage_metadata or {}))]
        parts = {name: sum(report.get(name, 0) for report in reports) for report in reports for name in report}
        given = parts.keys() - {"cached_tokens"}
        if not given:
            return None, parts, ""
        if given & {"prompt_tokens", "tool_use_tokens"}:
            parts["input_tokens"] = parts.get("prompt_tokens", 0) + parts.get("tool_use_tokens", 0)
        if given & {"candidates_tokens", "reasoning_tokens"}:
            parts["output_tokens"] = parts.get("candidates_tokens", 0) + parts.get("reasoning_tokens", 0)
        total = parts.get("input_tokens", 0) + parts.get("output_tokens", 0)
        silent = len(calls) - len(reports)
        return float(total), parts, f"{silent} of {len(calls)} model calls reported no usage" if silent else ""


class InvocationDuration(EfficiencyCriterion):
    """Seconds in the model and in tools. Time in our queue or in the framework does not count."""

    name: ClassVar[str] = "invocation_duration_v1"
    unit: ClassVar[Unit] = "seconds"
    noun: ClassVar[str] = "seconds"
    unmeasured: ClassVar[str] = "the turns were not timed"

    def measure(self, turn: Invocation, _: Prices) -> Measured:
        model, tool, total = turn.model_duration, turn.tool_duration, turn.duration
        details: dict[str, Any] = {"model_seconds": model, "tool_seconds": tool, "total_seconds": total}
        if model is None or tool is None:
            return None, details, ""
        if total is not None:
            details["framework_seconds"] = max(total - model - tool, 0.0)
        remark = f"model {model:.3g}, tools {tool:.3g}" + (f", in all {total:.3g}" if total is not None else "")
        return model + tool, details, remark


def _counts(usage: JsonObject) -> dict[str, int]:
    return {name: count for name, key in _TOKENS.items() if (count := token_count(usage, key)) is not None}


class CostUsd(EfficiencyCriterion):
    """Cost of a turn in dollars; not measured if a call has no price or did not report its tokens."""

    name: ClassVar[str] = "cost_usd_v1"
    unit: ClassVar[Unit] = "usd"
    noun: ClassVar[str] = "USD"
    unmeasured: ClassVar[str] = "no calls of a model were recorded"

    def version(self) -> str:
        """Include the date of the price table: scores from different tables are not comparable."""
        return f"{self.scoring_version} prices {listed_on()}"

    def measure(self, turn: Invocation, prices: Prices) -> Measured:
        models: dict[str, Any] = {}
        for call in agent_calls((turn,)):
            price = prices.find(call.model)
            if price is None:
                return None, {}, f"no price of {call.model or 'a model that does not say its name'} (llm.prices)"
            if call.usage.total is None:
                return None, {}, f"a call of {call.model} did not report its tokens"
            models[call.model] = models.get(call.model, 0.0) + price.usd(call.usage)
        return (sum(models.values()) if models else None), models, ""
