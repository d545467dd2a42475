"""The parts of ADK's EvalConfig beside ``criteria``, as values. Shapes only; their users give them meaning."""

from __future__ import annotations

import re
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from agent_eval_action.model.base import AdkModel

_PLACEHOLDERS = ("stop_signal", "conversation_plan", "conversation_history")


class CodeConfig(AdkModel):
    """Where the user's function is: ``package.module.function``."""

    model_config = ConfigDict(extra="allow")

    name: str


class Interval(AdkModel):
    """The values a metric can take."""

    min_value: float
    max_value: float
    open_at_min: bool = False
    open_at_max: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min_value <= self.max_value:
            raise ValueError(f"min_value {self.min_value} is not below max_value {self.max_value}")
        return self


class MetricValueInfo(AdkModel):
    """What kind of value a metric has."""

    interval: Interval | None = None


class MetricInfo(AdkModel):
    """What a custom metric says about itself."""

    metric_name: str
    metric_value_info: MetricValueInfo
    description: str | None = None
    requires_threshold: bool = True


class CustomMetric(AdkModel):
    """One entry of ``custom_metrics``: runs only when ``criteria`` names it too."""

    code_config: CodeConfig
    metric_info: MetricInfo | None = None
    description: str = ""


class UserSimulatorConfig(AdkModel):
    """How simulated users talk. ``max_allowed_invocations`` below zero: no limit."""

    type: Literal["llm_backed", "llm_audio"] = "llm_backed"
    model: str = "gemini-2.5-flash"
    model_configuration: dict[str, Any] | None = None
    max_allowed_invocations: int = 20
    custom_instructions: str | None = None
    include_function_calls: bool = False
    # ADK's audio simulator has more settings than its text one; they are kept as they are.
    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _absent_type_is_the_older_one(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("type") is None:
            return {**values, "type": "llm_backed"}
        return values

    @model_validator(mode="after")
    def _text_simulator_has_no_more(self) -> Self:
        if self.type == "llm_backed" and self.model_extra:
            raise ValueError(f"unknown key {next(iter(self.model_extra))!r}")
        return self

    @field_validator("custom_instructions")
    @classmethod
    def _has_placeholders(cls, value: str | None) -> str | None:
        missing = [p for p in _PLACEHOLDERS if value is not None and not re.search(r"\{\{-?[^}]*\b" + p + r"\b", value)]
        if missing:
            raise ValueError("needs the placeholder " + ", ".join(f"{{{{ {name} }}}}" for name in missing))
        return value


class LiveModelConfig(AdkModel):
    """Bidirectional streaming; its presence turns it on."""

    timeout_seconds: int = Field(default=300, gt=0)
