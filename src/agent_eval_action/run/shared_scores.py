"""One object for equal scores: in a large suite most attempts are scored alike, and scores are half of what is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

from agent_eval_action.model.result import CriterionScore, TurnScore

_DISTINCT: Final = 1_024
"""Scores remembered at most: those that all differ cost nothing beyond."""


_Score = TypeVar("_Score", TurnScore, CriterionScore)


@dataclass
class SharedScores:
    """Remembers the first distinct scores without a judge's words, and gives the same object for an equal one."""

    _turns: dict[tuple[object, ...], TurnScore] = field(default_factory=dict)
    _scores: dict[tuple[object, ...], CriterionScore] = field(default_factory=dict)

    def share(self, score: CriterionScore) -> CriterionScore:
        """An equal score, whose turns may be those of other attempts as well."""
        turns = tuple(self._turn(turn) for turn in score.turns)
        if score.rubrics or score.details:
            return score.model_copy(update={"turns": turns})
        judged = score.criterion, score.digest, score.status, repr(score.score), score.passed, score.reason
        key = (*judged, *map(id, turns))
        known = self._scores.get(key)
        return known or _first(key, score.model_copy(update={"turns": turns}), self._scores)

    def _turn(self, turn: TurnScore) -> TurnScore:
        if turn.votes or turn.rubrics or turn.sentences:
            return turn
        key = turn.turn, turn.status, repr(turn.score), turn.reason, repr(turn.details)
        return _first(key, turn, self._turns)


def _first(key: tuple[object, ...], score: _Score, known: dict[tuple[object, ...], _Score]) -> _Score:
    return known.setdefault(key, score) if len(known) < _DISTINCT else known.get(key, score)
