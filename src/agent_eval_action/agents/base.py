"""The port of agent drivers: sessions in which an agent makes turns. Errors are values.

Sessions may share a process. When it dies, all its sessions are lost, and nothing shows which one killed it: each gets
``DIED``, and the caller runs each again with ``alone=True``, in a process of its own. A session that dies alone is the
culprit; the others get their answers. ``BLOCKED`` goes to the one session whose synchronous call, as far as its stack
shows, blocked a whole process for longer than the limit; its neighbours get ``DIED``. Every other error kind concerns
only its own session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.environments.runtime import Log
from agent_eval_action.processes.process import ForkServers
from agent_eval_action.results.evalset import Content, FunctionCall, Invocation, PastEvent, Replay
from agent_eval_action.results.run_result import AgentConditions, AttemptError, AttemptKey
from agent_eval_action.sandbox.sandboxes import Role, Sandboxes


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """How to begin a session.

    ``alone``: the worker that last held this session was killed; keep it apart from all other sessions. ``key`` names
    the attempt, for drivers that replay one. ``messages`` are the user's messages, () if they are not known beforehand.
    ``history``: events that the session holds before its first turn. ``on_call`` is called with each tool call during a
    turn, by drivers that see calls then. ``replay`` (``adk`` driver only): responses to use instead of calling models.
    """

    app_name: str
    user_id: str
    session_id: str | None = None
    state: dict[str, Any] = field(default_factory=dict)
    alone: bool = False
    key: AttemptKey | None = None
    history: tuple[PastEvent, ...] = ()
    messages: tuple[Content, ...] = ()
    on_call: Callable[[FunctionCall], None] | None = None
    replay: Replay | None = None

    def state_after_history(self) -> dict[str, Any]:
        """Return the state before the first turn, including the changes made by the history."""
        state = dict(self.state)
        for event in self.history:
            state |= event.state_delta or {}
        return state


@dataclass(frozen=True, slots=True)
class TurnDone:
    """A completed turn; ``invocation.intermediate_data`` holds its events.

    ``throttled`` counts the model calls that were rate-limited before they succeeded.
    """

    invocation: Invocation
    throttled: int = 0


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The session's state after its last turn; None if the driver cannot read it."""

    final_state: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What a driver is made from.

    ``environ`` is the caller's whole environment; the driver selects what the agent sees. ``workspace`` is the
    checkout, or the base commit's tree if ``role`` is base. The agent's code runs in one of ``sandboxes``, where it can
    be given a uid of its own. ``say`` logs, among others slow steps before they begin; other threads may call it.
    ``say_of_calls`` logs what concerns only criteria that read tool calls. ``fork_servers`` are the run's processes
    from which workers may be forked.
    """

    agent: AgentSettings
    settings: Settings
    environ: Mapping[str, str]
    workspace: Path
    sandboxes: Sandboxes | None = None
    role: Role = "head"
    say: Log = lambda _text, _level: None
    say_of_calls: Callable[[str], None] = lambda _text: None
    fork_servers: ForkServers | None = None


class AgentSession(Protocol):
    """One conversation. Not for concurrent use."""

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        """Send a user message and wait at most ``timeout_s`` for the agent to finish its turn."""
        ...

    async def close(self) -> SessionEnd | AttemptError:
        """Read the final state and free the session's resources. Safe to call after an error."""
        ...


class AgentDriver(Protocol):
    """An agent that can hold many sessions at once."""

    async def start(self) -> AgentConditions | AttemptError:
        """Start workers and import the agent. Called once; an error here is every case's error."""
        ...

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        """Begin a session with services of its own."""
        ...

    async def stop(self) -> None:
        """Stop all workers and child processes; never raises, never hangs longer than a few seconds."""
        ...


DriverFactory = Callable[[DriverContext], AgentDriver]
"""Makes a driver without starting anything. Raises ConfigError for settings that it cannot use."""


@dataclass(frozen=True, slots=True)
class ConversationEnd:
    """Why the user's side is over: all messages sent, ended by the user, or turn limit reached."""

    reason: Literal["said_all", "stop_signal", "turn_limit"]


class ConversationUser(Protocol):
    """The user's side of one conversation."""

    async def next(self, turns: Sequence[Invocation]) -> Content | ConversationEnd | AttemptError:
        """Return the next message after these turns. An error is never the agent's fault."""
        ...


@dataclass(frozen=True, slots=True)
class FixedUser:
    """A ``ConversationUser`` that sends the case's messages, whatever the agent answers."""

    messages: tuple[Content, ...]

    async def next(self, turns: Sequence[Invocation]) -> Content | ConversationEnd | AttemptError:
        return self.messages[len(turns)] if len(turns) < len(self.messages) else ConversationEnd("said_all")
