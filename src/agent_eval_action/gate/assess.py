"""The evidence of a run: which suspects are confirmed, which are cleared, whether a suite's mean fell. Pure.

docs/statistics.md says why each number is what it is; benchmarks/gate_fidelity.py measures them together.
"""

from __future__ import annotations

import enum
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from agent_eval_action.gate.evidence import (
    CriterionRule,
    EvidenceRules,
    GateState,
    PairEvidence,
    ScoreQuantizer,
    history_stats,
    mean,
)
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.stats import Levels, Stratum, holm, lower_than_reference

STABLE_REPEATS: Final = 30
DRIFTED: Final = 0.05
"""A control this surely below history shows that main is no longer what its history says."""
FRESH_LOOKS: Final = ((5, 0.2), (10, 0.3), (20, 0.5))
"""Fresh runs of every suspect at each look, and the part of the error spent there."""
SINGLE, TOGETHER, SUITE = 0.3, 0.3, 0.4
"""How a criterion's error is split over its three tests."""
SUITE_LOOKS: Final = (0.1, 0.1, 0.15, 0.15, 0.2, 0.3)
"""The part of the suite's error spent at each pass."""
STABLE_RUNS: Final = 3
CONTROL_RUNS: Final = 10
"""Runs of the base commit's agent that control a suspect; of one in a stable suite as many as of the change."""
SMALL_CONTROL: Final = 3
"""Runs of the base commit's agent that are enough at a suspect's first look, where they leave nothing in doubt."""
SLICES: Final = ((3, 10, 0.06), (4, 4, 0.02), (6, 2, 0.02))
"""A slice of the suite is this many cases, or the suite divided by the second number if that is more.

The third number is the part of the suite's error spent there: together that of the first pass, which
decides nothing where slices can be made.
"""
BESIDE_CONTROL: Final = 0.05
"""How surely a slice must be worse than its own control, beside being worse than history."""
LOST: Final = 0.5
"""A suite that lost this part of what main had is controlled first, before single cases are run again."""
MAIN_SLICE: Final = 10
"""Cases of the slice on which main must have lost that part too, before nothing more is run; or of the largest one."""
IN_DOUBT: Final = 0.05


class Status(enum.StrEnum):
    """What became of a suspect."""

    CONFIRMED = "confirmed"
    WITH_SUITE = "with_suite"  # not decided by itself: part of a fall that is confirmed for the whole criterion
    WITH_MAIN = "with_main"  # not decided by itself: part of what main's agent lost as well
    CLEARED = "cleared"  # worse in the first pass, and as on main when it was run again
    ON_MAIN = "on_main"  # as bad on the base commit's agent
    OPEN = "open"  # not run again often enough to tell
    UNCONTROLLED = "uncontrolled"  # surely worse than its history, but the base commit's agent was not asked


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


@dataclass(frozen=True, slots=True)
class Collapse:
    """Means over the cases of a slice: in main's history, of this change, and of the base commit's agent today."""

    cases: int
    before: float
    now: float
    main: float


@dataclass(frozen=True, slots=True)
class PooledTest:
    """All suspects of a criterion at once."""

    p: float
    drop: float
    level: float
    confirmed: bool = False


