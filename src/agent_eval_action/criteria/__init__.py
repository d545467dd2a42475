"""Criteria: what a case is scored by. A criterion is a class whose fields are its options, and an entry of CRITERIA."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria import factory
from agent_eval_action.criteria.base import Criterion, Relaxation
from agent_eval_action.criteria.custom import CustomCriterion
from agent_eval_action.criteria.deterministic.efficiency import (
    CostUsd,
    InferenceCallCount,
    InvocationDuration,
    TokenUsage,
    ToolCallCount,
)
from agent_eval_action.criteria.deterministic.text import ResponseMatchScore, tokenizer
from agent_eval_action.criteria.deterministic.trajectory import ToolTrajectoryAvgScore
from agent_eval_action.criteria.factory import criterion_digest, criterion_info
from agent_eval_action.criteria.judge.hallucinations import Hallucinations
from agent_eval_action.criteria.judge.response_match import FinalResponseMatch
from agent_eval_action.criteria.judge.rubrics import FinalResponseQuality, ToolUseQuality, TrajectoryQuality
from agent_eval_action.criteria.judge.simulator_quality import SimulatorQuality
from agent_eval_action.criteria.vertex import (
    ConversationToolUseQuality,
    ConversationTrajectoryQuality,
    ResponseEvaluationScore,
    Safety,
    TaskSuccess,
)
from agent_eval_action.registry import Registry
from agent_eval_action.results.run_result import CriterionInfo

__all__ = ["CRITERIA", "build", "criterion_digest", "criterion_info", "relaxes", "warm_up"]

_BUILT_IN: Final[dict[str, type[Criterion]]] = {
    ToolTrajectoryAvgScore.name: ToolTrajectoryAvgScore,
    ResponseMatchScore.name: ResponseMatchScore,
    ToolCallCount.name: ToolCallCount,
    InferenceCallCount.name: InferenceCallCount,
    TokenUsage.name: TokenUsage,
    InvocationDuration.name: InvocationDuration,
    CostUsd.name: CostUsd,
    FinalResponseMatch.name: FinalResponseMatch,
    FinalResponseQuality.name: FinalResponseQuality,
    ToolUseQuality.name: ToolUseQuality,
    TrajectoryQuality.name: TrajectoryQuality,
    Hallucinations.name: Hallucinations,
    SimulatorQuality.name: SimulatorQuality,
    Safety.name: Safety,
    ResponseEvaluationScore.name: ResponseEvaluationScore,
    TaskSuccess.name: TaskSuccess,
    ConversationTrajectoryQuality.name: ConversationTrajectoryQuality,
    ConversationToolUseQuality.name: ConversationToolUseQuality,
}


def _check(name: str, entry: Any) -> str:
    if not (isinstance(entry, type) and issubclass(entry, Criterion)):
        return "it is no subclass of agent_eval_action.criteria.base.Criterion"
    return "" if getattr(entry, "name", None) == name else f"its `name` is not {name}"


CRITERIA: Final = Registry("agent_eval.criteria", "criterion", _BUILT_IN, _check)


def build(specs: Iterable[CriterionSpec]) -> tuple[Criterion, ...]:
    """One criterion per entry. Raises ConfigError with every problem at its path and line."""
    return factory.build(specs, CRITERIA)


def relaxes(old: CriterionInfo, new: CriterionInfo) -> tuple[Relaxation, ...]:
    """The options of a criterion that ask for less in ``new``, as the criterion itself knows it."""
    return CRITERIA.get(new.name, CustomCriterion).relaxes(old, new)


def warm_up() -> None:
    """Import now what scoring needs later: for a thread, while the agent starts."""
    tokenizer()
