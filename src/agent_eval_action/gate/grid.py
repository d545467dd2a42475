"""One pair's scores as whole numbers for the exact tests, higher always better."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from agent_eval_action.gate.evidence import PairEvidence
from agent_eval_action.model.baseline import ScoreCount, weighted_mean
from agent_eval_action.model.result import Goal
from agent_eval_action.stats import Levels, levels, passes

STEPS: Final = 50
_BEYOND: Final = 2 * STEPS
_ROUND: Final = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Known:
    """A pair's history: attempts, mean, extremes. ``constant``: all the same but for floating point."""

    n: int
    mean: float
    low: float
    high: float

    @property
    def constant(self) -> bool:
        """Whether no attempt differed."""
        return self.high - self.low <= 1e-9 * max(1.0, abs(self.high))


@lru_cache(maxsize=50_000)
def known(history: tuple[ScoreCount, ...]) -> Known:
    """What a history says."""
    scores = [score for score, _ in history]
    return Known(sum(times for _, times in history), weighted_mean(history), min(scores), max(scores))


def mean(scores: Sequence[float]) -> float:
    """Mean of one pair's attempts, the same in any order."""
    return scores[0] if len(scores) == 1 else math.fsum(scores) / len(scores)


@dataclass(frozen=True, slots=True)
class Grid:
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
    def of(cls, pairs: Sequence[PairEvidence], goal: Goal) -> Grid:
        """The grid of one criterion."""
        seen = [known(pair.history) for pair in pairs]
        minimize = goal == "minimize"
        if not minimize and _binary(pairs):
            return cls(True, 1.0, 0, 1)
        low, high = min(one.low for one in seen), max(one.high for one in seen)
        step = 1 / STEPS if minimize else _scale(max(abs(low), abs(high))) / STEPS
        plain = cls(False, step, 0, 0, minimize)
        ends = sorted((plain.bare(low), plain.bare(high)))
        return cls(False, step, ends[0] - _BEYOND, ends[1] + _BEYOND, minimize)

    def bare(self, score: float) -> int:
        """A score's level before it is bounded."""
        return round((-math.log1p(max(score, 0.0)) if self.minimize else score) / self.step)

    def level(self, score: float) -> int:
        """A score's level."""
        return min(self.high, max(self.low, self.bare(score)))

    def counted(self, history: tuple[ScoreCount, ...]) -> Levels:
        """The levels of a history."""
        return _counted(self, history)

    def levels(self, scores: Sequence[float]) -> Levels:
        """The levels of some attempts."""
        if len(scores) == 1:
            return ((self.level(scores[0]), 1),)
        if self.binary:
            passed = round(sum(scores))
            return passes(passed, len(scores))
        return levels(self.level(score) for score in scores)


@lru_cache(maxsize=50_000)
def _counted(grid: Grid, history: tuple[ScoreCount, ...]) -> Levels:
    found: Counter[int] = Counter()
    for score, times in history:
        found[grid.level(score)] += times
    return tuple(sorted(found.items()))


def _binary(pairs: Iterable[PairEvidence]) -> bool:
    for pair in pairs:
        if any(score not in {0.0, 1.0} for score, _ in pair.history):
            return False
        if any(score not in {0.0, 1.0} for score in pair.attempts) or any(s not in {0.0, 1.0} for s in pair.control):
            return False
    return True


def _scale(highest: float) -> float:
    """The round number at or above: 1, 2, 5, 10, …; at least 1."""
    if highest <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next((power * part for part in _ROUND if power * part >= highest), power * 10)