@dataclass(frozen=True)
class CriterionEvidence:
    """The pairs with history of a criterion that may block, and the tests over them.

    ``alpha``: the criterion's share of the error. ``control``: whether the base commit's agent can be run.
    """

    criterion: str
    pairs: tuple[PairEvidence, ...]
    rule: CriterionRule
    rules: EvidenceRules
    alpha: float
    control: bool
    grid: ScoreQuantizer = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", ScoreQuantizer.for_pairs(self.pairs, self.pairs[0].goal))

    @property
    def share(self) -> float:
        """The part of the run's error, and of its doubts, that is this criterion's."""
        return self.alpha / (1 - self.rules.confidence)

    @cached_property
    def stable(self) -> bool:
        """Whether main's agent never differed in at least thirty repeated attempts."""
        histories = [history_stats(pair.history) for pair in self.pairs]
        repeated = sum(history.n - 1 for history in histories)
        return repeated >= STABLE_REPEATS and all(history.constant for history in histories)

    @cached_property
    def confirmed(self) -> bool:
        """Whether anything of this criterion blocks."""
        return self.fell_as_a_whole or any(test.status is Status.CONFIRMED for test in self.tests)

    @cached_property
    def fell_as_a_whole(self) -> bool:
        """Whether the suite's mean, or all suspects together, are confirmed to be worse."""
        return self.together_confirmed or (self.suite_test is not None and self.suite_test.confirmed)

    # --- what a pair is compared with ---------------------------------------------------------------

    def is_binary(self, pair: PairEvidence) -> bool:
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

    def fresh(self, pair: PairEvidence) -> tuple[float, ...]:
        """The attempts that are evidence: what chose a suspect is none, and with fixed repeats nothing chose it."""
        return pair.attempts[pair.first :] if self.rules.adaptive else pair.attempts

    def control_of(self, pair: PairEvidence) -> tuple[float, ...]:
        """The control's scores that count at the look a suspect reached: each look has its own, fixed number."""
        first_look = self.rules.adaptive and self.runs(pair) <= FRESH_LOOKS[0][0]
        return pair.control[:SMALL_CONTROL] if first_look and self.runs(pair) else pair.control

    def stratum(self, pair: PairEvidence, runs: int, control: bool) -> Stratum:
        """A suspect's reference and fresh runs.

        A graded suspect was chosen for being lower than its history, which says that the history is a
        little lucky. With the first score among the reference both are again one unordered lot, for which
        the choice says nothing; a value no better than it keeps the test on the safe side, and a worse
        first score from helping.
        """
        floor = None if self.is_binary(pair) or not self.rules.adaptive else self._floor(pair)
        reference = self._reference(pair, self.control_of(pair) if control else ())
        current = self.grid.levels(self.fresh(pair)[:runs])
        if floor is None:
            return Stratum(reference, current)
        return Stratum(_raised((*reference, (floor, pair.first)), floor), _raised(current, floor))

    def _floor(self, pair: PairEvidence) -> int:
        past = history_stats(pair.history)
        return self.grid.level(past.low - max(self.rules.min_effect, past.high - past.low, 2 * self._spread))

    @cached_property
    def _spread(self) -> float:
        """How far a pair's history usually reaches: a short one of its own says little about that."""
        ranges = [history.high - history.low for history in (history_stats(pair.history) for pair in self.pairs)]
        return sum(ranges) / len(ranges)

    def _reference(self, pair: PairEvidence, control: tuple[float, ...]) -> Levels:
        past = self.grid.counted(pair.history)
        if not control:
            return past
        now = self.grid.levels(control)
        return now if self.moved(pair) else _raised((*past, *now), None)

    def moved(self, pair: PairEvidence) -> bool:
        """Whether main itself is surely worse than its history, by half of what the change seems to do."""
        control = self.control_of(pair)
        if not control:
            return False
        past, now = history_stats(pair.history).mean, mean(control)
        here = mean(self.fresh(pair) or pair.attempts)
        sign = -1 if self.grid.minimize else 1
        explained = sign * (past - now) >= sign * (past - here) / 2
        return explained and drifted([Stratum(self.grid.counted(pair.history), self.grid.levels(control))])

    def reference_mean(self, pair: PairEvidence, control: bool) -> float:
        """What a suspect's fresh runs are compared with."""
        past, now = history_stats(pair.history), self.control_of(pair) if control else ()
        if not now:
            return past.mean
        if self.moved(pair):
            return mean(now)
        return (past.mean * past.n + mean(now) * len(now)) / (past.n + len(now))

    # --- suspects -----------------------------------------------------------------------------------

    @cached_property
    def suspects(self) -> tuple[PairEvidence, ...]:
        """Pairs worse than their own history in the first pass, chosen by that pass alone."""
        if self.grid.minimize:
            return ()
        return tuple(pair for pair in self.pairs if self._is_suspect(pair))

    def _is_suspect(self, pair: PairEvidence) -> bool:
        past = history_stats(pair.history)
        now = mean(pair.attempts[: pair.first])
        if not self.large(pair, past.mean, now):
            return False
        if self.is_binary(pair) or self.stable or not self.rules.adaptive:
            return True
        as_low = sum(times for score, times in pair.history if score <= now)
        return as_low < past.n / 10

    def runs(self, pair: PairEvidence) -> int:
        """Runs of a suspect that count: down to the last look it reached."""
        made = len(self.fresh(pair))
        if not self.rules.adaptive:
            return made
        return next((runs for runs, _ in reversed(FRESH_LOOKS) if runs <= made), made)

    @cached_property
    def common(self) -> int:
        """Fresh runs every suspect has, which is what they are tested together on: one design for all of them."""
        if not self.rules.adaptive:
            return 0
        return min((self.runs(pair) for pair in self.suspects if not pair.errors), default=0)

    def needs(self, pair: PairEvidence) -> int:
        """Runs of the base commit's agent that control a suspect. Scores it did not give cannot be waited for."""
        if not self.control or not pair.controllable:
            return 0
        return max(0, self._control_wanted(pair) - max(pair.tried, len(pair.control)))

    def _control_wanted(self, pair: PairEvidence) -> int:
        if self.agreeing(pair):
            return STABLE_RUNS
        return SMALL_CONTROL if self.plain(pair) or self._without_doubt(pair) else CONTROL_RUNS

    def _without_doubt(self, pair: PairEvidence) -> bool:
        """Whether a control that was cut short leaves no doubt: sure by history, with it, and beside it alone."""
        if len(pair.control) < SMALL_CONTROL or not self.runs(pair):
            return False
        beside = Stratum(self.grid.levels(pair.control), self.grid.levels(self.fresh(pair)))
        return (
            self.settled(pair, control=False)
            and self.settled(pair, control=True)
            and self.lasting(pair)
            and lower_than_reference([beside]) <= BESIDE_CONTROL
        )

    def plain(self, pair: PairEvidence) -> bool:
        """Whether a suspect is decided at its first look, as far as its control goes: a small one will do."""
        if not self.rules.adaptive or self.runs(pair) != FRESH_LOOKS[0][0]:
            return False
        if self.moved(pair):
            return not any(self.large(pair, score, mean(self.fresh(pair))) for score in self.control_of(pair))
        return self.settled(pair, control=True) and self.lasting(pair)

    def settled(self, pair: PairEvidence, *, control: bool) -> bool:
        """Whether a suspect's own evidence is sure enough, corrected as if every suspect were as sure."""
        return self.raw(pair, control) / self.spent(pair) * len(self.suspects) <= self.alpha * SINGLE

    def lasting(self, pair: PairEvidence) -> bool:
        """Whether a change did worse in turn with the base's agent, too: what was over by then was not the change."""
        return not pair.beside or self.large(pair, self.reference_mean(pair, control=True), mean(pair.beside))

    def agrees(self, pair: PairEvidence) -> bool:
        """In a stable suite: whether three more runs were all as much worse as the first."""
        return self.agreeing(pair) and len(self.fresh(pair)) >= STABLE_RUNS

    def agreeing(self, pair: PairEvidence) -> bool:
        """In a stable suite: whether the runs so far were all as much worse as the first."""
        again, past = self.fresh(pair)[:STABLE_RUNS], history_stats(pair.history).mean
        return self.stable and bool(again) and all(self.large(pair, past, score) for score in again)

    def recovered(self, pair: PairEvidence) -> bool:
        """In a stable suite: whether three more runs were all as on main."""
        again, past = self.fresh(pair)[:STABLE_RUNS], history_stats(pair.history).mean
        return self.stable and len(again) == STABLE_RUNS and not any(self.large(pair, past, score) for score in again)

    def spent(self, pair: PairEvidence) -> float:
        """The part of the error that belongs to a suspect's look."""
        return _spent(self.runs(pair)) if self.rules.adaptive else 1.0

    def raw(self, pair: PairEvidence, control: bool) -> float:
        """A suspect's own p, over all looks it may have: not adjusted for there being other suspects."""
        runs = self.runs(pair)
        return lower_than_reference([self.stratum(pair, runs, control)]) if runs else 1.0

    def adjusted(self, control: bool) -> tuple[float, ...]:
        """The suspects' p, corrected for the looks and, Holm's way, for each other.

        With fixed repeats the same attempts choose and judge, so every pair counts as tested.
        """
        own = [min(1.0, self.raw(pair, control) / self.spent(pair)) for pair in self.suspects]
        unseen = 0 if self.rules.adaptive else len(self.pairs) - len(own)
        return holm([*own, *[1.0] * unseen])[: len(own)]

    def together(self, control: bool) -> PooledTest:
        """All suspects in one exact test stratified by case."""
        runs = self.common
        level = self.alpha * TOGETHER * _spent(runs)
        if not runs:
            return PooledTest(1.0, 0.0, level)
        # a suspect whose every further attempt was an error has no fresh score, and says nothing here
        tested = [pair for pair in self.suspects if self.fresh(pair)]
        p = lower_than_reference([self.stratum(pair, runs, control) for pair in tested])
        drops = [self.reference_mean(pair, control) - mean(self.fresh(pair)[:runs]) for pair in tested]
        drop, least = sum(drops) / len(drops), self.rules.min_effect / 2
        beside = [self.reference_mean(pair, control) - mean(pair.beside) for pair in self.suspects if pair.beside]
        lasting = not beside or sum(beside) / len(beside) >= least
        return PooledTest(p, drop, level, p <= level and drop >= least and lasting)

    @property
    def controlled(self) -> bool:
        """Whether every suspect was run on the base commit's agent."""
        return bool(self.suspects) and not any(self.needs(pair) for pair in self.suspects)

    @cached_property
    def together_confirmed(self) -> bool:
        """Whether the suspects together are worse, after their control where there is one."""
        return (self.controlled or not self.control) and self.together(control=True).confirmed

    @cached_property
    def tests(self) -> tuple[SuspectTest, ...]:
        """Every suspect with what became of it, as far as the runs go."""
        found = []
        for pair, p in zip(self.suspects, self.adjusted(control=True), strict=True):
            runs = self.fresh(pair)[: self.runs(pair)]
            drop = self.reference_mean(pair, control=True) - mean(runs) if runs else 0.0
            found.append(SuspectTest(pair, runs, p, drop, self._status(pair, p)))
        return tuple(found)

    def _status(self, pair: PairEvidence, p: float) -> Status:
        if self.agrees(pair) and (status := self._stable_status(pair)):
            return status
        runs = self.fresh(pair)[: self.runs(pair)]
        if runs:
            before = self.reference_mean(pair, control=True)
            sure = p <= self.alpha * SINGLE and self.large(pair, before, mean(runs))
            if sure and self.lasting(pair):
                return Status.UNCONTROLLED if self.needs(pair) else Status.CONFIRMED
            if self.moved(pair):
                return Status.ON_MAIN
            if self._cleared(pair, runs, p):
                return Status.CLEARED
        if self.main_collapse is not None:
            return Status.WITH_MAIN
        return Status.WITH_SUITE if self.fell_as_a_whole else Status.OPEN

    def _cleared(self, pair: PairEvidence, runs: tuple[float, ...], p: float) -> bool:
        """Flaky is what was as on main when it was run again, at least once, and is not nearly confirmed."""
        if self.recovered(pair):
            return True
        if self.rules.adaptive and len(runs) < FRESH_LOOKS[0][0]:
            return False
        before = self.reference_mean(pair, control=True)
        over = bool(pair.beside) and not self.lasting(pair)
        once = any(not self.large(pair, before, score) for score in runs)
        return over or not self.large(pair, before, mean(runs)) or (once and p > self.alpha)

    def _stable_status(self, pair: PairEvidence) -> Status | None:
        """What three agreeing runs say, given the control; None where the control itself is of two minds."""
        if self.needs(pair) or not pair.control:
            return Status.UNCONTROLLED if self.needs(pair) else Status.CONFIRMED
        worst = max(self.fresh(pair)[:STABLE_RUNS])
        better = [self.large(pair, score, worst) for score in pair.control]
        if not any(better):
            return Status.ON_MAIN
        return Status.CONFIRMED if all(better) else None

    # --- the suite's mean ---------------------------------------------------------------------------

    @property
    def limited(self) -> bool:
        """Whether the suite's mean may only move so far."""
        return (self.rule.max_rise if self.grid.minimize else self.rule.max_drop) is not None

    @cached_property
    def whole(self) -> tuple[PairEvidence, ...]:
        """The pairs whose attempts are complete: an error is no score."""
        return tuple(pair for pair in self.pairs if not pair.errors and len(pair.attempts) >= pair.first)

    @cached_property
    def first(self) -> int:
        """Attempts of the first pass."""
        return max((pair.first for pair in self.whole), default=1)

    @cached_property
    def passes(self) -> int:
        """Attempts every case has. What suspects have beyond does not count: they would be too well known."""
        again = min((len(pair.attempts) - pair.first for pair in self.whole), default=-self.first)
        return self.first + again

    def passed(self, pair: PairEvidence, passes: int) -> tuple[float, ...]:
        """A pair's attempts in so many passes, the first of which may be several."""
        return pair.attempts[: pair.first + passes - self.first]

    def suite(self, passes: int, control: bool = False) -> SuiteTest:
        """The suite's mean over so many passes, paired and stratified by case."""
        look = min(passes - self.first, len(SUITE_LOOKS) - 1)
        spent = SUITE_LOOKS[look] if self.rules.adaptive else 1.0
        control = control and self.suite_controlled
        rows = [_Row(pair, self.passed(pair, passes), pair.control if control else ()) for pair in self.whole]
        test = self._mean_test(rows, passes, self.alpha * SUITE * spent)
        sure = test.beyond and test.p <= test.level and self._suite_lasting()
        return _with(test, confirmed=sure and (control or not self.control))

    def _mean_test(self, rows: Sequence[_Row], passes: int, level: float) -> SuiteTest:
        """Whether the mean over these rows fell. Where main fell as well, its control alone is the reference."""
        fell = self._main_fell(rows)
        if fell:
            rows = [row for row in rows if row.control]
        before = sum(mean(row.control) if fell else self._before(row) for row in rows) / len(rows)
        drop = self._drop(before, sum(mean(row.now) for row in rows) / len(rows))
        beyond = self._beyond(before, drop)
        if drop <= 0:
            return SuiteTest(passes, 1.0, drop, level, False)
        p = lower_than_reference(
            Stratum(
                self.grid.levels(row.control) if fell else self._levels_before(row),
                self.grid.levels(row.now),
            )
            for row in rows
        )
        return SuiteTest(passes, p, drop, level, beyond)

    def _levels_before(self, row: _Row) -> Levels:
        past = self.grid.counted(row.pair.history)
        if not row.control:
            return past
        now = self.grid.levels(row.control)
        return now if self.moved(row.pair) else _raised((*past, *now), None)

    def _before(self, row: _Row) -> float:
        past = history_stats(row.pair.history)
        if row.control and self.moved(row.pair):
            return mean(row.control)
        return (past.mean * past.n + math.fsum(row.control)) / (past.n + len(row.control))

    def _main_fell(self, rows: Sequence[_Row]) -> bool:
        """Whether main is surely below its history over all controlled cases, and that explains half the fall."""
        rows = [row for row in rows if row.control]
        if not rows:
            return False
        past = sum(history_stats(row.pair.history).mean for row in rows)
        explained = self._drop(past, sum(mean(row.control) for row in rows))
        if explained <= 0 or explained < self._drop(past, sum(mean(row.now) for row in rows)) / 2:
            return False
        return drifted(Stratum(self.grid.counted(row.pair.history), self.grid.levels(row.control)) for row in rows)

    def _drop(self, before: float, now: float) -> float:
        return now - before if self.grid.minimize else before - now

    def _suite_lasting(self) -> bool:
        """Whether the mean was worse in turn with the base's agent, too."""
        pairs = [pair for pair in self.whole if pair.controllable]
        if not pairs or not all(pair.beside for pair in pairs):
            return True
        rows = [_Row(pair, pair.beside, pair.control) for pair in pairs]
        fell = self._main_fell(rows)
        if fell:
            rows = [row for row in rows if row.control]
        return sum(self._drop(mean(row.control) if fell else self._before(row), mean(row.now)) for row in rows) > 0

    def _beyond(self, before: float, drop: float) -> bool:
        limit = self.rule.max_drop
        if self.grid.minimize:
            limit = None if self.rule.max_rise is None else self.rule.max_rise * abs(before)
        return limit is not None and drop > limit + 1e-9 * max(1.0, abs(before))

    @property
    def suite_controlled(self) -> bool:
        """Whether the whole suite was run on the base commit's agents, as far as it has them."""
        return bool(self.whole) and all(pair.control or not pair.controllable for pair in self.whole)

    @cached_property
    def suite_test(self) -> SuiteTest | None:
        """Of the slice that confirmed a fall, else of the passes made; None where nothing limits the mean."""
        if not self.limited or not self.whole or not self.passes:
            return None
        for size in self.slices:
            if (test := self.slice_test(size)) is not None and test.confirmed:
                return test
        return self.suite(self.passes, self.suite_controlled)

    # --- slices of the suite: the control of a large fall -------------------------------------------

    @cached_property
    def plain_fall(self) -> bool:
        """Whether the first pass lies so far below history that the whole suite is controlled before anything else."""
        if not self.slices or not self.limited:
            return False
        test = self.suite(self.first)
        if not test.beyond or test.p > IN_DOUBT:
            return False
        before = sum(history_stats(pair.history).mean for pair in self.whole) / len(self.whole)
        return test.p <= self.alpha * SUITE * SLICES[0][2] or test.drop >= LOST * abs(before)

    @cached_property
    def slices(self) -> Mapping[int, float]:
        """Cases of each slice, of which the larger one holds the smaller, with the level of its test.

        None where the base lacks an agent: a slice stands for the whole suite, and is to be controlled as a whole.
        """
        whole, controllable = len(self.whole), all(pair.controllable for pair in self.whole)
        if not self.control or not controllable or not self.rules.adaptive or whole < SLICES[0][0]:
            return {}
        found: dict[int, float] = {}
        for least, part, spent in SLICES:
            size = min(whole, max(least, math.ceil(whole / part)))
            found[size] = found.get(size, 0.0) + self.alpha * SUITE * spent
        return found

    def slice_of(self, size: int) -> tuple[PairEvidence, ...]:
        """So many pairs, whatever their scores are: chosen by the names of their cases."""
        return self._shuffled[:size]

    @cached_property
    def _shuffled(self) -> tuple[PairEvidence, ...]:
        return tuple(sorted(self.whole, key=lambda pair: (zlib.crc32(repr(pair.case).encode()), repr(pair.case))))

    def slice_test(self, size: int) -> SuiteTest | None:
        """The suite's mean over the first pass, and one more run and one of the control of each case of a slice.

        None where these are not made yet. Beside being below history and control, the slice must be below
        its control alone, and in turn with it as well.
        """
        chosen = self.slice_of(size)
        if not all(pair.control and len(pair.attempts) > pair.first for pair in chosen):
            return None
        rows = [_Row(pair, pair.attempts[: pair.first + 1], pair.control[:1]) for pair in chosen]
        rest = [_Row(pair, pair.attempts[: pair.first], ()) for pair in self._shuffled[size:]]
        test = self._mean_test([*rows, *rest], self.first, self.slices[size])
        sure = test.beyond and test.p <= test.level and self._below_control(rows, test.drop)
        return _with(test, confirmed=sure)

    @cached_property
    def main_collapse(self) -> Collapse | None:
        """The fall, where main's own agent lost at least half of what it had and this change's is no worse than it.

        What a change does cannot be seen then, however often either is run.
        """
        if not self.plain_fall:
            return None
        least = min(MAIN_SLICE, max(self.slices))
        sizes = (size for size in self.slices if size >= least)
        return next((found for size in sizes if (found := self.collapse_of(size)) is not None), None)

    def collapse_of(self, size: int) -> Collapse | None:
        """The same by one slice alone; None where it says otherwise, or was not run."""
        test = self.slice_test(size)
        if test is None or test.beyond or self.grid.minimize:
            return None
        chosen = self.slice_of(size)
        rows = [_Row(pair, pair.attempts[: pair.first + 1], pair.control[:1]) for pair in chosen]
        before = sum(history_stats(row.pair.history).mean for row in rows) / size
        now = sum(mean(row.now) for row in rows) / size
        main = sum(mean(row.control) for row in rows) / size
        lost = self._main_fell(rows) and before - max(now, main) >= LOST * abs(before)
        return Collapse(size, before, now, main) if lost else None

    def _below_control(self, rows: Sequence[_Row], drop: float) -> bool:
        control = sum(mean(row.control) for row in rows) / len(rows)
        beside = sum(mean(row.pair.beside[:1] or row.now[-1:]) for row in rows) / len(rows)
        if self._drop(control, beside) < drop / 2:
            return False
        strata = [Stratum(self.grid.levels(row.control), self.grid.levels(row.now)) for row in rows]
        return lower_than_reference(strata) <= BESIDE_CONTROL


