"""Sessions: each has services of its own and is run by ADK's Runner, one turn at a time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

from agent_eval_worker_calls import OpenCalls
from agent_eval_worker_errors import WorkerError
from agent_eval_worker_protocol import encode, encode_model
from agent_eval_worker_replay import REPLAY_STATE, ModelReplay, make_replay
from agent_eval_worker_turn import Conversation, Turn

MAX_EVENTS = 10_000


class SessionFactory:
    """What all sessions of a worker share: the agent, the factory of plugins, the limits."""

    def __init__(self, loaded: Any, make_plugin: Callable[[ModelReplay | None], Any], frame_bytes: int) -> None:
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

    async def open(self, request: dict[str, Any]) -> AgentConversation:
        """Open the session of a case, after the agent's ``reset_data`` if it has one."""
        if self._loaded.reset is not None:
            done = self._loaded.reset()
            if inspect.isawaitable(done):
                await done
        replay = make_replay(request.get("replay"), self._loaded.agent)
        plugin = self._make_plugin(replay)
        self.last_runner = runner = self._runner(request["app"], plugin, replay.plugins if replay is not None else ())
        session = await runner.session_service.create_session(
            app_name=request["app"],
            user_id=request["user"],
            state=request.get("state") or {},
            session_id=request.get("session"),
        )
        plugin.session_id = session.id
        for event in request.get("history") or ():
            await runner.session_service.append_event(session, self._past_event(event, runner))
        return AgentConversation(request, self, runner, plugin, session, replay=replay)

    def _past_event(self, fields: dict[str, Any], runner: Any) -> Any:
        """Return an event of the history. `model` becomes the root agent: ADK tells agents apart by name."""
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

    def _runner(self, app_name: str, plugin: Any, last: tuple[Any, ...]) -> Any:
        services = {name: make() for name, make in self._services.items()}
        app, agent = self._loaded.app, self._loaded.agent
        if app is not None:
            # The copy carries the App's caching and resumability; its plugins are the App's own objects.
            changes = {"name": app_name, "plugins": [plugin, *app.plugins, *last], "root_agent": agent}
            return self._runner_class(app=app.model_copy(update=changes), **services)
        with warnings.catch_warnings():
            # The argument is deprecated in 2.x and the only one there is in 1.10.
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._runner_class(app_name=app_name, agent=agent, plugins=[plugin, *last], **services)


class AgentConversation(Conversation):
    """One conversation with an ADK agent."""

    def __init__(
        self,
        request: dict[str, Any],
        factory: SessionFactory,
        runner: Any,
        plugin: Any,
        session: Any,
        *,
        replay: ModelReplay | None,
    ) -> None:
        super().__init__(request["s"])
        self.runner = runner
        self._factory = factory
        self._plugin = plugin
        self._key = {"user_id": session.user_id, "session_id": session.id}
        self._app_name = session.app_name
        self._open_calls = OpenCalls(event.get("content") or {} for event in request.get("history") or ())
        self._replay = replay

    async def run_turn(self, turn: Turn, content: dict[str, Any]) -> bytes:
        message = self._factory.content_class.model_validate_json(json.dumps(content))
        message.role = message.role or "user"
        if self._replay is None:
            self._address_answers(message)
        self._plugin.turn = turn
        limit, events, size = self._factory.frame_bytes, [], 0
        started_at, started = time.time(), time.monotonic()
        run = functools.partial(self.runner.run_async, **self._key)
        made = run(new_message=message) if self._replay is None else self._replay.events(turn, message, run)
        async with contextlib.aclosing(made) as stream:
            async for event in stream:
                events.append(_encode_event(event))
                self._note_calls(event)
                if self.on_event is not None:
                    self.on_event(event)
                size += len(events[-1]) * (1 if self._replay is None else 2)  # a replayed event is also sent whole
                if size + turn.inner_bytes > limit:
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
            "s": self.name,
            "details": turn.details,
            "started_at": started_at,
            "seconds": [total, *turn.durations()],
            "spans": turn.timeline(),
            "throttled": turn.throttled,
        }
        if self._replay is not None:
            head["raw_events"] = self._replay.take_events()
        # The events are JSON already, so they are joined, not encoded again.
        return (
            encode(head)[:-1] + b', "inner": [' + b",".join(turn.inner) + b'], "events": [' + b",".join(events) + b"]}"
        )

    def _note_calls(self, event: Any) -> None:
        waiting = event.long_running_tool_ids
        for call in event.get_function_calls() if waiting else ():
            if call.id in waiting:
                self._open_calls.add(call.id, call.name)

    def _address_answers(self, message: Any) -> None:
        """Give a message's answers the ids of the calls that they are for."""
        answers = [part.function_response for part in message.parts or () if part.function_response]
        try:
            found = self._open_calls.answer((answer.id, answer.name) for answer in answers)
        except LookupError as error:
            raise WorkerError("not_asked", str(error)) from None
        for answer, identifier in zip(answers, found, strict=True):
            answer.id = identifier

    async def state(self) -> dict[str, Any]:
        session = await self.runner.session_service.get_session(app_name=self._app_name, **self._key)
        state = dict(session.state) if session is not None else {}
        state.pop(REPLAY_STATE, None)
        return state


def _encode_event(event: Any) -> bytes:
    """Return an event as the other side needs it. ``f``: whether ADK calls it a final response."""
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
