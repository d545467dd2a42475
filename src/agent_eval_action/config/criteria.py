"""Criteria as configured: name, options, and where that is written. ``criteria.build`` makes them real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_snake

from agent_eval_action.config.eval_config import MetricKind, is_eval_config, read_eval_config
from agent_eval_action.diagnostics.foreign_files import recognise_criteria_file
from agent_eval_action.diagnostics.reader import JsonPath, Source, shorten
from agent_eval_action.diagnostics.validation import Issue, issues_of, locate
from agent_eval_action.errors import ConfigError, Problem
from agent_eval_action.results.base import AdkModel


@dataclass(frozen=True, slots=True)
class CriterionSpec:
    """One entry of ``criteria`` in a test_config.json or agent-eval.yaml.

    ``at`` leads to it inside ``source``; ``custom`` is the entry of ``custom_metrics`` of that name; ``metric`` says
    what scores a metric of agents-cli, whose name is the user's own.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    line: int | None = None
    at: JsonPath = ()
    source: Source | None = field(default=None, compare=False, repr=False)
    custom: CustomMetric | None = None
    metric: MetricKind | None = None

    def problem(self, message: str, *, inside: JsonPath = (), **fields: Any) -> Problem:
        """A problem with this entry, or with the option at ``inside``, at its line."""
        if self.source is not None:
            return self.source.problem((*self.at, *inside), message, **fields)
        return Problem(path=self.path or Path("criteria"), message=message, line=self.line, **fields)


DEFAULT_CRITERIA: Final = (
    CriterionSpec("tool_trajectory_avg_score", {"threshold": 1.0}),
    CriterionSpec("response_match_score", {"threshold": 0.8}),
)
"""What ADK applies where no config is."""


@dataclass(frozen=True, slots=True)
class CriteriaConfig:
    """A test_config.json as read: shapes are checked; names and options of criteria are ``build``'s to check."""

    specs: tuple[CriterionSpec, ...]
    user_simulator_config: UserSimulatorConfig | None = None
    warnings: tuple[Problem, ...] = ()


def load_criteria_file(path: Path, *, workspace: Path) -> CriteriaConfig:
    """Read a test_config.json or an eval_config of agents-cli (or YAML, by its suffix).

    Raises ConfigError with every problem of the file.
    """
    source = Source.read(path, workspace=workspace, error=ConfigError)
    data, beside = source.value, _BesideCriteria()
    issues: list[Issue] = []
    specs: tuple[CriterionSpec, ...] = ()
    warnings = list(source.warnings)
    if is_eval_config(data):
        metrics, issues, noted = read_eval_config(source, workspace)
        warnings += noted
        specs = tuple(
            CriterionSpec(
                metric.name, metric.options, path, source.line(metric.at), metric.at, source, None, metric.kind
            )
            for metric in metrics
        )
    elif _is_adk_rust(data):
        specs, issues = _adk_rust_criteria(data, source)
    elif foreign := recognise_criteria_file(data):
        issues = [Issue(f"this {foreign.refusal}", hint=foreign.hint)]
    elif not isinstance(data, Mapping):
        issues = [Issue("a criteria config is a mapping with the key criteria", value=shorten(data))]
    else:
        others = {key: value for key, value in data.items() if key not in ("criteria", "$schema")}
        try:
            beside = _BesideCriteria.model_validate(set_values(others))
        except ValidationError as error:
            issues += issues_of(error, data, _BesideCriteria)
        specs, wrong = parse_criteria(data.get("criteria"), source=source, custom_metrics=beside.custom_metrics)
        issues += [replace(issue, at=("criteria", *issue.at)) for issue in wrong]
    if issues:
        problems = [source.problem(issue.at, issue.message, **issue.fields) for issue in issues]
        raise ConfigError(f"{path} is not a criteria config that can be used", problems=problems)
    for name in beside.custom_metrics.keys() - {spec.name for spec in specs}:
        message = f"custom metric {name} is not in criteria, so it never runs"
        warnings.append(source.problem(locate(data, ("custom_metrics", name)), message, severity="warning"))
    return CriteriaConfig(specs, beside.user_simulator_config, tuple(warnings))


_SCORED_HERE: Final = {
    "tool_trajectory_score": "tool_trajectory_config",
    "response_similarity": "response_match_config",
}
"""Criteria of an ADK-Rust file, each with the key of its options."""
_JUDGED_HERE: Final = {
    "semantic_match_score": "final_response_match_v2",
    "rubric_quality_score": "rubric_based_final_response_quality_v1",
    "safety_score": "safety_v1",
    "hallucination_score": "hallucinations_v1",
}
"""Those that are not scored, each with the criterion that asks the same."""


