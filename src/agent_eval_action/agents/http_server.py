"""Shared by the drivers of HTTP servers: connections, headers, limits, and the meaning of failed requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import shlex
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from agent_eval_action.agents.adk import runtime_spec
from agent_eval_action.agents.base import AgentSession, DriverContext, SessionEnd, SessionRequest
from agent_eval_action.agents.turn_traces import TracedSession, TurnTraces
from agent_eval_action.environments.runtime import AgentLimits
from agent_eval_action.environments.variables import advice_for, agent_environ, with_advice, withheld_names
from agent_eval_action.folders import relative
from agent_eval_action.llm.client import quoted
from agent_eval_action.llm.credentials import dotenv_of_agent
from agent_eval_action.llm.providers.base import retry_after
from agent_eval_action.llm.rate_limit import Limiter
from agent_eval_action.processes.agent_service import AgentService
from agent_eval_action.results.evalset import Content, Invocation, PastEvent
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind
from agent_eval_action.worker.agent_eval_worker_calls import OpenCalls

LONGEST_REFUSAL_S: Final = 120.0
"""Maximum total wait of a turn, in seconds, for a server that rate-limits it. Not counted as the turn's time."""

_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 30.0
_ERROR_BYTES: Final = 64 << 10
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KINDS: Final[Mapping[int, ErrorKind]] = {
    HTTPStatus.UNAUTHORIZED: ErrorKind.CREDENTIALS,
    HTTPStatus.FORBIDDEN: ErrorKind.CREDENTIALS,
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: ErrorKind.CREDENTIALS,
    HTTPStatus.NOT_FOUND: ErrorKind.ENVIRONMENT,
    HTTPStatus.METHOD_NOT_ALLOWED: ErrorKind.ENVIRONMENT,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorKind.RATE_LIMITED,
    HTTPStatus.REQUEST_TIMEOUT: ErrorKind.UNAVAILABLE,
    HTTPStatus.BAD_GATEWAY: ErrorKind.UNAVAILABLE,
    HTTPStatus.SERVICE_UNAVAILABLE: ErrorKind.UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT: ErrorKind.UNAVAILABLE,
}
_CHECKED: Final = {ErrorKind.CREDENTIALS: "headers", ErrorKind.ENVIRONMENT: "url"}
_NO_QUOTA: Final = b"insufficient_quota"

_Made = TypeVar("_Made")


class AnswerTooLargeError(Exception):
    """The response is larger than the limit, or compressed, which hides its size."""


def shown_address(url: str) -> str:
    """Return a URL without credentials and query, fit to be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def is_this_machine(host: str) -> bool:
    """Whether a host means the server's own machine: localhost, a loopback or an unspecified address."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@cache
def _certificates() -> ssl.SSLContext:
    """Load the machine's certificates once; it takes 50 ms."""
    return httpx.create_ssl_context()


class _Response(httpx.Response):
    limit = 0

    async def aiter_raw(self, chunk_size: int | None = None) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in super().aiter_raw(chunk_size):
            size += len(chunk)
            if size > self.limit:
                raise AnswerTooLargeError(f"the server's answer is larger than {self.limit >> 20} MB")
            yield chunk

    async def aiter_lines(self) -> AsyncIterator[str]:
        """Split only at line feeds: httpx also splits at others, such as U+2028, which JSON may contain."""
        pieces: list[bytes] = []
        async for chunk in self.aiter_bytes():
            *ended, rest = chunk.split(b"\n")
            for last in ended:
                yield b"".join((*pieces, last)).decode("utf-8", "replace").removesuffix("\r")
                pieces.clear()
            pieces.append(rest)
        if tail := b"".join(pieces):
            yield tail.decode("utf-8", "replace").removesuffix("\r")


@dataclass(eq=False)
class ServerConnection:
    """One agent's server and its rate limiter, shared by all sessions.

    ``service`` is what a command started, ``source`` its name for the receiver of spans. Each session has a pool of
    connections of its own, and leaves it in ``idle`` to the next one: httpx looks at every connection of a pool for
    each request, which with many sessions takes most of our processor time.
    """

    url: str
    headers: Mapping[str, str]
    limiter: Limiter
    service: AgentService | None = None
    source: str = "agent"
    body_limit: int = AgentLimits().turn_bytes
    idle: list[httpx.AsyncHTTPTransport] = field(default_factory=list)
    pools: list[httpx.AsyncHTTPTransport] = field(default_factory=list)

    def take_pool(self) -> httpx.AsyncHTTPTransport:
        if self.idle:
            return self.idle.pop()
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        proxy = None if is_this_machine(host) or proxy_bypass(host) else getproxies().get(parts.scheme)
        self.pools.append(httpx.AsyncHTTPTransport(verify=_certificates(), proxy=proxy))
        return self.pools[-1]


