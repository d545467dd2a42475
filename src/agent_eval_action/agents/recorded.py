"""Replays attempts.jsonl of an earlier run: nothing is run, everything is scored anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_eval_action.agents.base import (
    AgentSession,
    ConversationEnd,
    DriverContext,
    SessionEnd,
    SessionRequest,
    TurnDone,
)
from agent_eval_action.diagnostics.suggestions import plural
from agent_eval_action.errors import ConfigError, ResultsError
from agent_eval_action.results.evalset import Content, Invocation
from agent_eval_action.results.run_result import AgentConditions, Attempt, AttemptError, ErrorKind
from agent_eval_action.results.transcripts import ATTEMPTS, parse_attempt, read_line, read_lines

_Key = tuple[str, str, int]


@dataclass
class RecordedAgent:
    """A driver over one recording. ``name`` is the agent's name in this run; the recording may use another."""

    name: str
    folder: Path
    workspace: Path | None = None
    _offsets: dict[_Key, tuple[int, int]] = field(default_factory=dict)

    async def start(self) -> AgentConditions | AttemptError:
        """Index the recording by eval set, case and repeat; the last line of a key wins."""
        path = self.folder / ATTEMPTS
        try:
            for number, offset, line in read_lines(path, self.workspace):
                if (key := _attempt_key(path, number, line)) is not None:
                    self._offsets[key] = (number, offset)
        except ResultsError as error:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=str(error))
        return AgentConditions(agent=self.name, path=self.folder.as_posix(), environment="recorded")

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        key, path = request.key, self.folder / ATTEMPTS
        place = self._offsets.get((key.eval_set, key.case, key.repeat)) if key else None
        if key is None or place is None:
            attempt = f" {key.case_key} #{key.repeat + 1}" if key else ""
            return _error(f"the recording has no attempt{attempt}")
        number, offset = place
        try:
            return RecordedSession(parse_attempt(path, number, read_line(path, offset, self.workspace)))
        except OSError as error:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=f"{path} cannot be read: {error.strerror or error}")

    async def stop(self) -> None:
        """Nothing runs."""


def make_recorded_agent(context: DriverContext) -> RecordedAgent:
    """Return the driver of an agent whose settings name a recording."""
    if context.agent.recording is None:
        raise ConfigError(f"the agent {context.agent.name} is to be replayed, and no recording is named")
    return RecordedAgent(context.agent.name, context.agent.recording, context.workspace)


def _attempt_key(path: Path, number: int, line: bytes) -> _Key | None:
    """Return which attempt a line is, without validating the whole of it: that is done when it is replayed.

    None for an answer of the base commit's agent: that is not this agent's.
    """
    try:
        record = json.loads(line)
        arm, key = record.get("arm", "head"), (record["eval_set"], record["case"], record.get("repeat", 0))
        hash(key)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        attempt = parse_attempt(path, number, line)
        arm, key = attempt.arm, (attempt.eval_set, attempt.case, attempt.repeat)
    return key if arm == "head" else None


def _error(message: str) -> AttemptError:
    return AttemptError(kind=ErrorKind.EXCEPTION, message=message)


@dataclass
class RecordedSession:
    """A recorded attempt as a session. Whoever sent its messages sends them again, and no model is asked."""

    attempt: Attempt
    _made: int = 0

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        turns = self.attempt.turns
        if self._made >= len(turns):
            return self.attempt.error or _error(f"the recording has only {plural(len(turns), 'turn')} of this case")
        turn = turns[self._made]
        if turn.user_content.text != content.text:
            return _error("the recorded user message differs from the case's: record it again")
        self._made += 1
        return TurnDone(turn)

    async def close(self) -> SessionEnd | AttemptError:
        return SessionEnd(self.attempt.final_session_state or {})


@dataclass(frozen=True)
class RecordedUser:
    """A ``ConversationUser``: the simulated user as recorded, an error at the end of the recording included."""

    attempt: Attempt
    starting_prompt: str

    async def next(self, turns: Sequence[Invocation]) -> Content | ConversationEnd | AttemptError:
        recorded = self.attempt.turns
        if recorded and recorded[0].user_content.text != self.starting_prompt:
            return _error("the recorded conversation begins otherwise than the case's scenario: record it again")
        if len(turns) < len(recorded):
            return recorded[len(turns)].user_content
        return self.attempt.error or ConversationEnd(self.attempt.ended or "said_all")
