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
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from agent_eval_action.agents.adk import runtime_spec
from agent_eval_action.agents.base import DriverContext, SessionEnd, TurnDone
from agent_eval_action.agents.turn_traces import TurnTraces
from agent_eval_action.agents.variable_advice import advice_for, with_advice, withheld_names
from agent_eval_action.environments.runtime import AgentLimits
from agent_eval_action.environments.variables import agent_environ
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
_UNAVAILABLE: Final = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT, HTTPStatus.REQUEST_TIMEOUT}
)
_NO_QUOTA: Final = b"insufficient_quota"


class AnswerTooLargeError(Exception):
    """The response is larger than the limit, or compressed, which hides its size."""


class HeadersError(Exception):
    """A header names a variable that the agent does not see."""


def agent_variables(context: DriverContext) -> dict[str, str]:
    """Return the variables that the agent sees; the environment overrides its .env files."""
    spec = runtime_spec(context)
    return {**dotenv_of_agent(spec.path, spec.workspace), **agent_environ(spec.environ, spec.env_allow)}


def fill_headers(headers: Mapping[str, str], variables: Mapping[str, str], withheld: Collection[str]) -> dict[str, str]:
    """Replace each ``${NAME}`` with the variable's value. Raises HeadersError for missing variables."""
    missing = sorted({name for value in headers.values() for name in _VARIABLE.findall(value)} - variables.keys())
    if missing:
        advice = advice_for(set(missing) & set(withheld)) or "set it, or take it out of `headers`"
        raise HeadersError(f"the headers need {', '.join(missing)}, which the agent does not see — {advice}")
    return {name: _VARIABLE.sub(lambda match: variables[match[1]], value) for name, value in headers.items()}


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


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, limit: int, closed: Callable[[], None]) -> None:
        self._stream = stream
        self._limit = limit
        self._closed: Callable[[], None] | None = closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise AnswerTooLargeError(f"the server's answer is larger than {self._limit >> 20} MB")
            yield chunk

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            closed, self._closed = self._closed, None
            if closed:
                closed()


class _Response(httpx.Response):
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


class ServerConnection:
    """The connections to one agent's server, and its rate limiter, shared by all sessions.

    Each connection has its own pool: httpx looks at every connection of a pool for each request, which with many
    sessions takes most of our processor time. ``service`` is what a command started, ``source`` its name for the
    receiver of spans.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        sessions: int,
        *,
        body_limit: int | None = None,
        service: AgentService | None = None,
        source: str = "agent",
    ) -> None:
        self.url = url
        self.service = service
        self.source = source
        self.headers = dict(headers)
        self.limiter = Limiter(sessions)
        self.body_limit = body_limit or AgentLimits().turn_bytes
        self._proxy = _proxy_for(url)
        self._transports: list[httpx.AsyncHTTPTransport] = []
        self._idle: list[httpx.AsyncHTTPTransport] = []

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request once. Reading a response body over the limit raises AnswerTooLargeError."""
        request.headers["accept-encoding"] = "identity"
        if not self._idle:
            self._idle.append(httpx.AsyncHTTPTransport(verify=_certificates(), proxy=self._proxy))
            self._transports += self._idle
        transport = self._idle.pop()
        give_back = partial(self._idle.append, transport)
        try:
            response = await transport.handle_async_request(request)
        except BaseException:
            give_back()
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - an asynchronous transport's is
        stream = _BoundedStream(response.stream, self.body_limit, give_back)
        response = _Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            await response.aclose()
            raise AnswerTooLargeError("the server compresses its answer, which it was asked not to do")
        return response

    async def explain(self, error: AttemptError) -> AttemptError:
        """Return a turn's error, or its cause: the server has ended, or another process has its port."""
        return (await self.disowned() or await self.service.explain(error)) if self.service else error

    async def disowned(self) -> AttemptError | None:
        """Return an error if another process listens on the port of the server that the command started."""
        return await self.service.disowned() if self.service else None

    async def close(self) -> None:
        for transport in self._transports:
            await transport.aclose()


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_this_machine(host) or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


