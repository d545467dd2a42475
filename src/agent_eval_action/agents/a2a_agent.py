"""The ``a2a`` driver: talks to an Agent2Agent server (protocol 1.0 or 0.3) through a2a-sdk's client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx
from pydantic import ValidationError

from agent_eval_action.agents.base import AgentSession, DriverContext, SessionRequest
from agent_eval_action.agents.http_server import (
    HttpAgent,
    HttpSession,
    ServerConnection,
    error_text,
    is_this_machine,
    request_error,
    status_error,
)
from agent_eval_action.diagnostics.suggestions import snake_case
from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.client import quoted, sendable, sendable_json
from agent_eval_action.results.evalset import (
    Content,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    JsonObject,
    Part,
)
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from agent_eval_action.telemetry.spans import with_integers

try:
    from a2a.client.card_resolver import parse_agent_card
    from a2a.client.client import Client, ClientConfig
    from a2a.client.client_factory import ClientFactory
    from a2a.client.errors import A2AClientError
    from a2a.types.a2a_pb2 import AgentCard, CancelTaskRequest, GetTaskRequest, Message, Role, SendMessageRequest
    from a2a.types.a2a_pb2 import Part as SentPart
    from a2a.utils.constants import TransportProtocol
    from a2a.utils.errors import A2AError
    from google.protobuf.json_format import MessageToDict, ParseError
except ModuleNotFoundError as missing:
    hint = "pip install 'agent-eval-action[a2a]'"
    raise ConfigError(f"the driver a2a needs a2a-sdk, which is not installed ({missing.name})", hint) from missing

CARD_PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where servers publish their agent card; the second path is the one from before protocol 0.3."""

_BINDINGS: Final = (TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON)
_CARD_S: Final = 30.0
_CANCEL_S: Final = 3.0
_FIRST_POLL_S: Final = 0.1
_LONGEST_POLL_S: Final = 2.0
_COMPLETED: Final = "TASK_STATE_COMPLETED"
_INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"
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
_DATA_KINDS: Final = ("function_call", "function_response", "executable_code", "code_execution_result")


class A2aAgent(HttpAgent):
    """An ``AgentDriver``. The agent card lists the server's addresses and protocol bindings."""

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self._card = AgentCard()

    async def find(self, connection: ServerConnection) -> AttemptError | None:
        session = A2aSession(self, connection)
        card = await session.read_card()
        await session.close()
        if isinstance(card, AttemptError):
            return card
        make_reachable(card, connection.url, started=connection.service is not None)
        self._card = card
        return None

    async def begin(self, connection: ServerConnection, request: SessionRequest) -> AgentSession | AttemptError:
        if request.history:
            message = "the case begins with a history, and the A2A protocol cannot begin a conversation with one"
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=message)
        session = A2aSession(self, connection, request.state)
        if failure := session.connect(self._card):
            await session.close()
        return failure or session


class A2aSession(HttpSession):
    """One conversation: a context on the server, and its task that waits for user input, if any.

    ``conversation`` is the id of the context.
    """

    def __init__(self, agent: A2aAgent, connection: ServerConnection, state: JsonObject | None = None) -> None:
        super().__init__(agent, connection)
        self._url = connection.url
        self._author = agent.spec.name
        self._name = uuid4().hex
        self._client: Client
        self._memory = ContextMemory()
        self._state = state  # sent with the first message
        self._waiting_task = ""
        self._running_task = ""

    async def read_card(self) -> AgentCard | AttemptError:
        """Fetch the agent card. A URL that ends in ``.json`` is the card's own address."""
        base = self._url.rstrip("/")
        for address in (base,) if base.endswith(".json") else tuple(base + path for path in CARD_PATHS):
            try:
                async with self.transport.limited(_CARD_S):
                    response = await self.client.get(address)
            except TimeoutError:
                message = f"{self.address} does not show an agent card within {_CARD_S:g} s"
                return AttemptError(kind=ErrorKind.UNAVAILABLE, message=message)
            except Exception as error:  # noqa: BLE001 - any failure here is the server's
                return request_error(error, self.address)
            if response.status_code == httpx.codes.OK:
                try:
                    return parse_agent_card(sendable_json(json.loads(response.content)))
                except (ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
                    message = f"{address} is no agent card: {quoted(str(error))}"
                    return AttemptError(kind=ErrorKind.ENVIRONMENT, message=message)
            if response.status_code != httpx.codes.NOT_FOUND:
                break
        return status_error(response.status_code, error_text(response.content), f"{self.address} (its agent card)")

    def connect(self, card: AgentCard) -> AttemptError | None:
        """Choose a protocol binding that the card offers. Sends nothing."""
        try:
            self._client = ClientFactory(
                ClientConfig(httpx_client=self.client, supported_protocol_bindings=list(_BINDINGS))
            ).create(card)
        except ValueError:
            offered = ", ".join(sorted({entry.protocol_binding for entry in card.supported_interfaces})) or "none"
            message = f"the server speaks neither JSON-RPC nor HTTP+JSON: its card offers {quoted(offered)}"
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=message)
        self._author = sendable(card.name) or self._author
        return None

    async def exchange(self, content: Content) -> Invocation | AttemptError:
        turn = TurnEvents(self._author, self._memory)
        try:
            async for response in self._client.send_message(SendMessageRequest(message=self._message(content))):
                turn.add(MessageToDict(response))
                self._running_task = turn.task_id
            await self._wait(turn)
        except A2AClientError:
            raise
        except A2AError as error:  # what the server itself reports
            text = quoted(str(error)) or type(error).__name__
            return AttemptError(kind=ErrorKind.EXCEPTION, message=f"the server reports an error: {text}")
        self._running_task = ""
        self.conversation = turn.context_id or self.conversation
        self._waiting_task = turn.task_id if turn.state == _INPUT_REQUIRED else ""
        made = turn.result(content, f"{self._name}-{self.turns}")
        if isinstance(made, Invocation):
            self.note_calls(made, turn.waiting)
        return made

    async def _wait(self, turn: TurnEvents) -> None:
        """Poll the task until it is over: the server may answer before that, and a stream may end early."""
        pause = _FIRST_POLL_S
        while not turn.is_over:
            if not turn.task_id:
                raise A2AClientError("it ends without a message and without a task")
            await asyncio.sleep(pause)
            pause = min(_LONGEST_POLL_S, pause * 1.5)
            turn.add({"task": MessageToDict(await self._client.get_task(GetTaskRequest(id=turn.task_id)))})

    def _message(self, content: Content) -> Message:
        parts = [_sent_part(part) for part in content.parts or () if not part.thought]
        message = Message(role=Role.ROLE_USER, message_id=uuid4().hex, parts=parts)
        message.context_id, message.task_id = self.conversation, self._waiting_task
        if self._state:
            message.metadata.update(sendable_json({"session_state": self._state}))
            self._state = None
        return message

    async def abandon(self) -> None:
        """Ask the server to cancel the running task; it may not be able to."""
        if self._running_task:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CANCEL_S):
                    await self._client.cancel_task(CancelTaskRequest(id=self._running_task))
            self._running_task = ""


