"""Who speaks to the agent: a fixed conversation, a recorded one, or a model that plays a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from agent_eval_action.results.evalset import Content, ConversationScenario, Invocation
from agent_eval_action.results.run_result import AttemptError


@dataclass(frozen=True, slots=True)
class Ended:
    """The user has no more to say: all is said, they ended it, or the limit of turns is met."""

    reason: Literal["said_all", "stop_signal", "turn_limit"]


class User(Protocol):
    """One side of one conversation."""

    async def next(self, turns: Sequence[Invocation]) -> Content | Ended | AttemptError:
        """The next message after these turns. An error is never the agent's fault."""
        ...


@runtime_checkable
class HeldBefore(Protocol):
    """A session that is a recording: whoever spoke in it speaks again as then, and no model is asked."""

    def speaker(self, scenario: ConversationScenario) -> User:
        """The user as recorded."""
        ...


@dataclass(frozen=True, slots=True)
class FixedUser:
    """Says what the case says, whatever the agent answers."""

    messages: tuple[Content, ...]

    async def next(self, turns: Sequence[Invocation]) -> Content | Ended | AttemptError:
        return self.messages[len(turns)] if len(turns) < len(self.messages) else Ended("said_all")
