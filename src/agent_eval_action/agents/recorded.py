"""Replays attempts.jsonl of an earlier run: nothing is run, everything is scored anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_eval_action.agents.base import (
    AgentSession,
    ConversationEnd,
    ConversationUser,
    DriverContext,
    SessionEnd,
    SessionRequest,
    TurnDone,
)
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.errors import ConfigError, ResultsError
from agent_eval_action.results.evalset import Content, ConversationScenario, Invocation
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
        try:
            for number, offset, line in read_lines(self.folder / ATTEMPTS, self.workspace):
                if (key := _attempt_key(self.folder / ATTEMPTS, number, line)) is not None:
                    self._offsets[key] = (number, offset)
        except ResultsError as error:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=str(error))
        return AgentConditions(agent=self.name, path=self.folder.as_posix(), environment="recorded")

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        """The recorded attempt as a session."""
        key = request.key
        at = self._offsets.get((key.eval_set, key.case, key.repeat)) if key else None
        if key is None or at is None:
            return AttemptError(kind=ErrorKind.EXCEPTION, message=f"the recording has no attempt {request.label}")
        number, offset = at
        path = self.folder / ATTEMPTS
        try:
            return _Replay(parse_attempt(path, number, read_line(path, offset, self.workspace)))
        except OSError as error:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=f"{path} cannot be read: {error.strerror or error}")

    async def stop(self) -> None:
        """Nothing runs."""


def make_recorded_agent(context: DriverContext) -> RecordedAgent:
    """The driver of an agent whose settings name a recording."""
    if context.agent.recording is None:
        raise ConfigError(f"the agent {context.agent.name} is to be replayed, and no recording is named")
    return RecordedAgent(context.agent.name, context.agent.recording, context.workspace)


def _attempt_key(path: Path, number: int, line: bytes) -> _Key | None:
    """Which attempt a line is, without validating the whole of it: that is done when it is replayed.

    None for what the base commit's agent answered: that is not this agent's.
    """
    try:
        record = json.loads(line)
        arm, key = record.get("arm", "head"), (record["eval_set"], record["case"], record.get("repeat", 0))
        hash(key)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        attempt = parse_attempt(path, number, line)
        arm, key = attempt.arm, (attempt.eval_set, attempt.case, attempt.repeat)
    return key if arm == "head" else None


@dataclass
class _Replay:
    attempt: Attempt
    _made: int = 0

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        if self._made < len(self.attempt.turns):
            turn = self.attempt.turns[self._made]
            if turn.user_content.text != content.text:
                return AttemptError(
                    kind=ErrorKind.EXCEPTION,
                    message="the recorded user message differs from the case's: record it again",
                )
            self._made += 1
            return TurnDone(turn)
        return self.attempt.error or AttemptError(
            kind=ErrorKind.EXCEPTION,
            message=f"the recording has only {plural(len(self.attempt.turns), 'turn')} of this case",
        )

    async def close(self) -> SessionEnd | AttemptError:
        return SessionEnd(self.attempt.final_session_state or {})

    def speaker(self, scenario: ConversationScenario) -> ConversationUser:
        """The simulated user of this scenario, as it spoke then."""
        return _RecordedUser(self.attempt, scenario.starting_prompt)


@dataclass(frozen=True)
class _RecordedUser:
    """A ``User`` that says what was said; where the recording ends with an error, so does this."""

    attempt: Attempt
    starting_prompt: str

    async def next(self, turns: Sequence[Invocation]) -> Content | ConversationEnd | AttemptError:
        recorded = self.attempt.turns
        if recorded and recorded[0].user_content.text != self.starting_prompt:
            return AttemptError(
                kind=ErrorKind.EXCEPTION,
                message="the recorded conversation begins otherwise than the case's scenario: record it again",
            )
        if len(turns) < len(recorded):
            return recorded[len(turns)].user_content
        return self.attempt.error or ConversationEnd(self.attempt.ended or "said_all")
