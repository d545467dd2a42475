"""pydantic's errors as problems of a file: a JSON path as written, the value, and a hint."""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import ErrorDetails

from agent_eval_action.formats.base import Findings
from agent_eval_action.formats.hints import missing_key_hint, unknown_key_hint
from agent_eval_action.model import evalset as m
from agent_eval_action.model.persona import Persona, PersonaBehavior
from agent_eval_action.source import JsonPath, shorten

_M = TypeVar("_M", bound=BaseModel)

# Key (snake_case) of a value, or of the list it is in, to the models it may be.
_MODELS: Final[dict[str, tuple[type[BaseModel], ...]]] = {
    "eval_cases": (m.EvalCase,),
    "conversation": (m.Invocation,),
    "user_content": (m.Content,),
    "final_response": (m.Content,),
    "content": (m.Content,),
    "parts": (m.Part,),
    "function_call": (m.FunctionCall,),
    "function_response": (m.FunctionResponse,),
    "intermediate_data": (m.IntermediateData, m.InvocationEvents),
    "tool_uses": (m.FunctionCall,),
    "tool_responses": (m.FunctionResponse,),
    "invocation_events": (m.InvocationEvent,),
    "rubrics": (m.Rubric,),
    "rubric_content": (m.RubricContent,),
    "app_details": (m.AppDetails,),
    "session_input": (m.SessionInput,),
    "conversation_scenario": (m.ConversationScenario,),
    "scenarios": (m.ConversationScenario,),
    "user_persona": (Persona,),
    "behaviors": (PersonaBehavior,),
}

_WANTED: Final[dict[str, str]] = {
    "string_type": "a string",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "float_type": "a number",
    "float_parsing": "a number",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "tuple_type": "a list",
    "list_type": "a list",
}


def validate(model: type[_M], value: Any, text: str | None, findings: Findings) -> _M | None:
    """The value as a model, or None and every error in ``findings``.

    ``text`` is the value's JSON where it is at hand. JSON, because ADK validates JSON: pydantic converts
    a little differently from Python objects. ``null`` where a value with a default is wanted is absent.
    """
    try:
        return model.model_validate_json(text if text is not None else json.dumps(value))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
    nulls = [path for one in errors if (path := _needless_null(one, value))]
    if nulls:
        for path in nulls:
            _parent(value, path).pop(path[-1])
        return validate(model, value, None, findings)
    for one in errors:
        _report(one, value, findings)
    return None


def owner(at: JsonPath) -> tuple[type[BaseModel], ...]:
    """The models the object at a path may be."""
    keys = [to_snake(step) for step in at if isinstance(step, str)]
    if keys[-2:-1] == ["agent_details"]:
        return (m.AgentDetails,)
    return _MODELS.get(keys[-1], ()) if keys else (m.EvalSet,)


def _report(error: ErrorDetails, value: Any, findings: Findings) -> None:
    at = place(value, error["loc"])
    kind, key = error["type"], str(error["loc"][-1] if error["loc"] else "")
    holder = at[:-1] if kind == "extra_forbidden" else at
    known = [name for model in owner(holder) for name in model.model_fields]
    if kind in {"too_long", "too_short"} or (kind == "missing" and key.isdigit()):
        findings.error(at, "must be a pair: [author, [part, ...]]", value=shorten(_value_at(value, at)))
    elif kind == "missing":
        name = to_snake(key)
        strangers = _strangers(_value_at(value, at), known)
        findings.error(at, f"`{name}` is missing", hint=missing_key_hint(name, strangers))
    elif kind == "extra_forbidden":
        twice = to_snake(key) in known
        message = f"is given twice, as `{to_camel(key)}` and `{to_snake(key)}`" if twice else f"unknown key `{key}`"
        findings.error(at, message, value=shorten(error["input"]), hint=None if twice else unknown_key_hint(key, known))
    elif kind in _WANTED:
        findings.error(at, f"must be {_WANTED[kind]}", value=shorten(error["input"]))
    else:
        message = error["msg"].replace("Input should be", "must be")
        findings.error(at, message[:1].lower() + message[1:], value=shorten(error["input"]))


def place(value: Any, loc: tuple[int | str, ...]) -> JsonPath:
    """Pydantic's location as a path into ``value``: union tags and the name of a missing key fall away."""
    at: JsonPath = ()
    for step in loc:
        spelled = _spelled(value, step)
        if spelled is not None:
            at = (*at, spelled)
            value = value[spelled]
    return at


def _spelled(value: Any, step: int | str) -> int | str | None:
    if isinstance(value, dict) and isinstance(step, str):
        return next((name for name in (step, to_snake(step), to_camel(step)) if name in value), None)
    inside = isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)
    return step if inside else None


def _needless_null(error: ErrorDetails, value: Any) -> JsonPath | None:
    """The path of a null that may be left out: its field has a default."""
    at = place(value, error["loc"])
    if error["input"] is not None or error["type"] == "missing" or not at or not isinstance(at[-1], str):
        return None
    name = to_snake(at[-1])
    fields = [model.model_fields[name] for model in owner(at[:-1]) if name in model.model_fields]
    parent = _parent(value, at)
    optional = any(not field.is_required() for field in fields)
    return at if optional and isinstance(parent, dict) and parent.get(at[-1], 0) is None else None


def _parent(value: Any, at: JsonPath) -> Any:
    return _value_at(value, at[:-1])


def _value_at(value: Any, at: JsonPath) -> Any:
    for step in at:
        value = value[step]
    return value


def _strangers(value: Any, known: list[str]) -> list[str]:
    return [key for key in value if to_snake(key) not in known] if isinstance(value, dict) else []
