"""Convert between messages in OpenAI's format (role, content, tool_calls) and the events of a turn."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent_eval_action.results.evalset import (
    Content,
    FunctionCall,
    FunctionResponse,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
    PastEvent,
)

Message = dict[str, Any]

_USAGE: Final = {
    "input_tokens": "prompt_token_count",
    "prompt_tokens": "prompt_token_count",
    "output_tokens": "candidates_token_count",
    "completion_tokens": "candidates_token_count",
    "total_tokens": "total_token_count",
}
_USAGE_DETAILS: Final = (
    ("prompt_tokens_details", "cached_tokens", "cached_content_token_count"),
    ("completion_tokens_details", "reasoning_tokens", "thoughts_token_count"),
)
_NOT_RUN = "The tool was not run: nobody answers tool calls of this client."


def message_text(content: Any) -> str:
    """Return the text of a message's ``content``, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part if isinstance(part, str) else part.get("text") for part in parts if isinstance(part, str | dict))
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def tool_calls(message: Mapping[str, Any]) -> list[FunctionCall]:
    """Return the calls of an assistant message, including the deprecated ``function_call``."""
    listed = message.get("tool_calls")
    calls = [
        _call(entry.get("function") or entry.get("custom") or entry, entry.get("id"))
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict)
    ]
    deprecated = message.get("function_call")
    return [*calls, _call(deprecated, None)] if isinstance(deprecated, dict) else calls


def _call(function: Any, identifier: Any) -> FunctionCall:
    named = function if isinstance(function, dict) else {}
    given = next((named[key] for key in ("arguments", "args", "input") if key in named), None)
    value = _parsed(given.strip() or "{}") if isinstance(given, str) else given
    # What is not a JSON object goes under a key of its own, as in ADK.
    args = {} if value is None else value if isinstance(value, dict) else {"arguments": value}
    return FunctionCall(id=as_text(identifier), name=as_text(named.get("name")), args=args)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_text(value: Any) -> str | None:
    """Return a text of a server or a program; None for anything else."""
    return value if isinstance(value, str) else None


def gemini_usage(reported: Any) -> dict[str, int]:
    """Convert token usage to Gemini's names, which the rest of the run reads."""
    if not isinstance(reported, dict):
        return {}
    counts = {_USAGE[theirs]: count for theirs, count in reported.items() if theirs in _USAGE}
    for details, name, ours in _USAGE_DETAILS:
        if isinstance(reported.get(details), dict):
            counts[ours] = reported[details].get(name)
    return {name: count for name, count in counts.items() if type(count) is int and count >= 0}


@dataclass(frozen=True, slots=True)
class TurnMessages:
    """The messages an agent made in one turn, with the model and usage its server reports for the turn."""

    messages: Sequence[Mapping[str, Any]]
    author: str = "agent"
    model: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)

    def invocation(self, user_content: Content, invocation_id: str) -> Invocation:
        """Return the turn; its answer is the text of the last assistant message."""
        last = next((message for message in reversed(self.messages) if _role(message) == "assistant"), None)
        names: dict[str | None, str | None] = {}
        made = (self._event(message, message is last, names) for message in self.messages)
        text = _spoken_text(last) if last is not None else ""
        return Invocation(
            invocation_id=invocation_id,
            user_content=user_content,
            final_response=Content(role="model", parts=(Part(text=text),)) if text else None,
            intermediate_data=InvocationEvents(invocation_events=tuple(filter(None, made))),
        )

    def _event(
        self, message: Mapping[str, Any], is_last: bool, names: dict[str | None, str | None]
    ) -> InvocationEvent | None:
        role, author, parts = _role(message), self.author, list[Part]()
        if role in ("tool", "function"):
            identifier, value = as_text(message.get("tool_call_id")), _parsed(message_text(message.get("content")))
            name = as_text(message.get("name")) or names.get(identifier)
            response = value if isinstance(value, dict) else {"result": value}  # as in ADK
            parts.append(Part(function_response=FunctionResponse(id=identifier, name=name, response=response)))
        elif role == "assistant":
            author = as_text(message.get("name")) or author
            calls = tool_calls(message)
            names.update({call.id: call.name for call in calls})
            if thought := as_text(message.get("reasoning_content")):
                parts.append(Part(text=thought, thought=True))
            # The text of the last message is the answer; here it would count twice.
            if (calls or not is_last) and (text := _spoken_text(message)):
                parts.append(Part(text=text))
            parts += [Part(function_call=call) for call in calls]
        else:
            return None
        content = Content(role="model" if role == "assistant" else "user", parts=tuple(parts)) if parts else None
        return InvocationEvent(
            author=author,
            content=content,
            usage_metadata=self.usage or None if is_last else None,
            model_version=self.model if is_last else None,
        )


