"""Shared by drivers of programs and servers: their turns are timed, and get what the program's spans show."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, TypeVar

from agent_eval_action.agents.base import DriverContext, TurnDone
from agent_eval_action.environments.runtime import AgentRuntimeSpec
from agent_eval_action.environments.variables import with_advice
from agent_eval_action.llm.client import quoted
from agent_eval_action.results.evalset import Content, Invocation
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from agent_eval_action.telemetry.otlp import Telemetry
from agent_eval_action.telemetry.receiver import TraceReceiver, TurnTrace
from agent_eval_action.telemetry.trajectory import Trajectory

_SPANS_S: Final = 8.0
"""How long to wait for a turn's spans, in seconds, after a text-only answer. Not counted as the turn's time."""
_TIMES_S: Final = 1.0
"""The same after an answer with the turn's events, to which spans only add times."""
_NOTHING_SEEN: Final = (
    f"no answer named a tool call and no spans came within {_SPANS_S:.0f} s, so it counts as calling none; if it calls "
    "tools, have its answers name them, or its program export spans (docs/agents.md); if not, "
    '`env: {OTEL_SDK_DISABLED: "true"}` saves the wait'
)

_Made = TypeVar("_Made")


class TurnTraces:
    """Receives the spans of one agent."""

    def __init__(self, context: DriverContext) -> None:
        self._agent_env, self._log, self._log_of_calls = context.agent.env, context.say, context.say_of_calls
        self._receiver: TraceReceiver | None = None
        self._warned: set[str] = set()
        self._had_text_only = self._saw_events = False

    @property
    def _is_disabled(self) -> bool:
        return (self._agent_env.get("OTEL_SDK_DISABLED") or "").lower() == "true"

    async def start(self) -> None:
        """Listen for spans, unless the user has turned them off. Logs a warning if it cannot."""
        if self._is_disabled:
            return
        receiver = TraceReceiver()
        try:
            await receiver.start()
        except OSError as error:
            self.warn(f"spans cannot be received, so only the answers are read: {quoted(str(error))}")
        else:
            receiver.on_late = self._warn_of_late_spans
            self._receiver = receiver

    def variables(self, source: str = "agent") -> dict[str, str]:
        """Return the variables that make a program export its spans here, except those that the user sets."""
        given = self._receiver.environment(source) if self._receiver else {}
        return {name: value for name, value in given.items() if name not in self._agent_env}

    @contextlib.contextmanager
    def turn(self, conversation: str, source: str) -> Iterator[TurnTrace | None]:
        """Hold the trace of a turn open; None if no spans are received."""
        if (receiver := self._receiver) is None:
            yield None
            return
        trace = receiver.begin_turn(conversation, source)
        try:
            yield trace
        finally:
            receiver.abandon(trace)

    async def add(self, turn: Invocation, trace: TurnTrace | None, *, tells_all: bool) -> Invocation:
        """Return the turn with what its spans add to the answer, or with why they add nothing.

        ``tells_all``: an answer with usage has all events of the turn, including its tool calls.
        """
        has_calls = bool(turn.tool_calls()) or (tells_all and any(event.usage_metadata for event in turn.events))
        self._had_text_only |= not has_calls
        self._saw_events |= has_calls
        if trace is None or self._receiver is None:
            return turn
        telemetry = await self._receiver.finish(trace, _TIMES_S if has_calls else _SPANS_S)
        unseen = _unread(telemetry)
        self._saw_events |= bool(telemetry.spans or unseen)
        if unseen:
            self.warn(unseen)
        if unseen and not has_calls:
            turn = turn.model_copy(update={"unseen": unseen})
        if not telemetry.spans:
            return turn
        try:
            # In a thread: many spans would block this loop, which serves every session of the run.
            traced = await asyncio.to_thread(lambda: Trajectory(telemetry.whole_spans()).added_to(turn))
        except (TypeError, ValueError, RecursionError) as error:
            unseen = f"its spans cannot be read: {type(error).__name__}"
            self.warn(unseen)
            return turn if has_calls else turn.model_copy(update={"unseen": unseen})
        if traced.uncaptured:
            self.warn(traced.uncaptured)
        return traced

    def _warn_of_late_spans(self, seconds: float) -> None:
        self._saw_events = True
        if self._had_text_only:
            self.warn(
                f"spans of a turn came after its answer was scored without them ({seconds:.0f} s): tool calls may be "
                "missing; have the program export sooner, or before it answers"
            )

    def warn(self, text: str) -> None:
        """Log a warning once per agent."""
        if text not in self._warned:
            self._warned.add(text)
            self._log(text, "warning")

    async def stop(self) -> None:
        """Close the port, and log if only text answers were seen. Safe to call twice."""
        receiver, self._receiver = self._receiver, None
        if self._had_text_only and not self._saw_events and not self._is_disabled:
            self._had_text_only = False
            self._log_of_calls(_NOTHING_SEEN)
        if receiver is not None:
            await receiver.stop()


class TracedSession(ABC):
    """An ``AgentSession`` that times its turns and adds what their spans show.

    ``tells_all``: an answer has all events of its turn. ``source``: the program's name for the receiver of spans.
    ``conversation``: the agent's id for the session, which spans may carry; "" if it has none. ``throttled``: of the
    latest turn.
    """

    tells_all: ClassVar[bool] = False

    def __init__(self, spec: AgentRuntimeSpec, traces: TurnTraces, source: str) -> None:
        self.spec = spec
        self.conversation = ""
        self.throttled = 0
        self.turns = 0
        self._traces = traces
        self._source = source

    @abstractmethod
    async def make(self, content: Content, headers: Mapping[str, str]) -> Invocation | AttemptError:
        """Make turn number ``turns``. ``headers``: the trace context to pass on."""

    async def verified(self, made: _Made | AttemptError) -> _Made | AttemptError:
        """Return what was made, or why it does not count."""
        return made

    def took_too_long(self, detail: str = "") -> AttemptError:
        message = f"the turn took longer than timeout_s ({self.spec.timeout_s:g} s){detail}"
        return AttemptError(kind=ErrorKind.TIMEOUT, message=message)

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        number, self.turns = self.turns, self.turns + 1
        started, began = time.time(), time.monotonic()
        with self._traces.turn(self.conversation, self._source) as trace:
            made = await self.make(content, {"traceparent": trace.traceparent} if trace else {})
            seconds = round(time.monotonic() - began, 6)
            made = await self.verified(made)
            if isinstance(made, AttemptError):
                return with_advice(made.model_copy(update={"turn": number}), self.spec)
            made = made.model_copy(update={"creation_timestamp": started, "duration": seconds})
            return TurnDone(await self._traces.add(made, trace, tells_all=self.tells_all), self.throttled)


def _unread(telemetry: Telemetry) -> str:
    """Return why spans of a turn may be missing, or ""."""
    if telemetry.is_ambiguous:
        return (
            "its spans cannot be told apart by turn, and are left out: take the `traceparent` of each turn over "
            "(a propagator of OpenTelemetry does), or set `concurrency: 1`"
        )
    if telemetry.dropped:
        return f"a turn has {telemetry.dropped:,} spans more than are read: its tool calls are not all seen"
    if telemetry.refused:
        return f"spans were sent that cannot be read, so its tool calls are not all seen: {telemetry.refused}"
    return ""
