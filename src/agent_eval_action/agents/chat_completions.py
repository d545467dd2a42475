"""The ``openai`` driver: the agent is a server with OpenAI's chat completions API.

The server keeps no state, so each turn sends the whole conversation. A server that runs its own tools may return what
they did as ``messages`` beside ``choices``; otherwise only calls left to the client are visible.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx

from agent_eval_action.agents.base import AgentSession, DriverContext, SessionRequest
from agent_eval_action.agents.chat_messages import (
    Message,
    TurnMessages,
    as_text,
    gemini_usage,
    history_messages,
    messages_since,
    result_messages,
    unanswered_calls,
    user_message,
)
from agent_eval_action.agents.http_server import (
    HttpAgent,
    HttpSession,
    ServerConnection,
    error_text,
    status_error,
    stream_data,
)
from agent_eval_action.llm.client import quoted, sendable_json
from agent_eval_action.results.evalset import Content, Invocation
from agent_eval_action.results.run_result import AttemptError, ErrorKind

_PATH: Final = "/chat/completions"
_SENT_BACK: Final = ("role", "content", "tool_calls", "function_call", "tool_call_id", "name", "refusal")


def completions_url(url: str) -> str:
    """Return the URL of chat completions, adding the path if it is missing."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=path if path.endswith(_PATH) else path + _PATH))


class ChatAgent(HttpAgent):
    """An ``AgentDriver``. Starting it sends no request."""

    path: ClassVar[str] = "/v1"
    spreads: ClassVar[bool] = True

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self.models = (context.agent.model,) if context.agent.model else ()

    async def begin(self, connection: ServerConnection, request: SessionRequest) -> AgentSession | AttemptError:
        return ChatSession(self, connection, request)


