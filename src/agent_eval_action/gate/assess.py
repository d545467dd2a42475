"""The evidence of a run: which suspects are confirmed, which are cleared, whether a suite's mean fell. Pure.

docs/statistics.md says why each number is what it is; benchmarks/gate_fidelity.py measures them together.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from agent_eval_action.gate.evidence import CriterionRule, GateState, PairEvidence, Rules
from agent_eval_action.gate.grid import Grid, known, mean
from agent_eval_action.model.measured import meets
from agent_eval_action.stats import Levels, Stratum, holm, lower_than_reference

FRESH_LOOKS: Final = ((6, 0.3), (12, 0.7))
"""Fresh runs of every suspect at each look, and the part of the error spent there."""
SUITE_LOOKS: Final = (0.15, 0.2, 0.3, 0.35)
"""The part of the suite's error spent at each pass."""
SINGLE, TOGETHER, SUITE = 0.4, 0.3, 0.3
"""How a criterion's error is split over its three tests."""
STABLE_REPEATS: Final = 30
STABLE_RUNS: Final = 3
DRIFTED: Final = 0.05
"""A control this surely below history shows that main is no longer what its history says."""


class Status(enum.StrEnum):
    """What became of a suspect."""

    CONFIRMED = "confirmed"
    CLEARED = "cleared"  # worse in the first pass only as chance allows
    ON_MAIN = "on_main"  # as bad on the base commit's agent
    OPEN = "open"  # not run again often enough to tell


@dataclass(frozen=True, slots=True)
class SuspectTest:
    """One suspect. ``p`` is adjusted over the criterion's suspects; ``drop`` is reference minus fresh mean."""

    pair: PairEvidence
    fresh: tuple[float, ...]
    p: float
    drop: float
    status: Status


@dataclass(frozen=True, slots=True)
class SuiteTest:
    """A criterion over its pairs. ``drop`` is on the criterion's scale, in the bad direction positive."""

    passes: int
    p: float
    drop: float
    level: float
    beyond: bool
    confirmed: bool = False
    on_main: bool = False


@dataclass(frozen=True, slots=True)
class TogetherTest:
    """All suspects of a criterion at once."""

    p: float
    drop: float
    level: float
    confirmed: bool = False


@dataclass(frozen=True)
class Assessment:
    """The evidence of a run, by criterion."""

    criteria: tuple[CriterionEvidence, ...] = ()

    @property
    def blocked(self) -> bool:
        """Whether anything is confirmed."""
        return any(one.confirmed for one in self.criteria)


