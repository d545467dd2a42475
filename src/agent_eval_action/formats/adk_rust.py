"""Test files of ADK-Rust (crate ``adk-eval``): google-adk's schema with different parts, answers and sessions.

This format recognises only files that google-adk refuses. Files that both accept mean the same and are read as
google-adk's.
"""

from __future__ import annotations

from typing import Any, Final

from agent_eval_action.diagnostics.reader import JsonPath
from agent_eval_action.formats.adk import read_eval_set, warn_misspelt
from agent_eval_action.formats.base import Format, Reading, objects_of
from agent_eval_action.results.evalset import EvalSet, JsonObject

_MESSAGES: Final = ("user_content", "final_response")
_TURN_KEYS: Final = ("invocation_id", *_MESSAGES, "intermediate_data")
_DATA_KEYS: Final = ("tool_uses", "intermediate_responses")
_USE_KEYS: Final = ("name", "args", "expected_response")
_SESSION: Final = {"app_name": "eval_app", "user_id": "eval_user"}
"""ADK-Rust's defaults for sessions."""


def _recognises(value: Any) -> bool:
    """A set with a shape that ADK-Rust writes and google-adk refuses, or with ``test_files``."""
    if not isinstance(value, dict):
        return False
    cases = value.get("eval_cases")
    if "test_files" in value:
        return cases is None or isinstance(cases, list)
    return any(_is_own(case) for _, case in objects_of(cases))


def _is_own(case: JsonObject) -> bool:
    session = case.get("session_input")
    if isinstance(session, dict) and session.keys() <= {*_SESSION, "state"} and not session.keys() >= _SESSION.keys():
        return True
    turns = [turn for _, turn in objects_of(case.get("conversation"))]
    contents = [turn[name] for turn in turns for name in _MESSAGES if isinstance(turn.get(name), dict)]
    data = [turn["intermediate_data"] for turn in turns if isinstance(turn.get("intermediate_data"), dict)]
    return (
        any("expected_response" in use for found in data for _, use in objects_of(found.get("tool_uses")))
        or any(True for found in data for _ in objects_of(found.get("intermediate_responses")))
        or any(_is_function_part(part) for content in contents for _, part in objects_of(content.get("parts")))
    )


def _is_function_part(part: JsonObject) -> bool:
    return part.get("text") is None and "name" in part and bool(part.keys() & {"args", "response"})


def _read(reading: Reading) -> EvalSet | None:
    """Convert the set to google-adk's form without keys that ADK-Rust ignores; `test_files` are separate sets."""
    for index, case in objects_of(reading.value.setdefault("eval_cases", [])):
        session = case.get("session_input")
        if isinstance(session, dict):
            case["session_input"] = _SESSION | {key: item for key, item in session.items() if item not in (None, "")}
        for number, turn in objects_of(case.get("conversation")):
            _convert_turn(turn, ("eval_cases", index, "conversation", number), reading)
    return read_eval_set(reading, EvalSet)


ADK_RUST: Final = Format("adk_rust", _recognises, _read)


def _convert_turn(turn: JsonObject, at: JsonPath, reading: Reading) -> None:
    _keep(turn, _TURN_KEYS, at, reading)
    for name in _MESSAGES:
        content = turn.get(name)
        if isinstance(content, dict) and isinstance(content.get("parts"), list):
            turn[name] = _text_content(content)
    data = turn.get("intermediate_data")
    if not isinstance(data, dict):
        return
    _keep(data, _DATA_KEYS, (*at, "intermediate_data"), reading)
    for index, use in objects_of(data.get("tool_uses")):
        _keep(use, _USE_KEYS, (*at, "intermediate_data", "tool_uses", index), reading)
        use.pop("expected_response", None)  # ADK-Rust parses it and never compares it
    data.pop("intermediate_responses", None)  # as above


def _text_content(content: JsonObject) -> JsonObject:
    """Join a message's texts without separator, as ADK-Rust sends and compares them; keep it if parts are invalid."""
    parts = content["parts"]
    if any(
        not isinstance(part, dict) or not (isinstance(part.get("text"), str) or _is_function_part(part))
        for part in parts
    ):
        return {key: item for key, item in content.items() if key in ("parts", "role")}
    text = "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    return {"role": content.get("role", "user"), "parts": [{"text": text}]}


def _keep(value: JsonObject, known: tuple[str, ...], at: JsonPath, reading: Reading) -> None:
    """Drop keys that ADK-Rust ignores, and warn about likely misspellings."""
    warn_misspelt(value, known, at, reading)
    for key in [key for key in value if key not in known]:
        del value[key]
