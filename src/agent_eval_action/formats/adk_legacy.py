"""The older list schemas: ``[{name, data, initial_session}]`` and ``[turn, ...]``, and initial-session files.

google-adk 2.13 reads the first only with ``adk eval`` and the second only with AgentEvaluator, and gives sets and turns
random ids and the current time; here ids are derived from the file's name, so they are stable.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic.alias_generators import to_camel

from agent_eval_action.diagnostics.reader import JsonPath, Source, shorten
from agent_eval_action.errors import EvalFileError, Problem
from agent_eval_action.formats.adk import check_ids, warn_misspelt
from agent_eval_action.formats.base import Format, Reading, missing_key_hint
from agent_eval_action.results.evalset import (
    Content,
    EvalCase,
    EvalSet,
    FunctionCall,
    IntermediateData,
    Invocation,
    JsonObject,
    Part,
    SessionInput,
)

_TOOLS: Final = "expected_tool_use"
_ANSWERS: Final = "expected_intermediate_agent_responses"
_TURN_KEYS: Final = ("query", _TOOLS, _ANSWERS, "reference")
_CASE_KEYS: Final = ("name", "data", "initial_session")
_KINDS: Final[dict[type, str]] = {str: "a string", dict: "an object", list: "a list"}


def _recognises(value: Any) -> bool:
    """A list of objects; an empty list is an empty set, as in ADK."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _read(reading: Reading) -> EvalSet | None:
    """A set whose id is the file's path in the workspace; a list of turns becomes its only case."""
    items = reading.value
    # ADK ignores other keys of turns, so that a turn may have those of a case
    are_cases = all(isinstance(item.get("data"), list) and "name" in item for item in items) or (
        any("data" in item or "name" in item for item in items) and not all("query" in item for item in items)
    )
    if are_cases:
        cases = [case for index, item in enumerate(items) if (case := _case(item, (index,), reading))]
        check_ids([((index, "name"), item.get("name")) for index, item in enumerate(items)], reading)
    else:
        session = SessionInput(**reading.session) if reading.session else None
        turns = _turns(items, (), reading)
        case_id = reading.name.rsplit("/", 1)[-1]
        cases = [EvalCase(eval_id=case_id, conversation=turns, session_input=session).at_line(1)]
    if reading.errors:
        return None
    return EvalSet(eval_set_id=reading.name, name=reading.name, eval_cases=tuple(cases))


ADK_LEGACY: Final = Format("adk_legacy", _recognises, _read)


def _case(item: JsonObject, at: JsonPath, reading: Reading) -> EvalCase | None:
    warn_misspelt(item, _CASE_KEYS, at, reading)
    name = _take(item, "name", str, at, reading)
    if name is None and item.get("name", 0) is None:
        reading.error((*at, "name"), "must be a string", value="null")
    data = item.get("data") or []
    if "data" not in item:
        reading.error(at, "`data` is missing", hint=missing_key_hint("data", item))
    elif not isinstance(data, list):
        reading.error((*at, "data"), "must be a list of turns", value=shorten(data))
        data = []
    elif not data:
        reading.warn((*at, "data"), "this conversation has no turns: nothing to measure")
    turns = _turns(data, (*at, "data"), reading)
    own = item.get("initial_session") or None
    session = reading.session if own is None else _initial_session(own, (*at, "initial_session"), reading)
    if name is None:
        return None
    case = EvalCase(eval_id=name, conversation=turns, session_input=SessionInput(**session) if session else None)
    return case.at_line(reading.source.line(at))


def _turns(items: list[Any], at: JsonPath, reading: Reading) -> tuple[Invocation, ...]:
    turns = (_turn(item, (*at, index), reading) for index, item in enumerate(items))
    return tuple(turn for turn in turns if turn is not None)


