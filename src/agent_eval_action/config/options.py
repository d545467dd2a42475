"""The options, derived from the settings models, and the action's inputs that are not options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from agent_eval_action.config.models import AgentIdentity, Settings
from agent_eval_action.config.option_info import INFO, OptionInfo, Topic
from agent_eval_action.config.types import ValueType


def variables_of(name: str) -> tuple[str, str]:
    """The variables of an input: with dashes as the runner sets it, and with underscores as a shell can set it."""
    return f"INPUT_{name.upper()}", f"INPUT_{name.upper().replace('-', '_')}"


def given_type(definition: FieldInfo) -> Any:
    """The type of a field's value when given; excludes None unless None can be given."""
    kind, metadata = definition.annotation, tuple(definition.metadata)
    if get_origin(kind) in (Union, UnionType) and not metadata:
        return reduce(lambda one, other: one | other, (part for part in get_args(kind) if part is not NoneType))
    return Annotated[(kind, *metadata)]


@dataclass(frozen=True)
class Option:
    """An option. ``name`` is its key in the flags of ``resolve``, ``help`` its description in one sentence.

    ``key`` is its dotted path in agent-eval.yaml, or None; ``field`` its path in Settings. ``default`` is the
    setting's default, ``shown`` how the docs write it.
    """

    name: str
    key: str | None
    field: tuple[str, ...]
    info: OptionInfo
    help: str
    default: Any
    annotation: Any
    value_type: ValueType

    @property
    def flag(self) -> str | None:
        return (self.info.switch or f"--{self.input}") if self.info.has_flag else None

    @property
    def input(self) -> str:
        return self.name.replace("_", "-")

    @property
    def variables(self) -> tuple[str, str]:
        return variables_of(self.input)

    @property
    def of_base(self) -> bool:
        """Whether the base commit's value applies when a change is tested."""
        return (self.info.of or ("base" if self.info.scope == "run" else "change")) == "base"

    @property
    def shown(self) -> str:
        """The default as the docs write it; "" if there is none."""
        if self.default is None or self.default in ({}, ()):
            return self.info.shown.replace("{}", "")
        text = str(self.default).lower() if isinstance(self.default, bool) else str(self.default)
        if isinstance(self.default, float):
            minutes = self.value_type.label == "duration" and not self.name.endswith("_s")
            text = f"{self.default / 60:g}m" if minutes else f"{self.default:g}"
        return self.info.shown.replace("{}", f"`{text}`")

    @property
    def metavar(self) -> str:
        return self.info.metavar or self.value_type.metavar

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Validates a value of this option; the context is the value's Origin."""
        return TypeAdapter(self.annotation)

    def of_settings(self, settings: Any) -> Any:
        return reduce(getattr, self.field, settings)


_SECTIONS: Final[Mapping[str, tuple[str, str, Topic]]] = {
    "agent_defaults": ("", "", "The agent"),
    "baseline": ("baseline_", "baseline.", "Baseline"),
    "llm": ("llm_", "llm.", "Models that judge"),
    "policy": ("", "gate.", "What blocks"),
}
"""Nested models of Settings: prefixes of the names and the keys of their options, and their topic."""


def _options(
    model: type[BaseModel], name: str = "", key: str = "", topic: Topic = "The agent", path: tuple[str, ...] = ()
) -> Iterator[Option]:
    for field, definition in model.model_fields.items():
        if field in _SECTIONS and not path:
            yield from _options(definition.annotation, *_SECTIONS[field], (field,))  # type: ignore[arg-type]  # a model
        extra = definition.json_schema_extra
        info = extra.get(INFO) if isinstance(extra, dict) else None
        if isinstance(info, OptionInfo):
            scope = "agent" if path == ("agent_defaults",) else info.scope
            info = replace(info, scope=scope, topic=info.topic or topic)
            annotation = given_type(definition)
            value_type: ValueType = next(part for part in annotation.__metadata__ if isinstance(part, ValueType))
            if get_origin(annotation.__origin__) is Literal:  # its label lists the choices
                words = get_args(annotation.__origin__)
                value_type = replace(value_type, label=" or ".join(f"`{w}`" for w in words), metavar="|".join(words))
            yield Option(
                name=info.name or name + field,
                key=None if scope == "command" else info.key or key + field,
                field=(*path, field),
                info=info,
                help=str(definition.description),
                default=definition.default,
                annotation=annotation,
                value_type=value_type,
            )


OPTIONS: Final = tuple(_options(Settings))
JUDGING_OPTIONS: Final = tuple(option for option in OPTIONS if option.info.scope == "run" and option.of_base)
"""Run options that a change cannot set for itself."""

BY_NAME: Final = {option.name: option for option in OPTIONS}
AGENT_OPTIONS: Final = tuple(option for option in OPTIONS if option.info.scope == "agent")
AGENT_ENTRY: Final = {option.name: option for option in (*_options(AgentIdentity), *AGENT_OPTIONS)}
"""The keys that an entry of ``agents`` may have."""


@dataclass(frozen=True, slots=True)
class ActionInput:
    """An input that is not an option. ``variable``: the environment variable that it sets, or ""."""

    name: str
    help: str
    default: str = ""
    variable: str = ""

    @property
    def variables(self) -> tuple[str, str]:
        return variables_of(self.name)


def _credential(variable: str, sentence: str) -> ActionInput:
    return ActionInput(variable.lower().replace("_", "-"), f"{sentence} Default: `{variable}`.", variable=variable)


CREDENTIALS: Final = (
    _credential("GOOGLE_API_KEY", "Key of the Gemini API, for agents and judges."),
    _credential("GOOGLE_GENAI_USE_VERTEXAI", "true: Gemini is asked on Vertex AI."),
    _credential("GOOGLE_CLOUD_PROJECT", "Project that Vertex AI is asked in."),
    _credential("GOOGLE_CLOUD_LOCATION", "Location that Vertex AI is asked in."),
    _credential("OPENAI_API_KEY", "Key of OpenAI, or of a server that speaks its wire, for agents and judges."),
    _credential("ANTHROPIC_API_KEY", "Key of Anthropic, for agents."),
)
"""Each input sets a variable that ``env:`` of the step can set as well; the input wins."""

_MATRIX: Final = ActionInput(
    "matrix",
    "The job's leg of its matrix: each leg has its own comment. Do not set it.",
    "${{ toJSON(matrix) }}",
)
NO_OPTIONS: Final = (*CREDENTIALS, _MATRIX)


def given_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables set by inputs, with their values. An empty string means not given.

    The input of the job's token always has a value, so an existing GITHUB_TOKEN wins over it.
    """

    def given(item: ActionInput | Option) -> str:
        return next((text for name in item.variables if (text := environ.get(name, "").strip())), "")

    credentials = {item.variable: text for item in CREDENTIALS if (text := given(item))}
    token = given(BY_NAME["github_token"])
    return credentials | ({"GITHUB_TOKEN": token} if token and not environ.get("GITHUB_TOKEN") else {})
