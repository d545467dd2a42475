"""ADK's criteria that need a model: known by name, their options checked, not scored by this version."""

from __future__ import annotations

from typing import Final

from pydantic import ConfigDict, Field

from agent_eval_action.criteria.judge_options import JudgeModelOptions
from agent_eval_action.model.base import AdkModel


class PlannedOptions(AdkModel):
    """Options of every criterion of ADK."""

    threshold: float = Field(ge=0, le=1, allow_inf_nan=False)
    include_intermediate_responses_in_final: bool = False


class JudgedOptions(PlannedOptions):
    """Options of a criterion that asks a judge."""

    judge_model_options: JudgeModelOptions = JudgeModelOptions()


class HallucinationsOptions(JudgedOptions):
    """Options of hallucinations_v1."""

    evaluate_intermediate_nl_responses: bool = False


class SimulatorQualityOptions(JudgedOptions):
    """Options of per_turn_user_simulator_quality_v1."""

    stop_signal: str = "</finished>"


class CoherenceOptions(PlannedOptions):
    """Options of response_evaluation_score, which is scored 1 to 5."""

    threshold: float = Field(ge=1, le=5, allow_inf_nan=False)


class CustomOptions(PlannedOptions):
    """Options of a custom metric: whatever its function reads, on a scale of its own."""

    model_config = ConfigDict(extra="allow")

    threshold: float = Field(allow_inf_nan=False)


PLANNED: Final[dict[str, type[PlannedOptions]]] = {
    "hallucinations_v1": HallucinationsOptions,
    "safety_v1": PlannedOptions,
    "multi_turn_task_success_v1": PlannedOptions,
    "multi_turn_trajectory_quality_v1": PlannedOptions,
    "multi_turn_tool_use_quality_v1": PlannedOptions,
    "per_turn_user_simulator_quality_v1": SimulatorQualityOptions,
    "response_evaluation_score": CoherenceOptions,
}
"""Names a config may carry although ``CRITERIA`` has no class for them yet; none is dropped in silence."""
