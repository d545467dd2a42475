"""The ``adk_server`` driver: talks to ADK's ``api_server``, in whatever language that is written.

Servers differ in key spelling (camelCase or snake_case), in how they create sessions and in how they report errors. The
driver checks that a new session really holds the state and history it asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
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
from agent_eval_action.results.evalset import Content, FunctionCall, Invocation, PastEvent
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
_LIMITED: Final = re.compile(r"\b429\b|RESOURCE_EXHAUSTED|rate.?limit", re.IGNORECASE)
_UNAVAILABLE: Final = re.compile(r"\b50[234]\b|\bUNAVAILABLE\b|DEADLINE_EXCEEDED")


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

    def learn(self, session: Mapping[str, Any]) -> None:
        """Learn the key spelling from a session that the server returned."""
        self.snake = "app_name" in session and "appName" not in session

    def keys(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Convert snake_case field names to the server's spelling."""
        return {name if self.snake else to_camel(name): value for name, value in fields.items()}

    def content(self, content: Content) -> dict[str, Any]:
        dumped = content.model_dump(mode="json", exclude_none=True, by_alias=not self.snake)
        return {"role": "user", **dumped}


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
        author = await self._root_agent() if request.history else ""
        events = [self._event(event, author) for event in request.history if event.content is not None]
        self.note_history(request.history)
        # Another repeat may have a session of the same name open, so a pinned id is only a prefix.
        name = f"{request.session_id or 'agent-eval'}-{uuid4().hex}"
        wanted = {"session_id": name, "state": state, "events": events}
        body = sendable_json(self._dialect.keys({key: value for key, value in wanted.items() if value}))
        session = await self.ask("POST", self._path(), body)
        if isinstance(session, AttemptError):
            return await self.verified(session)
        if not isinstance(session, dict) or not isinstance(session.get("id"), str):
            return _unreadable("a session has no id")
        self._dialect.learn(session)
        self.conversation = session["id"]
        kept, found, seeded = (
            {name for name in state if not name.startswith("temp:")},
            session.get("state"),
            session.get("events"),
        )
        lost = ""
        if kept and (not isinstance(found, dict) or not kept <= found.keys()):
            lost = "session state"
        elif events and (not isinstance(seeded, list) or len(seeded) < len(events)):
            lost = "history"
        message = f"the server did not take the {lost} that the case begins with"
        return AttemptError(kind=ErrorKind.ENVIRONMENT, message=message) if lost else None

    async def _root_agent(self) -> str:
        """Return the author of the agent's own events; the app's name if the server does not report it."""
        found = await self.ask("GET", f"/apps/{quote(self._app, safe='')}/app-info")
        name = (found.get("rootAgentName") or found.get("root_agent_name")) if isinstance(found, dict) else None
        return name if isinstance(name, str) else self._app

    def _event(self, event: PastEvent, root_agent: str) -> dict[str, Any]:
        assert event.content is not None  # noqa: S101 - the caller filters these out
        author = root_agent if event.author == "model" else event.author
        answers = any(part.function_response for part in event.content.parts or ())
        role = event.content.role or ("user" if author == "user" or answers else "model")
        content = {**self._dialect.content(event.content), "role": role}
        return self._dialect.keys({"author": author, "invocation_id": "history", "content": sendable_json(content)})

    def _path(self, session: str = "") -> str:
        path = f"/apps/{quote(self._app, safe='')}/users/{quote(sendable(self._user), safe='')}/sessions"
        return f"{path}/{quote(session, safe='')}" if session else path

    async def exchange(self, content: Content) -> Invocation | AttemptError:
        names = {"app_name": self._app, "user_id": self._user, "session_id": self.conversation}
        fields = {**names, "new_message": self._dialect.content(content), "streaming": False}
        turn = _Turn(on_call=self._on_call)
        failure = await self._run(sendable_json(self._dialect.keys(fields)), turn)
        made = failure or turn.invocation(content, f"{self.conversation}-{self.turns}")
        if isinstance(made, Invocation):
            self.note_calls(made, [name for event in turn.events for name in event.get("long_running_tool_ids") or ()])
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
    kind = ErrorKind.EXCEPTION
    if _LIMITED.search(text):
        kind = ErrorKind.RATE_LIMITED
    elif _UNAVAILABLE.search(text):
        kind = ErrorKind.UNAVAILABLE
    return AttemptError(kind=kind, message=f"the server reports an error: {quoted(text)}")


