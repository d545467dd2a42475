"""Conversations as datasets write them: messages of OpenAI's and LangChain's form, Gemini's contents, plain text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from pydantic import ValidationError

from agent_eval_action.results.evalset import Content, FunctionCall, FunctionResponse, JsonObject, Part, PastEvent

TextOf = Callable[[JsonObject], str | None]
_Side = Literal["user", "model", "tool", "system"]
_SIDES: Final[dict[str, _Side]] = {
    **dict.fromkeys(("user", "human", "humanmessage"), "user"),
    **dict.fromkeys(("assistant", "model", "ai", "agent", "aimessage", "aimessagechunk"), "model"),
    **dict.fromkeys(("tool", "function", "toolmessage", "functionmessage"), "tool"),
    **dict.fromkeys(("system", "developer", "systemmessage"), "system"),
}
_FORM: Final = '[{"role": "user", "content": "..."}]'
_MAX_MESSAGES: Final = 10_000


class NoMessages(Exception):  # noqa: N818 - internal signal; the caller says where the value stands
    """A value that is no message, or no conversation that waits for an answer."""

    def __init__(self, message: str, value: Any = None, hint: str | None = None, role: str = "prompt") -> None:
        super().__init__(message)
        self.value, self.hint, self.role = value, hint, role


@dataclass(frozen=True, slots=True)
class Messages:
    """What a case asks: the events before, the message, and the answer and calls that follow it, where they do.

    ``instructions``: whether there were system messages, which are the agent's own affair.
    """

    message: Content
    history: tuple[PastEvent, ...] = ()
    reference: Content | None = None
    expected_calls: tuple[FunctionCall, ...] = ()
    instructions: bool = False

    def after(self, past: tuple[PastEvent, ...]) -> Messages:
        """The same with these events before it."""
        return replace(self, history=(*past, *self.history))


class _Said(NamedTuple):
    side: _Side
    content: Content


def read_messages(value: Any, text_of: TextOf) -> Messages:
    """The message of a case with what is around it. ``text_of`` finds the text in an object of named values.

    Raises NoMessages.
    """
    listed = _listed(value)
    if listed is None:
        message = to_content(value, text_of, "user")
        if not message.parts or (
            not message.text.strip() and not any(part.is_other_than_text for part in message.parts)
        ):
            raise NoMessages("the message is empty")
        return Messages(message)
    said = list(_conversation(listed))
    last = max((number for number, item in enumerate(said) if item.side == "user"), default=None)
    if last is None:
        raise NoMessages("none of the messages is the user's", value)
    answers = [item.content for item in said[last + 1 :] if item.side == "model"]
    calls = [part.function_call for content in answers for part in content.parts or () if part.function_call]
    return Messages(
        said[last].content,
        tuple(_events(said[:last])),
        next((_text_alone(content) for content in reversed(answers) if content.text), None),
        tuple(calls),
        any(item.side == "system" for item in said),
    )


def read_history(value: Any) -> tuple[PastEvent, ...]:
    """The events of a conversation so far. Raises NoMessages."""
    listed = _listed(value)
    if listed is None:
        raise NoMessages("must be a list of messages", value, _FORM, "history")
    try:
        return tuple(_events(_conversation(listed)))
    except NoMessages as wrong:
        raise NoMessages(str(wrong), wrong.value, wrong.hint, "history") from None


def to_content(value: Any, text_of: TextOf, role: str) -> Content:
    """A text, a number, a content, or the one text of an object. Raises NoMessages."""
    if isinstance(value, Mapping) and isinstance(value.get("response"), Mapping) and "parts" in value["response"]:
        value = value["response"]  # Vertex AI's reference
    listed = _listed(value)
    if listed is not None:  # LangSmith's outputs: the last of their messages is the answer
        answer = next((item.content for item in reversed(list(_conversation(listed))) if item.content.text), None)
        if answer is None:
            raise NoMessages("none of the messages has a text", value)
        return _text_alone(answer)
    if isinstance(value, Mapping):
        if "parts" in value:
            return _content(value, role)
        if "content" in value and ("role" in value or "type" in value):
            return next(_conversation([value])).content
        text = text_of(dict(value))
        if text is None:
            raise NoMessages("is an object, and which of its values is meant is not clear", value)
        value = text
    if isinstance(value, list) or value is None:
        raise NoMessages("must be a text", value)
    text = value if isinstance(value, str) else json.dumps(value)
    return Content(parts=(Part(text=text),), role=role)


def tool_calls(value: Any) -> tuple[FunctionCall, ...]:
    """Expected calls: objects with name and arguments, names alone, or a text of names with commas between them.

    Raises NoMessages.
    """
    if isinstance(value, str):
        value = [name.strip() for name in value.replace("\n", ",").split(",") if name.strip()]
    if isinstance(value, Mapping):
        value = value.get("tool_uses", value.get("tool_calls", [value]))
    if not isinstance(value, list):
        raise NoMessages("must be a list of tool calls", value, '[{"name": "roll_die", "args": {"sides": 6}}]')
    return tuple(map(_call, value))


def _call(value: Any) -> FunctionCall:
    if isinstance(value, str) and value.strip():
        return FunctionCall(name=value.strip())
    inner = value.get("function", value) if isinstance(value, Mapping) else None
    if isinstance(inner, str) and isinstance(value, Mapping):  # Inspect's: {"function": name, "arguments": {...}}
        inner = {**value, "name": inner}
    if isinstance(inner, Mapping):
        name = next((inner[key] for key in ("name", "tool_name", "tool") if isinstance(inner.get(key), str)), None)
        keys = ("args", "tool_input", "arguments", "parameters", "input")
        args = next((inner[key] for key in keys if inner.get(key) is not None), None)
        if isinstance(args, str):
            args = _json_object(args)
        if name and (args is None or isinstance(args, Mapping)):
            return FunctionCall(name=name, args=dict(args) if args is not None else None)
    raise NoMessages("is no tool call", value, '{"name": "roll_die", "args": {"sides": 6}}')


def _json_object(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _listed(value: Any) -> list[Any] | None:
    """The messages of a value that is a conversation; None where it is something else."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("messages", "contents") if isinstance(value.get(key), list)), None)
    if not isinstance(value, list) or not value:
        return None
    if len(value) == 1 and isinstance(value[0], list):  # LangSmith's runs nest the messages of a call
        value = value[0]
    return value if value and all(isinstance(item, Mapping) for item in value) else None


