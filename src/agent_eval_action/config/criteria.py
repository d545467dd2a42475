"""Criteria as configured: name, options, and where that is written. ``criteria.build`` makes them real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel, to_snake

from agent_eval_action.diagnostics.reader import JsonPath, Source, did_you_mean, shorten
from agent_eval_action.diagnostics.suggestions import recognise_foreign_criteria
from agent_eval_action.errors import ConfigError, Problem
from agent_eval_action.results.base import AdkModel

_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class CriterionSpec:
    """One entry of ``criteria`` in a test_config.json or agent-eval.yaml.

    ``at`` leads to it inside ``source``; ``custom`` is the entry of ``custom_metrics`` of that name.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    line: int | None = None
    at: JsonPath = ()
    source: Source | None = field(default=None, compare=False, repr=False)
    custom: CustomMetric | None = None

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
    custom_metrics: Mapping[str, CustomMetric] = field(default_factory=dict)
    user_simulator_config: UserSimulatorConfig | None = None
    live_model_config: LiveModelConfig | None = None
    warnings: tuple[Problem, ...] = ()
    path: Path | None = None


def load_criteria_file(path: Path, *, workspace: Path) -> CriteriaConfig:
    """Read a test_config.json (or YAML, by its suffix). Raises ConfigError with every problem of the file."""
    reader = _Reader(Source.read(path, workspace=workspace, error=ConfigError))
    config = reader.config()
    if reader.errors:
        raise ConfigError(f"{path} is not a criteria config that can be used", problems=reader.errors)
    return config


def parse_criteria(
    mapping: Any,
    *,
    source: Source,
    at: JsonPath = ("criteria",),
    custom_metrics: Mapping[str, CustomMetric] | None = None,
) -> tuple[tuple[CriterionSpec, ...], tuple[Problem, ...]]:
    """The entries of a ``criteria`` mapping at ``at`` of a file, and what is wrong with it."""
    reader = _Reader(source)
    specs = reader.criteria(mapping, at, custom_metrics or {})
    return specs, tuple(reader.errors)


_TOP: Final = ("criteria", "custom_metrics", "user_simulator_config", "live_model_config")
_ABSENT: Final = object()


