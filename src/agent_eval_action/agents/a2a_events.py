"""Convert what an A2A server sends in a turn (JSON form of protocol 1.0) to an Invocation.

ADK's servers send tool calls and results as data parts, marked in their metadata. Other servers show only the answer.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from agent_eval_action.diagnostics.suggestions import snake_case
from agent_eval_action.llm.client import quoted, sendable_json
from agent_eval_action.results.evalset import (
    Content,
    FunctionCall,
    FunctionResponse,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
)
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from agent_eval_action.telemetry.spans import with_integers

JsonObject = dict[str, Any]

COMPLETED: Final = "TASK_STATE_COMPLETED"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"
_FAILURES: Final = {
    "TASK_STATE_FAILED": (ErrorKind.EXCEPTION, "the agent's task failed"),
    "TASK_STATE_REJECTED": (ErrorKind.EXCEPTION, "the agent rejected the task"),
    "TASK_STATE_CANCELED": (ErrorKind.EXCEPTION, "the agent's task was cancelled"),
    "TASK_STATE_AUTH_REQUIRED": (ErrorKind.CREDENTIALS, "the agent asks for credentials in the middle of its task"),
}
_MODEL_ERRORS: Final = {
    "429": ErrorKind.RATE_LIMITED,
    "RESOURCE_EXHAUSTED": ErrorKind.RATE_LIMITED,
    "503": ErrorKind.UNAVAILABLE,
    "UNAVAILABLE": ErrorKind.UNAVAILABLE,
}
"""ADK's error codes that mean the agent's model failed."""
_CODE: Final = ("executable_code", "code_execution_result")


@dataclass(slots=True)
class _AgentMessage:
    """A message of the agent, or a tool call or result that only its answer or artifacts hold."""

    parts: list[JsonObject]
    author: str
    usage: JsonObject | None = None


@dataclass
class ContextMemory:
    """What the context held before the turn: a task that spans several turns sends it again."""

    messages: set[str] = field(default_factory=set)
    calls: set[tuple[str, str]] = field(default_factory=set)
    artifacts: dict[str, list[JsonObject]] = field(default_factory=dict)


@dataclass
class TurnEvents:
    """Collects the events of one turn. ``author`` is used for messages that name none."""

    author: str
    memory: ContextMemory
    task_id: str = ""
    context_id: str = ""
    state: str = ""
    error_code: str = ""
    _messages: list[_AgentMessage] = field(default_factory=list)
    _artifacts: dict[str, list[JsonObject]] = field(default_factory=dict)
    _status: list[JsonObject] = field(default_factory=list)
    _answer: list[JsonObject] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the agent has finished its turn or waits for user input."""
        return self._answer is not None or self.state in (COMPLETED, INPUT_REQUIRED) or self.state in _FAILURES

    def add(self, response: Mapping[str, Any]) -> None:
        """Add a server response: a message, a task, or an update of a task."""
        for name, take in (
            ("message", self._take_answer),
            ("task", self._take_task),
            ("statusUpdate", self._take_status),
            ("artifactUpdate", self._take_artifact),
        ):
            if isinstance(response.get(name), dict):
                value = response[name]
                self.context_id = value.get("contextId") or self.context_id
                take(value)

    def _take_answer(self, message: JsonObject) -> None:
        self._answer = list(message.get("parts", ()))

    def _take_task(self, task: JsonObject) -> None:
        self.task_id = task.get("id") or self.task_id
        for message in task.get("history", ()):
            self._take_message(message, {})
        for artifact in task.get("artifacts", ()):
            self._artifacts[artifact.get("artifactId", "")] = list(artifact.get("parts", ()))
        self._take_status(task)

    def _take_status(self, update: JsonObject) -> None:
        self.task_id = update.get("taskId") or self.task_id
        status, metadata = update.get("status", {}), update.get("metadata", {})
        self.state = status.get("state") or self.state
        message = status.get("message")
        if message:
            codes = (values.get("adk_error_code") for values in (metadata, message.get("metadata", {})))
            self.error_code = str(next(filter(None, codes), self.error_code))
            self._status = list(message.get("parts", ()))
            self._take_message(message, metadata)

    def _take_message(self, message: JsonObject, metadata: JsonObject) -> None:
        if message.get("role") == "ROLE_USER" or metadata.get("adk_partial"):
            return
        identifier, parts = message.get("messageId"), list(message.get("parts", ()))
        if identifier in self.memory.messages:  # a repeat, or the server gives all messages of a task one id
            parts = [given for given in parts if _call_of(given) not in (None, *self.memory.calls)]
            if not parts:
                return
        if identifier:
            self.memory.messages.add(identifier)
        self.memory.calls.update(call for given in parts if (call := _call_of(given)))
        author = metadata.get("adk_author") or message.get("metadata", {}).get("adk_author") or self.author
        usage = _usage(metadata.get("adk_usage_metadata"))
        self._messages.append(_AgentMessage(parts, str(author), usage))

    def _take_artifact(self, update: JsonObject) -> None:
        self.task_id = update.get("taskId") or self.task_id
        artifact = update.get("artifact", {})
        identifier, parts = artifact.get("artifactId", ""), list(artifact.get("parts", ()))
        known = self._artifacts.get(identifier)
        if update.get("append") and known is not None:
            _append(known, parts)
        else:
            self._artifacts[identifier] = parts

    def result(self, user_content: Content, invocation_id: str) -> Invocation | AttemptError:
        """Return the turn, or the error that kept the agent from finishing it."""
        if self.state in _FAILURES and self._answer is None:
            kind, message = _FAILURES[self.state]
            kind = next((found for code, found in _MODEL_ERRORS.items() if code in self.error_code), kind)
            text = quoted(_content(self._status).text)
            return AttemptError(kind=kind, message=f"{message}: {text}" if text else message)
        fresh = {name: parts for name, parts in self._artifacts.items() if parts != self.memory.artifacts.get(name)}
        self.memory.artifacts.update(fresh)
        made = [part for parts in fresh.values() for part in parts]
        answer = self._final(made)
        unseen = list(self._unseen_calls(made))
        last = self._messages[-1] if self._messages else None
        if last is not None and answer is not None and _content(last.parts).text == answer.text:
            # The answer's text must not count twice.
            last.parts = [part for part in last.parts if not _is_spoken(part)]
        events = tuple(
            event for event in map(_event, [*self._messages, *unseen]) if event.content or event.usage_metadata
        )
        return Invocation(
            invocation_id=invocation_id,
            user_content=user_content,
            final_response=answer,
            intermediate_data=InvocationEvents(invocation_events=events),
        )

    def waiting_calls(self) -> list[Any]:
        """Return the ids of calls that wait for the user, which ADK's servers mark as long-running."""
        parts = [*(part for message in self._messages for part in message.parts), *(self._answer or ()), *self._status]
        parts += [part for artifact in self._artifacts.values() for part in artifact]
        return [
            part["data"].get("id")
            for part in parts
            if part.get("metadata", {}).get("adk_is_long_running") and isinstance(part.get("data"), dict)
        ]

    def _final(self, made: list[JsonObject]) -> Content | None:
        """Return the answer: the message, else the artifacts, else the last status, else the last agent message."""
        for parts in (self._answer, made, self._status, *(message.parts for message in reversed(self._messages))):
            shown = [part for part in _content(parts or ()).parts or () if not (part.thought or _is_tool(part))]
            if shown:
                return Content(role="model", parts=tuple(shown))
        return None

    def _unseen_calls(self, made: list[JsonObject]) -> Iterator[_AgentMessage]:
        """Yield calls and results that only the answer or the artifacts hold."""
        known = {_identity(part) for message in self._messages for part in _content(message.parts).parts or ()}
        for part in (*(self._answer or ()), *made):
            read = _part(part)
            if read is not None and _is_tool(read) and _identity(read) not in known:
                known.add(_identity(read))
                yield _AgentMessage([part], self.author)


