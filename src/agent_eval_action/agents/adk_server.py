"""The ``adk_server`` driver: talks to ADK's ``api_server``, in whatever language that is written.

Servers differ in key spelling (camelCase or snake_case), in how they create sessions and in how they report errors. The
driver checks that a new session really holds the state and history it asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from urllib.parse import quote
from uuid import uuid4

import httpx
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from agent_eval_action.agents.base import AgentSession, DriverContext, SessionEnd, SessionRequest
from agent_eval_action.agents.http_server import (
    HttpAgent,
    HttpSession,
    ServerConnection,
    error_text,
    request_error,
    status_error,
    stream_data,
)
from agent_eval_action.diagnostics.suggestions import did_you_mean, snake_case
from agent_eval_action.llm.client import quoted, sendable, sendable_json
from agent_eval_action.processes.protocol import to_invocation
from agent_eval_action.results.evalset import (
    Content,
    FunctionCall,
    Invocation,
    InvocationEvent,
    JsonObject,
    PastEvent,
)
from agent_eval_action.results.run_result import AttemptError, ErrorKind

_ASK_S: Final = 60.0
"""Timeout, in seconds, of requests that run no turn. The first one may import the agent."""

_DEFAULT_USER: Final = "test_user_id"
_CLOSE_S: Final = 5.0
_MAX_EVENTS: Final = 10_000
_MISSING: Final = (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)

# Finish reasons of models, which ADK reports as an event's error code although the turn has not failed.
_FINISH_REASONS: Final = frozenset(
    """
    STOP MAX_TOKENS SAFETY RECITATION LANGUAGE OTHER BLOCKLIST PROHIBITED_CONTENT SPII MALFORMED_FUNCTION_CALL
    IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION IMAGE_OTHER NO_IMAGE UNEXPECTED_TOOL_CALL
    TOO_MANY_TOOL_CALLS MISSING_THOUGHT_SIGNATURE MALFORMED_RESPONSE JAILBREAK MODEL_ARMOR BLOCKED_REASON_UNSPECIFIED
    FINISH_REASON_UNSPECIFIED
    """.split()  # noqa: SIM905 - a list would take a line for each name
)
_SIGNS: Final = {
    ErrorKind.RATE_LIMITED: re.compile(r"\b429\b|RESOURCE_EXHAUSTED|rate.?limit", re.IGNORECASE),
    ErrorKind.UNAVAILABLE: re.compile(r"\b50[234]\b|\bUNAVAILABLE\b|DEADLINE_EXCEEDED"),
}


def _snake_keys(value: Any) -> Any:
    """Convert the keys of a value of Google's types to snake_case, recursively."""
    if isinstance(value, dict):
        return {snake_case(name): _snake_keys(entry) for name, entry in value.items()}
    return [_snake_keys(entry) for entry in value] if isinstance(value, list) else value


@dataclass
class _Dialect:
    """The server's key spelling and endpoints, learnt and shared by all sessions."""

    snake: bool = False
    streams: bool = True

    def body(self, **fields: Any) -> Any:
        """Return the body of a request in the server's spelling."""
        return sendable_json({name if self.snake else to_camel(name): value for name, value in fields.items()})

    def content(self, content: Content, role: str = "user") -> JsonObject:
        """Return a message. ``role`` is that of a message without one."""
        return {"role": role, **content.model_dump(mode="json", exclude_none=True, by_alias=not self.snake)}


