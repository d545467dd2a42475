"""safety_v1 and response_evaluation_score: each turn for itself, the case the mean over its turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent_eval_action.criteria.base import Sample, TurnwiseCriterion
from agent_eval_action.criteria.deterministic.paired import worst_reasons
from agent_eval_action.criteria.vertex.base import VertexCriterion, unscored
from agent_eval_action.model.evalset import Invocation
from agent_eval_action.model.result import CriterionScore, ScoreStatus, TurnScore

_NO_TEXT = "no text, and Vertex AI judges a text answering a text"


class _PerTurn(VertexCriterion, TurnwiseCriterion):
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