@dataclass(frozen=True, slots=True)
class _Row:
    """A pair with the attempts and the control's scores that one test counts."""

    pair: PairEvidence
    now: tuple[float, ...]
    control: tuple[float, ...]


@dataclass(frozen=True)
class Assessment:
    """The evidence of a run, by criterion."""

    criteria: tuple[CriterionEvidence, ...] = ()

    @property
    def blocked(self) -> bool:
        """Whether anything is confirmed."""
        return any(criterion.confirmed for criterion in self.criteria)


def assess(state: GateState, rules: EvidenceRules) -> Assessment:
    """The evidence in a state, criteria sorted by name."""
    groups: dict[str, list[PairEvidence]] = {}
    for pair in state.pairs:
        if pair.blocking and pair.history and len(pair.attempts) >= pair.first:
            groups.setdefault(pair.criterion, []).append(pair)
    share = (1 - rules.confidence) / max(1, len(groups))
    control = state.control and not state.closed
    return Assessment(
        tuple(
            CriterionEvidence(
                criterion=name,
                pairs=_sorted(groups[name]),
                rule=rules.rule(name),
                rules=rules,
                alpha=share,
                control=control and any(pair.controllable for pair in groups[name]),
            )
            for name in sorted(groups)
        )
    )


def drifted(strata: Iterable[Stratum]) -> bool:
    """Whether main's agent today is surely below its own history."""
    return lower_than_reference(strata) <= DRIFTED


def _with(test: SuiteTest, *, confirmed: bool) -> SuiteTest:
    return SuiteTest(test.passes, test.p, test.drop, test.level, test.beyond, confirmed)


def _sorted(pairs: Sequence[PairEvidence]) -> tuple[PairEvidence, ...]:
    return tuple(sorted(pairs, key=lambda pair: pair.case))  # type: ignore[arg-type,return-value] # cases sort


def _yes_or_no(scores: Sequence[float]) -> bool:
    return all(score in {0.0, 1.0} for score in scores)


def _raised(counts: Levels, floor: int | None) -> Levels:
    found: dict[int, int] = {}
    for level, times in counts:
        kept = level if floor is None else max(level, floor)
        found[kept] = found.get(kept, 0) + times
    return tuple(sorted(found.items()))


def _spent(runs: int) -> float:
    return next((part for least, part in reversed(FRESH_LOOKS) if least <= runs), FRESH_LOOKS[0][1])
