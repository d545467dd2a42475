"""The parts of ADK's EvalConfig beside ``criteria``, as values. Shapes only; their users give them meaning."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_snake

from agent_eval_action.model.base import AdkModel

_TAKEN = ("system_instruction", "response_schema", "response_json_schema", "response_mime_type", "tools")
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
    model: str = Field(default="gemini-2.5-flash", min_length=1)
    model_configuration: dict[str, Any] | None = None
    max_allowed_invocations: int = 20
    custom_instructions: str | None = None
    include_function_calls: bool = False

    @model_validator(mode="before")
    @classmethod
    def _absent_type_is_the_older_one(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("type") is None:
            return {**values, "type": "llm_backed"}
        return values

    @field_validator("type")
    @classmethod
    def _is_text(cls, value: str) -> str:
        if value == "llm_audio":
            raise ValueError("llm_audio is known, but not in this version: users of a run write text (llm_backed)")
        return value

    @field_validator("model_configuration")
    @classmethod
    def _leaves_the_prompt_alone(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        """The names of GenerateContentConfig in one spelling: the other is no other user."""
        named = {to_snake(key): inner for key, inner in (value or {}).items()}
        if taken := [name for name in _TAKEN if name in named]:
            raise ValueError(f"`{taken[0]}` cannot be set: what a user is told stands in custom_instructions")
        return named or None

    @field_validator("custom_instructions")
    @classmethod
    def _has_placeholders(cls, value: str | None) -> str | None:
        if value is not None and (missing := [name for name in _PLACEHOLDERS if name not in _variables(value)]):
            raise ValueError("needs the placeholder " + ", ".join(f"{{{{ {name} }}}}" for name in missing))
        return value

    def placeholders(self) -> frozenset[str]:
        """What the custom instructions ask to be filled in."""
        return _variables(self.custom_instructions or "")


def _variables(template: str) -> frozenset[str]:
    """The variables of a jinja2 template, as ADK finds them. Raises ValueError for what is no template."""
    from jinja2 import TemplateSyntaxError, meta  # noqa: PLC0415 - needed by few configurations
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415 - as above

    environment = SandboxedEnvironment()
    environment.filters["render_string_filter"] = str
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(template)))
    except TemplateSyntaxError as error:
        raise ValueError(f"is no jinja2 template: line {error.lineno}: {error.message}") from error


class LiveModelConfig(AdkModel):
    """Bidirectional streaming; its presence turns it on."""

    timeout_seconds: int = Field(default=300, gt=0)
