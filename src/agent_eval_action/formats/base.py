"""Base types of formats: an eval file as it is read, and its validation by our models and google-genai's fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from agent_eval_action.diagnostics.reader import JsonPath, Source, did_you_mean, plural, shorten
from agent_eval_action.diagnostics.suggestions import closest, snake_case
from agent_eval_action.diagnostics.validation import issue_of, known_keys, locate, models_at
from agent_eval_action.errors import EvalFileError, Problem
from agent_eval_action.results.evalset import (
    ColumnMapping,
    Content,
    EvalSet,
    FunctionCall,
    FunctionResponse,
    JsonObject,
    Part,
)

MAX_PROBLEMS: Final = 50  # per file; thousands of copies of one mistake help nobody


@dataclass
class Reading:
    """An eval file that is being read, with the problems found so far.

    ``name``: the file's path in the workspace without suffix; used as the id of sets without one. ``session``: the
    content of an initial-session file. ``columns``: what the columns of a table contain. ``workspace``: the folder that
    must contain related files; None: anywhere. ``first_case``: the index of the first case being validated.
    """

    source: Source
    name: str = ""
    session: JsonObject | None = None
    columns: ColumnMapping | None = None
    workspace: Path | None = None
    first_case: int = 0
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    @property
    def value(self) -> Any:
        """The file's value. Formats may rename its keys; problems still show them as written."""
        return self.source.value

    def error(self, json_path: JsonPath, message: str, *, value: str | None = None, hint: str | None = None) -> None:
        """Record an error at a path. Raises EvalFileError once there are more than MAX_PROBLEMS."""
        self.add_error(self.source.problem(self._as_written(json_path), message, value=value, hint=hint))

    def add_error(self, problem: Problem) -> None:
        """Record an error that has a location. Raises EvalFileError once there are more than MAX_PROBLEMS."""
        if len(self.errors) >= MAX_PROBLEMS:
            self.raise_errors(more=True)
        self.errors.append(problem)

    def warn(self, json_path: JsonPath, message: str, *, value: str | None = None, hint: str | None = None) -> None:
        """Record a warning about something readable that looks wrong."""
        if len(self.warnings) < MAX_PROBLEMS:
            at = self._as_written(json_path)
            self.warnings.append(self.source.problem(at, message, value=value, hint=hint, severity="warning"))

    def raise_errors(self, *, more: bool = False) -> None:
        """Raise EvalFileError with all errors, if any, in file order. ``more``: the rest was not checked."""
        if not self.errors:
            return
        self.errors.sort(key=in_file_order)
        hint = "the file was checked no further: correct these first" if more else None
        count = f"{'more than ' if more else ''}{plural(len(self.errors), 'problem')}"
        raise EvalFileError(f"{Problem(self.source.path, '').where} is refused: {count}", hint, tuple(self.errors))

    def _as_written(self, json_path: JsonPath) -> JsonPath:
        """The path with keys as spelled in the file, even if the format renamed camelCase keys."""
        if self.first_case and len(json_path) > 1 and json_path[0] == "eval_cases" and isinstance(json_path[1], int):
            json_path = ("eval_cases", json_path[1] + self.first_case, *json_path[2:])
        written: JsonPath = ()
        for step in json_path:
            spellings = (step, to_camel(step)) if isinstance(step, str) else ()
            found = (name for name in spellings if self.source.line((*written, name)) is not None)
            written = (*written, next(found, step))
        return written


def list_of(value: Any) -> list[Any]:
    """The value if it is a list, else an empty list; the wrong type is reported elsewhere."""
    return value if isinstance(value, list) else []


def objects_of(value: Any) -> Iterator[tuple[int, JsonObject]]:
    """The objects in a list, with their indices; nothing if the value is not a list."""
    return ((index, item) for index, item in enumerate(list_of(value)) if isinstance(item, dict))


def in_file_order(problem: Problem) -> tuple[int, str]:
    """Sort key that puts problems into file order."""
    return problem.line or 0, problem.json_path or ""


@dataclass(frozen=True)
class Format:
    """A schema of eval files. ``recognises`` checks only the shape; ``read`` returns None after errors."""

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[[Reading], EvalSet | None]


@dataclass(frozen=True)
class LoadedEvalFile:
    """An eval file that was read without errors. Its set may have no cases."""

    eval_set: EvalSet
    format: str
    warnings: tuple[Problem, ...] = ()


