"""The evidence of a run: which suspects are confirmed, which are cleared, whether a suite's mean fell. Pure.

docs/statistics.md explains the numbers; benchmarks/gate_fidelity.py measures their effect.
"""

from __future__ import annotations

import enum
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from agent_eval_action.config.models import CriterionPolicy
from agent_eval_action.gate.pairs import (
    TOLERANCE,
    GateRules,
    GateState,
    Pair,
    ScoreGrid,
    history_stats,
    is_binary,
    mean,
    merged,
)
from agent_eval_action.results.base import CaseKey
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
    """The outcome of a suspect."""

    CONFIRMED = "confirmed"
    WITH_SUITE = "with_suite"  # not decided by itself: part of a fall that is confirmed for the whole criterion
    WITH_MAIN = "with_main"  # not decided by itself: part of what main's agent lost as well
    CLEARED = "cleared"  # worse in the first pass, and as on main when it was run again
    ON_MAIN = "on_main"  # as bad on the base commit's agent
    OPEN = "open"  # not run again often enough to tell
    UNCONTROLLED = "uncontrolled"  # surely worse than its history, but the base commit's agent was not asked


@dataclass(frozen=True, slots=True)
class SuspectTest:
    """One suspect. ``p`` is adjusted over the criterion's suspects; ``fresh`` are its runs that count."""

    pair: Pair
    fresh: tuple[float, ...]
    p: float
    status: Status


@dataclass(frozen=True, slots=True)
class MeanTest:
    """A criterion over several pairs: the suite, a slice of it, or all suspects at once.

    ``drop`` is on the criterion's scale, in the bad direction positive. ``beyond``: it is more than is allowed.
    """

    p: float
    drop: float
    level: float
    beyond: bool = False
    confirmed: bool = False

    @property
    def sure(self) -> bool:
        """Whether the drop is more than is allowed and more than chance."""
        return self.beyond and self.p <= self.level


@dataclass(frozen=True, slots=True)
class Collapse:
    """Means over the cases of a slice: in main's history, of this change, and of the base commit's agent today."""

    cases: int
    before: float
    now: float
    main: float


class _Row(NamedTuple):
    """A pair with the attempts and the control's scores that one test counts."""

    pair: Pair
    now: tuple[float, ...]
    control: tuple[float, ...]