class AdkServerSession(HttpSession):
    """One session of the server, whose id is ``conversation``. ``app``: the agent's name in the server's list."""

    def __init__(self, agent: AdkServerAgent, connection: ServerConnection, app: str = "") -> None:
        super().__init__(agent, connection)
        self._base = connection.url.rstrip("/")
        self._app = app
        self._dialect = agent.dialect
        self._user = ""
        self._on_call: Callable[[FunctionCall], None] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the parsed JSON response or an error. Not for turns."""
        try:
            async with self.transport.limited(_ASK_S):
                response = await self.client.request(method, self._base + path, json=body)
        except TimeoutError:
            message = f"{self.address} does not answer within {_ASK_S:g} s"
            return AttemptError(kind=ErrorKind.UNAVAILABLE, message=message)
        except Exception as error:  # noqa: BLE001 - any failure here is the server's
            return request_error(error, self.address)
        if not response.is_success:
            return status_error(response.status_code, error_text(response.content), self.address + path)
        try:
            return sendable_json(json.loads(response.content)) if response.content else None
        except (ValueError, RecursionError) as error:
            return _unreadable(f"{path} is no JSON ({quoted(str(error), limit=80)})")

    async def begin(self, request: SessionRequest) -> AttemptError | None:
        """Create the session with the state and history that the case begins with."""
        # A user's sessions share the user's state, so each attempt of the default user gets a user of its own.
        self._on_call = request.on_call
        self._user = f"{request.user_id}-{uuid4().hex}" if request.user_id == _DEFAULT_USER else request.user_id
        state = request.state_after_history()  # ADK's server does not take state changes from events
        events = [event async for event in self._past_events(request.history)]
        self.note_history(request.history)
        # Another repeat may have a session of the same name open, so a pinned id is only a prefix.
        wanted = {"session_id": f"{request.session_id or 'agent-eval'}-{uuid4().hex}", "state": state, "events": events}
        body = self._dialect.body(**{key: value for key, value in wanted.items() if value})
        session = await self.verified(await self.ask("POST", self._path(), body))
        if isinstance(session, AttemptError):
            return session
        if not isinstance(session, dict) or not isinstance(session.get("id"), str):
            return _unreadable("a session has no id")
        self._dialect.snake = "app_name" in session and "appName" not in session
        self.conversation = session["id"]
        kept, found = {name for name in state if not name.startswith("temp:")}, session.get("state")
        seeded = session.get("events")
        lost = ""
        if kept and (not isinstance(found, dict) or not kept <= found.keys()):
            lost = "session state"
        elif events and (not isinstance(seeded, list) or len(seeded) < len(events)):
            lost = "history"
        message = f"the server did not take the {lost} that the case begins with"
        return AttemptError(kind=ErrorKind.ENVIRONMENT, message=message) if lost else None

    async def _past_events(self, history: Iterable[PastEvent]) -> AsyncIterator[Any]:
        root_agent = self._app
        if history:
            found = await self.ask("GET", f"/apps/{quote(self._app, safe='')}/app-info")
            name = (found.get("rootAgentName") or found.get("root_agent_name")) if isinstance(found, dict) else None
            root_agent = name if isinstance(name, str) else self._app
        for event in history:
            if event.content is not None:
                answers = any(part.function_response for part in event.parts)
                content = self._dialect.content(event.content, "user" if event.author == "user" or answers else "model")
                author = root_agent if event.author == "model" else event.author
                yield self._dialect.body(author=author, invocation_id="history", content=content)

    def _path(self, session: str = "") -> str:
        path = f"/apps/{quote(self._app, safe='')}/users/{quote(sendable(self._user), safe='')}/sessions"
        return f"{path}/{quote(session, safe='')}" if session else path

    async def exchange(self, content: Content) -> Invocation | AttemptError:
        body = self._dialect.body(
            app_name=self._app,
            user_id=self._user,
            session_id=self.conversation,
            new_message=self._dialect.content(content),
            streaming=False,
        )
        turn = _Turn(self._on_call)
        failure = await self._run(body, turn)
        made = failure or turn.invocation(content, f"{self.conversation}-{self.turns}")
        if isinstance(made, Invocation):
            self.note_calls(made, [name for event in turn.events for name in event.long_running_tool_ids or ()])
        return made

    async def _run(self, body: dict[str, Any], turn: _Turn) -> AttemptError | None:
        streams = self._dialect.streams  # another session may change it meanwhile
        path = "/run_sse" if streams else "/run"
        headers = {"accept": "text/event-stream, application/json"}
        async with self.client.stream("POST", self._base + path, json=body, headers=headers) as response:
            if response.status_code == httpx.codes.OK:
                return await turn.read(response)
            text = error_text(await response.aread())
        if response.status_code in _MISSING and streams and "session" not in text.lower():
            self._dialect.streams = False  # the server has no streaming endpoint
            return await self._run(body, turn)
        if response.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            return reported_error(text or "it answered 500 (internal server error)")
        return status_error(response.status_code, text, self.address + path)

    async def close(self) -> SessionEnd | AttemptError:
        """Read the final state and delete the session. The state is None if a request fails."""
        state: Any = None
        if self.conversation:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    found = await self.ask("GET", self._path(self.conversation))
                    state = found.get("state") if isinstance(found, dict) else None
                    await self.ask("DELETE", self._path(self.conversation))
        await self.client.aclose()
        return SessionEnd(state if isinstance(state, dict) else None)


def _unreadable(why: str) -> AttemptError:
    return AttemptError(kind=ErrorKind.PROTOCOL, message=f"the server's answer is none of an ADK server: {why}")


def reported_error(text: str) -> AttemptError:
    """Convert an error that the server reports in a turn. Only its text tells the kind."""
    kinds = (kind for kind, sign in _SIGNS.items() if sign.search(text))
    kind = next(kinds, ErrorKind.EXCEPTION)
    return AttemptError(kind=kind, message=f"the server reports an error: {quoted(text)}")


class _Event(InvocationEvent):
    author: str = ""
    partial: bool | None = None
    branch: str | None = None
    actions: JsonObject | None = None
    long_running_tool_ids: tuple[str, ...] | None = None
    error_code: Any = None
    error_message: Any = None

    @property
    def failure(self) -> AttemptError | None:
        words = [str(word) for word in (self.error_code, self.error_message) if word]
        if not words or str(self.error_code).upper() in _FINISH_REASONS or self.content not in (None, Content()):
            return None
        return reported_error(": ".join(words))

    @property
    def is_final(self) -> bool:
        """Whether it is a final response, by the rules of ADK's ``Event.is_final_response``."""
        if _snake_keys(self.actions or {}).get("skip_summarization") or self.long_running_tool_ids:
            return True
        has_tools = any(part.function_call or part.function_response for part in self.parts)
        ran_code = "code_execution_result" in _snake_keys((self.parts[-1].model_extra if self.parts else None) or {})
        return not has_tools and not self.partial and not ran_code


