"""The multi_turn criteria: the whole conversation is judged once, at its last turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from agent_eval_action.criteria.base import Sample
from agent_eval_action.criteria.vertex.base import VertexCriterion
from agent_eval_action.model.evalset import Content, IntermediateData, Invocation, InvocationEvents
from agent_eval_action.model.result import CriterionScore, ScoreStatus

Event = dict[str, Any]


class _Conversation(VertexCriterion):
    async def score(self, sample: Sample) -> CriterionScore:
        if reason := sample.unmeasurable():
            return self.no_score(ScoreStatus.ERROR, reason)
        last = len(sample.actual) - 1
        turn = await self.asked(sample, last, {"agent_data": agent_data(sample.actual)})
        if turn.score is None:
            return self.no_score(ScoreStatus.ERROR, turn.reason, turns=(turn,))
        return self.result(turn.score, reason=turn.reason, turns=(turn,), rubrics=turn.rubrics)


class TaskSuccess(_Conversation):
    """ADK's multi_turn_task_success_v1: whether the conversation reached the user's goals."""

    name: ClassVar[str] = "multi_turn_task_success_v1"
    metric: ClassVar[str] = "multi_turn_task_success_v1"


class ConversationTrajectoryQuality(_Conversation):
    """ADK's multi_turn_trajectory_quality_v1: how good the way there was."""

    name: ClassVar[str] = "multi_turn_trajectory_quality_v1"
    metric: ClassVar[str] = "multi_turn_trajectory_quality_v1"


class ConversationToolUseQuality(_Conversation):
    """ADK's multi_turn_tool_use_quality_v1: how good the tool calls on it were."""

    name: ClassVar[str] = "multi_turn_tool_use_quality_v1"
    metric: ClassVar[str] = "multi_turn_tool_use_quality_v1"


def agent_data(turns: Sequence[Invocation]) -> dict[str, Any]:
    """The conversation as the service's AgentData: who took part, and each turn's events in order."""
    return {
        "agents": _agents(turns),
        "turns": [
            {"turn_index": number, "turn_id": turn.invocation_id, "events": list(_events(turn))}
            for number, turn in enumerate(turns)
        ],
    }


def _agents(turns: Sequence[Invocation]) -> dict[str, Any]:
    """As each first appears."""
    found: dict[str, Any] = {}
    for turn in turns:
        for name, agent in (turn.app_details.agent_details if turn.app_details else {}).items():
            tools = [_tool(tool) for tool in agent.tool_declarations]
            found.setdefault(name, {"agent_id": agent.name, "instruction": agent.instructions, "tools": tools})
    return found


def _tool(declared: Any) -> Any:
    """A bare function has no declaration: the worker reports its name."""
    if isinstance(declared, dict) and declared.keys() == {"name"}:
        return {"function_declarations": [declared]}
    return declared


def _events(turn: Invocation) -> Iterator[Event]:
    yield _event("user", turn.user_content)
    data = turn.intermediate_data
    if isinstance(data, InvocationEvents):
        for event in data.invocation_events:
            if event.content is not None:
                yield _event(event.author, event.content)
    elif data is not None:
        yield from _hand_written(data)
    yield _event("agent", turn.final_response)


def _hand_written(data: IntermediateData) -> Iterator[Event]:
    """Recorded turns may have their tool use in this form, which google-adk leaves out of the conversation."""
    dumped = data.model_dump(mode="json", exclude_none=True)
    calls = [{"function_call": call} for call in dumped["tool_uses"]]
    answers = [{"function_response": answer} for answer in dumped["tool_responses"]]
    for role, parts in (("model", calls), ("user", answers)):
        if parts:
            yield {"author": "agent", "content": {"role": role, "parts": parts}}
    for author, parts in dumped["intermediate_responses"]:
        yield {"author": author, "content": {"role": "model", "parts": parts}}


def _event(author: str, content: Content | None) -> Event:
    if content is None:
        return {"author": author}
    return {"author": author, "content": content.model_dump(mode="json", exclude_none=True)}