def make_reachable(card: AgentCard, url: str, *, started: bool) -> None:
    """Put the host of ``url`` into card addresses that are valid only on the server's own machine.

    Servers often write localhost, 0.0.0.0 or their default port into the card. A server that was ``started`` for the
    run is on this machine whatever its card says; following the card could send us anywhere.
    """
    given = urlsplit(url)
    is_local = is_this_machine(given.hostname or "")
    for interface in card.supported_interfaces:
        there = urlsplit(interface.url)
        if started or not there.netloc or (is_this_machine(there.hostname or "") and not is_local):
            interface.url = urlunsplit((given.scheme, given.netloc, there.path, there.query, ""))


def _sent_part(part: Part) -> Any:
    if part.text is not None:
        return SentPart(text=sendable(part.text))
    data = part.inline_data or part.file_data or {}
    kind = str(data.get("mime_type") or data.get("mimeType") or "")
    if part.inline_data:
        packed = str(data.get("data") or "")
        return SentPart(raw=base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), media_type=kind)
    if part.file_data:
        return SentPart(url=str(data.get("file_uri") or data.get("fileUri") or ""), media_type=kind)
    sent = SentPart()
    name, tool = ("function_response", part.function_response) if part.function_response else ("", part)
    sent.data.struct_value.update(sendable_json(tool.model_dump(mode="json", exclude_none=True)))
    if name:
        sent.metadata.update({"adk_type": name})
    return sent


@dataclass
class ContextMemory:
    """What the context held before the turn: a task that spans several turns sends it again."""

    messages: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    artifacts: dict[str, list[JsonObject]] = field(default_factory=dict)


