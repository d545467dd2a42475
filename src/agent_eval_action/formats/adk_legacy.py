"""The older list schemas: ``[{name, data, initial_session}]`` and ``[turn, ...]``.

google-adk 2.13 reads the first by ``adk eval`` alone and the second by AgentEvaluator alone, and gives
sets and turns random ids and the present time; ours come from the file's name and stay the same.
"""

from __future__ import annotations

from typing import Any, Final

from agent_eval_action.diagnostics.reader import JsonPath, shorten
from agent_eval_action.formats.adk import check_ids, warn_misspelt
from agent_eval_action.formats.base import Findings, Format, Reading
from agent_eval_action.formats.session_file import initial_session
from agent_eval_action.formats.validation import missing_key_hint
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

_TURN_KEYS: Final = ("query", "expected_tool_use", "expected_intermediate_agent_responses", "reference")
_CASE_KEYS: Final = ("name", "data", "initial_session")
_KINDS: Final[dict[type, str]] = {str: "a string", dict: "an object", list: "a list"}


def recognises(value: Any) -> bool:
    """A list of objects (an empty list is an empty set, as in ADK)."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def read(reading: Reading) -> EvalSet | None:
    """A set whose id is the file's path in the workspace; a list of turns is its one case."""
    findings = reading.findings
    if reading.value and not _holds_cases(reading.value):
        cases: list[EvalCase | None] = [_turn_list(reading)]
    else:
        cases = [_case(item, (index,), reading) for index, item in enumerate(reading.value)]
        check_ids((((index, "name"), item.get("name")) for index, item in enumerate(reading.value)), findings)
    if findings.errors:
        return None
    return EvalSet(eval_set_id=reading.name, name=reading.name, eval_cases=tuple(case for case in cases if case))


def _holds_cases(items: list[JsonObject]) -> bool:
    """Cases have ``data``; turns have ``query`` (and may have any other key, which ADK ignores)."""
    if all(isinstance(item.get("data"), list) and "name" in item for item in items):
        return True
    return any("data" in item or "name" in item for item in items) and not all("query" in item for item in items)


def _turn_list(reading: Reading) -> EvalCase:
    turns = _turns(reading.value, (), reading.findings)
    session = SessionInput(**reading.session) if reading.session else None
    case_id = reading.name.rsplit("/", 1)[-1]
    return EvalCase(eval_id=case_id, conversation=turns, session_input=session).at_line(1)


def _case(item: JsonObject, at: JsonPath, reading: Reading) -> EvalCase | None:
    findings = reading.findings
    warn_misspelt(item, _CASE_KEYS, at, findings)
    name = _take(item, "name", str, at, findings)
    if name is None and item.get("name", 0) is None:
        findings.error((*at, "name"), "must be a string", value="null")
    data = item.get("data") or []
    if "data" not in item:
        findings.error(at, "`data` is missing", hint=missing_key_hint("data", item))
    elif not isinstance(data, list):
        findings.error((*at, "data"), "must be a list of turns", value=shorten(data))
        data = []
    elif not data:
        findings.warn((*at, "data"), "this conversation has no turns: nothing to measure")
    turns = _turns(data, (*at, "data"), findings)
    own = item.get("initial_session") or None
    session = initial_session(own, (*at, "initial_session"), findings) if own is not None else reading.session
    if name is None:
        return None
    case = EvalCase(eval_id=name, conversation=turns, session_input=SessionInput(**session) if session else None)
    return case.at_line(findings.source.line(at))


def _turns(items: list[Any], at: JsonPath, findings: Findings) -> tuple[Invocation, ...]:
    turns = []
    for index, item in enumerate(items):
        if isinstance(item, dict):
            turns.append(_turn(item, (*at, index), findings))
        else:
            findings.error((*at, index), "must be an object: a turn", value=shorten(item))
    return tuple(turns)


def _turn(turn: JsonObject, at: JsonPath, findings: Findings) -> Invocation:
    warn_misspelt(turn, _TURN_KEYS, at, findings)
    query = _take(turn, "query", str, at, findings)
    reference = _take(turn, "reference", str, at, findings, required=False)
    calls = _take(turn, "expected_tool_use", list, at, findings, required=False) or []
    says = _take(turn, "expected_intermediate_agent_responses", list, at, findings, required=False) or []
    below = ("expected_tool_use", "expected_intermediate_agent_responses")
    data = IntermediateData(
        tool_uses=tuple(_call(one, (*at, below[0], index), findings) for index, one in enumerate(calls)),
        intermediate_responses=tuple(_saying(one, (*at, below[1], index), findings) for index, one in enumerate(says)),
    )
    return Invocation(
        user_content=Content(parts=(Part(text=query),), role="user"),
        final_response=None if reference is None else Content(parts=(Part(text=reference),), role="model"),
        intermediate_data=data,
    )


def _call(item: Any, at: JsonPath, findings: Findings) -> FunctionCall:
    if not isinstance(item, dict):
        findings.error(at, "must be an object: {tool_name, tool_input}", value=shorten(item))
        return FunctionCall()
    warn_misspelt(item, ("tool_name", "tool_input"), at, findings)
    name = _take(item, "tool_name", str, at, findings)
    args = _take(item, "tool_input", dict, at, findings, required=False)
    return FunctionCall(name=name, args=args)


def _saying(item: Any, at: JsonPath, findings: Findings) -> tuple[str, tuple[Part, ...]]:
    if isinstance(item, str):  # in the wild; ADK: "string indices must be integers"
        findings.warn(at, "a text without an author is read as said by no agent in particular", value=shorten(item))
        return "", (Part(text=item),)
    if not isinstance(item, dict):
        findings.error(at, "must be an object: {author, text}", value=shorten(item))
        return "", ()
    author = _take(item, "author", str, at, findings, required=False)
    return author or "", (Part(text=_take(item, "text", str, at, findings)),)


def _take(value: JsonObject, key: str, kind: type, at: JsonPath, findings: Findings, *, required: bool = True) -> Any:
    """A value of the kind, or None where it is null or wrong; empty stands for empty, whatever its kind."""
    if key not in value:
        if required:
            findings.error(at, f"`{key}` is missing", hint=missing_key_hint(key, value))
        return None
    item = value[key]
    if item is None or isinstance(item, kind):
        return item
    if kind is list and item in ("", {}):
        return []
    findings.error((*at, key), f"must be {_KINDS[kind]}", value=shorten(item))
    return None


ADK_LEGACY = Format("adk_legacy", recognises, read)
