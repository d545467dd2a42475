"""A criterion: every answer cites an order, by the pattern of its numbers."""

from __future__ import annotations

from typing import ClassVar

from agent_eval_action.criteria.base import RegexPattern, Sample, TurnCriterion, matches
from agent_eval_action.results.run_result import TurnScore


class CitesOrder(TurnCriterion):
    """1 for a turn whose answer cites one, else 0; a case is the mean over its turns."""

    name: ClassVar[str] = "cites_order"

    pattern: RegexPattern

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        if matches(self.pattern, sample.actual[turn].response_text):
            return TurnScore(turn=turn, score=1.0, reason="the answer matches")
        return TurnScore(turn=turn, score=0.0, reason=f"the answer does not match {self.pattern}")
