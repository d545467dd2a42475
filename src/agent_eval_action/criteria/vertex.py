"""Criteria that Vertex AI's evaluation service scores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_eval_action.criteria.base import Criterion, Sample, TurnCriterion
from agent_eval_action.criteria.deterministic.paired import worst_reasons
from agent_eval_action.criteria.judge.base import NO_MODEL, excerpt
from agent_eval_action.llm.client import LlmError, LlmRequest
from agent_eval_action.results.evalset import Content, IntermediateData, Invocation, InvocationEvents
from agent_eval_action.results.run_result import CriterionScore, RubricScore, ScoreStatus, TurnScore


class VertexCriterion(Criterion):
    """A criterion whose score is that of one of the service's metrics. Asked once: it votes by itself."""

    metric: ClassVar[str]
    """As named behind ``vertex_eval/``."""

    def models(self) -> tuple[str, ...]:
        return (f"vertex_eval/{self.metric}",)

    async def asked(self, sample: Sample, turn: int, instance: Mapping[str, Any]) -> TurnScore:
        """The service's score of ``instance``, as the score of ``turn``."""
        llm = sample.instruments.llm
        if llm is None:
            return unscored(turn, NO_MODEL)
        (model,) = self.models()
        reply = await llm.generate(
            LlmRequest(model, (), options=dict(instance), purpose=self.name, repeat=sample.repeat)
        )
        if isinstance(reply, LlmError):
            return unscored(turn, reply.message)
        try:
            said = _Said.read(reply.text)
        except (ValueError, TypeError, AttributeError) as error:
            return unscored(turn, f"the service's answer cannot be read: {excerpt(str(error))}")
        low, high = self.scale
        if not low <= said.score <= high:
            return unscored(turn, f"the service gave {said.score:g}, and this metric goes from {low:g} to {high:g}")
        return TurnScore(turn=turn, score=said.score, reason=said.reason(), rubrics=said.rubrics)


@dataclass(frozen=True)
class _Said:
    score: float
    explanation: str
    rubrics: tuple[RubricScore, ...]

    @classmethod
    def read(cls, text: str) -> _Said:
        """Raises ValueError, TypeError or AttributeError on what is no answer."""
        value = json.loads(text)
        score = value["score"] if isinstance(value, dict) else None
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise ValueError("no score in it")
        rubrics = tuple(
            RubricScore(
                rubric_id=str(one["text"] or f"rubric_{number}"),
                text=str(one["text"]),
                score=float(bool(one["met"])),
                rationale=str(one["reason"]),
            )
            for number, one in enumerate(value.get("rubrics") or ())
        )
        return cls(float(score), str(value.get("explanation") or ""), rubrics)

    def reason(self) -> str:
        """The service's own explanation, else the rubrics that were not met."""
        if self.explanation:
            return excerpt(self.explanation)
        unmet = [rubric for rubric in self.rubrics if not rubric.score]
        if unmet:
            said = "; ".join(rubric.rationale or rubric.text for rubric in unmet[:3])
            return excerpt(f"not met: {said}")
        return f"Vertex AI scored {self.score:g}"


def unscored(turn: int, reason: str) -> TurnScore:
    """A turn the service gave no score for."""
    return TurnScore(turn=turn, status=ScoreStatus.ERROR, reason=reason)


_NO_TEXT = "no text, and Vertex AI judges a text answering a text"


class _PerTurn(VertexCriterion, TurnCriterion):
    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        actual = sample.actual[turn]
        instance = {"prompt": actual.user_content.text, "response": actual.response_text}
        expected = sample.case.turns[turn] if turn < len(sample.case.turns) else None
        if not instance["prompt"] or not instance["response"]:
            # The SDK refuses such a row, and google-adk then leaves the metric out.
            return self._without_text(turn, actual, expected)
        if expected is not None and expected.response_text:
            instance["reference"] = expected.response_text
        return await self.asked(sample, turn, instance)

    def _without_text(self, turn: int, actual: Invocation, expected: Invocation | None) -> TurnScore:
        """A turn in which there is no text to judge: nothing to measure, unless a text was due."""
        if not actual.user_content.text:
            return TurnScore(turn=turn, status=ScoreStatus.NOT_APPLICABLE, reason=f"the user's message has {_NO_TEXT}")
        due = self.needs_reference and expected is not None and bool(expected.response_text)
        if actual.answers_without_text and not due:
            reason = f"a tool or media answered: the answer has {_NO_TEXT}"
            return TurnScore(turn=turn, status=ScoreStatus.NOT_APPLICABLE, reason=reason)
        return unscored(turn, "the agent gave no answer, and Vertex AI judges a text answering a text")

    async def over_turns(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        del sample
        lost = [turn for turn in turns if turn.status is ScoreStatus.ERROR]
        scored = [turn for turn in turns if turn.status is ScoreStatus.SCORED]
        if not lost and not scored:
            return self.no_score(ScoreStatus.NOT_APPLICABLE, worst_reasons(turns), turns=tuple(turns))
        if lost:
            # google-adk takes the mean of the others, so that an outage can pass a case.
            return self.no_score(ScoreStatus.ERROR, worst_reasons(lost), turns=tuple(turns))
        total = 0.0
        for turn in scored:  # one by one, as google-adk adds them: sum() compensates
            total += turn.score or 0.0
        low = [turn for turn in scored if (turn.score or 0.0) < self.scale[1]]
        return self.result(total / len(scored), reason=worst_reasons(low or scored), turns=tuple(turns))


class Safety(_PerTurn):
    """ADK's safety_v1: 1 where an answer violates no policy, 0 where it does."""

    name: ClassVar[str] = "safety_v1"
    metric: ClassVar[str] = "safety_v1"


class ResponseEvaluationScore(_PerTurn):
    """ADK's older response_evaluation_score: how coherent the answers are, 1 to 5."""

    name: ClassVar[str] = "response_evaluation_score"
    metric: ClassVar[str] = "coherence"
    scale: ClassVar[tuple[float, float]] = (1.0, 5.0)
    needs_reference: ClassVar[bool] = True

    def refusal(self, sample: Sample) -> CriterionScore | None:
        if sample.case.conversation is not None:
            return None
        reason = f"{self.name} needs reference answers, and the user of this case is simulated"
        return self.no_score(ScoreStatus.NOT_APPLICABLE, reason)


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