@dataclass
class _Turn:
    """Collects the events of a turn as they arrive."""

    events: list[dict[str, Any]] = field(default_factory=list)
    failure: AttemptError | None = None
    on_call: Callable[[FunctionCall], None] | None = None

    async def read(self, response: httpx.Response) -> AttemptError | None:
        """Read the events of a stream or a list; return the error that ended them, if any."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            return self._add_all(await response.aread())
        async for data in stream_data(response):
            try:
                event = json.loads(data)
            except (ValueError, RecursionError):
                # When the agent fails, ADK Go's server ends the stream with a line of plain text.
                is_text = data.strip() and not data.lstrip().startswith(("{", "["))
                return reported_error(data) if is_text else _unreadable("an event of its stream is no JSON")
            if error := self.add(event):
                return error
        return self.failure

    def _add_all(self, body: bytes) -> AttemptError | None:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            return _unreadable("it is no JSON")
        if not isinstance(found, list):
            return reported_error(error_text(body))
        return next((error for event in found if (error := self.add(event))), self.failure)

    def add(self, event: Any) -> AttemptError | None:
        if not isinstance(event, dict):
            return _unreadable("an event is no JSON object")
        if len(self.events) >= _MAX_EVENTS:
            return AttemptError(kind=ErrorKind.OUTPUT, message=f"the turn has more than {_MAX_EVENTS} events")
        event = sendable_json(event)
        if "error" in event and not event.get("author") and not event.get("content"):
            return reported_error(error_text(json.dumps(event).encode()))
        fields = {snake_case(name): value for name, value in event.items()}
        code, message = fields.get("error_code"), fields.get("error_message")
        failed = (code or message) and str(code).upper() not in _FINISH_REASONS and not fields.get("content")
        self.failure = reported_error(": ".join(str(word) for word in (code, message) if word)) if failed else None
        self.events.append(fields)
        if self.on_call is not None and not fields.get("partial"):
            self._report_calls(fields.get("content"), self.on_call)
        return None

    @staticmethod
    def _report_calls(content: Any, on_call: Callable[[FunctionCall], None]) -> None:
        with contextlib.suppress(ValidationError):  # invalid content is reported at the end of the turn
            for part in Content.model_validate(content or {}).parts or ():
                if part.function_call is not None:
                    on_call(part.function_call)

    def invocation(self, sent: Content, name: str) -> Invocation | AttemptError:
        """Convert the events through the workers' protocol, so that both drivers read them by the same rules."""
        frame = {
            "events": [_worker_event(event) for event in self.events],
            "details": {},
            "started_at": 0.0,
            "seconds": (0.0, 0.0, 0.0),
        }
        turn = to_invocation(frame, sent, name)
        if isinstance(turn, AttemptError):
            return _unreadable(turn.message)
        # The server does not measure these. The session adds the turn's duration.
        return turn.model_copy(update={"model_duration": None, "tool_duration": None, "app_details": None})


def _worker_event(event: dict[str, Any]) -> dict[str, Any]:
    content = event.get("content")
    model = event.get("model_version")
    found: dict[str, Any] = {
        "a": event.get("author"),
        "p": bool(event.get("partial")),
        "b": event.get("branch"),
        "f": _is_final(event),
        "m": model if isinstance(model, str) else None,
    }
    found |= {
        short: _snake_keys(event[name])
        for short, name in (("g", "grounding_metadata"), ("u", "usage_metadata"))
        if isinstance(event.get(name), dict)
    }
    if isinstance(content, dict) and (content.get("parts") or content.get("role")):
        found["c"] = content
    return found


def _is_final(event: dict[str, Any]) -> bool:
    """Whether the event is a final response, by the rules of ADK's ``Event.is_final_response``."""
    actions = event.get("actions")
    skips = isinstance(actions, dict) and (actions.get("skipSummarization") or actions.get("skip_summarization"))
    if skips or event.get("long_running_tool_ids"):
        return True
    content = event.get("content")
    listed = content.get("parts") if isinstance(content, dict) else None
    parts = [part for part in listed if isinstance(part, dict)] if isinstance(listed, list) else []
    tools = ("functionCall", "function_call", "functionResponse", "function_response")
    has_tools = any(part.get(name) for part in parts for name in tools)
    ran_code = bool(parts) and any(parts[-1].get(key) for key in ("codeExecutionResult", "code_execution_result"))
    return not has_tools and not event.get("partial") and not ran_code


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