def _role(message: Mapping[str, Any]) -> str:
    return as_text(message.get("role")) or "assistant"


def _spoken_text(message: Mapping[str, Any]) -> str:
    return message_text(message.get("content")) or as_text(message.get("refusal")) or ""


def messages_since(asked: str, listed: Iterable[Any]) -> list[Message]:
    """Return the messages after the user's message of this turn, whose text is ``asked``.

    Agents also send each other messages with role `user`, so the newest of these counts only if none has that text.
    """
    messages = [message for message in listed if isinstance(message, dict)]
    by_user = [number for number, message in enumerate(messages) if _role(message) == "user"]
    matching = [number for number in by_user if message_text(messages[number].get("content")) == asked]
    start = (matching or by_user or [-1])[-1] + 1
    return messages[start:]


def user_message(content: Content, role: str = "user") -> Message:
    """Return a user message; inline media become data URLs."""
    media = [part for part in content.parts or () if part.inline_data or part.file_data]
    if not media:
        return {"role": role, "content": content.text}
    parts: list[Message] = [{"type": "text", "text": content.text}] if content.text else []
    return {"role": role, "content": [*parts, *map(_media, media)]}


def _media(part: Part) -> Message:
    data = part.inline_data or part.file_data or {}
    kind = str(data.get("mime_type") or data.get("mimeType") or "application/octet-stream")
    uri = data.get("file_uri") or data.get("fileUri")
    # google-genai writes bytes as URL-safe base64
    packed = str(data.get("data") or "").replace("-", "+").replace("_", "/")
    url = str(uri or f"data:{kind};base64,{packed}")
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if kind.startswith("audio/") and not uri:
        return {"type": "input_audio", "input_audio": {"data": packed, "format": kind.partition("/")[2]}}
    return {"type": "file", "file": {"file_data": url, "filename": str(data.get("display_name") or "file")}}


def history_messages(history: Iterable[PastEvent]) -> Iterator[Message]:
    """Convert past events to messages. A call without an id gets one, and so does its result."""
    waiting: list[tuple[str, str | None]] = []
    number = 0
    for event in history:
        content = event.content or Content()
        calls: list[Message] = []
        for part in content.parts or ():
            if part.function_call:
                number += 1
                identifier = part.function_call.id or f"call_{number}"
                waiting.append((identifier, part.function_call.name))
                calls.append(as_tool_call(part.function_call, identifier))
            elif part.function_response:
                yield _as_tool_message(part.function_response, waiting)
        role = event.author if event.author in ("user", "system", "developer") else "assistant"
        if calls:
            yield {"role": "assistant", "content": content.text or None, "tool_calls": calls}
        elif role != "assistant":
            yield user_message(content, role)
        elif content.text:
            yield {"role": "assistant", "content": content.text}


def as_tool_call(call: FunctionCall, identifier: str) -> Message:
    """Return a call as an entry of an assistant message's ``tool_calls``."""
    function = {"name": call.name or "", "arguments": json.dumps(call.args or {}, ensure_ascii=False)}
    return {"id": identifier, "type": "function", "function": function}


def _as_tool_message(result: FunctionResponse, waiting: list[tuple[str, str | None]]) -> Message:
    found = next((call for call in waiting if result.id == call[0] or (not result.id and result.name == call[1])), None)
    if found is not None:
        waiting.remove(found)
    identifier = result.id or (found[0] if found else "call_0")
    content = json.dumps(result.response or {}, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": identifier, "content": content}


def result_messages(content: Content) -> list[Message]:
    """Return the function responses in a user message as tool messages."""
    return [_as_tool_message(part.function_response, []) for part in content.parts or () if part.function_response]


def unanswered_calls(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return a tool message for each call without a result: servers refuse conversations with open calls."""
    answered = [message.get("tool_call_id") for message in messages if _role(message) == "tool"]
    calls = [
        call for message in messages if isinstance(message.get("tool_calls"), list) for call in tool_calls(message)
    ]
    return [
        {"role": "tool", "tool_call_id": call.id, "content": _NOT_RUN}
        for call in calls
        if call.id is not None and call.id not in answered
    ]