@dataclass
class TurnEvents:
    """Collects what the server sends in a turn (JSON form of protocol 1.0) and converts it to an Invocation.

    ADK's servers send tool calls and results as data parts, marked in their metadata. Other servers show only the
    answer. ``author`` is used for messages that name none. ``waiting``: the ids of calls that wait for the user, which
    ADK's servers mark as long-running.
    """

    author: str
    memory: ContextMemory
    task_id: str = ""
    context_id: str = ""
    state: str = ""
    error_code: str = ""
    waiting: list[Any] = field(default_factory=list)
    _events: list[InvocationEvent] = field(default_factory=list)
    _artifacts: dict[str, list[JsonObject]] = field(default_factory=dict)
    _status: list[Part] = field(default_factory=list)
    _answer: list[Part] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the agent has finished its turn or waits for user input."""
        return self._answer is not None or self.state in (_COMPLETED, _INPUT_REQUIRED) or self.state in _FAILURES

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

    def _parts(self, given: Iterable[JsonObject]) -> list[Part]:
        listed = list(given)
        self.waiting += [
            part["data"].get("id")
            for part in listed
            if part.get("metadata", {}).get("adk_is_long_running") and isinstance(part.get("data"), dict)
        ]
        return [part for part in map(_part, listed) if part is not None]

    def _take_answer(self, message: JsonObject) -> None:
        self._answer = self._parts(message.get("parts", ()))

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
        if message := status.get("message"):
            codes = (values.get("adk_error_code") for values in (metadata, message.get("metadata", {})))
            self.error_code = str(next(filter(None, codes), self.error_code))
            self._status = self._parts(message.get("parts", ()))
            self._take_message(message, metadata)

    def _take_message(self, message: JsonObject, metadata: JsonObject) -> None:
        if message.get("role") == "ROLE_USER" or metadata.get("adk_partial"):
            return
        identifier, parts = message.get("messageId"), self._parts(message.get("parts", ()))
        if identifier in self.memory.messages:  # a repeat, or the server gives all messages of a task one id
            parts = [part for part in parts if _identity(part) not in ("", *self.memory.calls)]
            if not parts:
                return
        if identifier:
            self.memory.messages.add(identifier)
        self.memory.calls.update(filter(None, map(_identity, parts)))
        author = metadata.get("adk_author") or message.get("metadata", {}).get("adk_author") or self.author
        self._events.append(_event(str(author), parts, _usage(metadata.get("adk_usage_metadata"))))

    def _take_artifact(self, update: JsonObject) -> None:
        self.task_id = update.get("taskId") or self.task_id
        artifact = update.get("artifact", {})
        identifier, parts = artifact.get("artifactId", ""), list(artifact.get("parts", ()))
        if not update.get("append") or identifier not in self._artifacts:
            self._artifacts[identifier] = parts
            return
        known = self._artifacts[identifier]
        for part in parts:  # text continues the preceding text part
            is_text = part.keys() <= {"text", "metadata"} and bool(known) and "text" in known[-1]
            if is_text and known[-1].get("metadata") == part.get("metadata"):
                known[-1] = {**known[-1], "text": known[-1]["text"] + part.get("text", "")}
            else:
                known.append(part)

    def result(self, user_content: Content, invocation_id: str) -> Invocation | AttemptError:
        """Return the turn, or the error that kept the agent from finishing it."""
        if self.state in _FAILURES and self._answer is None:
            kind, message = _FAILURES[self.state]
            kind = next((found for code, found in _MODEL_ERRORS.items() if code in self.error_code), kind)
            text = quoted(Content(parts=tuple(self._status)).text)
            return AttemptError(kind=kind, message=f"{message}: {text}" if text else message)
        fresh = {name: parts for name, parts in self._artifacts.items() if parts != self.memory.artifacts.get(name)}
        self.memory.artifacts.update(fresh)
        made = [part for parts in fresh.values() for part in self._parts(parts)]
        events = list(self._events)
        # The answer is the message, else the artifacts, else the last status, else the last message of the agent.
        places = (self._answer or (), made, self._status, *(event.parts for event in reversed(events)))
        shown = ([part for part in parts if not (part.thought or _identity(part))] for parts in places)
        answer = next((Content(role="model", parts=tuple(parts)) for parts in shown if parts), None)
        if events and answer and Content(parts=events[-1].parts).text == answer.text:
            # The answer's text must not count twice.
            silent = [part for part in events[-1].parts if part.text is None or part.thought]
            events[-1] = _event(events[-1].author, silent, events[-1].usage_metadata)
        # Calls and results that only the answer or the artifacts hold.
        known = {"", *(_identity(part) for event in events for part in event.parts)}
        for part in (*(self._answer or ()), *made):
            if _identity(part) not in known:
                known.add(_identity(part))
                events.append(_event(self.author, [part]))
        return Invocation(
            invocation_id=invocation_id,
            user_content=user_content,
            final_response=answer,
            intermediate_data=InvocationEvents(
                invocation_events=tuple(event for event in events if event.content or event.usage_metadata)
            ),
        )


def _identity(part: Part) -> str:
    """Return what tells a tool call or result from others; "" for any other part."""
    tool = part.function_call or part.function_response
    return f"{type(tool).__name__} {tool.id or tool.model_dump_json()}" if tool else ""


def _event(author: str, parts: Sequence[Part], usage: JsonObject | None = None) -> InvocationEvent:
    role = "user" if any(part.function_response for part in parts) else "model"  # as ADK records tool results
    content = Content(role=role, parts=tuple(parts)) if parts else None
    return InvocationEvent(author=author, content=content, usage_metadata=usage)


def _part(given: JsonObject) -> Part | None:
    """Convert a protocol part to an event part. Data that is not ADK's becomes JSON text, which judges can read."""
    if "text" in given:
        is_thought = bool(given.get("metadata", {}).get("adk_thought"))
        return Part(text=sendable_json(given["text"]), thought=True if is_thought else None)
    if "raw" in given:
        return Part(inline_data={"mime_type": given.get("mediaType", ""), "data": given["raw"]})
    if "url" in given:
        return Part(file_data={"mime_type": given.get("mediaType", ""), "file_uri": sendable_json(given["url"])})
    if "data" not in given:
        return None
    data = sendable_json(with_integers(given["data"]))
    kind = str(given.get("metadata", {}).get("adk_type"))
    if kind in _DATA_KINDS and isinstance(data, dict):
        with contextlib.suppress(ValidationError):  # data with ADK's type name but another shape becomes JSON text too
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