class ChatSession(HttpSession):
    """One conversation. Each request sends all its messages so far."""

    tells_all: ClassVar[bool] = False

    def __init__(self, agent: ChatAgent, connection: ServerConnection, request: SessionRequest) -> None:
        super().__init__(agent, connection)
        self._url = completions_url(connection.url)
        self._name = uuid4().hex
        self._messages = list(history_messages(request.history))
        self._made: list[Message] = []  # by the latest turn
        self._body: dict[str, Any] = {"model": agent.context.agent.model or agent.spec.name}
        self.note_history(request.history)
        if state := request.state_after_history():
            # OpenAI's metadata values are strings.
            self._body["metadata"] = {"session_state": json.dumps(state, ensure_ascii=False)}

    async def exchange(self, content: Content) -> Invocation | AttemptError:
        results = result_messages(content)
        replies = [*results, *unanswered_calls([*self._made, *results])]
        spoken = [user_message(content)] if len(results) < len(content.parts or ()) or not results else []
        asked = [*self._messages, *replies, *spoken]
        body = json.dumps(sendable_json({**self._body, "messages": asked}), ensure_ascii=False).encode()
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        async with self.client.stream("POST", self._url, content=body, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                text = error_text(await response.aread())
                return status_error(response.status_code, text, self.address)
            answer = await _read(response, content.text)
        if isinstance(answer, AttemptError):
            return answer
        self._made = [
            {key: message[key] for key in _SENT_BACK if message.get(key) is not None} for message in answer.messages
        ]
        self._messages = [*asked, *self._made]
        turn = answer.invocation(content, f"{self._name}-{len(asked)}")
        waiting = [message["tool_call_id"] for message in unanswered_calls(self._made)]
        self.note_calls(turn, waiting, alone=True)  # the next turn reports older calls as not run
        return turn


async def _read(response: httpx.Response, asked: str) -> TurnMessages | AttemptError:
    """Read a streamed or plain response. ``asked`` is the user's text."""
    if response.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream":
        return await _read_stream(response, asked)
    try:
        body = sendable_json(json.loads(await response.aread()))
    except (ValueError, RecursionError) as error:
        return _unreadable(f"it is no JSON ({quoted(str(error), limit=80)})")
    return read_completion(body, asked)


def _unreadable(why: str) -> AttemptError:
    return AttemptError(kind=ErrorKind.PROTOCOL, message=f"the server's answer is no chat completion: {why}")


def read_completion(body: Any, asked: str = "") -> TurnMessages | AttemptError:
    """Return the messages of a chat completion, or an error."""
    if not isinstance(body, dict):
        return _unreadable("it is no JSON object")
    choices = body.get("choices")
    choice = next((entry for entry in choices if isinstance(entry, dict)), None) if isinstance(choices, list) else None
    if choice is None:
        return _reported_error(body["error"]) if body.get("error") else _unreadable("it has no choices")
    if error := body.get("error") or choice.get("error"):
        return _reported_error(error)
    message = choice.get("message")
    if not isinstance(message, dict):
        return _unreadable("its choice has no message")
    listed = next((value for value in (choice.get("messages"), body.get("messages")) if isinstance(value, list)), [])
    messages = messages_since(asked, listed)
    if not messages or not _ends_with(messages, message):
        messages.append(message)
    usage = gemini_usage(body.get("usage"))
    return _refusal(choice.get("finish_reason"), messages[-1]) or TurnMessages(
        messages, model=as_text(body.get("model")), usage=usage
    )


def _ends_with(messages: list[Message], message: Message) -> bool:
    return messages[-1].get("role") == "assistant" and messages[-1].get("content") == message.get("content")


def _refusal(finish: Any, last: Message) -> AttemptError | None:
    """Return the error if the finish reason explains why there is no answer."""
    if finish == "content_filter":
        return AttemptError(kind=ErrorKind.EXCEPTION, message="the server blocked the answer (content_filter)")
    is_empty = not any(last.get(key) for key in ("content", "tool_calls", "function_call", "refusal"))
    if finish == "length" and is_empty:
        message = "the answer has no text: the model met its limit of tokens first (finish_reason: length)"
        return AttemptError(kind=ErrorKind.EXCEPTION, message=message)
    return None


def _reported_error(error: Any) -> AttemptError:
    text = error_text(json.dumps({"error": error}).encode())
    code = str(error.get("code") or error.get("type") or "") if isinstance(error, dict) else ""
    limited = code in ("429", "rate_limit_exceeded")
    kind = ErrorKind.RATE_LIMITED if limited else ErrorKind.EXCEPTION
    return AttemptError(kind=kind, message=f"the server reports an error: {text}")


_Pieces = defaultdict[str, list[str]]


class _StreamedMessage:
    """A streamed message so far. Texts are joined only at the end: a stream has a piece per token."""

    def __init__(self) -> None:
        self._texts: _Pieces = defaultdict(list)
        self._function: _Pieces = defaultdict(list)
        self._calls: list[_Pieces] = []
        self._open_calls: dict[int, _Pieces] = {}

    def add(self, delta: dict[str, Any]) -> None:
        _append(self._texts, delta, "content", "refusal", "reasoning_content")
        _append(self._function, delta.get("function_call"), "name", "arguments")
        listed = delta.get("tool_calls")
        for position, entry in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(entry, dict):
                # By index; some servers omit it or repeat it for each call.
                index, function = entry.get("index"), entry.get("function")
                place = index if isinstance(index, int) else position
                if place not in self._open_calls or self._is_another(self._open_calls[place], entry):
                    self._open_calls[place] = defaultdict(list)
                    self._calls.append(self._open_calls[place])
                call = self._open_calls[place]
                if not any(call["id"]):
                    _append(call, entry, "id")
                _append(call, function, "name", "arguments")

    @staticmethod
    def _is_another(call: _Pieces, entry: dict[str, Any]) -> bool:
        identifier, known, function = entry.get("id"), "".join(call["id"]), entry.get("function")
        if identifier and known:
            return bool(identifier != known)
        if not isinstance(function, dict) or not function.get("name"):
            return False
        try:
            json.loads("".join(call["arguments"]))
        except (ValueError, RecursionError):
            return False
        return True

    def message(self) -> Message:
        message: Message = {"role": "assistant", "content": None, **_joined(self._texts)}
        if self._calls:
            calls = [{"name": "", "arguments": "", **_joined(call)} for call in self._calls]
            message["tool_calls"] = [
                {"id": call.pop("id", None), "type": "function", "function": call} for call in calls
            ]
        if self._function:
            message["function_call"] = _joined(self._function)
        return message


def _append(pieces: _Pieces, given: Any, *names: str) -> None:
    for name in names:
        if isinstance(given, dict) and isinstance(given.get(name), str):
            pieces[name].append(given[name])


def _joined(pieces: _Pieces) -> dict[str, Any]:
    return {name: "".join(texts) for name, texts in pieces.items() if texts}


async def _read_stream(response: httpx.Response, asked: str) -> TurnMessages | AttemptError:
    streamed, rest = _StreamedMessage(), dict[str, Any]()
    finish: Any = None
    is_whole = False
    async for data in stream_data(response):
        if data.strip() == "[DONE]":
            is_whole = True
            break
        try:
            chunk = sendable_json(json.loads(data))
        except (ValueError, RecursionError):
            return _unreadable("a chunk of its stream is no JSON")
        if not isinstance(chunk, dict):
            return _unreadable("a chunk of its stream is no JSON object")
        if chunk.get("error"):
            return _reported_error(chunk["error"])
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
                if choice.get("error"):
                    return _reported_error(choice["error"])
                delta = choice.get("delta") or choice.get("message")
                streamed.add(delta if isinstance(delta, dict) else {})
                finish = choice.get("finish_reason") or finish
        rest.update({key: chunk[key] for key in ("usage", "model", "messages") if chunk.get(key)})
    if finish is None and not is_whole:
        message = "the connection ended before the answer was whole"
        return AttemptError(kind=ErrorKind.UNAVAILABLE, message=message)
    return read_completion({**rest, "choices": [{"message": streamed.message(), "finish_reason": finish}]}, asked)
