"""The port of agent drivers: sessions in which turns are made. Errors are values.

Sessions may share a process, and a process that ends takes all its sessions with it. Which of them ended it
cannot be known then: each of them gets ``DIED`` (what it did so far is lost), and the caller runs each again with
``alone=True``, in a process of its own. A session that dies alone is the culprit; the others get their answers.
``BLOCKED`` is the error of the one session whose synchronous call stopped a whole process for longer than the limit,
as far as its stack shows; its neighbours get ``DIED``. Every other kind concerns its own session alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.environments.runtime import Log
from agent_eval_action.processes.fork_server import ForkServers
from agent_eval_action.results.evalset import Content, FunctionCall, Invocation, PastEvent, Replay
from agent_eval_action.results.run_result import AgentConditions, AttemptError, AttemptKey
from agent_eval_action.sandbox.sandboxes import Role, Sandboxes


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What a session begins with.

    ``alone``: the worker that held this session before was killed; run it where no other session can suffer from it,
    and where it cannot suffer from others. ``key`` names the attempt, for drivers that replay one, and ``messages`` are
    those the user will send, () where they are not known before. ``history``: events that the session holds before its
    first turn. ``on_call`` is called with each tool call while a turn goes on, by drivers that see it then.
    ``replay``: what models are to answer in place of being asked; of the ``adk`` driver alone.
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
        """Return the state that the first turn finds, which events of the history may have changed."""
        state = dict(self.state)
        for event in self.history:
            state |= event.state_delta or {}
        return state


@dataclass(frozen=True, slots=True)
class TurnDone:
    """One turn the agent made. ``invocation.intermediate_data`` are its events.

    ``throttled``: how many calls of models were refused for their rate before they were answered.
    """

    invocation: Invocation
    throttled: int = 0


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """State of the session after its last turn; None where the driver cannot read it."""

    final_state: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What a driver is made from.

    ``environ`` is the caller's whole environment: a driver picks what the agent sees. ``workspace`` is the checkout, or
    the tree of the base commit with ``role`` base. An agent's code runs in one of the ``sandboxes``, where it can be
    given a uid of its own. ``say`` may be called from another thread with what takes long, before it begins.
    ``say_of_calls`` is called with what concerns only criteria that look at tool calls.
    ``fork_servers`` are the processes of the run that workers may be forked from.
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
        """Send a user message, wait for the agent to finish its turn (at most ``timeout_s``)."""
        ...

    async def close(self) -> SessionEnd | AttemptError:
        """Read the final state and free everything of the session. Safe to call after an error."""
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
        """End every worker and child process; never raises, never hangs longer than a few seconds."""
        ...


DriverFactory = Callable[[DriverContext], AgentDriver]
"""Makes a driver; starts nothing. Raises ConfigError for settings that it cannot use."""


@dataclass(frozen=True, slots=True)
class ConversationEnd:
    """The user's side is over: all messages were sent, the user ended it, or the limit of turns is met."""

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