def _identity(part: Part) -> tuple[str, str]:
    tool = part.function_call or part.function_response
    if tool is None:
        return "", ""
    return type(tool).__name__, tool.id or json.dumps(tool.model_dump(mode="json"), sort_keys=True)


def _call_of(given: JsonObject) -> tuple[str, str] | None:
    """Return the identity of a tool call or result; None for any other part."""
    part = _part(given)
    return _identity(part) if part is not None and _is_tool(part) else None


def _is_tool(part: Part) -> bool:
    return bool(part.function_call or part.function_response)


def _is_spoken(given: JsonObject) -> bool:
    part = _part(given)
    return part is not None and part.text is not None and not part.thought


def _append(known: list[JsonObject], parts: Iterable[JsonObject]) -> None:
    """Append the next chunk of an artifact; text continues the preceding text part."""
    for part in parts:
        is_text = part.keys() <= {"text", "metadata"} and bool(known) and "text" in known[-1]
        if is_text and known[-1].get("metadata") == part.get("metadata"):
            known[-1] = {**known[-1], "text": known[-1]["text"] + part.get("text", "")}
        else:
            known.append(part)


def _event(message: _AgentMessage) -> InvocationEvent:
    content = _content(message.parts)
    if any(part.function_response for part in content.parts or ()):
        content = Content(role="user", parts=content.parts)  # ADK records tool results with this role
    return InvocationEvent(
        author=message.author, content=content if content.parts else None, usage_metadata=message.usage
    )


def _content(parts: Iterable[JsonObject]) -> Content:
    return Content(role="model", parts=tuple(part for part in map(_part, parts) if part is not None))


def _part(given: JsonObject) -> Part | None:
    """Convert a protocol part to an event part. Data that is not ADK's becomes JSON text, which judges can read."""
    if "text" in given:
        is_thought = bool(given.get("metadata", {}).get("adk_thought"))
        return Part(text=sendable_json(given["text"]), thought=True if is_thought else None)
    if "raw" in given:
        return Part(inline_data={"mime_type": given.get("mediaType", ""), "data": given["raw"]})
    if "url" in given:
        return Part(file_data={"mime_type": given.get("mediaType", ""), "file_uri": sendable_json(given["url"])})
    return _data_part(given) if "data" in given else None


def _data_part(given: JsonObject) -> Part:
    data = sendable_json(with_integers(given["data"]))
    kind = str(given.get("metadata", {}).get("adk_type"))
    # Data with ADK's type name but another shape becomes JSON text too.
    with contextlib.suppress(ValidationError):
        if kind == "function_call":
            return Part(function_call=FunctionCall.model_validate(data))
        if kind == "function_response":
            return Part(function_response=FunctionResponse.model_validate(data))
        if kind in _CODE and isinstance(data, dict):
            return Part.model_validate({kind: data})
    return Part(text=json.dumps(data, ensure_ascii=False))


def _usage(reported: Any) -> JsonObject | None:
    """Parse ADK's usage: a mapping or its JSON text, with camelCase or snake_case keys."""
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except (ValueError, RecursionError):
            return None
    if not isinstance(reported, dict):
        return None
    return {snake_case(name): value for name, value in with_integers(reported).items()}