class TurnTransport(httpx.AsyncBaseTransport):
    """The transport of one session. It waits and retries while the server rate-limits requests.

    ``throttled`` counts the refusals since the limit was set.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.throttled = 0
        self._pool = connection.take_pool()
        self._headers: Mapping[str, str] = {}
        self._deadline: asyncio.Timeout | None = None
        self._waited = 0.0

    @contextlib.asynccontextmanager
    async def limited(self, seconds: float, headers: Mapping[str, str] | None = None) -> AsyncIterator[None]:
        """Add the headers to each request, and raise TimeoutError after some seconds, less waits for the rate."""
        self.throttled, self._waited, self._headers = 0, 0.0, headers or {}
        async with asyncio.timeout(seconds) as deadline:
            self._deadline = deadline
            try:
                yield
            finally:
                self._deadline, self._headers = None, {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers.update({**self._headers, "accept-encoding": "identity"})
        while True:
            async with contextlib.AsyncExitStack() as stack:
                with self._paused():
                    call = await stack.enter_async_context(self.connection.limiter.call())
                response = await self._send(request)
                if response.status_code != HTTPStatus.TOO_MANY_REQUESTS:
                    return response
                call.refused, call.retry_after = True, retry_after(response.headers)
            body = b""
            with contextlib.suppress(httpx.HTTPError, AnswerTooLargeError):
                body = await response.aread()
            await response.aclose()
            wait = self._wait(call.retry_after)
            if _NO_QUOTA in body or self._waited + wait > LONGEST_REFUSAL_S:
                return httpx.Response(response.status_code, headers=response.headers, content=body)
            self.throttled += 1
            with self._paused():
                await asyncio.sleep(wait)

    async def aclose(self) -> None:
        self.connection.idle.append(self._pool)

    async def _send(self, request: httpx.Request) -> httpx.Response:
        plain = await self._pool.handle_async_request(request)
        response = _Response(plain.status_code, headers=plain.headers, stream=plain.stream, extensions=plain.extensions)
        response.limit = self.connection.body_limit
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            await response.aclose()
            raise AnswerTooLargeError("the server compresses its answer, which it was asked not to do")
        return response

    def _wait(self, asked: float | None) -> float:
        """Return the seconds before the next try; jitter keeps sessions from retrying at the same moment."""
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(self.throttled, 10))
        jitter = random.random() * longest  # noqa: S311 - spreads requests, hides nothing
        return jitter if asked is None else asked + min(jitter, asked / 2)

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        """Stop the turn's clock."""
        began, deadline = time.monotonic(), self._deadline
        when = None if deadline is None or deadline.expired() else deadline.when()
        if deadline is None or when is None:
            yield
            return
        deadline.reschedule(None)
        try:
            yield
        finally:
            waited = time.monotonic() - began
            self._waited += waited
            deadline.reschedule(when + waited)