def _is_adk_rust(data: Any) -> bool:
    """A mapping with a criterion of ADK-Rust at its top."""
    return (
        isinstance(data, Mapping)
        and "criteria" not in data
        and bool((_SCORED_HERE | _JUDGED_HERE).keys() & data.keys())
    )


def _adk_rust_criteria(data: Mapping[str, Any], source: Source) -> tuple[tuple[CriterionSpec, ...], list[Issue]]:
    """The criteria of an ADK-Rust file. What it would not score is refused, where ADK-Rust ignores unknown keys."""
    issues: list[Issue] = []
    specs: list[CriterionSpec] = []
    known = {*_SCORED_HERE, *_SCORED_HERE.values(), *_JUDGED_HERE, "semantic_match_config", "rubric_config"}
    for key, value in data.items():
        if key not in known and value not in (None, []):
            issues.append(Issue(f"ADK-Rust has no criterion `{key}` that it scores", (key,), shorten(value)))
        elif key in _JUDGED_HERE and value is not None:
            hint = f'write {{"criteria": {{"{_JUDGED_HERE[key]}": ...}}}} in a file of ADK\'s'
            issues.append(Issue(f"`{key}` of ADK-Rust is not scored in this version", (key,), hint=hint))
        elif key in _SCORED_HERE and value is not None:
            given = data.get(_SCORED_HERE[key]) or {}
            if not isinstance(given, Mapping):
                issues.append(Issue("must be an object", (_SCORED_HERE[key],), shorten(given)))
                continue
            options = {**set_values(given), "threshold": value}
            specs.append(CriterionSpec(key, options, source.path, source.line((key,)), (key,), source))
    if not (specs or issues):
        issues.append(Issue("no criteria, so there is nothing to measure"))
    return tuple(specs), issues


def parse_criteria(
    mapping: Any,
    *,
    source: Source | None,
    at: JsonPath = ("criteria",),
    custom_metrics: Mapping[str, CustomMetric] | None = None,
) -> tuple[tuple[CriterionSpec, ...], tuple[Issue, ...]]:
    """The entries of a ``criteria`` mapping at ``at`` of a file, and what is wrong inside it."""
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
            # a function of the user's own may tell a null from an option that is absent
            options = set_values(value, nulls=name in custom)
        elif isinstance(value, list):
            issues.append(Issue("a criterion is a threshold or a mapping of options", (name,), shorten(value)))
        place = (*at, name)
        path, line = (source.path, source.line(place)) if source else (None, None)
        specs.append(CriterionSpec(name, options, path, line, place, source, custom.get(name)))
    if not specs:
        hint = 'for example "criteria": {"response_match_score": 0.8}'
        issues.append(Issue("no criteria, so there is nothing to measure", hint=hint))
    return tuple(specs), tuple(issues)


def set_values(value: Any, *, nulls: bool = False) -> Any:
    """The value without remarks (keys that begin with an underscore) and, at every depth, without nulls.

    google-adk's ``EvalConfig.model_dump_json()`` writes every option, those that are not set as null.
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
    def _check_order(self) -> Self:
        if not self.min_value <= self.max_value:
            raise ValueError(f"min_value {self.min_value} is not below max_value {self.max_value}")
        return self


class MetricValueInfo(AdkModel):
    """What kind of value a metric has."""

    interval: Interval | None = None


class MetricInfo(AdkModel):
    """A custom metric's description of itself."""

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
        """Spell the names of GenerateContentConfig one way, so that both spellings are the same user."""
        named = {to_snake(key): inner for key, inner in (value or {}).items()}
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
        """What the custom instructions ask to be filled in."""
        return _variables(self.custom_instructions or "")


def _variables(template: str) -> frozenset[str]:
    """The variables of a jinja2 template, as ADK finds them. Raises ValueError for an invalid template."""
    from jinja2 import TemplateSyntaxError, meta  # noqa: PLC0415 - needed by few configurations
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415 - as above

    environment = SandboxedEnvironment()
    environment.filters["render_string_filter"] = str
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(template)))
    except TemplateSyntaxError as error:
        raise ValueError(f"is no jinja2 template: line {error.lineno}: {error.message}") from error


def _refuse_live_mode(value: Any) -> None:
    """Live mode changes how the agent is driven: without it the run would measure something else."""
    if value is not None:
        raise ValueError("live (bidirectional streaming) mode is known, but not in this version")


class _BesideCriteria(AdkModel):
    """What a test_config.json holds beside its criteria."""

    criteria: None = None
    custom_metrics: dict[str, CustomMetric] = Field(default_factory=dict)
    user_simulator_config: UserSimulatorConfig | None = None
    live_model_config: Annotated[Any, AfterValidator(_refuse_live_mode)] = None
