"""What every criterion of Vertex AI shares: one question, and the service's answer read with care."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_eval_action.criteria.base import Criterion, Sample
from agent_eval_action.criteria.judged.base import NO_MODEL
from agent_eval_action.criteria.judged.wording import excerpt
from agent_eval_action.llm.base import LlmError, LlmRequest
from agent_eval_action.model.judged import RubricScore
from agent_eval_action.model.result import ScoreStatus, TurnScore


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
