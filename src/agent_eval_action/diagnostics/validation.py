"""Turn pydantic's validation errors into sentences: where, what is wrong, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from agent_eval_action.diagnostics.reader import Source
from agent_eval_action.diagnostics.suggestions import JsonPath, did_you_mean, shorten, snake_case
from agent_eval_action.errors import ResultsError

_EXPECTED: Final[dict[str, str]] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "a string",
    "tuple_type": "a list",
}

_PROBLEMS_SHOWN: Final = 10

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Issue:
    """A problem inside a value; ``at`` is the path from that value. ``value`` is shortened for display."""

    message: str
    at: JsonPath = ()
    value: str | None = None
    hint: str | None = None

    @property
    def fields(self) -> dict[str, str | None]:
        """The fields for a Problem."""
        return {"value": self.value, "hint": self.hint}


def invalid(message: str, hint: str | None = None) -> PydanticCustomError:
    """The error to raise in a validator that refuses a value."""
    return PydanticCustomError("invalid", "{message}", {"message": message, "hint": hint})


def invalid_parts(*issues: Issue) -> ValidationError:
    """The error to raise in a validator that found several problems inside its value."""
    details: list[InitErrorDetails] = []
    for issue in issues:
        context = {"message": issue.message, "hint": issue.hint, "value": issue.value}
        details.append({"type": PydanticCustomError("invalid", "{message}", context), "loc": issue.at, "input": None})
    return ValidationError.from_exception_data("value", details)


def issues_of(error: ValidationError, value: Any, expected: Any) -> Iterator[Issue]:
    """All issues from validating ``value`` as the type ``expected``."""
    return (issue_of(detail, value, expected) for detail in error.errors(include_url=False))


def validated(source: Source, model: type[_Model], message: str, hint: str) -> _Model:
    """The value of a file as a model. Raises ResultsError with ``message``, ``hint`` and the first problems."""
    try:
        return model.model_validate(source.value)
    except RecursionError:
        problems = [source.problem((), "is nested too deeply")]
    except ValidationError as error:
        issues = islice(issues_of(error, source.value, model), _PROBLEMS_SHOWN)
        problems = [source.problem(issue.at, issue.message, **issue.fields) for issue in issues]
    raise ResultsError(message, hint=hint, problems=problems)


def issue_of(detail: ErrorDetails, value: Any, expected: Any) -> Issue:
    """Turn one of pydantic's errors into an issue."""
    at, kind, context = locate(value, detail["loc"]), detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(detail["loc"][-1])
        known = known_keys(expected, at[:-1])
        if snake_case(key) in known:
            return Issue(f"is given twice, as `{to_camel(key)}` and `{snake_case(key)}`", at)
        return Issue(f"unknown key `{key}`", at, hint=did_you_mean(key, known))
    if kind == "missing":
        return Issue(f"`{snake_case(str(detail['loc'][-1]))}` is required", at)  # pydantic reports the camelCase alias
    if kind == "invalid":
        shown = context["value"] if "value" in context else shorten(detail["input"])
        return Issue(str(context["message"]), at, shown, context["hint"])
    shown = shorten(detail["input"])
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        hint = did_you_mean(detail["input"], choices) if isinstance(detail["input"], str) else None
        return Issue(f"must be one of {', '.join(choices)}", at, shown, hint)
    message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    message = f"must be {_EXPECTED[kind]}" if kind in _EXPECTED else message[:1].lower() + message[1:]
    return Issue(message, at, shown)


def locate(value: Any, loc: tuple[int | str, ...]) -> JsonPath:
    """Turn pydantic's location into a path into ``value``, dropping union tags and missing keys."""
    at: JsonPath = ()
    for step in loc:
        found: int | str | None = None
        if isinstance(value, Mapping) and isinstance(step, str):
            found = next((name for name in (step, snake_case(step), to_camel(step)) if name in value), None)
        elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
            found = step
        if found is not None:
            at, value = (*at, found), value[found]
    return at


def known_keys(expected: Any, at: JsonPath) -> tuple[str, ...]:
    """The keys, in snake_case, that a type has at a path in its value; () if any key is allowed."""
    return tuple(dict.fromkeys(chain.from_iterable(model.model_fields for model in models_at(expected, at))))


def models_at(expected: Any, at: JsonPath) -> list[type[BaseModel]]:
    """The models that are possible at a path in a value of the type ``expected``."""
    found = list(_alternatives(expected))
    for step in at:
        found = [inner for kind in found for inner in _inner(kind, step)]
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, BaseModel)]


def _inner(kind: Any, step: int | str) -> Iterator[Any]:
    args = get_args(kind)
    if get_origin(kind) is dict:
        yield from _alternatives(args[1])
    elif get_origin(kind) in (list, tuple):
        several = isinstance(step, int) and step < len(args) and args[-1] is not Ellipsis
        yield from _alternatives(args[int(step) if several else 0])
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(snake_case(str(step)))
        yield from _alternatives(field.annotation) if field else ()


def _alternatives(expected: Any) -> Iterator[Any]:
    """The types that an annotation allows, with Annotated and Union unwrapped."""
    if get_origin(expected) is Annotated:
        yield from _alternatives(get_args(expected)[0])
    elif get_origin(expected) in (dict, list, tuple) or not get_args(expected):
        yield expected
    else:
        for part in get_args(expected):
            yield from _alternatives(part)
