"""The port every criterion implements: a class whose fields are its options."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_eval_action.model.base import AdkModel
from agent_eval_action.model.evalset import EvalCase, Invocation
from agent_eval_action.model.measured import meets
from agent_eval_action.model.result import CriterionScore, Goal, ScoreStatus


@dataclass(frozen=True, slots=True)
class Sample:
    """What a criterion looks at: the case as written and what the agent did.

    ``actual`` has one invocation per turn made; for a fixed conversation as many as the case has.
    """

    case: EvalCase
    actual: tuple[Invocation, ...]
    final_session_state: dict[str, Any] | None = None
    repeat: int = 0

    def unmeasurable(self) -> str:
        """Why no criterion can score this attempt: its turns are not those of the case. Empty when it can."""
        if self.case.conversation is not None and len(self.case.conversation) != len(self.actual):
            return f"the agent made {len(self.actual)} of the {len(self.case.conversation)} turns of the case"
        return "" if self.actual else "the case has no turns: nothing to measure"


class Criterion(AdkModel, abc.ABC):
    """Base of every criterion. Options are fields, in snake_case or camelCase.

    ``threshold`` None: reported and compared, but nothing to meet (allowed for ``goal`` minimize).
    """

    name: ClassVar[str]
    goal: ClassVar[Goal] = "maximize"
    scale: ClassVar[tuple[float, float]] = (0.0, 1.0)
    needs_reference: ClassVar[bool] = False
    scoring_version: ClassVar[str] = "1"

    threshold: float | None = None

    @abc.abstractmethod
    async def score(self, sample: Sample) -> CriterionScore:
        """Score one attempt. Raises nothing of its own: what cannot be scored is a score with status error."""

    def meets(self, score: float) -> bool | None:
        """Whether a score meets the threshold in the criterion's direction; None without one."""
        if self.threshold is None:
            return None
        return meets(score, self.threshold, self.goal)

    def result(self, score: float, **fields: Any) -> CriterionScore:
        """A scored result with ``passed`` filled in."""
        return CriterionScore(
            criterion=self.name, status=ScoreStatus.SCORED, score=score, passed=self.meets(score), **fields
        )

    def no_score(self, status: ScoreStatus, reason: str, **fields: Any) -> CriterionScore:
        """A result without a score, and why."""
        return CriterionScore(criterion=self.name, status=status, reason=reason, **fields)
