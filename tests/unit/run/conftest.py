"""A driver whose sessions follow a script: what each case answers, when, and how often it breaks first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agent_eval_action import criteria
from agent_eval_action.agents.base import SessionEnd, SessionRequest, TurnDone
from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.results.evalset import (
    Content,
    EvalCase,
    FunctionCall,
    IntermediateData,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
)
from agent_eval_action.results.run_result import AgentConditions, AttemptError
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet


def content(text: str) -> Content:
    return Content(role="user", parts=(Part(text=text),))


def turn(text: str, answer: str, *calls: FunctionCall) -> Invocation:
    return Invocation(
        user_content=content(text),
        final_response=Content(role="model", parts=(Part(text=answer),)),
        intermediate_data=IntermediateData(tool_uses=calls),
    )


def case(name: str, answer: str = "yes") -> EvalCase:
    return EvalCase(eval_id=name, conversation=(turn("hello", answer), turn("again", answer)))


def planned_set(*cases: EvalCase, agent: str = "bot", key: str = "set") -> PlannedSet:
    specs = (
        CriterionSpec("tool_trajectory_avg_score", {"threshold": 1.0}),
        CriterionSpec("response_match_score", {"threshold": 0.8}),
    )
    built = criteria.build(specs)
    infos = tuple(criteria.criterion_info(criterion, "test") for criterion in built)
    return PlannedSet(
        agent,
        key,
        f"{key}.evalset.json",
        tuple(PlannedCase(c, f"digest-{c.eval_id}") for c in cases),
        built,
        infos,
    )


def plan(*cases: EvalCase, repeats: int = 1) -> Plan:
    return Plan((planned_set(*cases),), repeats)


@dataclass
class Script:
    """A driver. ``answer`` gives the text or the error of (request, how often this case was opened before)."""

    answer: Callable[[SessionRequest, int], str | AttemptError]
    delay: Callable[[SessionRequest], float] = lambda _: 0.0
    tokens: int = 0
    throttled: float = 0
    opened: list[SessionRequest] = field(default_factory=list)
    running: int = 0
    most: int = 0

    async def start(self) -> AgentConditions | AttemptError:
        return AgentConditions(agent="bot", path="bot")

    async def open(self, request: SessionRequest) -> Conversation:
        before = sum(old.key == request.key for old in self.opened)
        self.opened.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        return Conversation(self, request, before)

    async def stop(self) -> None:
        pass


@dataclass
class Conversation:
    script: Script
    request: SessionRequest
    before: int

    async def turn(self, said: Content) -> TurnDone | AttemptError:
        await asyncio.sleep(self.script.delay(self.request))
        answer = self.script.answer(self.request, self.before)
        if isinstance(answer, AttemptError):
            return answer
        made = turn(said.text, answer)
        if self.script.tokens:
            report = {"prompt_token_count": self.script.tokens, "candidates_token_count": 0}
            event = InvocationEvent(author="bot", usage_metadata=report, model_version="gemini-2.5-flash")
            made = made.model_copy(update={"intermediate_data": InvocationEvents(invocation_events=(event,))})
        return TurnDone(made, self.script.throttled)

    async def close(self) -> SessionEnd:
        self.script.running -= 1
        return SessionEnd({"done": True})


@pytest.fixture
def scripted() -> type[Script]:
    return Script
