"""Types of option values. They read a value from YAML or the text of a flag or an input."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, InstanceOf, ValidationError, create_model
from pydantic_core import CoreSchema, core_schema

from agent_eval_action.config.criteria import CriterionSpec, UserSimulatorConfig, parse_criteria, set_values
from agent_eval_action.config.job_variables import JOB_VARIABLE_PATTERN, is_job_variable
from agent_eval_action.diagnostics.reader import JsonPath, Source, did_you_mean, shorten
from agent_eval_action.diagnostics.validation import Issue, invalid, invalid_parts, issues_of
from agent_eval_action.errors import ConfigError, EvalFileError, Problem
from agent_eval_action.results.base import Frozen
from agent_eval_action.results.redaction import pattern_problem

if TYPE_CHECKING:
    from agent_eval_action.results.evalset import ColumnMapping


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was given. Its relative paths start from ``base``.

    ``path`` is shown to people: the file, ``INPUT_FAIL-ON`` or ``--fail-on``. ``text``: the value is text from a flag
    or variable, not from YAML. ``search_path``: the PATH to search. ``at``: the JSON path of the value in ``source``.
    """

    base: Path = Path()
    path: Path = Path()
    line: int | None = None
    text: bool = False
    search_path: str | None = None
    source: Source | None = field(default=None, compare=False, repr=False)
    at: JsonPath = ()

    @property
    def label(self) -> str:
        """``path:line``, or ``path`` if there is no line."""
        return str(self.path) if self.line is None else f"{self.path}:{self.line}"

    def inside(self, *steps: str | int) -> Origin:
        at = (*self.at, *steps)
        return replace(self, at=at, line=self.source.line(at)) if self.source else self

    def problem(self, message: str, **fields: Any) -> Problem:
        return Problem(self.path, message, self.line, **fields)

    def issue(self, issue: Issue) -> Problem:
        """A problem inside the value; in a file, with JSON path and line."""
        if self.source is None:
            return self.problem(issue.message, **issue.fields)
        return self.source.problem((*self.at, *issue.at), issue.message, **issue.fields)


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A configured value and its origin."""

    value: Any
    origin: Origin


@dataclass(frozen=True, slots=True, eq=False)
class ValueType:
    """Annotation of a type: how to read a value before pydantic validates it, and how to show the type.

    ``label`` appears in the docs, ``metavar`` in ``--help``. ``read`` gets the value as written and its origin.
    ``schema`` replaces the JSON Schema of the type; ``schema_beside`` is an alternative to the type's own.
    """

    label: str
    read: Callable[[Any, Origin], Any]
    schema: Mapping[str, Any] | None = None
    metavar: str = "TEXT"
    schema_beside: Mapping[str, Any] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        optional = type(None) in get_args(source)

        def validate(value: Any, info: core_schema.ValidationInfo) -> Any:
            return None if value is None and optional else self.read(value, info.context or Origin())

        return core_schema.with_info_before_validator_function(validate, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        if self.schema is not None:
            return dict(self.schema)
        own = handler(schema)
        return {"anyOf": [dict(self.schema_beside), own]} if self.schema_beside is not None else own


def _text(value: Any, _: Origin) -> str:
    if not isinstance(value, str):
        raise invalid("must be text", "put it in quotes" if isinstance(value, bool | int | float) else None)
    if "\0" in value:
        raise invalid("must not hold a NUL character")
    if not value.strip():
        raise invalid("must not be empty")
    return value


_TEXT_SCHEMA: Final = {"type": "string", "minLength": 1}
SECRET_TEXT: Final = ValueType("text", lambda v, at: _text(v, at) if isinstance(v, str) else v, _TEXT_SCHEMA)
Text = Annotated[str, ValueType("text", _text, _TEXT_SCHEMA)]


def _name_like(pattern: str, message: str, metavar: str = "TEXT", label: str = "name") -> ValueType:
    def read(value: Any, origin: Origin) -> str:
        name = _text(value, origin)
        if not re.fullmatch(pattern, name) or not name.isprintable():
            raise invalid(message)
        return name

    return ValueType(label, read, {"type": "string", "minLength": 1, "pattern": f"^{pattern}$"}, metavar)


Name = Annotated[
    str,
    _name_like(
        r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]{1,200}", "must be a name: at most 200 printable characters, no / or \\"
    ),
]
_GIT_NAME: Final = r"(?!.*(\.\.|//|@\{|\.lock(/|$)|/\.))[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}(?<![./])"
GitName = Annotated[str, _name_like(_GIT_NAME, "must be a name git takes: letters, digits, - _ . /", "NAME")]
_ADDRESS: Final = r"https?://[^\s/]\S*"
Url = Annotated[str, _name_like(_ADDRESS, "must be an address like http://localhost:8000", "URL", "address")]
_FUNCTION: Final = r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*"
FunctionName = Annotated[
    str, _name_like(_FUNCTION, "must be like module:function", "MODULE:FUNCTION", "module:function")
]


def _path(value: Any, origin: Origin) -> Path:
    return origin.base / (value if isinstance(value, Path) else _text(value, origin))


FILE: Final = ValueType("path", _path, _TEXT_SCHEMA, "FILE")
FOLDER: Final = replace(FILE, metavar="DIR")


def _python(value: Any, origin: Origin) -> Path:
    """An interpreter, the folder of a virtual environment, or a name like python3.12 that is looked up on PATH.

    Links are not followed: the python of a virtual environment is a link, and its location matters.
    """
    path = _path(value, origin)
    if path.is_dir():
        return path / "bin" / "python"
    name = str(value)
    found = "/" not in name and not path.exists() and shutil.which(name, path=origin.search_path or "")
    return Path(found) if found else path


PYTHON: Final = ValueType("interpreter or folder", _python, _TEXT_SCHEMA, "INTERPRETER")


def _boolean(value: Any, origin: Origin) -> bool:
    word = value.strip().lower() if origin.text and isinstance(value, str) else value
    if not isinstance(word, bool) and (not origin.text or word not in ("true", "false")):
        raise invalid("must be true or false")
    return word in (True, "true")


Boolean = Annotated[bool, ValueType("true or false", _boolean, {"type": "boolean"}, "true|false")]
CHOICE: Final = ValueType("", lambda v, at: v.strip().lower() if at.text and isinstance(v, str) else v)
"""For a Literal, whose label lists its choices."""


def _number_of_text(value: Any, origin: Origin) -> Any:
    """Convert text to a number, or strip it and convert it to lower case; leave YAML values as they are."""
    if not origin.text or not isinstance(value, str):
        return value
    plain = value.strip().lower()
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(plain)
    return plain


def _number(value: Any, origin: Origin, message: str, minimum: float, maximum: float = sys.float_info.max) -> float:
    number = _number_of_text(value, origin)
    if not isinstance(number, int | float) or isinstance(number, bool) or not minimum <= number <= maximum:
        raise invalid(message)
    return float(number)


def whole_number(minimum: int, maximum: int) -> ValueType:
    """A whole number; the maximum only catches typos."""
    message = f"must be a whole number from {minimum} to {maximum}"

    def read(value: Any, origin: Origin) -> int:
        number = _number(value, origin, message, minimum, maximum)
        if not number.is_integer():
            raise invalid(message)
        return int(number)

    return ValueType("whole number", read, {"type": "integer", "minimum": minimum, "maximum": maximum}, "N")


def _number_type(message: str, schema: Mapping[str, Any], label: str = "number", metavar: str = "NUMBER") -> ValueType:
    """A number within the limits of its schema."""
    minimum = schema.get("minimum", sys.float_info.min)  # else more than 0
    maximum = schema.get("maximum", sys.float_info.max)
    return ValueType(label, lambda v, at: _number(v, at, message, minimum, maximum), schema, metavar)


def fraction(minimum: float, maximum: float) -> ValueType:
    """A number from ``minimum`` to ``maximum``, both included."""
    schema = {"type": "number", "minimum": minimum, "maximum": maximum}
    return _number_type(f"must be a number from {minimum:g} to {maximum:g}", schema)


_DURATION: Final = re.compile(
    r"(?=.*[1-9])(?:(\d{1,6}(?:\.\d{1,6})?)h)?(?:(\d{1,6}(?:\.\d{1,6})?)m)?(?:(\d{1,6}(?:\.\d{1,6})?)s)?", re.ASCII
)
_LONGEST: Final = 35 * 24 * 3600  # a self-hosted job may run 35 days


def _duration(value: Any, origin: Origin) -> float:
    number = _number_of_text(value, origin)
    if isinstance(number, str) and (match := _DURATION.fullmatch(number)):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        number = hours * 3600 + minutes * 60 + seconds
    message = "must be a time like 45m, 90s, 1h30m or a number of seconds"
    return _number(number, origin, message, sys.float_info.min, _LONGEST)


_DURATION_SCHEMA: Final = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": _LONGEST},
        {"type": "string", "pattern": f"^{_DURATION.pattern}$"},
    ]
}


class ShardOption(Frozen):
    """Shard ``number`` of ``count``. ``record``: the commit whose durations split the suite, "" for the newest."""

    number: int
    count: int
    record: str = ""

    def __str__(self) -> str:
        return f"{self.number}/{self.count}" + (f"@{self.record}" if self.record else "")


MOST_SHARDS: Final = 256
"""GitHub's limit of jobs in a matrix."""
_SHARD: Final = re.compile(r"([0-9]{1,3})/([0-9]{1,3})(?:@([0-9a-f]{7,64}))?")


