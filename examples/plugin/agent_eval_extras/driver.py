"""An agent driver: answers from a file in the agent's folder, in the place of an agent behind some API."""

from __future__ import annotations

import json
from pathlib import Path

from agent_eval_action.agents.base import DriverContext, SessionEnd, SessionRequest, TurnDone
from agent_eval_action.results.evalset import Content, Invocation, Part
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind


class CannedSession:
    """One conversation."""

    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers

    async def turn(self, content: Content) -> TurnDone | AttemptError:
        answer = self._answers.get(content.text, "I do not know.")
        response = Content(role="model", parts=(Part(text=answer),))
        return TurnDone(Invocation(user_content=content, final_response=response))

    async def close(self) -> SessionEnd | AttemptError:
        return SessionEnd({})


class CannedAgent:
    """Sessions that look up each message in answers.json."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._file = folder / "answers.json"
        self._answers: dict[str, str] = {}

    async def start(self) -> AgentConditions | AttemptError:
        try:
            self._answers = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            return AttemptError(kind=ErrorKind.ENVIRONMENT, message=f"{self._file.name} cannot be read: {error}")
        return AgentConditions(agent=self._name, path=self._file.parent.name, environment="canned answers")

    async def open(self, request: SessionRequest) -> CannedSession | AttemptError:
        del request
        return CannedSession(self._answers)

    async def stop(self) -> None:
        return


def make_canned_agent(context: DriverContext) -> CannedAgent:
    """The driver of an agent with `driver: canned`."""
    return CannedAgent(context.agent.name, context.agent.path)