@dataclass(frozen=True)
class CriterionEvidence:
    """The tests of one criterion over the pairs with history that may block. ``alpha``: its share of the error."""

    criterion: str
    pairs: tuple[PairEvidence, ...]
    rule: CriterionRule
    rules: Rules
    alpha: float
    control: bool
    grid: Grid = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", Grid.of(self.pairs, self.pairs[0].goal))

    # --- suspects ---------------------------------------------------------------------------------

    @cached_property
    def stable(self) -> bool:
        """Whether main's agent never differed in at least thirty repeated attempts."""
        histories = [known(pair.history) for pair in self.pairs]
        return sum(one.n - 1 for one in histories) >= STABLE_REPEATS and all(one.constant for one in histories)

    @cached_property
    def suspects(self) -> tuple[PairEvidence, ...]:
        """Pairs worse than their own history in the first pass, chosen by that pass alone."""
        if self.grid.minimize or not self.rules.adaptive:
            return ()
        return tuple(pair for pair in self.pairs if self._suspect(pair))

    def _suspect(self, pair: PairEvidence) -> bool:
        past = known(pair.history)
        now = mean(pair.attempts[: pair.first])
        if not self.large(pair, past.mean, now):
            return False
        if self.grid.binary or self.stable:
            return True
        as_low = sum(times for score, times in pair.history if score <= now)
        return as_low < past.n / 10

    def large(self, pair: PairEvidence, before: float, now: float) -> bool:
        """Whether a fall is large enough to block: by the least effect, or below a threshold it met."""
        if before - now >= self.rules.min_effect - 1e-9:
            return True
        limit = pair.threshold
        fell = before - now > 1e-9 * max(1.0, abs(before))
        return fell and limit is not None and meets(before, limit, pair.goal) and not meets(now, limit, pair.goal)

    @cached_property
    def runs(self) -> int:
        """Fresh runs every suspect has, down to the last look reached: one design for all of them."""
        counts = [len(pair.attempts) - pair.first for pair in self.suspects if not pair.errors]
        made = min(counts, default=0)
        reached = [runs for runs, _ in FRESH_LOOKS if runs <= made]
        return reached[-1] if reached else made

    @property
    def spent(self) -> float:
        """The part of the error that may be spent at this look."""
        return next((part for runs, part in reversed(FRESH_LOOKS) if runs <= self.runs), FRESH_LOOKS[0][1])

    def fresh(self, pair: PairEvidence) -> tuple[float, ...]:
        """The runs that are evidence about a suspect."""
        return pair.attempts[pair.first : pair.first + self.runs]

    def agrees(self, pair: PairEvidence) -> bool:
        """In a stable suite: whether three more runs were all as much worse as the first."""
        again = pair.attempts[pair.first : pair.first + STABLE_RUNS]
        past = known(pair.history).mean
        return self.stable and len(again) == STABLE_RUNS and all(self.large(pair, past, score) for score in again)

    def recovered(self, pair: PairEvidence) -> bool:
        """In a stable suite: whether three more runs were all as on main."""
        again = pair.attempts[pair.first : pair.first + STABLE_RUNS]
        past = known(pair.history).mean
        return self.stable and len(again) == STABLE_RUNS and not any(self.large(pair, past, score) for score in again)

    def stratum(self, pair: PairEvidence, control: bool) -> Stratum:
        """A suspect's reference and fresh runs.

        A graded suspect was chosen for being lower than its history, which says that the history is a
        little lucky. With the first score among the reference both are again one unordered lot, for which
        the choice says nothing; a value no better than it keeps the test on the safe side, and a worse
        first score from helping.
        """
        floor = None if self.grid.binary else self._floor(pair)
        reference = self._reference(pair, control)
        current = self.grid.levels(self.fresh(pair))
        if floor is None:
            return Stratum(reference, current)
        return Stratum(_raised((*reference, (floor, pair.first)), floor), _raised(current, floor))

    def _floor(self, pair: PairEvidence) -> int:
        past = known(pair.history)
        return self.grid.level(past.low - max(self.rules.min_effect, past.high - past.low))

    def _reference(self, pair: PairEvidence, control: bool) -> Levels:
        past = self.grid.counted(pair.history)
        if not control or not pair.control:
            return past
        now = self.grid.levels(pair.control)
        return now if drifted(past, now) else _raised((*past, *now), None)

    def reference_mean(self, pair: PairEvidence, control: bool) -> float:
        """What a suspect's fresh runs are held against."""
        past = known(pair.history)
        if not control or not pair.control:
            return past.mean
        if drifted(self.grid.counted(pair.history), self.grid.levels(pair.control)):
            return mean(pair.control)
        both = past.mean * past.n + mean(pair.control) * len(pair.control)
        return both / (past.n + len(pair.control))

    def raw(self, pair: PairEvidence, control: bool) -> float:
        """A suspect's own p, not adjusted."""
        if not self.fresh(pair):
            return 1.0
        return lower_than_reference([self.stratum(pair, control)])

    def adjusted(self, control: bool) -> tuple[float, ...]:
        """The suspects' p, Holm's way."""
        return holm([self.raw(pair, control) for pair in self.suspects])

    def together(self, control: bool) -> TogetherTest:
        """All suspects in one exact test stratified by case."""
        level = self.alpha * TOGETHER * self.spent
        if not self.suspects or not self.runs:
            return TogetherTest(1.0, 0.0, level)
        p = lower_than_reference([self.stratum(pair, control) for pair in self.suspects])
        drops = [self.reference_mean(pair, control) - mean(self.fresh(pair)) for pair in self.suspects]
        drop = sum(drops) / len(drops)
        return TogetherTest(p, drop, level, p <= level and drop >= self.rules.min_effect / 2)

    @property
    def controlled(self) -> bool:
        """Whether every suspect was run on the base commit's agent."""
        return bool(self.suspects) and all(pair.control for pair in self.suspects)

    @cached_property
    def tests(self) -> tuple[SuspectTest, ...]:
        """Every suspect with what became of it, as far as the runs go."""
        adjusted = self.adjusted(self.controlled) if self.runs else (1.0,) * len(self.suspects)
        level = self.alpha * SINGLE * self.spent
        found = []
        for pair, p in zip(self.suspects, adjusted, strict=True):
            before, fresh = self.reference_mean(pair, self.controlled), self.fresh(pair)
            status = self._status(pair, p <= level)
            found.append(SuspectTest(pair, fresh, p, before - mean(fresh) if fresh else 0.0, status))
        return tuple(found)

    def _status(self, pair: PairEvidence, sure: bool) -> Status:
        if self.agrees(pair):
            if not pair.control:
                return Status.OPEN if self.control else Status.CONFIRMED
            worst = max(pair.attempts[pair.first : pair.first + STABLE_RUNS])
            if not any(self.large(pair, score, worst) for score in pair.control):
                return Status.ON_MAIN
            if all(self.large(pair, score, worst) for score in pair.control):
                return Status.CONFIRMED
        fresh = self.fresh(pair)
        if not fresh:
            return Status.OPEN
        if sure and self.large(pair, self.reference_mean(pair, self.controlled), mean(fresh)):
            return Status.CONFIRMED if self.controlled or not self.control else Status.OPEN
        if pair.control and drifted(self.grid.counted(pair.history), self.grid.levels(pair.control)):
            return Status.ON_MAIN
        return Status.CLEARED if self.recovered(pair) or self.runs >= FRESH_LOOKS[0][0] else Status.OPEN

    # --- the suite --------------------------------------------------------------------------------

    @property
    def limited(self) -> bool:
        """Whether the suite's mean is held to anything."""
        return (self.rule.max_rise if self.grid.minimize else self.rule.max_drop) is not None

    @cached_property
    def whole(self) -> tuple[PairEvidence, ...]:
        """The pairs whose attempts are complete: an error is no score."""
        return tuple(pair for pair in self.pairs if not pair.errors and len(pair.attempts) >= pair.first)

    @cached_property
    def passes(self) -> int:
        """Attempts every case has. What suspects have beyond does not count: they would be too well known."""
        return min((len(pair.attempts) for pair in self.whole), default=0)

    def suite(self, passes: int, control: bool = False) -> SuiteTest:
        """The suite's mean over so many passes, paired and stratified by case."""
        first = max((pair.first for pair in self.whole), default=1)
        look = min(passes - first, len(SUITE_LOOKS) - 1)
        spent = SUITE_LOOKS[look] if self.rules.adaptive else 1.0
        level = self.alpha * SUITE * spent
        control = control and all(pair.control for pair in self.whole)
        now = sum(mean(pair.attempts[:passes]) for pair in self.whole) / len(self.whole)
        before = sum(self.reference_mean(pair, control) for pair in self.whole) / len(self.whole)
        drop = now - before if self.grid.minimize else before - now
        beyond = self._beyond(before, drop)
        if drop <= 0:
            return SuiteTest(passes, 1.0, drop, level, False)
        p = lower_than_reference(
            Stratum(self._reference(pair, control), self.grid.levels(pair.attempts[:passes])) for pair in self.whole
        )
        sure = beyond and p <= level
        return SuiteTest(passes, p, drop, level, beyond, sure and (control or not self.control))

    def _beyond(self, before: float, drop: float) -> bool:
        limit = self.rule.max_drop
        if self.grid.minimize:
            limit = None if self.rule.max_rise is None else self.rule.max_rise * abs(before)
        return limit is not None and drop > limit + 1e-9 * max(1.0, abs(before))

    @property
    def suite_controlled(self) -> bool:
        """Whether the whole suite was run on the base commit's agent."""
        return bool(self.whole) and all(pair.control for pair in self.whole)

    @cached_property
    def suite_test(self) -> SuiteTest | None:
        """The suite's test at the passes made; None where nothing limits its mean."""
        if not self.limited or not self.whole or not self.passes:
            return None
        return self.suite(self.passes, self.suite_controlled)

    @cached_property
    def confirmed(self) -> bool:
        """Whether anything of this criterion blocks."""
        if any(test.status is Status.CONFIRMED for test in self.tests):
            return True
        if (self.controlled or not self.control) and self.together(self.controlled).confirmed:
            return True
        return self.suite_test is not None and self.suite_test.confirmed


