"""Criteria as configured: name, options and location. ``criteria.build`` turns them into criteria."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from agent_eval_action.diagnostics.reader import JsonPath, Source, shorten
from agent_eval_action.diagnostics.suggestions import snake_case
from agent_eval_action.diagnostics.validation import Issue
from agent_eval_action.errors import Problem
from agent_eval_action.results.base import AdkModel

MetricKind = Literal["function", "prompt", "computed", "managed"]
"""What scores a metric: the user's function, a judge with the user's prompt, arithmetic, or Vertex AI."""


@dataclass(frozen=True, slots=True)
class CriterionSpec:
    """An entry of ``criteria`` in a test_config.json or agent-eval.yaml.

    ``at`` is its JSON path in ``source``. ``custom`` is the entry of ``custom_metrics`` with this name. ``metric`` says
    what scores a metric of agents-cli, whose name is the user's choice.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    at: JsonPath = ()
    source: Source | None = field(default=None, compare=False, repr=False)
    custom: CustomMetric | None = None
    metric: MetricKind | None = None

    @property
    def path(self) -> Path | None:
        return self.source.path if self.source is not None else None

    @property
    def line(self) -> int | None:
        return self.source.line(self.at) if self.source is not None else None

    def problem(self, message: str, *, inside: JsonPath = (), **fields: Any) -> Problem:
        """A problem with this entry or with its option ``inside``, with the line."""
        if self.source is not None:
            return self.source.problem((*self.at, *inside), message, **fields)
        return Problem(Path("criteria"), message, **fields)


DEFAULT_CRITERIA: Final = (
    CriterionSpec("tool_trajectory_avg_score", {"threshold": 1.0}),
    CriterionSpec("response_match_score", {"threshold": 0.8}),
)
"""ADK's criteria for eval files without a config."""

REPLAY_CRITERIA: Final = (CriterionSpec("recorded_events", {"threshold": 1.0}),)
"""The criteria for every replayed recording."""


def parse_criteria(
    mapping: Any,
    *,
    source: Source | None,
    at: JsonPath = ("criteria",),
    custom_metrics: Mapping[str, CustomMetric] | None = None,
) -> tuple[tuple[CriterionSpec, ...], tuple[Issue, ...]]:
    """The entries of the ``criteria`` mapping at ``at`` in a file, and what is wrong with it."""
    if mapping is not None and not isinstance(mapping, Mapping):
        return (), (Issue("criteria is a mapping of criterion to threshold or options", value=shorten(mapping)),)
    custom = custom_metrics or {}
    specs: list[CriterionSpec] = []
    issues: list[Issue] = []
    for name, value in (mapping or {}).items():
        if name.startswith("_"):
            continue
        options = {} if value is None else {"threshold": value}
        if isinstance(value, Mapping):
            # a user's function may distinguish null from an absent option
            options = set_values(value, nulls=name in custom)
        elif isinstance(value, list):
            issues.append(Issue("a criterion is a threshold or a mapping of options", (name,), shorten(value)))
        specs.append(CriterionSpec(name, options, (*at, name), source, custom.get(name)))
    if not specs:
        hint = 'for example "criteria": {"response_match_score": 0.8}'
        issues.append(Issue("no criteria, so there is nothing to measure", hint=hint))
    return tuple(specs), tuple(issues)


def set_values(value: Any, *, nulls: bool = False) -> Any:
    """Remove comments (keys that begin with an underscore) and, unless ``nulls``, null values, at every depth.

    google-adk's ``EvalConfig.model_dump_json()`` writes options that are not set as null.
    """
    if isinstance(value, Mapping):
        return {
            str(key): set_values(inner, nulls=nulls)
            for key, inner in value.items()
            if not str(key).startswith("_") and (nulls or inner is not None)
        }
    return [set_values(inner, nulls=nulls) for inner in value] if isinstance(value, list) else value


_RESERVED = ("system_instruction", "response_schema", "response_json_schema", "response_mime_type", "tools")
_PLACEHOLDERS = ("stop_signal", "conversation_plan", "conversation_history")


class CodeConfig(AdkModel):
    """The user's function: ``package.module.function``."""

    model_config = ConfigDict(extra="allow")

    name: str


class Interval(AdkModel):
    """The range of a metric's values."""

    min_value: float
    max_value: float
    open_at_min: bool = False
    open_at_max: bool = False

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.min_value <= self.max_value:
            raise ValueError(f"min_value {self.min_value} is not below max_value {self.max_value}")
        return self


class MetricValueInfo(AdkModel):
    """A description of a metric's values."""

    interval: Interval | None = None


class MetricInfo(AdkModel):
    """A custom metric's description of itself."""

    metric_name: str
    metric_value_info: MetricValueInfo
    description: str | None = None
    requires_threshold: bool = True


class CustomMetric(AdkModel):
    """An entry of ``custom_metrics``; runs only if ``criteria`` names it too."""

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
    def _default_type(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("type") is None:
            return {**values, "type": "llm_backed"}
        return values

    @field_validator("type")
    @classmethod
    def _refuse_audio(cls, value: str) -> str:
        if value == "llm_audio":
            raise ValueError("llm_audio is known, but not in this version: users of a run write text (llm_backed)")
        return value

    @field_validator("model_configuration")
    @classmethod
    def _check_model_configuration(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        """Spell the fields of GenerateContentConfig in snake_case, so that the spelling makes no other user."""
        named = {snake_case(key): inner for key, inner in (value or {}).items()}
        if taken := [name for name in _RESERVED if name in named]:
            raise ValueError(f"`{taken[0]}` cannot be set: custom_instructions hold the user's prompt")
        return named or None

    @field_validator("custom_instructions")
    @classmethod
    def _check_placeholders(cls, value: str | None) -> str | None:
        if value is not None and (missing := [name for name in _PLACEHOLDERS if name not in _variables(value)]):
            raise ValueError("needs the placeholder " + ", ".join(f"{{{{ {name} }}}}" for name in missing))
        return value

    def placeholders(self) -> frozenset[str]:
        """The placeholders in the custom instructions."""
        return _variables(self.custom_instructions or "")


def _variables(template: str) -> frozenset[str]:
    """The variables of a jinja2 template, as ADK finds them. Raises ValueError for an invalid template."""
    from jinja2 import TemplateSyntaxError, meta  # noqa: PLC0415 - few configurations need it
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415 - as above

    environment = SandboxedEnvironment()
    environment.filters["render_string_filter"] = str
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(template)))
    except TemplateSyntaxError as error:
        raise ValueError(f"is no jinja2 template: line {error.lineno}: {error.message}") from error