def _conversation(listed: list[Any]) -> Iterator[_Said]:
    if len(listed) > _MAX_MESSAGES:
        raise NoMessages(f"has more than {_MAX_MESSAGES:,} messages")
    names: dict[str, str] = {}
    for item in listed:
        kwargs: Mapping[str, Any] = next(
            (item[key] for key in ("kwargs", "data") if isinstance(item.get(key), Mapping)), {}
        )
        message = {**item, **kwargs}
        side = _side(item, message)
        if side is None:
            raise NoMessages("is no message: it has no known role", item, _FORM)
        yield _Said(side, _message_content(message, side, names))


def _side(item: Mapping[str, Any], message: Mapping[str, Any]) -> _Side | None:
    named = item.get("id")
    words = [message.get("role"), message.get("author"), item.get("type"), message.get("type")]
    words += named[-1:] if isinstance(named, list) else []
    sides = (_SIDES.get(word.lower()) for word in words if isinstance(word, str))
    found = next((side for side in sides if side is not None), None)
    if found is None and "parts" in message and not any(isinstance(word, str) for word in words):
        return "user"
    return found


def _message_content(message: JsonObject, side: _Side, names: dict[str, str]) -> Content:
    role = "model" if side == "model" else "user"
    body = message.get("content")
    if "parts" in message or (isinstance(body, Mapping) and "parts" in body):
        return _content(message if "parts" in message else body, role)
    text = _message_text(body)
    if side == "tool":
        name = message.get("name") or names.get(str(message.get("tool_call_id")), "") or "tool"
        answer = FunctionResponse(name=str(name), response={"result": text})
        return Content(parts=(Part(function_response=answer),), role=role)
    parts = [Part(text=text)] if text else []
    calls = message.get("tool_calls") if side == "model" else None
    for call in calls if isinstance(calls, list) else ():
        made = _call(call)
        names[str(call.get("id")) if isinstance(call, Mapping) else ""] = made.name or ""
        parts.append(Part(function_call=made))
    return Content(parts=tuple(parts), role=role)


def _message_text(body: Any) -> str:
    """The text of a message's content, which may be a list of typed parts."""
    if body is None or isinstance(body, str):
        return body or ""
    texts = []
    for part in body if isinstance(body, list) else [body]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif not (isinstance(part, Mapping) and part.get("type") in {"tool_use", "thinking", "reasoning"}):
            raise NoMessages("is a part of a message that is no text", part)
    return "\n".join(texts)


def _content(value: Any, role: str) -> Content:
    """A content of Gemini's form."""
    parts = value.get("parts")
    parts = [{"text": part} if isinstance(part, str) else part for part in parts] if isinstance(parts, list) else parts
    try:
        return Content.model_validate({"parts": parts, "role": value.get("role") or role})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise NoMessages(f"is no content: {detail['msg'].lower()}", value) from None


def _events(said: Iterator[_Said] | list[_Said]) -> Iterator[PastEvent]:
    """The events of the session; ``model`` is the agent that is measured, whatever its name."""
    for side, content in said:
        if side != "system":
            yield PastEvent(author="user" if side == "user" else "model", content=content)


def _text_alone(content: Content) -> Content:
    return Content(parts=(Part(text=content.text),), role="model")
