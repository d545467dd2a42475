"""Sessions: each with services of its own, run by ADK's Runner, one turn at a time."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

from agent_eval_worker_errors import WorkerError, describe, last_lines
from agent_eval_worker_plugin import Turn
from agent_eval_worker_protocol import encode, encode_model

MAX_EVENTS = 10_000


class SessionFactory:
    """What all sessions of a worker share: the agent, what makes a plugin, the limits."""

    def __init__(self, loaded: Any, make_plugin: Callable[[], Any], frame_bytes: int) -> None:
        from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
        from google.adk.events.event import Event
        from google.adk.events.event_actions import EventActions
        from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
        from google.adk.runners import Runner
        from google.adk.sessions.in_memory_session_service import InMemorySessionService
        from google.genai import types

        self._runner_class = Runner
        self._services = {
            "session_service": InMemorySessionService,
            "artifact_service": InMemoryArtifactService,
            "memory_service": InMemoryMemoryService,
        }
        self._make_plugin = make_plugin
        self._loaded = loaded
        self._event_class, self._actions_class = Event, EventActions
        self.content_class = types.Content
        self.frame_bytes = frame_bytes
        self.last_runner: Any = None

    async def open(self, request: dict[str, Any]) -> WorkerSession:
        """A session as the case asks for it; ``reset_data`` first, where the agent has it."""
        if self._loaded.reset is not None:
            done = self._loaded.reset()
            if inspect.isawaitable(done):
                await done
        plugin = self._make_plugin()
        self.last_runner = runner = self._runner(request["app"], plugin)
        session = await runner.session_service.create_session(
            app_name=request["app"],
            user_id=request["user"],
            state=request.get("state") or {},
            session_id=request.get("session"),
        )
        for event in request.get("history") or ():
            await runner.session_service.append_event(session, self._past_event(event, runner))
        return WorkerSession(request["s"], self, runner, plugin, session)

    def _past_event(self, fields: dict[str, Any], runner: Any) -> Any:
        """An event of before the first turn. `model` is the root agent: ADK tells agents apart by their names."""
        author = runner.agent.name if fields["author"] == "model" else fields["author"]
        event = self._event_class(
            author=author,
            invocation_id="history",
            actions=self._actions_class(state_delta=fields.get("state_delta") or {}),
        )
        if fields.get("content") is not None:
            event.content = self.content_class.model_validate_json(json.dumps(fields["content"]))
            answers = any(part.function_response for part in event.content.parts or ())
            event.content.role = event.content.role or ("user" if author == "user" or answers else "model")
        return event

    def _runner(self, app_name: str, plugin: Any) -> Any:
        services = {name: make() for name, make in self._services.items()}
        app, agent = self._loaded.app, self._loaded.agent
        if app is not None:
            # The copy carries the App's caching and resumability; its plugins are the App's own objects.
            changes = {"name": app_name, "plugins": [plugin, *app.plugins], "root_agent": agent}
            return self._runner_class(app=app.model_copy(update=changes), **services)
        with warnings.catch_warnings():
            # The argument is deprecated in 2.x and the only one there is in 1.10.
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._runner_class(app_name=app_name, agent=agent, plugins=[plugin], **services)


class WorkerSession:
    """One conversation."""

    def __init__(self, name: str, factory: SessionFactory, runner: Any, plugin: Any, session: Any) -> None:
        self.turn: Turn | None = None
        self.runner = runner
        self._name = name
        self._factory = factory
        self._plugin = plugin
        self._key = {"user_id": session.user_id, "session_id": session.id}
        self._app_name = session.app_name

    async def make_turn(self, content: dict[str, Any]) -> bytes | None:
        """The frame of a turn: its events and measurements, or an error. None: the turn was given up and answered."""
        self.turn = self._plugin.turn = turn = Turn(asyncio.current_task())
        try:
            frame = await self._run(turn, content)
        except asyncio.CancelledError as error:
            kind, message = "timeout", turn.timed_out_doing
            if turn.timed_out_at is None:
                kind, message = "died", "the turn was cancelled from inside the agent's process"
            frame = self._error({"kind": kind, "message": message, "traceback": last_lines(error)})
        except BaseException as error:  # noqa: BLE001 - whatever an agent raises is that case's error
            frame = self._error(describe(error))
        self.turn = None
        return None if turn.answered else frame

    def _error(self, error: dict[str, str]) -> bytes:
        return encode({"ev": "turn", "s": self._name, "error": error})

    async def _run(self, turn: Turn, content: dict[str, Any]) -> bytes:
        message = self._factory.content_class.model_validate_json(json.dumps(content))
        message.role = message.role or "user"
        limit, events, size = self._factory.frame_bytes, [], 0
        started_at, started = time.time(), time.monotonic()
        async with contextlib.aclosing(self.runner.run_async(**self._key, new_message=message)) as stream:
            async for event in stream:
                events.append(_encode_event(event))
                size += len(events[-1])
                if size > limit:
                    raise WorkerError("output", f"the turn's events are larger than {limit >> 20} MB")
                if len(events) > MAX_EVENTS:
                    raise WorkerError("output", f"the turn has more than {MAX_EVENTS} events")
                if len(events) % 100 == 0:
                    # An agent that yields without ever waiting must not keep the others from running.
                    await asyncio.sleep(0)
        total = time.monotonic() - started
        if turn.timed_out_at is not None:
            raise WorkerError("timeout", turn.timed_out_doing)
        head = {
            "ev": "turn",
            "s": self._name,
            "details": turn.details,
            "started_at": started_at,
            "seconds": [total, *turn.durations()],
            "spans": turn.timeline(),
            "throttled": turn.throttled,
        }
        # The events are JSON already, so they are joined, not encoded again.
        return encode(head)[:-1] + b', "events": [' + b",".join(events) + b"]}"

    async def state(self) -> dict[str, Any]:
        session = await self.runner.session_service.get_session(app_name=self._app_name, **self._key)
        return dict(session.state) if session is not None else {}


def _encode_event(event: Any) -> bytes:
    """An event as the other side needs it. ``f``: ADK's own answer to whether it is a final response."""
    fields = {
        "a": event.author,
        "f": bool(event.is_final_response()),
        "p": bool(event.partial),
        "b": event.branch,
        "m": getattr(event, "model_version", None),
    }
    parts = [encode(fields)[:-1]]
    for key, value in (("c", event.content), ("g", event.grounding_metadata), ("u", event.usage_metadata)):
        if value is not None:
            parts.append(b', "%s": ' % key.encode() + encode_model(value))
    return b"".join(parts) + b"}"