async def stream_data(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the data of each server-sent event, and lines outside of events, in which servers report errors."""
    lines: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []
        elif line and not lines and not line.startswith((":", "event:", "id:", "retry:")):
            yield line
    if lines:
        yield "\n".join(lines)


def error_text(body: bytes) -> str:
    """Return the message in an error body, or its text unless that is HTML."""
    text = body[:_ERROR_BYTES].decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        for name in ("error", "detail", "message"):
            found = value.get(name) if isinstance(value, dict) else None
            value = found or value
        return quoted(value if isinstance(value, str) else text)
    return "" if text.lstrip()[:1] == "<" else quoted(text)


def status_error(status: int, text: str, address: str) -> AttemptError:
    """Return the error that a response's status means."""
    phrase = httpx.codes.get_reason_phrase(status).lower() or "an unknown status"
    kind = ErrorKind.ENVIRONMENT if httpx.codes.is_redirect(status) else _KINDS.get(status, ErrorKind.EXCEPTION)
    detail = f": {text}" if text else ""
    if kind in _CHECKED:
        detail += f" — check the `{_CHECKED[kind]}` of the agent"
    return AttemptError(kind=kind, message=f"{address} answered {status} ({phrase}){detail}")


def request_error(error: BaseException, address: str) -> AttemptError:
    """Return the error that an exception of a request means; other exceptions may wrap it."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None and cause not in causes:
        causes.append(cause)
    for cause in causes:
        if isinstance(cause, AnswerTooLargeError):
            return AttemptError(kind=ErrorKind.OUTPUT, message=str(cause))
        if isinstance(cause, httpx.HTTPStatusError):
            response = cause.response
            body = response.content if response.is_stream_consumed or response.is_closed else b""
            return status_error(response.status_code, error_text(body), address)
        if isinstance(cause, httpx.UnsupportedProtocol | httpx.InvalidURL):
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=f"{address} is no address: {quoted(str(cause))}")
        if isinstance(cause, httpx.TransportError):
            text = quoted(str(cause)) or type(cause).__name__
            return AttemptError(kind=ErrorKind.UNAVAILABLE, message=f"the connection to {address} failed: {text}")
    text = quoted(str(error)) or type(error).__name__
    return AttemptError(kind=ErrorKind.PROTOCOL, message=f"the answer of {address} cannot be read: {text}")


async def answers_http(url: str) -> bool:
    """Whether a server answers HTTP requests, with any status."""
    try:
        client = httpx.AsyncClient(trust_env=False, timeout=None, verify=_certificates())  # noqa: S113 - the caller has a timeout
        async with client, client.stream("GET", url):
            return True
    except httpx.HTTPError:
        return False


class HttpAgent(ABC):
    """An ``AgentDriver`` of a server at an address, or of one that the agent's command starts.

    ``path`` is added to the address of a started server. With ``spreads`` the command is started ``workers`` times,
    and sessions are spread over these servers.
    """

    path: ClassVar[str] = ""
    spreads: ClassVar[bool] = False
    models: tuple[str, ...] = ()

    def __init__(self, context: DriverContext) -> None:
        self.context = context
        self.spec = runtime_spec(context)
        self.traces = TurnTraces(context)
        self._connections: deque[ServerConnection] = deque()
        agent = context.agent
        size = 0 if agent.command is None else (agent.workers or 1) if self.spreads else 1
        self._services = [AgentService(self.spec, agent.command or (), answers_http) for _ in range(size)]

    async def start(self) -> AgentConditions | AttemptError:
        """Start the server if there is a command, and find the agent on it."""
        agent, sessions = self.context.agent, self.context.settings.concurrency
        headers = self._headers()
        if isinstance(headers, AttemptError):
            return headers
        if self._services:
            await self.traces.start()
        sources = {f"server-{number}": service for number, service in enumerate(self._services, 1)}
        for source, service in sources.items():
            service.variables = self.traces.variables(source)
        for failure in await asyncio.gather(*(service.start() for service in self._services)):
            if failure:
                return with_advice(failure, self.spec)
        self._connections += [
            ServerConnection(service.url + self.path, headers, Limiter(sessions), service, source)
            for source, service in sources.items()
        ] or [ServerConnection(agent.url or "", headers, Limiter(sessions))]
        if failure := await self.find(self._connections[0]):
            return failure
        environment = f"the server at {shown_address(agent.url or '')}"
        if agent.command:
            environment = f"the server that `{shlex.join(agent.command)}` starts"
        path = relative(agent.path.resolve(), self.spec.workspace.resolve())
        return AgentConditions(agent=agent.name, path=path, environment=environment, models=self.models)

    def _headers(self) -> dict[str, str] | AttemptError:
        """Return the headers, each ``${NAME}`` replaced with the variable; the environment overrides .env files."""
        spec, headers = self.spec, self.context.agent.headers
        seen = {**dotenv_of_agent(spec.path, spec.workspace), **agent_environ(spec.environ, spec.env_allow)}
        if missing := {name for value in headers.values() for name in _VARIABLE.findall(value)} - seen.keys():
            advice = advice_for(missing & withheld_names(spec)) or "set it, or take it out of `headers`"
            message = f"the headers need {', '.join(sorted(missing))}, which the agent does not see — {advice}"
            return AttemptError(kind=ErrorKind.CREDENTIALS, message=message)
        return {name: _VARIABLE.sub(lambda match: seen[match[1]], value) for name, value in headers.items()}

    async def find(self, connection: ServerConnection) -> AttemptError | None:  # noqa: B027 - optional
        """Find the agent on the server. Most protocols have one agent at each address."""

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        """Begin a session, on each server in turn; restart a server that has ended."""
        if not self._connections:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message="the agent was not started")
        connection = self._connections[0]
        self._connections.rotate(-1)
        failure = await connection.service.start() if connection.service else None
        return failure or await self.begin(connection, request)

    @abstractmethod
    async def begin(self, connection: ServerConnection, request: SessionRequest) -> AgentSession | AttemptError:
        """Begin a session on a server that runs."""

    async def stop(self) -> None:
        """Close the connections, stop the servers, then the receiver of their spans."""
        for connection in self._connections:
            for pool in connection.pools:
                await pool.aclose()
        self._connections.clear()
        await asyncio.gather(*(service.stop() for service in self._services))
        await self.traces.stop()


class HttpSession(TracedSession):
    """An ``AgentSession`` whose turns are HTTP requests. It limits their time and returns their errors."""

    tells_all: ClassVar[bool] = True

    def __init__(self, agent: HttpAgent, connection: ServerConnection) -> None:
        super().__init__(agent.spec, agent.traces, connection.source)
        self.address = shown_address(connection.url)
        self.transport = TurnTransport(connection)
        # The turn's timeout replaces the client's.
        self.client = httpx.AsyncClient(
            transport=self.transport, headers=connection.headers, timeout=httpx.Timeout(None), trust_env=False
        )
        self._service = connection.service
        self._open_calls = OpenCalls()

    def _addressed(self, content: Content) -> Content:
        """Put the ids of the open calls in the function responses that answer them. Raises LookupError."""
        parts = content.parts or ()
        answers = [part.function_response for part in parts if part.function_response]
        found = iter(self._open_calls.answer((answer.id, answer.name) for answer in answers))
        addressed = (
            part.model_copy(update={"function_response": answer.model_copy(update={"id": next(found)})})
            if (answer := part.function_response)
            else part
            for part in parts
        )
        return content.model_copy(update={"parts": tuple(addressed)}) if answers else content

    def note_history(self, history: Iterable[PastEvent]) -> None:
        """Treat the calls that a history leaves unanswered as open."""
        past = (event.content.wire() for event in history if event.content)
        self._open_calls = OpenCalls(past)

    def note_calls(self, turn: Invocation, waiting: Collection[Any], *, alone: bool = False) -> None:
        """Note which calls of a turn wait for the user, by id. ``alone``: earlier calls are no longer open."""
        if alone:
            self._open_calls = OpenCalls()
        for call in turn.tool_calls():
            if call.id and call.id in waiting:
                self._open_calls.add(call.id, call.name or "")

    @abstractmethod
    async def exchange(self, content: Content) -> Invocation | AttemptError:
        """Send a message and return the turn. May raise the client's exceptions."""

    async def abandon(self) -> None:
        """Cancel what the server still does for an abandoned turn, where closing the connection does not."""

    async def make(self, content: Content, headers: Mapping[str, str]) -> Invocation | AttemptError:
        try:
            addressed = self._addressed(content)
        except LookupError as error:
            return AttemptError(kind=ErrorKind.NOT_ASKED, message=quoted(str(error)))
        try:
            async with self.transport.limited(self.spec.timeout_s, headers):
                return await self.exchange(addressed)
        except TimeoutError:
            await self.abandon()
            return self.took_too_long()
        except asyncio.CancelledError:
            await self.abandon()
            raise
        except Exception as error:  # noqa: BLE001 - a server's answer may be anything, and a client's exception too
            return request_error(error, self.address)
        finally:
            self.throttled = self.transport.throttled

    async def verified(self, made: _Made | AttemptError) -> _Made | AttemptError:
        """Return what the server answered, or why not: it has ended, or another process has its port."""
        if self._service is None:
            return made
        stolen = await self._service.disowned()
        return stolen or (await self._service.explain(made) if isinstance(made, AttemptError) else made)

    async def close(self) -> SessionEnd | AttemptError:
        """Free the session. The protocol does not expose its state."""
        await self.client.aclose()
        return SessionEnd(None)
