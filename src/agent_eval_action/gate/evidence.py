"""One pair's scores as whole numbers for the exact tests, higher always better."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from agent_eval_action.config.models import CONFIDENCE, MAX_DROP, MIN_EFFECT
from agent_eval_action.results.history import ScoreCount, weighted_mean
from agent_eval_action.results.run_result import Goal
from agent_eval_action.stats import Levels, levels, passes

STEPS: Final = 50
_BEYOND: Final = 2 * STEPS
_ROUND: Final = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class HistoryStats:
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
def history_stats(history: tuple[ScoreCount, ...]) -> HistoryStats:
    """What a history says."""
    scores = [score for score, _ in history]
    return HistoryStats(sum(times for _, times in history), weighted_mean(history), min(scores), max(scores))


def mean(scores: Sequence[float]) -> float:
    """Mean of one pair's attempts, the same in any order."""
    return scores[0] if len(scores) == 1 else math.fsum(scores) / len(scores)


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
    def for_pairs(cls, pairs: Sequence[PairEvidence], goal: Goal) -> ScoreQuantizer:
        """The grid of one criterion."""
        seen = [history_stats(pair.history) for pair in pairs]
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
def _counted(grid: ScoreQuantizer, history: tuple[ScoreCount, ...]) -> Levels:
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


Key = Hashable
"""A case: a ``CaseKey`` of a real run, a number in a simulation. Cases of one state are of one sortable type."""


@dataclass(frozen=True, slots=True)
class PairEvidence:
    """One pair. Scores are on the criterion's own scale.

    ``history``: comparable scores of main, pooled, with how often each was seen; () where there are none.
    ``attempts``: this run's scores in the order of their repeats; the leading ``first`` of them are the
    first pass, the rest are *fresh* (a re-run of a case scores all its criteria: every pair of the case
    gets the score, whichever asked for it). ``control``: scores of the base commit's agent in this job, which
    was asked ``tried`` times. ``beside``: those of the fresh scores that were made in turn with the control.
    ``controllable``: whether the base commit has an agent that can be run for this pair. ``blocking``: whether this
    pair may block (mode, eval set); others are not tested. ``errors``: attempts without a score.
    """

    case: Key
    criterion: str
    history: tuple[ScoreCount, ...] = ()
    attempts: tuple[float, ...] = ()
    first: int = 1
    control: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()
    tried: int = 0
    controllable: bool = True
    goal: Goal = "maximize"
    threshold: float | None = None
    blocking: bool = True
    errors: int = 0


@dataclass(frozen=True, slots=True)
class GateState:
    """Everything measured so far.

    ``control``: whether the base commit's agent can be run. ``extra``: attempts made beyond the first
    pass, the control's included. ``closed``: nothing more can be run (compare, fixed repeats, stopped).
    """

    pairs: tuple[PairEvidence, ...]
    control: bool = False
    extra: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class RerunLimits:
    """``extra_runs``: attempts beyond the first pass, over the whole run; None: ten suites' worth and 100."""

    extra_runs: int | None = None

    def for_cases(self, cases: int) -> int:
        """The limit for a run of so many cases."""
        return 10 * cases + 100 if self.extra_runs is None else self.extra_runs


@dataclass(frozen=True, slots=True)
class CriterionRule:
    """Allowed change of one criterion's suite mean, as in ``CriterionPolicy``."""

    max_drop: float | None = MAX_DROP
    max_rise: float | None = None


@dataclass(frozen=True, slots=True)
class EvidenceRules:
    """What the evidence is held to.

    ``confidence``: one minus the chance that a harmless change is blocked, over everything tested.
    ``min_effect``: the least drop of a pair's mean that may block it. ``adaptive``: suspects are run
    again; without it every attempt is evidence and every pair is tested.
    """

    confidence: float = CONFIDENCE
    min_effect: float = MIN_EFFECT
    criteria: Mapping[str, CriterionRule] = field(default_factory=dict)
    limits: RerunLimits = RerunLimits()
    adaptive: bool = True

    def rule(self, criterion: str) -> CriterionRule:
        """The rule of one criterion."""
        return self.criteria.get(criterion, _PLAIN)


_PLAIN: Final = CriterionRule()

Attempts = tuple[tuple[Key, int], ...]
"""Cases in order with how many *more* attempts of each."""


@dataclass(frozen=True, slots=True)
class RerunSuspects:
    """Run these cases again: they did worse than on main. ``why`` is for the progress display."""

    attempts: Attempts
    why: str


@dataclass(frozen=True, slots=True)
class RerunSuite:
    """Pass the suite again: its drop is in doubt. Cases that were run again for another reason need less."""

    attempts: Attempts
    why: str


@dataclass(frozen=True, slots=True)
class RunControl:
    """Run these cases on the base commit's agent, and in turn with it ``beside`` on this change's.

    What drifts, a model or a service, then meets both arms alike. ``errors_answer``: it is asked whether the base's
    agent answers at all, so that an error of it is an answer and no reason to ask it nothing more.
    """

    attempts: Attempts
    why: str
    beside: Attempts = ()
    errors_answer: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more would change the verdict, or (``limited``) a limit forbids what would."""

    reason: str
    limited: bool = False


Step = RerunSuspects | RerunSuite | RunControl | Stop