# --- validation --------------------------------------------------------------------------------------

_PARTS = 'write `"parts": [{"text": "..."}]`'
_TOOL_USES = 'write `"intermediate_data": {"tool_uses": [{"name": ..., "args": ...}]}`'
_CONFUSIONS: Final = {
    "expected_tool_use": _TOOL_USES,
    "expected_intermediate_agent_responses": 'write `"intermediate_data": {"intermediate_responses": [...]}`',
    "query": 'write `"user_content": {"parts": [{"text": "..."}]}`',
    "reference": 'write `"final_response": {"parts": [{"text": "..."}]}`',
    "tool_name": "the key is `name`",
    "tool_input": "the key is `args`",
    "arguments": "the key is `args`",
    "parameters": "the key is `args`",
    "content": _PARTS,
    "text": _PARTS,
    "tools": _TOOL_USES,
}
"""Hints for keys of other schemas: what to write in ADK's schema."""


_camel = cache(to_camel)  # called several times per turn


def spelled(value: Mapping[str, Any], name: str) -> str:
    """A key as spelled in the value; if there are both spellings, camelCase counts, as in ADK."""
    return camel if (camel := _camel(name)) in value else name


def missing_key_hint(key: str, present: Iterable[str]) -> str | None:
    """A hint for a missing key: a similar key that is present."""
    found = closest(key, present)
    return f"is it meant by `{found}`?" if found else None


_Model = TypeVar("_Model", bound=BaseModel)

_OBJECTS: Final = frozenset({"dict_type", "model_attributes_type", "model_type"})


def validate(model: type[_Model], value: Any, text: str | None, reading: Reading) -> _Model | None:
    """The value as a model, or None after reporting all errors.

    ``text``: the value's JSON, if available. Validates JSON like ADK does, because pydantic converts Python objects
    slightly differently. A ``null`` for a field with a default counts as absent.
    """
    try:
        return model.model_validate_json(text if text is not None else json.dumps(value))
    except ValidationError as failure:
        errors = failure.errors(include_url=False)
    if nulls := [path for error in errors if (path := _needless_null(error, value, model))]:
        for path in nulls:
            _value_at(value, path[:-1]).pop(path[-1])
        return validate(model, value, None, reading)
    for error in errors:
        _report(error, value, model, reading)
    return None


def _report(error: ErrorDetails, value: Any, model: type[BaseModel], reading: Reading) -> None:
    issue, kind, key = issue_of(error, value, model), error["type"], str(error["loc"][-1] if error["loc"] else "")
    at, message, hint, got = issue.at, issue.message, issue.hint, shorten(error["input"])
    if kind in {"too_long", "too_short"} or (kind == "missing" and key.isdigit()):
        reading.error(at, "must be a pair: [author, [part, ...]]", value=shorten(_value_at(value, at)))
    elif kind == "missing":
        parent, known = _value_at(value, at), known_keys(model, at)
        unknown = [other for other in parent if snake_case(other) not in known] if isinstance(parent, dict) else []
        name = snake_case(key)
        reading.error(at, f"`{name}` is missing", hint=missing_key_hint(name, unknown))
    else:
        if kind == "extra_forbidden":
            hint = hint or _CONFUSIONS.get(key)
        reading.error(at, "must be an object" if kind in _OBJECTS else message, value=got, hint=hint)


def _needless_null(error: ErrorDetails, value: Any, model: type[BaseModel]) -> JsonPath | None:
    """The path of a null that can be dropped because its field has a default; else None."""
    at = locate(value, error["loc"])
    if error["input"] is not None or error["type"] == "missing" or not at or not isinstance(at[-1], str):
        return None
    name = snake_case(at[-1])
    fields = [kind.model_fields[name] for kind in models_at(model, at[:-1]) if name in kind.model_fields]
    parent = _value_at(value, at[:-1])
    optional = any(not field.is_required() for field in fields)
    return at if optional and isinstance(parent, dict) and parent.get(at[-1], 0) is None else None


def _value_at(value: Any, at: JsonPath) -> Any:
    for step in at:
        value = value[step]
    return value


@cache
def genai_fields() -> dict[str, dict[str, str]]:
    """google-genai's types by name, each with its fields (snake_case) and their kinds.

    Read from a file made by tests/formats/genai_types.py, since importing google-genai takes most of a second. Kinds:
    ``[X]`` is a list of X, ``object`` any JSON object, ``'X`` the literal string X.
    """
    content: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("genai_fields.json").read_text("utf-8"))
    return content


