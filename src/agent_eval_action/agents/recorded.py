"""Replay an earlier run, or another tool's recording: no agent runs, and everything is scored anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

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
from agent_eval_action.results.run_result import AgentConditions, Attempt, AttemptError, AttemptKey, ErrorKind
from agent_eval_action.results.transcripts import ATTEMPTS, key_of_line, line_at, lines_of, open_lines, parse_attempt


@dataclass
class RecordedAgent:
    """A driver that replays a recording. ``name`` is the agent's name in this run; the recording may use another."""

    name: str
    folder: Path
    workspace: Path | None = None
    _offsets: dict[AttemptKey, tuple[int, int]] = field(default_factory=dict)
    _agents: set[str] = field(default_factory=set)
    _file: BinaryIO | None = None
    _path: Path = Path(ATTEMPTS)
    _foreign: Sequence[Attempt] = ()

    async def start(self) -> AgentConditions | AttemptError:
        """Index the recording by agent, eval set, case and repeat; the last line of a key wins."""
        path = self._path = self.folder / ATTEMPTS
        conditions = AgentConditions(agent=self.name, path=self.folder.as_posix(), environment="recorded")
        try:
            if not path.exists():
                from agent_eval_action.agents.foreign_recordings import read_folder  # noqa: PLC0415 - protobuf

                self._foreign = read_folder(self.folder)
                if self._foreign:
                    return conditions
            self._file = open_lines(path, self.workspace)
            for number, offset, line in lines_of(self._file):
                key = key_of_line(line) or parse_attempt(path, number, line).key
                if key.arm == "head":  # not of the base commit's agent
                    self._offsets[key] = (number, offset)
            self._agents = {key.agent for key in self._offsets}
        except ResultsError as error:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=str(error))
        except OSError as error:
            return _unreadable(path, error)
        return conditions

    async def open(self, request: SessionRequest) -> AgentSession | AttemptError:
        key = request.key
        if self._foreign and key is not None:
            from agent_eval_action.agents.foreign_recordings import find_recording  # noqa: PLC0415 - as above

            found = find_recording(self._foreign, key, request.messages)
            return RecordedSession(found.model_copy(update=key._asdict())) if found else _not_recorded(key)
        if key is None or self._file is None:
            return _not_recorded(key)
        agents = {key.agent} & self._agents or self._agents
        places = [place for agent in agents if (place := self._offsets.get(key._replace(agent=agent, arm="head")))]
        if len(places) > 1:
            return _error(f"the recording has this case of {plural(len(places), 'agent')}, none of them {key.agent}")
        if not places:
            return _not_recorded(key)
        ((number, offset),) = places
        try:
            return RecordedSession(parse_attempt(self._path, number, line_at(self._file, offset)))
        except OSError as error:
            return _unreadable(self._path, error)

    async def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def make_recorded_agent(context: DriverContext) -> RecordedAgent:
    """Return the driver of an agent whose settings name a recording."""
    if context.agent.recording is None:
        raise ConfigError(f"the agent {context.agent.name} is to be replayed, and no recording is named")
    return RecordedAgent(context.agent.name, context.agent.recording, context.workspace)


def _not_recorded(key: AttemptKey | None) -> AttemptError:
    attempt = f" {key.case_key} #{key.repeat + 1}" if key else ""
    return _error(f"the recording has no attempt{attempt}")


def _unreadable(path: Path, error: OSError) -> AttemptError:
    return AttemptError(kind=ErrorKind.ENVIRONMENT, message=f"{path} cannot be read: {error.strerror or error}")


def _error(message: str) -> AttemptError:
    return AttemptError(kind=ErrorKind.EXCEPTION, message=message)


@dataclass
class RecordedSession:
    """A session that replays an attempt. The user's messages are sent again; no model is called."""

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
        if 0 < self._made < len(self.attempt.turns):
            return _error(f"the recording has {plural(len(self.attempt.turns), 'turn')}, more than the case has now")
        return SessionEnd(self.attempt.final_session_state)


@dataclass(frozen=True)
class RecordedUser:
    """A ``ConversationUser`` that replays the simulated user, including an error that ended the recording."""

    attempt: Attempt
    starting_prompt: str

    async def next(self, turns: Sequence[Invocation]) -> Content | ConversationEnd | AttemptError:
        recorded = self.attempt.turns
        if recorded and recorded[0].user_content.text != self.starting_prompt:
            return _error("the recorded conversation begins otherwise than the case's scenario: record it again")
        if len(turns) < len(recorded):
            return recorded[len(turns)].user_content
        return self.attempt.error or ConversationEnd(self.attempt.ended or "said_all")