class _Reader:
    """Collects problems while a config is read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = list(source.warnings)

    def config(self) -> CriteriaConfig:
        data = self.source.value
        if foreign := recognise_foreign_criteria(data):
            self._add((), f"this is {foreign[0]}, which is not read", hint=foreign[1])
            return CriteriaConfig(())
        if not isinstance(data, Mapping):
            self._add((), "a criteria config is a mapping with the key criteria", value=data)
            return CriteriaConfig(())
        top = self._top(data)
        custom = self._custom_metrics(*top["custom_metrics"])
        at, mapping = top["criteria"]
        specs = self.criteria(mapping, at, custom)
        named = {spec.name for spec in specs}
        for name in custom.keys() - named if specs else ():
            place = (*top["custom_metrics"][0], name)
            text = f"custom metric {name} is not in criteria, so it never runs"
            self.warnings.append(self.source.problem(place, text, severity="warning"))
        return CriteriaConfig(
            specs=specs,
            custom_metrics=custom,
            user_simulator_config=self._model(UserSimulatorConfig, *top["user_simulator_config"]),
            live_model_config=self._live(*top["live_model_config"]),
            warnings=tuple(self.warnings),
            path=self.source.path,
        )

    def criteria(self, mapping: Any, at: JsonPath, custom: Mapping[str, CustomMetric]) -> tuple[CriterionSpec, ...]:
        if mapping is not None and not isinstance(mapping, Mapping):
            self._add(at, "criteria is a mapping of criterion to threshold or options", value=mapping)
            return ()
        specs = []
        for key, value in (mapping or {}).items():
            if not is_comment(key):
                name, place = str(key), (*at, str(key))
                line = self.source.line(place)
                options = self._options(value, place, nulls=name in custom)
                specs.append(CriterionSpec(name, options, self.source.path, line, place, self.source, custom.get(name)))
        if not specs:
            example = '"criteria": {"response_match_score": 0.8}'
            self._add(at, "no criteria, so there is nothing to measure", hint=f"for example {example}")
        return tuple(specs)

    def _options(self, value: Any, at: JsonPath, *, nulls: bool) -> dict[str, Any]:
        """``nulls``: the user's own function may tell a null from an option that is absent."""
        if isinstance(value, list):
            self._add(at, "a criterion is a threshold or a mapping of options", value=value)
            return {}
        if isinstance(value, Mapping):
            return dict(set_values(value, nulls=nulls))
        return {} if value is None else {"threshold": value}

    def _top(self, data: Mapping[Any, Any]) -> dict[str, tuple[JsonPath, Any]]:
        """The known keys in snake_case, each with its place and value; absent ones are None."""
        spellings = {spelling: name for name in _TOP for spelling in (name, to_camel(name))}
        found: dict[str, tuple[JsonPath, Any]] = {}
        for key, value in data.items():
            name = spellings.get(key)
            if name is None:
                if not is_comment(key) and key != "$schema":
                    self._add(
                        (str(key),), f"unknown key `{shorten(str(key))[1:-1]}`", hint=did_you_mean(str(key), _TOP)
                    )
            elif name in found:
                self._add((key,), f"`{key}` and `{found[name][0][0]}` are the same key, given twice")
            else:
                found[name] = ((key,), value)
        return {name: found.get(name, ((name,), None)) for name in _TOP}

    def _custom_metrics(self, at: JsonPath, entries: Any) -> dict[str, CustomMetric]:
        if entries is not None and not isinstance(entries, Mapping):
            self._add(at, "custom_metrics is a mapping of name to code_config", value=entries)
            return {}
        made = {
            str(name): self._model(CustomMetric, (*at, str(name)), {} if value is None else value)
            for name, value in (entries or {}).items()
            if not is_comment(name)
        }
        return {name: metric for name, metric in made.items() if metric is not None}

    def _live(self, at: JsonPath, value: Any) -> LiveModelConfig | None:
        if value is not None:
            # Its presence changes how the agent is driven: running the turns without it would measure another thing.
            self._add(at, "live (bidirectional streaming) mode is known, but not in this version")
        return self._model(LiveModelConfig, at, value)

    def _model(self, kind: type[_M], at: JsonPath, value: Any) -> _M | None:
        if value is None:
            return None
        try:
            return kind.model_validate(set_values(value))
        except ValidationError as error:
            self.errors += [
                self.source.problem((*at, *place), message, **fields)
                for place, message, fields in refusals(error, kind)
            ]
            return None

    def _add(self, at: JsonPath, message: str, *, value: Any = _ABSENT, hint: str | None = None) -> None:
        text = None if value is _ABSENT else shorten(value)
        self.errors.append(self.source.problem(at, message, value=text, hint=hint))


def is_comment(key: Any) -> bool:
    """Keys that begin with an underscore are remarks of the author."""
    return isinstance(key, str) and key.startswith("_")


def set_values(value: Any, *, nulls: bool = False) -> Any:
    """What somebody set: without comment keys and, at every depth, without the nulls that google-adk writes.

    ``EvalConfig.model_dump_json()`` writes every option, those that are not set as null.
    """
    if isinstance(value, Mapping):
        return {
            str(key): set_values(inner, nulls=nulls)
            for key, inner in value.items()
            if not is_comment(key) and (nulls or inner is not None)
        }
    return [set_values(inner, nulls=nulls) for inner in value] if isinstance(value, list) else value


def refusals(error: ValidationError, kind: type[BaseModel]) -> list[tuple[JsonPath, str, dict[str, str | None]]]:
    """Each problem of a validation: where, in words, and the fields ``value`` and ``hint`` of a Problem."""
    found: list[tuple[JsonPath, str, dict[str, str | None]]] = []
    for detail in error.errors(include_url=False):
        place, text = tuple(detail["loc"]), detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            key = str(place[-1])
            hint = did_you_mean(key, _fields_at(kind, place[:-1]))
            found.append((place, f"unknown key `{key}`", {"hint": hint}))
        elif detail["type"] == "missing":
            name = to_snake(str(place[-1]))  # pydantic names its camelCase spelling
            found.append(((*place[:-1], name), f"`{name}` is required", {}))
        else:
            found.append((place, text[:1].lower() + text[1:], {"value": shorten(detail["input"])}))
    return found


def _fields_at(kind: type[BaseModel], place: JsonPath) -> tuple[str, ...]:
    """The keys that are known at a place inside a model; none where that is no model."""
    for step in place:
        field = kind.model_fields.get(to_snake(str(step)))
        inner = (field.annotation, *get_args(field.annotation)) if field else ()
        models = [one for one in inner if isinstance(one, type) and issubclass(one, BaseModel)]
        if not models:
            return ()
        kind = models[0]
    return tuple(kind.model_fields)


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
