"""Eval sets of trpc-agent-go (camelCase, chat messages) and trpc-agent-python (ADK's schema with additional keys).

Both have context messages, which are in the session before the first turn, and a trace mode, in which the file contains
the agent's turns and these are scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent_eval_action.diagnostics.reader import JsonPath, shorten
from agent_eval_action.diagnostics.suggestions import snake_case
from agent_eval_action.formats.adk import read_eval_set
from agent_eval_action.formats.base import Format, Reading, list_of, objects_of
from agent_eval_action.results.evalset import (
    Content,
    DatasetCase,
    EvalCase,
    EvalSet,
    Invocation,
    JsonObject,
    PastEvent,
)

_OWN_KEYS: Final = frozenset({"eval_mode", "context_messages", "actual_conversation"})
_CONVERSATIONS: Final = ("conversation", "actual_conversation")
_CHAT_KEYS: Final = frozenset({"content", "contentParts", "content_parts"})
_CALL: Final = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
_FALLBACK: Final = {"app_name": "app", "user_id": "user"}


class _Case(EvalCase):
    eval_mode: str | None = None
    context_messages: tuple[Content, ...] = ()
    actual_conversation: tuple[Invocation, ...] = ()


class _Set(EvalSet):
    eval_cases: tuple[_Case, ...]


def _recognises(value: Any) -> bool:
    """A set with a case that has a key only of these schemas, or a chat message."""
    cases = value.get("eval_cases", value.get("evalCases")) if isinstance(value, dict) else None
    for _, case in objects_of(cases):
        turns = objects_of(case.get("conversation"))
        chats = (_is_chat(turn.get("userContent", turn.get("user_content"))) for _, turn in turns)
        if _OWN_KEYS & {snake_case(key) for key in case} or any(chats):
            return True
    return False


def _is_chat(message: Any) -> bool:
    return isinstance(message, dict) and "parts" not in message and bool(_CHAT_KEYS & message.keys())


def _read(reading: Reading) -> EvalSet | None:
    """Convert the set to ADK's form; the turns of a trace become recorded turns."""
    value = reading.value
    for camel in [key for key in value if snake_case(key) != key and snake_case(key) not in value]:
        value[snake_case(camel)] = value.pop(camel)
    value.setdefault("eval_set_id", reading.name)
    for index, case in objects_of(value.get("eval_cases")):
        value["eval_cases"][index] = _adk_case(case, ("eval_cases", index), reading)
    found = read_eval_set(reading, _Set)
    if found is None:
        return None
    made = tuple(_final_case(case) for case in found.eval_cases if isinstance(case, _Case))
    fields = {name: getattr(found, name) for name in EvalSet.model_fields if name != "eval_cases"}
    return EvalSet(**fields, eval_cases=made)


TRPC: Final = Format("trpc", _recognises, _read)


def _final_case(case: _Case) -> EvalCase:
    """The case without the keys of these schemas: an EvalCase, or a DatasetCase if it has history or a trace."""
    fields = {name: getattr(case, name) for name in EvalCase.model_fields} | (case.model_extra or {})
    history = tuple(
        PastEvent(author="user" if message.role in (None, "user") else "agent", content=message)
        for message in case.context_messages
    )
    traced = case.eval_mode == "trace"
    recorded = (case.actual_conversation or case.turns) if traced else ()
    made = DatasetCase(**fields, history=history, recorded=recorded) if history or recorded else EvalCase(**fields)
    return made.at_line(case.line)