class TurnTransport(httpx.AsyncBaseTransport):
    """The transport of one session. It waits and retries while the server rate-limits requests.

    ``headers`` are added to each request of the turn. ``throttled`` counts the refusals; ``deadline`` is extended by
    the time that they cost.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.headers: dict[str, str] = {}
        self.throttled = 0
        self.deadline: asyncio.Timeout | None = None
        self._waited = 0.0

    def begin_turn(self, deadline: asyncio.Timeout, headers: Mapping[str, str]) -> None:
        """Set the turn's deadline and headers, and reset the counts."""
        self.deadline, self.headers = deadline, dict(headers)
        self.throttled, self._waited = 0, 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers.update(self.headers)
        while True:
            async with contextlib.AsyncExitStack() as stack:
                with self._paused():
                    call = await stack.enter_async_context(self.connection.limiter.call())
                response = await self.connection.send(request)
                refused = response.status_code == HTTPStatus.TOO_MANY_REQUESTS
                if not refused:
                    return response
                call.refused, call.retry_after = True, retry_after(response.headers)
            body = await _beginning(response)
            wait = self._wait(call.retry_after)
            if _NO_QUOTA in body or self._waited + wait > LONGEST_REFUSAL_S:
                return httpx.Response(response.status_code, headers=_plain(response.headers), content=body)
            self.throttled += 1
            with self._paused():
                await asyncio.sleep(wait)

    def _wait(self, asked: float | None) -> float:
        """Return the seconds before the next try; jitter keeps sessions from retrying at the same moment."""
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(self.throttled, 10))
        jitter = random.random() * longest  # noqa: S311 - spreads requests, hides nothing
        return jitter if asked is None else asked + min(jitter, asked / 2)

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        """Stop the turn's clock."""
        began, deadline = time.monotonic(), self.deadline
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


def _plain(headers: httpx.Headers) -> dict[str, str]:
    return {name: headers[name] for name in ("content-type", "retry-after") if name in headers}


async def _beginning(response: httpx.Response) -> bytes:
    """Return the first bytes of an error body, and free its connection."""
    body = b""
    with contextlib.suppress(httpx.HTTPError, AnswerTooLargeError):
        async for chunk in response.aiter_raw():
            body += chunk[: _ERROR_BYTES - len(body)]
            if len(body) >= _ERROR_BYTES:
                break
    await response.aclose()
    return body


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
    try:
        phrase = HTTPStatus(status).phrase.lower()
    except ValueError:
        phrase = "an unknown status"
    detail = f": {text}" if text else ""
    kind = ErrorKind.EXCEPTION
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = ErrorKind.RATE_LIMITED
    elif status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED):
        kind, detail = ErrorKind.CREDENTIALS, f"{detail} — check the `headers` of the agent"
    elif status in _UNAVAILABLE:
        kind = ErrorKind.UNAVAILABLE
    elif status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED) or 300 <= status < 400:  # noqa: PLR2004 - redirects
        kind, detail = ErrorKind.ENVIRONMENT, f"{detail} — check the `url` of the agent"
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


class AgentServer:
    """An agent's server: its address or its command, its headers, and the timeout of a turn.

    ``path`` is added to the address of a server that a command started. With ``spreads`` the command is started
    ``workers`` times, and sessions are spread over these servers.
    """

    def __init__(self, context: DriverContext, path: str = "", *, spreads: bool = False) -> None:
        self.name = context.agent.name
        self.timeout_s = context.agent.timeout_s
        self.withheld = withheld_names(context.environ, tuple(context.agent.env))
        self.context = context
        self.traces = TurnTraces(context)
        self._connections: list[ServerConnection] = []
        self._path = path
        command, size = context.agent.command or (), (context.agent.workers or 1) if spreads else 1
        spec = runtime_spec(context)
        self._services = [AgentService(spec, command, answers_http) for _ in range(size if command else 0)]
        self._opened = 0

    async def start(self) -> ServerConnection | AttemptError:
        """Return a connection. A server with a command is ready by then; one with an address is not contacted."""
        agent, sessions = self.context.agent, self.context.settings.concurrency
        try:
            headers = fill_headers(agent.headers, agent_variables(self.context), self.withheld)
        except HeadersError as error:
            return AttemptError(kind=ErrorKind.CREDENTIALS, message=str(error))
        if self._services:
            await self.traces.start()
        for number, service in enumerate(self._services, 1):
            service.variables = self.traces.variables(f"server-{number}")
        for failure in await asyncio.gather(*(service.start() for service in self._services)):
            if failure:
                return with_advice(failure, self.withheld)
        self._connections = [
            ServerConnection(service.url + self._path, headers, sessions, service=service, source=f"server-{number}")
            for number, service in enumerate(self._services, 1)
        ] or [ServerConnection(agent.url or "", headers, sessions)]
        return self._connections[0]

    async def connect(self) -> ServerConnection | AttemptError:
        """Return a connection for a new session, to each server in turn; restart a server that has ended."""
        if not self._connections:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message="the agent was not started")
        connection = self._connections[self._opened % len(self._connections)]
        self._opened += 1
        return (await connection.service.start() if connection.service else None) or connection

    def conditions(self, models: tuple[str, ...] = ()) -> AgentConditions:
        """Return what is known of the agent's environment."""
        agent, workspace = self.context.agent, self.context.workspace.resolve()
        environment = f"the server at {shown_address(agent.url or '')}"
        if agent.command:
            environment = f"the server that `{shlex.join(agent.command)}` starts"
        path = relative(agent.path.resolve(), workspace)
        return AgentConditions(agent=self.name, path=path, environment=environment, models=models)

    async def stop(self) -> None:
        """Close the connections, stop the servers, then the receiver of their spans."""
        connections, self._connections = self._connections, []
        for connection in connections:
            await connection.close()
        await asyncio.gather(*(service.stop() for service in self._services))
        await self.traces.stop()