def _shard(value: Any, origin: Origin) -> Any:
    found = _SHARD.fullmatch(_text(value, origin).strip())
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not found or not 1 <= number <= count <= MOST_SHARDS:
        raise invalid(f"must be like 3/8: a shard from 1 on, and how many there are, at most {MOST_SHARDS}")
    return ShardOption(number=number, count=count, record=found[3] or "")


ShardNumber = Annotated[ShardOption, ValueType("shard", _shard, _TEXT_SCHEMA, "N/COUNT")]

Duration = Annotated[float, ValueType("duration", _duration, _DURATION_SCHEMA, "DURATION")]
"""Seconds."""


def _limit(label: str, example: str, pattern: str) -> ValueType:
    """A limit on a change: a number from 0, or none for no limit."""

    def read(value: Any, origin: Origin) -> float | None:
        number = _number_of_text(value, origin)
        if number is None or number == "none":
            return None
        if isinstance(number, str) and re.fullmatch(pattern, number, re.ASCII):
            return float(number.removesuffix("%")) / 100
        return _number(number, origin, f"must be a number from 0 {example}, or none", 0)

    schema = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": pattern}, {"type": "null"}]}
    return ValueType(label, read, schema, "NUMBER")


Drop = Annotated[float | None, _limit("number", "like 0.05", "^none$")]
Rise = Annotated[float | None, _limit("number or percent", "like 0.1 or 10%", r"^(none|\d{1,6}(\.\d{1,6})?%)$")]
_MORE_THAN_0: Final = {"type": "number", "exclusiveMinimum": 0}
Dollars = Annotated[float, _number_type("must be an amount of USD like 2.50", _MORE_THAN_0, metavar="USD")]


