"""Scores as whole numbers for the exact tests, higher always better."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from agent_eval_action.gate.pairs import Pair, history_stats
from agent_eval_action.results.history import ScoreCount
from agent_eval_action.results.run_result import Goal
from agent_eval_action.stats import Levels, levels, passes

_STEPS: Final = 50
_BEYOND: Final = 2 * _STEPS


def mean(scores: Sequence[float]) -> float:
    """Mean of one pair's attempts, the same in any order."""
    return scores[0] if len(scores) == 1 else math.fsum(scores) / len(scores)


def is_binary(*scores: Sequence[float]) -> bool:
    """Whether every score is 0 or 1."""
    return all(score in {0.0, 1.0} for some in scores for score in some)


@dataclass(frozen=True, slots=True)
class ScoreQuantizer:
    """How a criterion's scores become whole numbers.

    ``binary``: every score is 0 or 1. Else fifty steps to the scale of the history, two per cent a step
    where lower is better (a ratio). Scores far outside of what main ever had are moved to its edge. The
    scale comes of the history alone, so that a worse score can never make a coarser grid.
    """

    binary: bool
    step: float
    low: int
    high: int
    minimize: bool = False

    @classmethod
    def for_pairs(cls, pairs: Sequence[Pair], goal: Goal) -> ScoreQuantizer:
        """The grid of one criterion."""
        minimize = goal == "minimize"
        if not minimize and all(pair.binary for pair in pairs):
            return cls(True, 1.0, 0, 1)
        seen = [history_stats(pair.history) for pair in pairs]
        low, high = min(past.low for past in seen), max(past.high for past in seen)
        step = 1 / _STEPS if minimize else _scale(max(abs(low), abs(high))) / _STEPS
        unbounded = cls(False, step, 0, 0, minimize)
        ends = sorted((unbounded._bare(low), unbounded._bare(high)))
        return cls(False, step, ends[0] - _BEYOND, ends[1] + _BEYOND, minimize)

    def _bare(self, score: float) -> int:
        return round((-math.log1p(max(score, 0.0)) if self.minimize else score) / self.step)

    def level(self, score: float) -> int:
        """A score's level."""
        return min(self.high, max(self.low, self._bare(score)))

    def counted(self, history: tuple[ScoreCount, ...]) -> Levels:
        """The levels of a history."""
        return _counted(self, history)

    def levels(self, scores: Sequence[float]) -> Levels:
        """The levels of some attempts."""
        if len(scores) == 1:
            return ((self.level(scores[0]), 1),)
        if self.binary:
            return passes(round(sum(scores)), len(scores))
        return levels(self.level(score) for score in scores)


@lru_cache(maxsize=50_000)
def _counted(grid: ScoreQuantizer, history: tuple[ScoreCount, ...]) -> Levels:
    return merged((grid.level(score), times) for score, times in history)


def _scale(highest: float) -> float:
    """The round number at or above: 1, 2, 5, 10, …; at least 1."""
    if highest <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next((power * part for part in (1, 2, 5) if power * part >= highest), power * 10)


def merged(counts: Iterable[tuple[int, int]], floor: int | None = None) -> Levels:
    """Counts added up by level, none of which is below ``floor``."""
    found: Counter[int] = Counter()
    for level, times in counts:
        found[level if floor is None else max(level, floor)] += times
    return tuple(sorted(found.items()))
