"""One criterion's pairs held against their references: history, or the control where that knows better. Pure.

docs/statistics.md says why each number is what it is; benchmarks/gate_fidelity.py measures them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from agent_eval_action.gate.evidence import CriterionRule, PairEvidence, Rules
from agent_eval_action.gate.grid import Grid, known, mean
from agent_eval_action.model.measured import meets
from agent_eval_action.stats import Levels, Stratum, lower_than_reference

STABLE_REPEATS: Final = 30
DRIFTED: Final = 0.05
"""A control this surely below history shows that main is no longer what its history says."""


@dataclass(frozen=True)
class HeldAgainst:
    """The pairs with history of a criterion that may block. ``alpha``: its share of the error."""

    criterion: str
    pairs: tuple[PairEvidence, ...]
    rule: CriterionRule
    rules: Rules
    alpha: float
    control: bool
    grid: Grid = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", Grid.of(self.pairs, self.pairs[0].goal))

    @property
    def share(self) -> float:
        """The part of the run's error, and of its doubts, that is this criterion's."""
        return self.alpha / (1 - self.rules.confidence)

    @cached_property
    def stable(self) -> bool:
        """Whether main's agent never differed in at least thirty repeated attempts."""
        histories = [known(pair.history) for pair in self.pairs]
        return sum(one.n - 1 for one in histories) >= STABLE_REPEATS and all(one.constant for one in histories)

    def plain(self, pair: PairEvidence) -> bool:
        """Whether a pair only passes or fails: then a failure is a failure, however lucky its history."""
        if self.grid.binary:
            return True
        return all(score in {0.0, 1.0} for score, _ in pair.history) and _yes_or_no(pair.attempts[: pair.first])

    def large(self, pair: PairEvidence, before: float, now: float) -> bool:
        """Whether a fall is large enough to block: by the least effect, or below a threshold it met."""
        if before - now >= self.rules.min_effect - 1e-9:
            return True
        limit = pair.threshold
        fell = before - now > 1e-9 * max(1.0, abs(before))
        return fell and limit is not None and meets(before, limit, pair.goal) and not meets(now, limit, pair.goal)

    def evidence(self, pair: PairEvidence) -> tuple[float, ...]:
        """The attempts that are evidence: what chose a suspect is none, and with fixed repeats nothing chose it."""
        return pair.attempts[pair.first :] if self.rules.adaptive else pair.attempts

    def fresh(self, pair: PairEvidence, runs: int) -> tuple[float, ...]:
        """The first so many of them."""
        return self.evidence(pair)[:runs]

    def stratum(self, pair: PairEvidence, runs: int, control: bool) -> Stratum:
        """A suspect's reference and fresh runs.

        A graded suspect was chosen for being lower than its history, which says that the history is a
        little lucky. With the first score among the reference both are again one unordered lot, for which
        the choice says nothing; a value no better than it keeps the test on the safe side, and a worse
        first score from helping.
        """
        floor = None if self.plain(pair) or not self.rules.adaptive else self._floor(pair)
        reference = self._reference(pair, control)
        current = self.grid.levels(self.fresh(pair, runs))
        if floor is None:
            return Stratum(reference, current)
        return Stratum(_raised((*reference, (floor, pair.first)), floor), _raised(current, floor))

    def _floor(self, pair: PairEvidence) -> int:
        past = known(pair.history)
        return self.grid.level(past.low - max(self.rules.min_effect, past.high - past.low, 2 * self._spread))

    @cached_property
    def _spread(self) -> float:
        """How far a pair's history usually reaches: a short one of its own says little about that."""
        ranges = [one.high - one.low for one in (known(pair.history) for pair in self.pairs)]
        return sum(ranges) / len(ranges)

    def _reference(self, pair: PairEvidence, control: bool) -> Levels:
        past = self.grid.counted(pair.history)
        if not control or not pair.control:
            return past
        now = self.grid.levels(pair.control)
        return now if self.moved(pair) else _raised((*past, *now), None)

    def moved(self, pair: PairEvidence) -> bool:
        """Whether main itself is surely worse than its history, by half of what the change seems to do."""
        if not pair.control:
            return False
        past, now = known(pair.history).mean, mean(pair.control)
        runs = self.evidence(pair) or pair.attempts
        if self.grid.minimize:
            explained = now - past >= (mean(runs) - past) / 2
        else:
            explained = past - now >= (past - mean(runs)) / 2
        return explained and drifted(self.grid.counted(pair.history), self.grid.levels(pair.control))

    def reference_mean(self, pair: PairEvidence, control: bool) -> float:
        """What a suspect's fresh runs are held against."""
        past = known(pair.history)
        if not control or not pair.control:
            return past.mean
        if self.moved(pair):
            return mean(pair.control)
        both = past.mean * past.n + mean(pair.control) * len(pair.control)
        return both / (past.n + len(pair.control))


def _yes_or_no(scores: Sequence[float]) -> bool:
    return all(score in {0.0, 1.0} for score in scores)


def drifted(past: Levels, now: Levels) -> bool:
    """Whether main's agent today is surely below its own history."""
    return lower_than_reference([Stratum(past, now)]) <= DRIFTED


def _raised(counts: Levels, floor: int | None) -> Levels:
    found: dict[int, int] = {}
    for level, times in counts:
        kept = level if floor is None else max(level, floor)
        found[kept] = found.get(kept, 0) + times
    return tuple(sorted(found.items()))