def items_of(value: Any, origin: Origin, *, commas: bool = True) -> list[Any]:
    """The entries of a YAML list, a single value, or text with one entry per line or separated by ``commas``."""
    if isinstance(value, list | tuple):
        texts = (items_of(item, origin, commas=commas) for item in value)
        return [part for parts in texts for part in parts] if origin.text else list(value)
    if origin.text and isinstance(value, str):
        parts = value.split(",") if commas and "\n" not in value.strip() else value.splitlines()
        return [part.strip() for part in parts if part.strip()]
    return [value]


def or_list(schema: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of an item or a list of items."""
    return {"anyOf": [dict(schema), {"type": "array", "items": dict(schema), "minItems": 1}]}


Texts = Annotated[tuple[Text, ...], ValueType("text or list", items_of, or_list(_TEXT_SCHEMA))]
CasePatterns = Annotated[
    tuple[Text, ...], ValueType("text or lines", partial(items_of, commas=False), or_list(_TEXT_SCHEMA))
]
"""Not split at commas, because ids may contain them; ``formats.match_cases`` knows the ids."""
Files = Annotated[tuple[Annotated[Path, FILE], ...], ValueType("path or list", items_of, or_list(_TEXT_SCHEMA))]


@dataclass(frozen=True, slots=True)
class EvalPattern:
    """Eval files named by a path, folder or glob, with its origin and what the columns of its tables contain."""

    pattern: str
    origin: Origin
    columns: ColumnMapping | None = None

    def refusal(self, message: str, hint: str | None) -> EvalFileError:
        """The error of a pattern whose eval files cannot be found."""
        problem = self.origin.problem(message, value=shorten(self.pattern), hint=hint)
        return EvalFileError("eval files cannot be found", problems=(problem,))


@cache
def _table_entry() -> type[BaseModel]:
    """The model of an entry with a column mapping."""
    from agent_eval_action.results.evalset import ColumnMapping  # noqa: PLC0415 - would slow down `--help`

    return create_model("TableEntry", __base__=Frozen, path=(Text, ...), columns=(ColumnMapping, ...))


def _table(value: Any, _: Origin) -> Any:
    if not isinstance(value, SourcedValue) or not isinstance(value.value, Mapping):
        return value
    try:
        entry: Any = _table_entry().model_validate(dict(value.value))
    except ValidationError as error:
        raise invalid_parts(*issues_of(error, value.value, _table_entry())) from None
    return EvalPattern(entry.path, value.origin, entry.columns)


def _pattern(value: Any, _: Origin) -> EvalPattern:
    given, origin = (value.value, value.origin) if isinstance(value, SourcedValue) else (value, Origin())
    if isinstance(given, EvalPattern):
        return given
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        raise invalid_parts(Issue("must be text", value=shorten(given)))
    return EvalPattern(given, origin)


def _patterns(value: Any, origin: Origin) -> list[SourcedValue]:
    inside = origin.inside if isinstance(value, list) else lambda _: origin
    return [SourcedValue(item, inside(index)) for index, item in enumerate(items_of(value, origin))]


def _some_patterns(value: Any, origin: Origin) -> list[SourcedValue]:
    patterns = _patterns(value, origin)
    if not patterns and value != ():
        raise invalid("names no eval file")
    return patterns


_Pattern = Annotated[InstanceOf[EvalPattern], ValueType("", _pattern)]
_COLUMN_NAMES: Final = ("id", "prompt", "reference", "expected_tools", "history", "state")
_TABLE_SCHEMA: Final = {
    "type": "object",
    "required": ["path", "columns"],
    "additionalProperties": False,
    "properties": {
        "path": _TEXT_SCHEMA,
        "columns": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                **dict.fromkeys(_COLUMN_NAMES, _TEXT_SCHEMA),
                "metadata": {"type": "array", "items": _TEXT_SCHEMA},
            },
        },
    },
}
_EVALS_SCHEMA: Final = or_list({"anyOf": [_TEXT_SCHEMA, _TABLE_SCHEMA]})
Evals = Annotated[
    tuple[Annotated[_Pattern, ValueType("", _table)], ...],
    ValueType("path or glob, or a list", _some_patterns, _EVALS_SCHEMA),
]
"""Each entry is a path or, for a table, ``{path: data.csv, columns: {prompt: question}}``."""
_ANY_TEXTS: Final = {"anyOf": [_TEXT_SCHEMA, {"type": "array", "items": _TEXT_SCHEMA}]}
Paths = Annotated[tuple[_Pattern, ...], ValueType("path or glob, or a list", _patterns, _ANY_TEXTS)]
"""Files in addition to those that always count; the list may be empty."""


def _existing_file(value: str, origin: Origin, name: str) -> Path:
    path = _path(value, origin)
    if not path.is_file():
        siblings = [entry.name for entry in path.parent.glob("*.json")] if path.parent.is_dir() else []
        raise invalid(f"names a {name} that does not exist", did_you_mean(path.name, siblings))
    return path


def _criteria(value: Any, origin: Origin) -> Path | tuple[CriterionSpec, ...]:
    if isinstance(value, Path | tuple):
        return value
    if isinstance(value, str):
        return _existing_file(value, origin, "criteria file")
    if not isinstance(value, Mapping):
        raise invalid("must be a file or a mapping of criteria")
    if not value:
        raise invalid("names no criterion", "remove the key to have ADK's defaults")
    specs, issues = parse_criteria(value, source=origin.source, at=origin.at)
    if issues:
        raise invalid_parts(*issues)
    return specs


_CRITERIA_SCHEMA: Final = {"anyOf": [_TEXT_SCHEMA, {"type": "object", "minProperties": 1}]}
CriteriaSource = Annotated[
    Path | tuple[InstanceOf[CriterionSpec], ...], ValueType("file or mapping", _criteria, _CRITERIA_SCHEMA, "FILE")
]
"""A test_config.json, or the entries in agent-eval.yaml."""


def _simulator(value: Any, origin: Origin) -> Any:
    """A mapping, or a JSON or YAML file with one (of a test_config.json, its user_simulator_config)."""
    if isinstance(value, UserSimulatorConfig):
        return value
    if isinstance(value, str):
        path = _existing_file(value, origin, "file")
        try:
            value = Source.read(path, workspace=None, error=ConfigError).value
        except ConfigError as error:
            raise invalid("; ".join(map(str, error.problems)) or error.message) from error
        if isinstance(value, Mapping):
            value = value.get("user_simulator_config", value.get("userSimulatorConfig", value))
        if not isinstance(value, Mapping):
            raise invalid(f"{path.name} holds no mapping like user_simulator_config")
    if not isinstance(value, Mapping):
        raise invalid("must be a file or a mapping like user_simulator_config")
    return set_values(value)


UserSimulator = Annotated[
    UserSimulatorConfig, ValueType("file or mapping", _simulator, None, "FILE", schema_beside=_TEXT_SCHEMA)
]

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RENAME: Final = "put a secret of your own into a variable with another name, and read that one"


def _variables(value: Any, origin: Origin) -> dict[str, str | None]:
    """Variables to pass through (value None) or to set. Values are never shown because they may be secret.

    In text, each assignment needs its own line, because values may contain commas.
    """
    entries: list[tuple[str | int, Any, Any]] = []
    if isinstance(value, Mapping):
        entries = [(name, name, setting) for name, setting in value.items()]
    else:
        items = items_of(value, origin, commas=False)
        if origin.text:
            items = [item for line in items for item in ([line] if "=" in str(line) else items_of(line, origin))]
        for index, item in enumerate(items):
            name, equals, setting = item.partition("=") if isinstance(item, str) else (item, "", None)
            entries.append((index, name.strip() if equals else item, setting if equals else None))
    variables: dict[str, str | None] = {}
    issues: list[Issue] = []
    for at, name, setting in entries:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            issues.append(Issue("is not the name of an environment variable", (at,), shorten(name)))
        elif is_job_variable(name):
            message = "is a variable of the CI job, which no agent and no install step gets"
            issues.append(Issue(message, (at,), shorten(name), _RENAME))
        elif setting is not None and (not isinstance(setting, str) or "\0" in setting):
            issues.append(Issue(f"{name} must be text", (at,), hint="put the value in quotes"))
        else:
            variables[name] = setting
    if issues:
        raise invalid_parts(*issues)
    return variables


_NO_JOB_VARIABLE: Final = {"not": {"pattern": JOB_VARIABLE_PATTERN}}
_ASSIGNMENT: Final = {"type": "string", "pattern": f"^{_VARIABLE.pattern}(=.*)?$", **_NO_JOB_VARIABLE}
_VARIABLES_SCHEMA: Final = {
    "anyOf": [
        _ASSIGNMENT,
        {"type": "array", "items": _ASSIGNMENT},
        {
            "type": "object",
            "propertyNames": {"pattern": f"^{_VARIABLE.pattern}$", **_NO_JOB_VARIABLE},
            "additionalProperties": {"type": ["string", "null"]},
        },
    ]
}
Variables = Annotated[
    dict[str, str | None], ValueType("names, or NAME: value", _variables, _VARIABLES_SCHEMA, "NAME[=VALUE]")
]


def _command(value: Any, _: Origin) -> Any:
    """The words of a command: a list, or text that is split like in a shell, although no shell runs it."""
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise invalid(f"cannot be split into words: {error}") from error
    if not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
        raise invalid("must be a command: a text, or a list of its words")
    return value


Command = Annotated[tuple[str, ...], ValueType("command", _command, or_list(_TEXT_SCHEMA))]

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


def _headers(value: Any, origin: Origin) -> Any:
    """HTTP headers by name; in text one per line. Values are never shown because they may be secret."""
    if origin.text and isinstance(value, str):
        lines = [line.partition(":") for line in value.splitlines() if line.strip()]
        value = {name.strip(): text.strip() for name, _, text in lines}
    if not isinstance(value, Mapping):
        raise invalid("must be a mapping like {Authorization: 'Bearer ${TOKEN}'}")
    wrong = [
        Issue("is not the name of an HTTP header with a text in one line", (name,), shorten(name))
        for name, text in value.items()
        if not (isinstance(name, str) and _HEADER.fullmatch(name) and isinstance(text, str) and text.isprintable())
    ]
    if wrong:
        raise invalid_parts(*wrong)
    return value


Headers = Annotated[
    dict[str, str],
    ValueType(
        "headers by name",
        _headers,
        {
            "type": "object",
            "propertyNames": {"pattern": f"^{_HEADER.pattern}$"},
            "additionalProperties": {"type": "string"},
        },
    ),
]


def mapping_of_text(value: Any, origin: Origin, example: str) -> Any:
    """Parse ``KEY=VALUE`` entries of flags and inputs into a mapping; leave YAML values as they are."""
    if not origin.text or isinstance(value, Mapping):
        return value
    entries = {}
    for item in items_of(value, origin):
        key, _, setting = str(item).rpartition("=")
        if not key.strip():
            raise invalid_parts(Issue(f"must be like {example}", value=shorten(item)))
        entries[key.strip()] = setting.strip()
    return entries


EVERY_MODEL: Final = "*"
"""The key of the limit for all models without their own."""


def _model_name(value: Any, _: Origin) -> str:
    if not isinstance(value, str) or not value.strip():
        raise invalid("is no name of a model")
    return value


def _rates(value: Any, origin: Origin) -> Any:
    """One limit for all models, or limits by model: a mapping, or ``MODEL=N`` in flags and inputs."""
    if isinstance(value, Mapping):
        return value
    items = items_of(value, origin)
    if origin.text and (len(items) != 1 or "=" in str(items[0])):
        return mapping_of_text(items, origin, "gemini-2.5-flash=600")
    return {EVERY_MODEL: items[0] if origin.text else value}


ModelName = Annotated[str, ValueType("", _model_name)]
_PER_MINUTE: Final = whole_number(1, 1_000_000_000)
Rates = Annotated[
    dict[ModelName, Annotated[int, _PER_MINUTE]],
    ValueType("whole number, or one per model", _rates, None, "N|MODEL=N", schema_beside=_PER_MINUTE.schema),
]


def _price(value: Any, origin: Origin) -> Any:
    """Read a price in USD per million tokens; text is ``INPUT/OUTPUT`` or ``INPUT/CACHED_INPUT/OUTPUT``."""
    if origin.text and isinstance(value, str):
        parts = value.split("/")
        names = {2: ("input", "output"), 3: ("input", "cached_input", "output")}.get(len(parts))
        if names is None:
            raise invalid("must be like 0.30/2.50 (input/output)")
        return dict(zip(names, parts, strict=True))
    if not isinstance(value, Mapping | ModelPrice):
        raise invalid("must be a price like {input: 0.30, output: 2.50}")
    return value


_PRICE: Final = {"type": "number", "minimum": 0}
PerMillion = Annotated[float, _number_type("must be USD per million tokens", _PRICE, label="", metavar="TEXT")]


class ModelPrice(Frozen):
    """USD per million tokens."""

    input: PerMillion
    output: PerMillion
    cached_input: PerMillion | None = None


def _prices(value: Any, origin: Origin) -> Any:
    prices = mapping_of_text(value, origin, "gemini-2.5-flash=0.30/2.50")
    if not isinstance(prices, Mapping):
        raise invalid("must map models to their price", "gemini-2.5-flash: {input: 0.30, output: 2.50}")
    return prices


Prices = Annotated[dict[ModelName, Annotated[ModelPrice, ValueType("", _price)]], ValueType("mapping", _prices)]


def _redaction(value: Any, _: Origin) -> str:
    if problem := pattern_problem(value):
        raise invalid(*problem)
    return str(value)


def _redactions(value: Any, origin: Origin) -> list[Any]:
    """A pattern or a list of patterns; in text one per line, since patterns may contain commas and spaces."""
    patterns = items_of(value, origin, commas=False)
    if not patterns and value != ():
        raise invalid("must not be empty")
    return patterns


Redactions = Annotated[
    tuple[Annotated[str, ValueType("", _redaction)], ...],
    ValueType("pattern or list", _redactions, or_list(_TEXT_SCHEMA), "PATTERN"),
]