def drifted(past: Levels, now: Levels) -> bool:
    """Whether main's agent today is surely below its own history."""
    return lower_than_reference([Stratum(past, now)]) <= DRIFTED


def assess(state: GateState, rules: Rules) -> Assessment:
    """The evidence in a state, criteria sorted by name."""
    groups: dict[str, list[PairEvidence]] = {}
    for pair in state.pairs:
        if pair.blocking and pair.history and len(pair.attempts) >= pair.first:
            groups.setdefault(pair.criterion, []).append(pair)
    share = (1 - rules.confidence) / max(1, len(groups))
    control = state.control and not state.closed
    return Assessment(
        tuple(
            CriterionEvidence(name, _sorted(groups[name]), rules.of(name), rules, share, control)
            for name in sorted(groups)
        )
    )


def _sorted(pairs: Sequence[PairEvidence]) -> tuple[PairEvidence, ...]:
    return tuple(sorted(pairs, key=lambda pair: pair.case))  # type: ignore[arg-type,return-value] # cases sort


def _raised(counts: Levels, floor: int | None) -> Levels:
    found: dict[int, int] = {}
    for level, times in counts:
        kept = level if floor is None else max(level, floor)
        found[kept] = found.get(kept, 0) + times
    return tuple(sorted(found.items()))
