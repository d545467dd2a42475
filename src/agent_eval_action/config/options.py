"""The options, made from the models of the settings, and the inputs of the actions that are no options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from agent_eval_action.config.models import INFO, OptionInfo, Settings
from agent_eval_action.config.types import ValueType


def variables_of(name: str) -> tuple[str, str]:
    """The variables of an input: the runner's spelling, whose dashes stay, and the one a shell can set."""
    return f"INPUT_{name.upper()}", f"INPUT_{name.upper().replace('-', '_')}"


def given_type(definition: FieldInfo) -> Any:
    """The type of a field's value where it is given; None is among them only where it has a meaning."""
    kind, metadata = definition.annotation, tuple(definition.metadata)
    if get_origin(kind) in (Union, UnionType) and not metadata:
        return reduce(lambda one, other: one | other, (part for part in get_args(kind) if part is not NoneType))
    return Annotated[(kind, *metadata)]


@dataclass(frozen=True)
class Option:
    """One option. ``name`` is its key in the flags given to ``resolve``.

    ``key`` is its dotted place in agent-eval.yaml, None when it has none; ``field`` leads to it in Settings.
    """

    name: str
    key: str | None
    field: tuple[str, ...]
    definition: FieldInfo
    info: OptionInfo

    @property
    def help(self) -> str:
        """One sentence."""
        return str(self.definition.description)

    @property
    def default(self) -> Any:
        """What the setting is where nobody gives it."""
        return self.definition.default

    @property
    def flag(self) -> str | None:
        """As typed at the command; None where a positional argument says it."""
        if self.info.switch:
            return self.info.switch
        return "--" + self.name.replace("_", "-") if self.info.has_flag else None

    @property
    def input(self) -> str:
        """The input of the Action."""
        return self.name.replace("_", "-")

    @property
    def section(self) -> str:
        """The field of Settings whose model it is in, "" for one of Settings itself."""
        return "" if len(self.field) == 1 else self.field[0]

    @property
    def variables(self) -> tuple[str, str]:
        """The variables of its input."""
        return variables_of(self.input)

    @property
    def shown(self) -> str:
        """The default as the docs write it; "" where there is nothing to say."""
        if self.default is None or self.default in ({}, ()):
            return self.info.shown.replace("{}", "")
        text = str(self.default).lower() if isinstance(self.default, bool) else str(self.default)
        if isinstance(self.default, float):
            minutes = self.value_type.label == "duration" and not self.name.endswith("_s")
            text = f"{self.default / 60:g}m" if minutes else f"{self.default:g}"
        return self.info.shown.replace("{}", f"`{text}`")

    @property
    def metavar(self) -> str:
        """The placeholder of its value in ``--help``."""
        return self.info.metavar or self.value_type.metavar

    @cached_property
    def annotation(self) -> Any:
        """The type of a value that is given."""
        return given_type(self.definition)

    @cached_property
    def value_type(self) -> ValueType:
        """What is written for a value; of a choice, its words."""
        kind = self.annotation
        metadata = kind.__metadata__
        found: ValueType = next(part for part in metadata if isinstance(part, ValueType))
        if get_origin(kind.__origin__) is not Literal:
            return found
        words = get_args(kind.__origin__)
        return replace(found, label=" or ".join(f"`{word}`" for word in words), metavar="|".join(words))

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Validates a value of this option; the context is the value's Origin."""
        return TypeAdapter(self.annotation)

    def of_settings(self, settings: Any) -> Any:
        """The value that settings have."""
        return reduce(getattr, self.field, settings)


_SECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "agent_defaults": ("", ""),
    "baseline": ("baseline_", "baseline."),
    "llm": ("llm_", "llm."),
    "policy": ("", "gate."),
}
"""Nested models of Settings: what the names and the keys of their options begin with."""
SECTION_FIELDS: Final = ("baseline", "llm", "policy")


def _options(model: type[BaseModel], name: str = "", key: str = "", path: tuple[str, ...] = ()) -> Iterator[Option]:
    for field, definition in model.model_fields.items():
        if field in _SECTIONS and not path:
            yield from _options(definition.annotation, *_SECTIONS[field], (field,))  # type: ignore[arg-type]  # a model
        extra = definition.json_schema_extra
        info = extra.get(INFO) if isinstance(extra, dict) else None
        if isinstance(info, OptionInfo):
            scope = replace(info, scope="agent") if path == ("agent_defaults",) else info
            own_key = None if info.scope == "command" else info.key or key + field
            yield Option(info.name or name + field, own_key, (*path, field), definition, scope)


OPTIONS: Final = tuple(_options(Settings))
BY_NAME: Final = {option.name: option for option in OPTIONS}
AGENT_OPTIONS: Final = tuple(option for option in OPTIONS if option.info.scope == "agent")


@dataclass(frozen=True, slots=True)
class ActionInput:
    """An input that is no option. ``variable`` is the environment variable it stands for, "" for none."""

    name: str
    help: str
    default: str = ""
    variable: str = ""

    @property
    def variables(self) -> tuple[str, str]:
        """The variables of the input."""
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
"""Each means its variable, which ``env:`` of the step sets as well; where both are given, the input counts."""

CONTEXT: Final = (
    ActionInput(
        "matrix",
        "The job's leg of its matrix: each leg has a comment of its own. Leave it alone.",
        "${{ toJSON(matrix) }}",
    ),
)

HOST: Final = (
    ActionInput(
        "tool-python",
        "The Python, 3.11 or newer, that agent-eval itself runs on: a version or a path; "
        "never the agent's. Default: uv finds one, or downloads 3.13.",
    ),
    ActionInput(
        "tool-index",
        "Package index that agent-eval itself is installed from, where PyPI is not reached. "
        "Default: `UV_DEFAULT_INDEX`, else PyPI.",
    ),
)
"""Of host/action.yml alone: its tool is installed when the step runs."""

NO_OPTIONS: Final = (*CREDENTIALS, *CONTEXT)


def given_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that inputs stand for, with the inputs' values. The empty string is an input nobody gave.

    The job's token is given always, so there a variable that somebody set counts first.
    """

    def given(variables: tuple[str, str]) -> str:
        return next((text for name in variables if (text := environ.get(name, "").strip())), "")

    credentials = {item.variable: text for item in CREDENTIALS if (text := given(item.variables))}
    token = given(BY_NAME["github_token"].variables)
    if token and not environ.get("GITHUB_TOKEN"):
        credentials["GITHUB_TOKEN"] = token
    return credentials
