"""Criteria that set each turn beside its reference: the case's score is the mean over its turns, as in ADK."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

from agent_eval_action.criteria.base import Criterion, Sample
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, TurnScore

_TURNS_SHOWN = 3


class PairedCriterion(Criterion, abc.ABC):
    """Scores turns one by one against the turns of the case."""

    needs_reference: ClassVar[bool] = True
    waits: ClassVar[bool] = False

    @abc.abstractmethod
    def score_turn(self, turn: int, expected: Invocation, actual: Invocation) -> TurnScore:
        """The score of one turn; ``turn`` counts from 0."""

    async def score(self, sample: Sample) -> CriterionScore:
        if sample.case.conversation is None:
            return self.no_score(
                ScoreStatus.NOT_APPLICABLE,
                f"{self.name} needs reference answers, and the user of this case is simulated",
            )
        if reason := sample.unmeasurable():
            return self.no_score(ScoreStatus.ERROR, reason)
        return self.over_turns(await self.turns(sample.case.conversation, sample.actual))

    async def turns(self, expected: Sequence[Invocation], actual: Sequence[Invocation]) -> tuple[TurnScore, ...]:
        """Every turn's score, in order."""
        pairs = zip(expected, actual, strict=True)
        return tuple(self.score_turn(turn, want, got) for turn, (want, got) in enumerate(pairs))

    def over_turns(self, turns: tuple[TurnScore, ...]) -> CriterionScore:
        """The mean, with the reasons of the turns that lost something; one unscored turn voids the case."""
        lost = [turn for turn in turns if turn.status is not ScoreStatus.SCORED]
        if lost:
            return self.no_score(ScoreStatus.ERROR, worst_reasons(lost), turns=turns)
        # Added one by one, as ADK does: sum() of Python 3.12 compensates and can differ in the last bit,
        # which decides at a threshold.
        total = 0.0
        for turn in turns:
            total += turn.score or 0.0
        low = [turn for turn in turns if (turn.score or 0.0) < self.scale[1]]
        return self.result(total / len(turns), reason=worst_reasons(low or list(turns)), turns=turns)


def worst_reasons(turns: Sequence[TurnScore]) -> str:
    """The reasons of the first few of these turns, each with its number from 1."""
    shown = [f"turn {turn.turn + 1}: {turn.reason}" for turn in turns[:_TURNS_SHOWN]]
    rest = len(turns) - len(shown)
    return "; ".join(shown) + (f"; and {plural(rest, 'more turn')}" if rest else "")
