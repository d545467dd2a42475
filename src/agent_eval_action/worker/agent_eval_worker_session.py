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

from agent_eval_worker_errors import describe, last_lines
from agent_eval_worker_json import TooLargeError, encode, encode_model
from agent_eval_worker_plugin import TurnRecord

MAX_EVENTS = 10_000


class OutputLimitError(Exception):
    """A turn said more than anybody will read."""


class Turn:
    """A turn being made: its task, and how much time is charged to it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.started = time.monotonic()
        self.charged = 0.0
        self.timed_out_at: float | None = None
        self.doing = ""
        self.answered = False


class Factory:
    """What all sessions of a worker share: the agent, what makes a plugin, the limits."""

    def __init__(self, loaded: Any, make_plugin: Callable[[], Any], frame_bytes: int) -> None:
        from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
        from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
        from google.adk.runners import Runner
        from google.adk.sessions.in_memory_session_service import InMemorySessionService
        from google.genai import types

        self._runner_class = Runner
        self._services = (InMemorySessionService, InMemoryArtifactService, InMemoryMemoryService)
        self._make_plugin = make_plugin
        self.loaded = loaded
        self.content_class = types.Content
        self.frame_bytes = frame_bytes
        self.last_runner: Any = None

    async def open(self, request: dict[str, Any]) -> Session:
        """A session as the case asks for it; ``reset_data`` first, where the agent has it."""
        if self.loaded.reset is not None:
            done = self.loaded.reset()
            if inspect.isawaitable(done):
                await done
        sessions, artifacts, memory = (make() for make in self._services)
        plugin = self._make_plugin()
        self.last_runner = runner = self._runner(request["app"], plugin, sessions, artifacts, memory)
        session = await sessions.create_session(
            app_name=request["app"],
            user_id=request["user"],
            state=request.get("state") or {},
            session_id=request.get("session"),
        )
        return Session(self, runner, plugin, session)

    def _runner(self, app_name: str, plugin: Any, sessions: Any, artifacts: Any, memory: Any) -> Any:
        services = {"session_service": sessions, "artifact_service": artifacts, "memory_service": memory}
        app = self.loaded.app
        if app is not None:
            # The copy carries the App's caching and resumability; its plugins are the App's own objects.
            copy = app.model_copy(
                update={"name": app_name, "plugins": [plugin, *app.plugins], "root_agent": self.loaded.agent}
            )
            return self._runner_class(app=copy, **services)
        with warnings.catch_warnings():
            # The argument is deprecated in 2.x and the only one there is in 1.10.
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._runner_class(app_name=app_name, agent=self.loaded.agent, plugins=[plugin], **services)


class Session:
    """One conversation."""

    def __init__(self, factory: Factory, runner: Any, plugin: Any, session: Any) -> None:
        self.turn: Turn | None = None
        self._factory = factory
        self.runner = runner
        self._plugin = plugin
        self._key = {"app_name": session.app_name, "user_id": session.user_id, "session_id": session.id}

    async def make_turn(self, turn: Turn, content: dict[str, Any]) -> dict[str, Any]:
        """The turn's frame body: events and what was measured, or an error."""
        self._plugin.record = record = TurnRecord()
        try:
            return await self._run(turn, content, record)
        except asyncio.CancelledError as error:
            if turn.timed_out_at is None:
                return _error("died", "the turn was cancelled from inside the agent's process", last_lines(error))
            return _error("timeout", turn.doing, last_lines(error))
        except (OutputLimitError, TooLargeError) as error:
            return _error("output", str(error), "")
        except BaseException as error:  # noqa: BLE001 - whatever an agent raises is that case's error
            return {"error": describe(error)}

    async def _run(self, turn: Turn, content: dict[str, Any], record: TurnRecord) -> dict[str, Any]:
        message = self._factory.content_class.model_validate_json(json.dumps(content))
        message.role = message.role or "user"
        started_at, started = time.time(), time.monotonic()
        events, size = [], 0
        stream = self.runner.run_async(
            user_id=self._key["user_id"], session_id=self._key["session_id"], new_message=message
        )
        async with contextlib.aclosing(stream):
            async for event in stream:
                wire = _wire(event)
                size += len(wire)
                if size > self._factory.frame_bytes:
                    raise OutputLimitError(f"the turn's events are larger than {self._factory.frame_bytes >> 20} MB")
                events.append(wire)
                if len(events) > MAX_EVENTS:
                    raise OutputLimitError(f"the turn has more than {MAX_EVENTS} events")
                if len(events) % 100 == 0:
                    # An agent that yields without ever waiting must not keep the others from running.
                    await asyncio.sleep(0)
        total = time.monotonic() - started
        if turn.timed_out_at is not None:
            return _error("timeout", turn.doing, "")
        model, tool = record.durations()
        return {
            "events": events,
            "details": record.details,
            "started_at": started_at,
            "seconds": [total, model, tool],
            "throttled": record.throttled,
        }

    def doing(self) -> str:
        """What the turn waits for: asked before it is cancelled, for then it waits for nothing."""
        found = self._plugin.record.doing()
        return "under way: " + found if found else ""

    @property
    def idle(self) -> bool:
        """Whether the turn only waits for the rate of a model: such time is not charged to it."""
        return self._plugin.record.idle  # type: ignore[no-any-return] # the plugin's class is made at run time

    async def state(self) -> dict[str, Any]:
        """The session's state after its last turn."""
        session = await self.runner.session_service.get_session(**self._key)
        return dict(session.state) if session is not None else {}


def turn_frame(session_id: str, body: dict[str, Any]) -> bytes:
    """The frame of a turn: events are JSON already, so they are joined, not encoded again."""
    if "error" in body:
        return encode({"ev": "turn", "s": session_id, "error": body["error"]})
    head = {
        "ev": "turn",
        "s": session_id,
        **{key: body[key] for key in ("details", "started_at", "seconds", "throttled")},
    }
    return encode(head)[:-1] + b', "events": [' + b",".join(body["events"]) + b"]}"


def _wire(event: Any) -> bytes:
    """An event as the other side needs it. ``f``: ADK's own answer to whether it is a final response."""
    parts = [
        encode(
            {
                "a": event.author,
                "f": bool(event.is_final_response()),
                "p": bool(event.partial),
                "b": event.branch,
                "m": getattr(event, "model_version", None),
            }
        )[:-1]
    ]
    for key, value in (("c", event.content), ("g", event.grounding_metadata), ("u", event.usage_metadata)):
        if value is not None:
            parts.append(b', "%s": ' % key.encode() + encode_model(value))
    return b"".join(parts) + b"}"


def _error(kind: str, message: str, trace: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message, "traceback": trace}}