@dataclass
class _Turn:
    """Collects the events of a turn as they arrive."""

    on_call: Callable[[FunctionCall], None] | None = None
    events: list[_Event] = field(default_factory=list)

    async def read(self, response: httpx.Response) -> AttemptError | None:
        """Read the events of a stream or a list; return the error that ended them, if any."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            async for data in stream_data(response):
                try:
                    error = self._add(json.loads(data))
                except (ValueError, RecursionError):
                    # When the agent fails, ADK Go's server ends the stream with a line of plain text.
                    is_text = data.strip() and not data.lstrip().startswith(("{", "["))
                    return reported_error(data) if is_text else _unreadable("an event of its stream is no JSON")
                if error:
                    return error
        else:
            body = await response.aread()
            try:
                found = json.loads(body)
            except (ValueError, RecursionError):
                return _unreadable("it is no JSON")
            if not isinstance(found, list):
                return reported_error(error_text(body))
            if error := next(filter(None, map(self._add, found)), None):
                return error
        return self.events[-1].failure if self.events else None

    def _add(self, given: Any) -> AttemptError | None:
        if not isinstance(given, dict):
            return _unreadable("an event is no JSON object")
        if len(self.events) >= _MAX_EVENTS:
            return AttemptError(kind=ErrorKind.OUTPUT, message=f"the turn has more than {_MAX_EVENTS} events")
        given = sendable_json(given)
        if "error" in given and not given.get("author") and not given.get("content"):
            return reported_error(error_text(json.dumps(given).encode()))
        try:
            event = _Event.model_validate(given)
        except ValidationError as error:
            return _unreadable(f"an event cannot be read ({quoted(str(error), limit=80)})")
        self.events.append(event)
        if self.on_call is not None and not event.partial:
            for call in event.function_calls():
                self.on_call(call)
        return None

    def invocation(self, sent: Content, name: str) -> Invocation | AttemptError:
        """Convert the events through the workers' protocol, so that both drivers read them by the same rules."""
        events = [
            {
                "a": event.author,
                "p": bool(event.partial),
                "b": event.branch,
                "f": event.is_final,
                "m": event.model_version,
                "g": _snake_keys(event.grounding_metadata),
                "u": _snake_keys(event.usage_metadata),
                "c": None if event.content == Content() else event.content,
            }
            for event in self.events
        ]
        turn = to_invocation({"events": events, "details": {}, "started_at": 0, "seconds": (0, 0, 0)}, sent, name)
        if isinstance(turn, AttemptError):
            return _unreadable(turn.message)
        # The server does not measure these. The session adds the turn's duration.
        return turn.model_copy(update={"model_duration": None, "tool_duration": None, "app_details": None})


class AdkServerAgent(HttpAgent):
    """An ``AgentDriver``."""

    spreads: ClassVar[bool] = True

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context)
        self.dialect = _Dialect()
        self._app = ""

    async def find(self, connection: ServerConnection) -> AttemptError | None:
        """Find the agent among the server's apps."""
        session = AdkServerSession(self, connection)
        apps = await session.verified(await session.ask("GET", "/list-apps"))
        await session.client.aclose()
        if isinstance(apps, AttemptError):
            return apps
        if not isinstance(apps, list) or not all(isinstance(app, str) for app in apps):
            return _unreadable("/list-apps is no list of names")
        app = choose_app(apps, (self.spec.name, self.spec.path.name))
        if isinstance(app, AttemptError):
            return app
        self._app = app
        return None

    async def begin(self, connection: ServerConnection, request: SessionRequest) -> AgentSession | AttemptError:
        session = AdkServerSession(self, connection, self._app)
        try:
            failure = await session.begin(request)
        except BaseException:
            await session.client.aclose()
            raise
        if failure is not None:
            await session.close()
        return failure or session


def choose_app(apps: Iterable[str], names: Iterable[str]) -> str | AttemptError:
    """Return the first of ``names`` that the server lists, or its only app."""
    listed, wanted = list(apps), list(names)
    if found := next((name for name in wanted if name in listed), ""):
        return found
    if len(listed) == 1:
        return listed[0]
    if not listed:
        return AttemptError(kind=ErrorKind.ENVIRONMENT, message="the server lists no apps")
    shown = quoted(", ".join(sorted(listed)))
    hint = did_you_mean(wanted[0], listed) or "give the agent the app's name: name: APP"
    message = f"the server has no app `{wanted[0]}`, but {shown} — {hint}"
    return AttemptError(kind=ErrorKind.ENVIRONMENT, message=message)