def _turn(turn: Any, at: JsonPath, reading: Reading) -> Invocation | None:
    if not isinstance(turn, dict):
        reading.error(at, "must be an object: a turn", value=shorten(turn))
        return None
    warn_misspelt(turn, _TURN_KEYS, at, reading)
    query = _take(turn, "query", str, at, reading)
    reference = _take(turn, "reference", str, at, reading, required=False)
    calls = _take(turn, _TOOLS, list, at, reading, required=False) or []
    answers = _take(turn, _ANSWERS, list, at, reading, required=False) or []
    data = IntermediateData(
        tool_uses=tuple(_call(call, (*at, _TOOLS, index), reading) for index, call in enumerate(calls)),
        intermediate_responses=tuple(
            _intermediate_answer(answer, (*at, _ANSWERS, index), reading) for index, answer in enumerate(answers)
        ),
    )
    return Invocation(
        user_content=Content(parts=(Part(text=query),), role="user"),
        final_response=None if reference is None else Content(parts=(Part(text=reference),), role="model"),
        intermediate_data=data,
    )


def _call(item: Any, at: JsonPath, reading: Reading) -> FunctionCall:
    if not isinstance(item, dict):
        reading.error(at, "must be an object: {tool_name, tool_input}", value=shorten(item))
        return FunctionCall()
    warn_misspelt(item, ("tool_name", "tool_input"), at, reading)
    name = _take(item, "tool_name", str, at, reading)
    return FunctionCall(name=name, args=_take(item, "tool_input", dict, at, reading, required=False))


def _intermediate_answer(item: Any, at: JsonPath, reading: Reading) -> tuple[str, tuple[Part, ...]]:
    if isinstance(item, str):  # occurs in practice; ADK fails with "string indices must be integers"
        reading.warn(at, "a text without an author is read as said by no agent in particular", value=shorten(item))
        return "", (Part(text=item),)
    if not isinstance(item, dict):
        reading.error(at, "must be an object: {author, text}", value=shorten(item))
        return "", ()
    author = _take(item, "author", str, at, reading, required=False)
    return author or "", (Part(text=_take(item, "text", str, at, reading)),)


def _take(value: JsonObject, key: str, kind: type, at: JsonPath, reading: Reading, *, required: bool = True) -> Any:
    """A value of type ``kind``, or None if it is null or wrong. For a list, "" and {} count as empty."""
    if key not in value:
        if required:
            reading.error(at, f"`{key}` is missing", hint=missing_key_hint(key, value))
        return None
    item = value[key]
    if item is None or isinstance(item, kind):
        return item
    if kind is list and item in ("", {}):
        return []
    reading.error((*at, key), f"must be {_KINDS[kind]}", value=shorten(item))
    return None


def read_session_file(path: Path, workspace: Path) -> tuple[JsonObject | None, list[Problem]]:
    """App, user and state from ``{id?, app_name, user_id, state, events...}`` (None for ``{}``), and warnings."""
    source = Source.read(path, workspace=workspace, error=EvalFileError)
    reading = Reading(source, warnings=list(source.warnings))
    session = _initial_session(source.value, (), reading, to_camel) if source.value != {} else None
    reading.raise_errors()
    if not (session and session["state"]):
        hint = "the state is read from the key `state`; recorded events are not"
        reading.warn((), "this initial-session file holds no state", hint=hint)
    return session, reading.warnings


def _initial_session(
    value: Any, at: JsonPath, reading: Reading, other_spelling: Callable[[str], str] = str
) -> JsonObject | None:
    """The three keys that are used; the rest of a recorded session (events, artifacts) is ignored, as in ADK.

    Sessions exported by ADK have camelCase keys; inside a case ADK reads only snake_case.
    """
    if not isinstance(value, dict):
        reading.error(at, "must be an object: {app_name, user_id, state}", value=shorten(value))
        return None
    session: JsonObject = {}
    for key, kind in (("app_name", str), ("user_id", str), ("state", dict)):
        item = value.get(key, value.get(other_spelling(key)))
        if item is not None and not isinstance(item, kind):
            reading.error((*at, key), f"must be {_KINDS[kind]}", value=shorten(item))
            item = None
        session[key] = kind() if item is None else item
    return session
