"""What drivers that start an agent's programs share: the spans that those export become the trajectories of turns."""

from __future__ import annotations

import asyncio
from typing import Final

from agent_eval_action.agents.base import DriverContext
from agent_eval_action.llm.client import quoted
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.telemetry.otlp import Telemetry
from agent_eval_action.telemetry.receiver import TraceReceiver, TurnTrace
from agent_eval_action.telemetry.trajectory import Trajectory

_ALL_S: Final = 8.0
"""How long the spans of a turn are waited for after an answer of text alone. It is no time of the turn."""
_TIMES_S: Final = 1.0
"""The same after an answer that has the turn's events, to which spans add no more than times."""
_NOTHING_SEEN: Final = (
    f"no answer named a tool call and no spans came within {_ALL_S:.0f} s, so it counts as calling none; if it calls "
    "tools, have its answers name them, or its program export spans (docs/agents.md); if not, "
    '`env: {OTEL_SDK_DISABLED: "true"}` saves the wait'
)


class TurnTraces:
    """The receiver of one agent's spans."""

    def __init__(self, context: DriverContext) -> None:
        self._given, self._say, self._say_of_calls = context.agent.env, context.say, context.say_of_calls
        self._receiver: TraceReceiver | None = None
        self._said: set[str] = set()
        self._reads_calls = self._has_seen = False

    @property
    def _is_disabled(self) -> bool:
        return (self._given.get("OTEL_SDK_DISABLED") or "").lower() == "true"

    async def start(self) -> None:
        """Listen, unless the user has turned the program's spans off. Where it is not possible, that is said."""
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
        """Return what has a program export its spans here; what the user sets for the agent stays."""
        given = self._receiver.environment(source) if self._receiver else {}
        return {name: value for name, value in given.items() if name not in self._given}

    def begin(self, conversation: str = "", source: str = "agent") -> TurnTrace | None:
        """Open the trace of a turn; None where nothing is received."""
        return self._receiver.begin_turn(conversation, source) if self._receiver else None

    async def add(self, turn: Invocation, trace: TurnTrace | None, *, tells_all: bool) -> Invocation:
        """Return the turn with what its spans say beyond the answer, or with why they say nothing.

        ``tells_all``: an answer with usage has all events of the turn, those of its tool calls included.
        """
        has_calls = bool(turn.tool_calls()) or (tells_all and any(event.usage_metadata for event in turn.events))
        self._reads_calls |= not has_calls
        self._has_seen |= has_calls
        if trace is None:
            return turn
        telemetry = await trace.finish(_TIMES_S if has_calls else _ALL_S)
        unseen = _unread(telemetry)
        self._has_seen |= bool(telemetry.spans or unseen)
        if unseen:
            self.warn(unseen)
        if unseen and not has_calls:
            turn = turn.model_copy(update={"unseen": unseen})
        if not telemetry.spans:
            return turn
        try:
            # In a thread, since spans may be many, and every session of the run waits on this loop.
            traced = await asyncio.to_thread(lambda: Trajectory(telemetry.whole_spans()).added_to(turn))
        except (TypeError, ValueError, RecursionError) as error:
            unseen = f"its spans cannot be read: {type(error).__name__}"
            self.warn(unseen)
            return turn if has_calls else turn.model_copy(update={"unseen": unseen})
        if traced.uncaptured:
            self.warn(traced.uncaptured)
        return traced

    def _warn_of_late_spans(self, seconds: float) -> None:
        self._has_seen = True
        if self._reads_calls:
            self.warn(
                f"spans of a turn came after its answer was scored without them ({seconds:.0f} s): tool calls may be "
                "missing; have the program export sooner, or before it answers"
            )

    def warn(self, text: str) -> None:
        """Say once what concerns all turns."""
        if text not in self._said:
            self._said.add(text)
            self._say(text, "warning")

    async def stop(self) -> None:
        """Close the port, and say where nothing was seen but answers of text alone. Safe to call twice."""
        receiver, self._receiver = self._receiver, None
        if self._reads_calls and not self._has_seen and not self._is_disabled:
            self._reads_calls = False
            self._say_of_calls(_NOTHING_SEEN)
        if receiver is not None:
            await receiver.stop()


def _unread(telemetry: Telemetry) -> str:
    """Return why spans of a turn may be missing; "" where all are there."""
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
