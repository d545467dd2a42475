"""The ``a2a`` driver: talks to an Agent2Agent server (protocol 1.0 or 0.3) through a2a-sdk's client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx

from agent_eval_action.agents.a2a_events import INPUT_REQUIRED, ContextMemory, TurnEvents
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
from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.client import quoted, sendable, sendable_json
from agent_eval_action.results.evalset import Content, Invocation, JsonObject, Part
from agent_eval_action.results.run_result import AttemptError, ErrorKind

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
        self._waiting_task = turn.task_id if turn.state == INPUT_REQUIRED else ""
        made = turn.result(content, f"{self._name}-{self.turns}")
        if isinstance(made, Invocation):
            self.note_calls(made, turn.waiting_calls())
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