def _adk_case(case: JsonObject, at: JsonPath, reading: Reading) -> JsonObject:
    """Convert a case to ADK's keys, and report problems with chat messages."""
    made = _with_our_keys(case)
    for name in _CONVERSATIONS:
        turns = made.get(name)
        if isinstance(turns, list):
            made[name] = [_turn(turn, (*at, name, number), reading) for number, turn in enumerate(turns)]
    if made.get("eval_mode") == "trace" and "conversation" not in made:
        made["conversation"] = [
            {key: turn[key] for key in ("invocation_id", "user_content") if key in turn}
            for _, turn in objects_of(made.get("actual_conversation"))
        ]
    if isinstance(made.get("context_messages"), list):
        place = (*at, "context_messages")
        made["context_messages"] = [
            _content(item, (*place, number), reading) for number, item in enumerate(made["context_messages"])
        ]
    session = made.get("session_input")
    if isinstance(session, dict):  # in Go, absent fields have default values
        made["session_input"] = _FALLBACK | {snake_case(key): item for key, item in session.items() if item is not None}
    return made


def _turn(turn: Any, at: JsonPath, reading: Reading) -> Any:
    """Convert a turn: give messages parts, and move calls and results into ``intermediate_data``."""
    if not isinstance(turn, dict):
        return turn
    made = _with_our_keys(turn)
    for name in ("user_content", "final_response"):
        if name in made:
            made[name] = _content(made[name], (*at, name), reading)
    tools = made.pop("tools", None)
    if "intermediate_data" in made:
        if tools:
            reading.error(at, "both `tools` and `intermediate_data` say which calls are expected")
    elif isinstance(tools, list):
        for index, tool in enumerate(tools):
            if not isinstance(tool, dict) or not tool.get("name"):
                reading.error((*at, "tools", index), "a call has a name", value=shorten(tool), hint=_CALL)
        made["intermediate_data"] = _calls_with_results(tools)
    elif tools is not None:
        reading.error((*at, "tools"), "must be a list", value=shorten(tools))
    return made


def _calls_with_results(tools: list[Any]) -> JsonObject:
    data: dict[str, list[JsonObject]] = {"tool_uses": [], "tool_responses": []}
    for _, tool in objects_of(tools):
        named, result = {"id": tool.get("id"), "name": tool.get("name")}, tool.get("result")
        data["tool_uses"].append(_without_absent(**named, args=tool.get("arguments", tool.get("args"))))
        if result not in (None, {}):
            answer = result if isinstance(result, dict) else {"result": result}
            data["tool_responses"].append(_without_absent(**named, response=answer))
    return data


def _content(message: Any, at: JsonPath, reading: Reading) -> Any:
    """Convert a chat message to a content; return other values unchanged."""
    if not _is_chat(message):
        return message
    texts = [message.get("content")]
    for part in list_of(message.get("contentParts", message.get("content_parts"))):
        if not isinstance(part, dict) or part.get("type") != "text":
            reading.error(at, "of a message's parts only text is read", value=shorten(part))
        else:
            texts.append(part.get("text"))
    role = "user" if message.get("role", "user") == "user" else "model"
    return {"role": role, "parts": [{"text": text} for text in texts if text not in (None, "")]}


def _with_our_keys(value: JsonObject) -> JsonObject:
    """The given keys of a case or a turn in snake_case, with its rubrics in ADK's form."""
    made = {snake_case(key): item for key, item in value.items() if item is not None}
    rubrics = made.get("rubrics")
    return {**made, "rubrics": list(map(_rubric, rubrics))} if isinstance(rubrics, list) else made


def _rubric(rubric: Any) -> Any:
    """Convert a rubric to ADK's keys. Without a type, a rubric with a metric's name applies to the final response."""
    if not isinstance(rubric, Mapping) or "rubric_id" in rubric or "rubricId" in rubric:
        return rubric
    content = rubric.get("content")
    text = content.get("text") if isinstance(content, Mapping) else content
    kind = rubric.get("type") or ("FINAL_RESPONSE_QUALITY" if rubric.get("metricName") else None)
    return _without_absent(
        rubric_id=rubric.get("id"),
        rubric_content={"text_property": text},
        description=rubric.get("description"),
        type=kind,
    )


def _without_absent(**fields: Any) -> JsonObject:
    return {key: item for key, item in fields.items() if item is not None}