@cache
def _spellings(kind: str) -> dict[str, str]:
    """Map every accepted spelling of a type's fields to the snake_case name."""
    return {spelling: field for field in genai_fields()[kind] for spelling in (field, to_camel(field))}


_CHECKED_BY_MODELS: Final = {
    model.__name__: frozenset(model.model_fields) for model in (Content, Part, FunctionCall, FunctionResponse)
}
"""Fields that our models check. They keep google-genai's other fields as extras, which only this module checks."""

_BASE64: Final = ConfigDict(val_json_bytes="base64")
_SCALARS: Final[dict[str, tuple[TypeAdapter[Any], str]]] = {
    "str": (TypeAdapter(str), "a string"),
    "enum": (TypeAdapter(str), "a string"),
    "bool": (TypeAdapter(bool), "true or false"),
    "int": (TypeAdapter(int), "a whole number"),
    "float": (TypeAdapter(float), "a number"),
    "bytes": (TypeAdapter(bytes, config=_BASE64), "base64"),
}


def check_genai(value: Any, shape: Any, at: JsonPath, reading: Reading) -> bool:
    """Report what google-genai refuses in ``value`` and our models accept.

    ``shape``: the name of a type, or a mapping or a list of shapes. Drops nulls and converts camelCase to snake_case in
    place; returns whether anything was changed.
    """
    if isinstance(shape, str):
        return _check_type(value, shape, at, reading)
    below: list[tuple[str | int, Any, Any]] = []
    if isinstance(shape, list):
        below = [(index, item, shape[0]) for index, item in enumerate(list_of(value))]
    elif isinstance(value, dict):
        below = [(key := spelled(value, name), value.get(key), inner) for name, inner in shape.items()]
    changes = [check_genai(item, inner, (*at, key), reading) for key, item, inner in below]
    return any(changes)


def _check_type(value: Any, kind: str, at: JsonPath, reading: Reading) -> bool:
    if not isinstance(value, dict) or (kind == "Part" and value.keys() <= {"text"}):
        return False
    spellings, ours = _spellings(kind), _CHECKED_BY_MODELS.get(kind, frozenset())
    changed = False
    for key in list(value):
        item, field = value[key], spellings.get(key)
        if field is None:
            if kind != "Content":  # our model of Content refuses unknown keys
                hint = did_you_mean(key, genai_fields()[kind]) or _CONFUSIONS.get(key)
                reading.error((*at, key), f"unknown key `{key}`", value=shorten(item), hint=hint)
        elif item is None and (field not in ours or key != field):
            del value[key]  # ADK writes every absent field as null
            changed = True
        elif key != field and value.get(field) is not None:
            reading.error((*at, key), f"is given twice, as `{key}` and `{field}`")
        else:
            if key != field:
                value[field] = value.pop(key)
                changed = True
            if item is not None:
                wanted = genai_fields()[kind][field]
                changed |= _check(item, wanted, (*at, field), reading, checked=field in ours)
    return changed


def _check(item: Any, kind: str, at: JsonPath, reading: Reading, *, checked: bool) -> bool:
    """Like ``_check_type``, of any kind. ``checked``: our models check the type of ``item`` itself."""
    if kind.startswith("["):
        if isinstance(item, list):
            inner = kind[1:-1]
            changes = [_check(value, inner, (*at, n), reading, checked=checked) for n, value in enumerate(item)]
            return any(changes)
        wanted = "a list"
    elif kind == "object" or kind in genai_fields():
        if isinstance(item, dict):
            return kind != "object" and _check_type(item, kind, at, reading)
        wanted = "an object"
    elif kind.startswith("'"):
        wanted = "" if item == kind[1:] else shorten(kind[1:])
    else:
        wanted = "" if checked or _is_scalar(item, kind) else _SCALARS[kind][1]
    if wanted and not checked:
        reading.error(at, f"must be {wanted}", value=shorten(item))
    return False


def _is_scalar(item: Any, kind: str) -> bool:
    if kind == "bytes" and isinstance(item, str):
        # accept mixed standard and URL-safe base64, which google-genai refuses but is unambiguous
        item = item.replace("-", "+").replace("_", "/")
    try:
        _SCALARS[kind][0].validate_json(json.dumps(item))
    except ValidationError:
        return False
    return True