@dataclass(frozen=True)
class CriterionEvidence:
    """The pairs with history of a criterion that may block, and the tests over them.

    ``alpha``: the criterion's share of the error. ``control``: whether the base commit's agent can be run.
    """

    criterion: str
    pairs: tuple[Pair, ...]
    policy: CriterionPolicy
    rules: GateRules
    alpha: float
    control: bool
    grid: ScoreGrid = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", ScoreGrid.for_pairs(self.pairs, self.pairs[0].goal))

    @property
    def share(self) -> float:
        """The part of the run's error, and of its doubts, that is this criterion's."""
        return self.alpha / (1 - self.rules.policy.confidence)

    @property
    def min_effect(self) -> float:
        """The least drop of a pair's mean that may block it."""
        return self.rules.policy.min_effect

    @cached_property
    def stable(self) -> bool:
        """Whether main's agent never differed in at least thirty repeated attempts."""
        return never_differed(self.pairs)

    @cached_property
    def confirmed(self) -> bool:
        """Whether anything of this criterion blocks."""
        return self.fell_as_a_whole or any(test.status is Status.CONFIRMED for test in self.tests.values())

    @cached_property
    def fell_as_a_whole(self) -> bool:
        """Whether the suite's mean, or all suspects together, are confirmed to be worse."""
        return self.together_confirmed or (self.suite_test is not None and self.suite_test.confirmed)

    # --- what a pair is compared with ---------------------------------------------------------------

    def is_binary(self, pair: Pair) -> bool:
        """Whether a pair only passes or fails: then a failure is a failure, however lucky its history."""
        return self.grid.binary or is_binary([score for score, _ in pair.history], pair.attempts[: pair.first])

    def is_large(self, pair: Pair, before: float, now: float) -> bool:
        """Whether a fall is large enough to block: by the least effect, or below a threshold it met."""
        if before - now >= self.min_effect - 1e-9:
            return True
        limit = pair.threshold
        fell = before - now > 1e-9 * max(1.0, abs(before))
        return fell and limit is not None and meets(before, limit, pair.goal) and not meets(now, limit, pair.goal)

    def fresh(self, pair: Pair) -> tuple[float, ...]:
        """The attempts that are evidence: what chose a suspect is none, and with fixed repeats nothing chose it."""
        return pair.attempts[pair.first :] if self.rules.adaptive else pair.attempts

    def _control_of(self, pair: Pair) -> tuple[float, ...]:
        """The control's scores that count at the look a suspect reached: each look has its own, fixed number."""
        first_look = self.rules.adaptive and 0 < self.runs(pair) <= FRESH_LOOKS[0][0]
        return pair.control[:SMALL_CONTROL] if first_look else pair.control

    def _stratum(self, pair: Pair, runs: int, control: bool) -> Stratum:
        """A suspect's reference and fresh runs.

        A graded suspect was chosen for being lower than its history, which says that the history is a
        little lucky. With the first score among the reference both are again one unordered lot, for which
        the choice says nothing; a value no better than it keeps the test on the safe side, and a worse
        first score from helping.
        """
        reference = self._levels_before(pair, self._control_of(pair) if control else ())
        current = self.grid.levels(self.fresh(pair)[:runs])
        if self.is_binary(pair) or not self.rules.adaptive:
            return Stratum(reference, current)
        past = history_stats(pair.history)
        far_below = self.grid.level(past.low - max(self.min_effect, past.high - past.low, 2 * self._spread))
        floor = min(far_below, self.grid.level(past.low) - 1)  # on a large scale min_effect is less than a step
        return Stratum(merged((*reference, (floor, pair.first)), floor), merged(current, floor))

    def _levels_before(self, pair: Pair, control: tuple[float, ...], *, moved: bool = False) -> Levels:
        """History, joined by the control; the control alone where main ``moved``."""
        past = self.grid.counted(pair.history)
        if not control:
            return past
        now = self.grid.levels(control)
        return now if moved or self.main_moved(pair) else merged((*past, *now))

    def _mean_before(self, pair: Pair, control: tuple[float, ...], *, moved: bool = False) -> float:
        """The mean of the scores that ``_levels_before`` returns."""
        past = history_stats(pair.history)
        if control and (moved or self.main_moved(pair)):
            return mean(control)
        return (past.mean * past.n + math.fsum(control)) / (past.n + len(control)) if control else past.mean

    @cached_property
    def _spread(self) -> float:
        """The usual spread of a pair's history; a short history shows little of it."""
        ranges = [history.high - history.low for history in (history_stats(pair.history) for pair in self.pairs)]
        return sum(ranges) / len(ranges)

    def main_moved(self, pair: Pair) -> bool:
        """Whether main itself is surely worse than its history, by half of what the change seems to do."""
        control = self._control_of(pair)
        if not control:
            return False
        past, now = history_stats(pair.history).mean, mean(control)
        here = mean(self.fresh(pair) or pair.attempts)
        explained = self._drop(past, now) >= self._drop(past, here) / 2
        reference = self.grid.counted(pair.history)
        return explained and lower_than_reference([Stratum(reference, self.grid.levels(control))]) <= DRIFTED

    def _reference_mean(self, pair: Pair, *, control: bool = True) -> float:
        """What a suspect's fresh runs are compared with."""
        return self._mean_before(pair, self._control_of(pair) if control else ())

    # --- suspects -----------------------------------------------------------------------------------

    @cached_property
    def suspects(self) -> tuple[Pair, ...]:
        """Pairs worse than their own history in the first pass, chosen by that pass alone."""
        return () if self.grid.minimize else tuple(pair for pair in self.pairs if self._is_suspect(pair))

    def _is_suspect(self, pair: Pair) -> bool:
        past, now = history_stats(pair.history), mean(pair.attempts[: pair.first])
        if not self.is_large(pair, past.mean, now):
            return False
        if self.is_binary(pair) or self.stable or not self.rules.adaptive:
            return True
        return sum(times for score, times in pair.history if score <= now) < past.n / 10

    def runs(self, pair: Pair) -> int:
        """Runs of a suspect that count: down to the last look it reached."""
        made = len(self.fresh(pair))
        if not self.rules.adaptive:
            return made
        return next((runs for runs, _ in reversed(FRESH_LOOKS) if runs <= made), made)

    @cached_property
    def common_runs(self) -> int:
        """Fresh runs every suspect has, which is what they are tested together on: one design for all of them."""
        if not self.rules.adaptive:
            return 0
        return min((self.runs(pair) for pair in self.suspects if not pair.errors), default=0)

    def missing_control(self, pair: Pair) -> int:
        """Runs of the base commit's agent that a suspect lacks. Scores it did not give cannot be waited for."""
        if not self.control or not pair.controllable:
            return 0
        return max(0, self._control_wanted(pair) - max(pair.control_attempts, len(pair.control)))

    def _control_wanted(self, pair: Pair) -> int:
        if self.worse_each_time(pair):
            return STABLE_RUNS
        return SMALL_CONTROL if self._clear_at_first_look(pair) or self._control_leaves_no_doubt(pair) else CONTROL_RUNS

    def _control_leaves_no_doubt(self, pair: Pair) -> bool:
        """Whether a control that was cut short is enough: sure by history, with it, and beside it alone."""
        if len(pair.control) < SMALL_CONTROL or not self.runs(pair):
            return False
        interleaved = Stratum(self.grid.levels(pair.control), self.grid.levels(self.fresh(pair)))
        return (
            self.is_sure(pair, control=False)
            and self.is_sure(pair, control=True)
            and self._worse_beside_control(pair)
            and lower_than_reference([interleaved]) <= BESIDE_CONTROL
        )

    def _clear_at_first_look(self, pair: Pair) -> bool:
        """Whether a suspect is decided at its first look, as far as its control goes: a small one will do."""
        if not self.rules.adaptive or self.runs(pair) != FRESH_LOOKS[0][0]:
            return False
        if self.main_moved(pair):
            return not any(self.is_large(pair, score, mean(self.fresh(pair))) for score in self._control_of(pair))
        return self.is_sure(pair, control=True) and self._worse_beside_control(pair)

    def is_sure(self, pair: Pair, *, control: bool) -> bool:
        """Whether a suspect's own evidence is sure enough, corrected as if every suspect were as sure."""
        p = self.p_of(pair, control=control) / self._part_spent(self.runs(pair))
        return p * len(self.suspects) <= self.alpha * SINGLE

    def _worse_beside_control(self, pair: Pair) -> bool:
        """True if the change is also worse in runs interleaved with the base; otherwise the drop was transient."""
        return not pair.interleaved or self.is_large(pair, self._reference_mean(pair), mean(pair.interleaved))

    def _worse_again(self, pair: Pair) -> tuple[bool, ...]:
        """In a stable suite: whether each of up to three fresh runs is worse than on main; () elsewhere."""
        past = history_stats(pair.history).mean
        again = self.fresh(pair)[:STABLE_RUNS] if self.stable else ()
        return tuple(self.is_large(pair, past, score) for score in again)

    def worse_each_time(self, pair: Pair, least: int = 1) -> bool:
        """In a stable suite: whether the fresh runs, at least so many, were all as much worse as the first."""
        worse = self._worse_again(pair)
        return len(worse) >= least and all(worse)

    def recovered(self, pair: Pair) -> bool:
        """In a stable suite: whether three more runs were all as on main."""
        worse = self._worse_again(pair)
        return len(worse) == STABLE_RUNS and not any(worse)

    def _part_spent(self, runs: int) -> float:
        """The part of the error that belongs to the look at so many runs."""
        if not self.rules.adaptive:
            return 1.0
        return next((part for least, part in reversed(FRESH_LOOKS) if least <= runs), FRESH_LOOKS[0][1])

    def p_of(self, pair: Pair, *, control: bool) -> float:
        """A suspect's own p, over all looks it may have: not adjusted for there being other suspects."""
        runs = self.runs(pair)
        return lower_than_reference([self._stratum(pair, runs, control)]) if runs else 1.0

    def together(self, *, control: bool) -> MeanTest:
        """All suspects in one exact test stratified by case."""
        runs = self.common_runs
        level = self.alpha * TOGETHER * self._part_spent(runs)
        if not runs:
            return MeanTest(1.0, 0.0, level)
        # a suspect whose every further attempt was an error has no fresh score, and says nothing here
        tested = [pair for pair in self.suspects if self.fresh(pair)]
        p = lower_than_reference([self._stratum(pair, runs, control) for pair in tested])
        drops = [self._reference_mean(pair, control=control) - mean(self.fresh(pair)[:runs]) for pair in tested]
        drop, least = sum(drops) / len(drops), self.min_effect / 2
        interleaved = [
            self._reference_mean(pair, control=control) - mean(pair.interleaved)
            for pair in self.suspects
            if pair.interleaved
        ]
        worse_beside_control = not interleaved or sum(interleaved) / len(interleaved) >= least
        return MeanTest(p, drop, level, drop >= least, p <= level and drop >= least and worse_beside_control)

    @property
    def controlled(self) -> bool:
        """Whether every suspect was run on the base commit's agent."""
        return bool(self.suspects) and not any(self.missing_control(pair) for pair in self.suspects)

    @cached_property
    def together_confirmed(self) -> bool:
        """Whether the suspects together are worse, after their control where there is one."""
        return (self.controlled or not self.control) and self.together(control=True).confirmed

    @cached_property
    def tests(self) -> Mapping[CaseKey, SuspectTest]:
        """Every suspect with its outcome, as far as the runs go.

        Their p is corrected for the looks and, Holm's way, for each other. With fixed repeats the same attempts choose
        and judge, so every pair counts as tested.
        """
        own = [min(1.0, self.p_of(pair, control=True) / self._part_spent(self.runs(pair))) for pair in self.suspects]
        unseen = 0 if self.rules.adaptive else len(self.pairs) - len(own)
        adjusted = holm([*own, *[1.0] * unseen])[: len(own)]
        return {
            pair.key: SuspectTest(pair, self.fresh(pair)[: self.runs(pair)], p, self._status(pair, p))
            for pair, p in zip(self.suspects, adjusted, strict=True)
        }

    def _status(self, pair: Pair, p: float) -> Status:
        if self.worse_each_time(pair, STABLE_RUNS) and (status := self._stable_status(pair)):
            return status
        runs = self.fresh(pair)[: self.runs(pair)]
        if runs:
            sure = p <= self.alpha * SINGLE and self.is_large(pair, self._reference_mean(pair), mean(runs))
            if sure and self._worse_beside_control(pair):
                return Status.UNCONTROLLED if self.missing_control(pair) else Status.CONFIRMED
            if self.main_moved(pair):
                return Status.ON_MAIN
            if self._is_cleared(pair, runs, p):
                return Status.CLEARED
        if self.main_collapse is not None:
            return Status.WITH_MAIN
        return Status.WITH_SUITE if self.fell_as_a_whole else Status.OPEN

    def _is_cleared(self, pair: Pair, runs: tuple[float, ...], p: float) -> bool:
        """True if a re-run was as on main at least once and the drop is not nearly confirmed."""
        if self.recovered(pair):
            return True
        if self.rules.adaptive and len(runs) < FRESH_LOOKS[0][0]:
            return False
        before = self._reference_mean(pair)
        once = any(not self.is_large(pair, before, score) for score in runs)
        return (
            not self._worse_beside_control(pair)
            or not self.is_large(pair, before, mean(runs))
            or (once and p > self.alpha)
        )

    def _stable_status(self, pair: Pair) -> Status | None:
        """The status after three runs that were all worse; None where the control's own runs disagree."""
        if self.missing_control(pair) or not pair.control:
            return Status.UNCONTROLLED if self.missing_control(pair) else Status.CONFIRMED
        worst = max(self.fresh(pair)[:STABLE_RUNS])
        better = [self.is_large(pair, score, worst) for score in pair.control]
        if not any(better):
            return Status.ON_MAIN
        return Status.CONFIRMED if all(better) else None

    # --- the suite's mean ---------------------------------------------------------------------------

    @property
    def has_limit(self) -> bool:
        """Whether the suite's mean may only move so far."""
        return (self.policy.max_rise if self.grid.minimize else self.policy.max_drop) is not None

    @cached_property
    def complete(self) -> tuple[Pair, ...]:
        """The pairs whose attempts are complete: an error is no score."""
        return tuple(pair for pair in self.pairs if not pair.errors and len(pair.attempts) >= pair.first)

    @cached_property
    def first(self) -> int:
        """Attempts of the first pass."""
        return max((pair.first for pair in self.complete), default=1)

    @cached_property
    def passes(self) -> int:
        """Attempts every case has. What suspects have beyond does not count: they would be too well known."""
        again = min((len(pair.attempts) - pair.first for pair in self.complete), default=-self.first)
        return self.first + again

    def attempts_of(self, pair: Pair, passes: int) -> tuple[float, ...]:
        """A pair's attempts in so many passes, the first of which may be several."""
        return pair.attempts[: pair.first + passes - self.first]

    def suite(self, passes: int, *, control: bool = False) -> MeanTest:
        """The suite's mean over so many passes, paired and stratified by case."""
        look = min(passes - self.first, len(SUITE_LOOKS) - 1)
        spent = SUITE_LOOKS[look] if self.rules.adaptive else 1.0
        control = control and self.suite_controlled
        rows = [_Row(pair, self.attempts_of(pair, passes), pair.control if control else ()) for pair in self.complete]
        test = self._mean_test(rows, self.alpha * SUITE * spent)
        sure = test.sure and self._suite_worse_beside_control()
        return replace(test, confirmed=sure and (control or not self.control))

    def _mean_test(self, rows: Sequence[_Row], level: float) -> MeanTest:
        """Whether the mean over these rows fell. Where main fell as well, its control alone is the reference."""
        fell = self._main_fell(rows)
        if fell:
            rows = [row for row in rows if row.control]
        before = sum(self._mean_before(row.pair, row.control, moved=fell) for row in rows) / len(rows)
        drop = self._drop(before, sum(mean(row.now) for row in rows) / len(rows))
        if drop <= 0:
            return MeanTest(1.0, drop, level)
        p = lower_than_reference(
            Stratum(self._levels_before(row.pair, row.control, moved=fell), self.grid.levels(row.now)) for row in rows
        )
        limit = self.policy.max_drop
        if self.grid.minimize:
            limit = None if self.policy.max_rise is None else self.policy.max_rise * abs(before)
        return MeanTest(p, drop, level, limit is not None and drop > limit + 1e-9 * max(1.0, abs(before)))

    def _main_fell(self, rows: Sequence[_Row]) -> bool:
        """Whether main is surely below its history over all controlled cases, and that explains half the fall."""
        rows = [row for row in rows if row.control]
        past = sum(history_stats(row.pair.history).mean for row in rows)
        explained = self._drop(past, sum(mean(row.control) for row in rows))
        if explained <= 0 or explained < self._drop(past, sum(mean(row.now) for row in rows)) / 2:
            return False
        strata = (Stratum(self.grid.counted(row.pair.history), self.grid.levels(row.control)) for row in rows)
        return lower_than_reference(strata) <= DRIFTED

    def _drop(self, before: float, now: float) -> float:
        return now - before if self.grid.minimize else before - now

    def _suite_worse_beside_control(self) -> bool:
        """Whether the mean was worse in turn with the base's agent, too."""
        pairs = [pair for pair in self.complete if pair.controllable]
        if not pairs or not all(pair.interleaved for pair in pairs):
            return True
        rows = [_Row(pair, pair.interleaved, pair.control) for pair in pairs]
        fell = self._main_fell(rows)
        if fell:
            rows = [row for row in rows if row.control]
        drops = [self._drop(self._mean_before(row.pair, row.control, moved=fell), mean(row.now)) for row in rows]
        return sum(drops) > 0

    @property
    def suite_controlled(self) -> bool:
        """Whether the whole suite was run on the base commit's agents, as far as it has them."""
        return bool(self.complete) and all(pair.control or not pair.controllable for pair in self.complete)

    @cached_property
    def suite_test(self) -> MeanTest | None:
        """Of the slice that confirmed a fall, else of the passes made; None where nothing limits the mean."""
        if not self.has_limit or not self.complete or not self.passes:
            return None
        for size in self.slices:
            if (test := self.slice_test(size)) is not None and test.confirmed:
                return test
        return self.suite(self.passes, control=self.suite_controlled)

    # --- slices of the suite: the control of a large fall -------------------------------------------

    @cached_property
    def fell_far(self) -> bool:
        """Whether the first pass lies so far below history that the whole suite is controlled before anything else."""
        if not self.slices or not self.has_limit:
            return False
        test = self.suite(self.first)
        if not test.beyond or test.p > IN_DOUBT:
            return False
        before = sum(history_stats(pair.history).mean for pair in self.complete) / len(self.complete)
        return test.p <= self.alpha * SUITE * SLICES[0][2] or test.drop >= LOST * abs(before)

    @cached_property
    def slices(self) -> Mapping[int, float]:
        """Cases of each slice, of which the larger one holds the smaller, with the level of its test.

        None where the base lacks an agent: a slice stands for the whole suite, and is to be controlled as a whole.
        """
        cases, controllable = len(self.complete), all(pair.controllable for pair in self.complete)
        if not self.control or not controllable or not self.rules.adaptive or cases < SLICES[0][0]:
            return {}
        found: dict[int, float] = {}
        for least, part, spent in SLICES:
            size = min(cases, max(least, math.ceil(cases / part)))
            found[size] = found.get(size, 0.0) + self.alpha * SUITE * spent
        return found

    def slice_of(self, size: int) -> tuple[Pair, ...]:
        """So many pairs, whatever their scores are: chosen by the names of their cases."""
        return self._shuffled[:size]

    @cached_property
    def _shuffled(self) -> tuple[Pair, ...]:
        return tuple(sorted(self.complete, key=lambda pair: (zlib.crc32(repr(pair.key).encode()), repr(pair.key))))

    def _slice_rows(self, size: int) -> list[_Row]:
        """The first pass, one more run and one of the control of each case; empty where these are not made yet."""
        chosen = self.slice_of(size)
        if not all(pair.control and len(pair.attempts) > pair.first for pair in chosen):
            return []
        return [_Row(pair, pair.attempts[: pair.first + 1], pair.control[:1]) for pair in chosen]

    def slice_test(self, size: int) -> MeanTest | None:
        """The suite's mean over the first pass, and the further runs of a slice; None where these are not made yet.

        Beside being below history and control, the slice must be below its control alone, and in turn with it as well.
        """
        rows = self._slice_rows(size)
        if not rows:
            return None
        rest = [_Row(pair, pair.attempts[: pair.first], ()) for pair in self._shuffled[size:]]
        test = self._mean_test([*rows, *rest], self.slices[size])
        return replace(test, confirmed=test.sure and self._below_control(rows, test.drop))

    def _below_control(self, rows: Sequence[_Row], drop: float) -> bool:
        control = sum(mean(row.control) for row in rows) / len(rows)
        interleaved = sum(mean(row.pair.interleaved[:1] or row.now[-1:]) for row in rows) / len(rows)
        if self._drop(control, interleaved) < drop / 2:
            return False
        strata = [Stratum(self.grid.levels(row.control), self.grid.levels(row.now)) for row in rows]
        return lower_than_reference(strata) <= BESIDE_CONTROL

    @cached_property
    def main_collapse(self) -> Collapse | None:
        """The fall, where main's own agent lost at least half of what it had and this change's is no worse than it.

        No number of runs can show the effect of the change then.
        """
        if not self.fell_far:
            return None
        least = min(MAIN_SLICE, max(self.slices))
        found = (self.collapse_of(size) for size in self.slices if size >= least)
        return next((collapse for collapse in found if collapse is not None), None)

    def collapse_of(self, size: int) -> Collapse | None:
        """The collapse as one slice shows it; None where it shows none, or was not run."""
        test = self.slice_test(size)
        if test is None or test.beyond or self.grid.minimize:
            return None
        rows = self._slice_rows(size)
        before = sum(history_stats(row.pair.history).mean for row in rows) / size
        now = sum(mean(row.now) for row in rows) / size
        main = sum(mean(row.control) for row in rows) / size
        lost = self._main_fell(rows) and before - max(now, main) >= LOST * abs(before)
        return Collapse(size, before, now, main) if lost else None