class HttpSession(ABC):
    """An ``AgentSession`` whose turns are HTTP requests. It limits their time and returns their errors.

    ``tells_all``: an answer of the server has all events of its turn.
    """

    tells_all: ClassVar[bool] = True

    def __init__(self, connection: ServerConnection, server: AgentServer) -> None:
        self.address = shown_address(connection.url)
        self.connection = connection
        self.transport = TurnTransport(connection)
        # The turn's timeout replaces the client's.
        self.client = httpx.AsyncClient(
            transport=self.transport, headers=connection.headers, timeout=httpx.Timeout(None), trust_env=False
        )
        self.server = server
        self._open_calls = OpenCalls()
        self._turns = 0

    def addressed(self, content: Content) -> Content | AttemptError:
        """Return the message with the ids of the open calls in the function responses that answer them."""
        parts = content.parts or ()
        answers = [part.function_response for part in parts if part.function_response]
        try:
            found = iter(self._open_calls.answer((answer.id, answer.name) for answer in answers))
        except LookupError as error:
            return AttemptError(kind=ErrorKind.NOT_ASKED, message=quoted(str(error)))
        addressed = (
            part.model_copy(update={"function_response": answer.model_copy(update={"id": next(found)})})
            if (answer := part.function_response)
            else part
            for part in parts
        )
        return content.model_copy(update={"parts": tuple(addressed)}) if answers else content

    def note_history(self, history: Iterable[PastEvent]) -> None:
        """Treat the calls that a history leaves unanswered as open."""
        past = (event.content.model_dump(mode="json", exclude_none=True) for event in history if event.content)
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

    @property
    def conversation(self) -> str:
        """The server's id for the session, which spans may carry; "" if it has none."""
        return ""

    async def abandon(self) -> None:  # noqa: B027 - most protocols have nothing to cancel: the connection is closed
        """Cancel what the server still does for an abandoned turn."""

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        number, self._turns = self._turns, self._turns + 1
        started, began = time.time(), time.monotonic()
        trace = self.server.traces.begin(self.conversation, self.connection.source)
        answered = False
        try:
            turn = await self._exchange_in_time(content, {"traceparent": trace.traceparent} if trace else {})
            answered = not isinstance(turn, AttemptError)
        except TimeoutError:
            await self.abandon()
            message = f"the turn took longer than timeout_s ({self.server.timeout_s:g} s)"
            return AttemptError(kind=ErrorKind.TIMEOUT, message=message, turn=number)
        except asyncio.CancelledError:
            await self.abandon()
            raise
        finally:
            if trace and not answered:
                trace.abandon()
        if isinstance(turn, AttemptError):
            turn = await self.connection.explain(turn)
            return with_advice(turn.model_copy(update={"turn": number}), self.server.withheld)
        seconds = round(time.monotonic() - began, 6)
        update = {"creation_timestamp": started, "duration": seconds}
        turn = turn.model_copy(update=update)
        if stolen := await self.connection.disowned():
            return stolen.model_copy(update={"turn": number})
        turn = await self.server.traces.add(turn, trace, tells_all=self.tells_all)
        return TurnDone(turn, self.transport.throttled)

    async def _exchange_in_time(self, content: Content, headers: Mapping[str, str]) -> Invocation | AttemptError:
        """Make the turn. Raises TimeoutError if it takes too long."""
        async with asyncio.timeout(self.server.timeout_s) as deadline:
            self.transport.begin_turn(deadline, headers)
            try:
                return await self.exchange(content)
            except (TimeoutError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 - a server's answer may be anything, and a client's exception too
                return request_error(error, self.address)
            finally:
                self.transport.deadline, self.transport.headers = None, {}

    async def close(self) -> SessionEnd | AttemptError:
        """Free the session. The protocol does not expose its state."""
        await self.client.aclose()
        return SessionEnd(None)
