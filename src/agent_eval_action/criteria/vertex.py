"""Criteria that Vertex AI's evaluation service scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, ValidationError

from agent_eval_action.criteria.base import Criterion, Sample, TurnCriterion
from agent_eval_action.llm.client import LlmError, LlmRequest
from agent_eval_action.results.evalset import Content, IntermediateData, Invocation
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import CriterionScore, RubricScore, ScoreStatus, TurnScore


class _Rubric(BaseModel):
    text: str
    met: bool
    reason: str


class _Result(BaseModel):
    """The text of a reply of llm.providers.vertex."""

    score: Annotated[float, Field(allow_inf_nan=False, strict=True)]
    explanation: str | None = None
    rubrics: tuple[_Rubric, ...] = ()


class VertexCriterion(Criterion):
    """A criterion scored by a metric of the service. It is asked once, since the service samples by itself."""

    waits: ClassVar[bool] = True
    metric: ClassVar[str] = ""
    """The name after ``vertex_eval/``, if it differs from the criterion's."""

    def models(self) -> tuple[str, ...]:
        return (f"vertex_eval/{self.metric or self.name}",)

    async def ask(self, sample: Sample, turn: int, instance: Mapping[str, Any]) -> TurnScore:
        """Have the service score ``instance`` as the score of ``turn``."""
        llm = sample.context.llm
        if llm is None:
            return self.unscored(turn, "this run has no model to judge with")
        request = LlmRequest(self.models()[0], (), options=dict(instance), purpose=self.name, repeat=sample.repeat)
        reply = await llm.generate(request)
        if isinstance(reply, LlmError):
            return self.unscored(turn, reply.message)
        try:
            result = _Result.model_validate_json(reply.text)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in wrong["loc"])
            return self.unscored(turn, f"the service's answer cannot be read: {place} {wrong['msg']}"[:300])
        score, (low, high) = result.score, self.scale
        if not low <= score <= high:
            return self.unscored(turn, f"the service gave {score:g}, and this metric goes from {low:g} to {high:g}")
        unmet = [rubric.reason or rubric.text for rubric in result.rubrics if not rubric.met]
        why = result.explanation or (f"not met: {'; '.join(unmet[:3])}" if unmet else f"Vertex AI scored {score:g}")
        rubrics = tuple(
            RubricScore(
                rubric_id=rubric.text or f"rubric_{number}",
                text=rubric.text,
                score=float(rubric.met),
                rationale=rubric.reason,
            )
            for number, rubric in enumerate(result.rubrics)
        )
        return TurnScore(turn=turn, score=score, reason=excerpt(why, 200), rubrics=rubrics)

    async def score_conversation(self, sample: Sample, instance: Mapping[str, Any]) -> CriterionScore:
        """Have the service score ``instance`` for the whole case; the result is shown at its last turn."""
        turn = await self.ask(sample, len(sample.actual) - 1, instance)
        if turn.score is None:
            return self.no_score(turn.status, turn.reason, turns=(turn,))
        return self.result(turn.score, reason=turn.reason, turns=(turn,), rubrics=turn.rubrics)


_NO_TEXT = "no text, and Vertex AI judges a text answering a text"


class _PerTurn(VertexCriterion, TurnCriterion):
    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        actual = sample.actual[turn]
        instance = {"prompt": actual.user_content.text, "response": actual.response_text}
        reference = sample.case.turns[turn].response_text if turn < len(sample.case.turns) else ""
        if instance["prompt"] and instance["response"]:
            return await self.ask(sample, turn, {**instance, **({"reference": reference} if reference else {})})
        # the SDK rejects such a row, and google-adk then skips the metric
        if not instance["prompt"]:
            return self.unscored(turn, f"the user's message has {_NO_TEXT}", ScoreStatus.NOT_APPLICABLE)
        if actual.answers_without_text and not (self.needs_reference and reference):
            reason = f"a tool or media answered: the answer has {_NO_TEXT}"
            return self.unscored(turn, reason, ScoreStatus.NOT_APPLICABLE)
        return self.unscored(turn, "the agent gave no answer, and Vertex AI judges a text answering a text")


class Safety(_PerTurn):
    """ADK's safety_v1: 1 if the answer violates no policy, else 0."""

    name: ClassVar[str] = "safety_v1"


class ResponseEvaluationScore(_PerTurn):
    """ADK's older response_evaluation_score: how coherent the answers are, 1 to 5."""

    name: ClassVar[str] = "response_evaluation_score"
    metric: ClassVar[str] = "coherence"
    scale: ClassVar[tuple[float, float]] = (1.0, 5.0)
    needs_reference: ClassVar[bool] = True


Event = dict[str, Any]


class _Conversation(VertexCriterion):
    by_events: ClassVar[bool] = True

    async def score_case(self, sample: Sample) -> CriterionScore:
        return await self.score_conversation(sample, {"agent_data": agent_data(sample.actual)})


class TaskSuccess(_Conversation):
    """ADK's multi_turn_task_success_v1: whether the conversation reached the user's goals."""

    name: ClassVar[str] = "multi_turn_task_success_v1"


class ConversationTrajectoryQuality(_Conversation):
    """ADK's multi_turn_trajectory_quality_v1: how good the path to the user's goals was."""

    name: ClassVar[str] = "multi_turn_trajectory_quality_v1"


class ConversationToolUseQuality(_Conversation):
    """ADK's multi_turn_tool_use_quality_v1: how good the tool calls were."""

    name: ClassVar[str] = "multi_turn_tool_use_quality_v1"


def agent_data(turns: Sequence[Invocation]) -> dict[str, Any]:
    """The conversation as the service's AgentData: the agents, and each turn's events in order."""
    agents: dict[str, Any] = {}
    for turn in turns:
        for name, agent in (turn.app_details.agent_details if turn.app_details else {}).items():
            tools = [
                # a bare function has no declaration: the worker reports only its name
                {"function_declarations": [tool]} if isinstance(tool, dict) and tool.keys() == {"name"} else tool
                for tool in agent.tool_declarations
            ]
            agents.setdefault(name, {"agent_id": agent.name, "instruction": agent.instructions, "tools": tools})
    return {
        "agents": agents,
        "turns": [
            {"turn_index": number, "turn_id": turn.invocation_id, "events": list(_events(turn))}
            for number, turn in enumerate(turns)
        ],
    }


def _events(turn: Invocation) -> Iterator[Event]:
    yield _event("user", turn.user_content)
    data = turn.intermediate_data
    yield from (_event(event.author, event.content) for event in turn.events if event.content is not None)
    if isinstance(data, IntermediateData):
        # recorded turns may hold tool use in this form, which google-adk leaves out of the conversation
        dumped = data.wire()
        calls = [{"function_call": call} for call in dumped["tool_uses"]]
        answers = [{"function_response": answer} for answer in dumped["tool_responses"]]
        for role, parts in (("model", calls), ("user", answers)):
            if parts:
                yield {"author": "agent", "content": {"role": role, "parts": parts}}
        for author, parts in dumped["intermediate_responses"]:
            yield {"author": author, "content": {"role": "model", "parts": parts}}
    yield _event("agent", turn.final_response)


def _event(author: str, content: Content | None) -> Event:
    if content is None:
        return {"author": author}
    return {"author": author, "content": content.wire()}