def never_differed(pairs: Iterable[Pair]) -> bool:
    """Whether main's agent never differed in at least thirty repeated attempts."""
    histories = [history_stats(pair.history) for pair in pairs]
    constant = all(past.high - past.low <= TOLERANCE * max(1.0, abs(past.high)) for past in histories)
    return constant and sum(past.n - 1 for past in histories) >= STABLE_REPEATS


def assess(state: GateState, rules: GateRules) -> dict[str, CriterionEvidence]:
    """The evidence in a state by criterion, sorted by name: of pairs with history that may block."""
    sets = rules.policy.sets
    groups: dict[str, list[Pair]] = {}
    for pair in state.pairs:
        if sets and sets.get(pair.key.eval_set, "blocking") != "blocking":
            continue
        if pair.history and not pair.added and len(pair.attempts) >= pair.first:
            groups.setdefault(pair.criterion, []).append(pair)
    policies = {name: rules.policy.for_criterion(name, pairs[0].goal) for name, pairs in groups.items()}
    names = sorted(name for name, policy in policies.items() if policy.mode == "blocking")
    alpha = (1 - rules.policy.confidence) / max(1, len(names))
    return {
        name: CriterionEvidence(
            criterion=name,
            pairs=tuple(sorted(groups[name], key=lambda pair: pair.key)),
            policy=policies[name],
            rules=rules,
            alpha=alpha,
            control=state.control and any(pair.controllable for pair in groups[name]),
        )
        for name in names
    }
