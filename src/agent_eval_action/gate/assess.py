"""Statistical evidence of a run: which suspects are confirmed or cleared, and whether a suite's mean fell. Pure.

docs/statistics.md explains the numbers; benchmarks/gate_fidelity.py measures their effect.
"""

from __future__ import annotations

import enum
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
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
    merged,
)
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.history import ScoreCount
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.stats import Stratum, counted, holm, lower_than_reference

STABLE_REPEATS: Final = 30
DRIFTED: Final = 0.05
"""Main has drifted if its control lies below its history with at most this p."""
FRESH_LOOKS: Final = ((5, 0.2), (10, 0.3), (20, 0.5))
"""Fresh runs of a suspect at each look, and the share of the error spent there."""
SINGLE, TOGETHER, SUITE = 0.3, 0.3, 0.4
"""How a criterion's error is split between the tests of single suspects, of all suspects, and of the suite's mean."""
SUITE_LOOKS: Final = (0.1, 0.1, 0.15, 0.15, 0.2, 0.3)
"""The share of the suite's error spent at each pass."""
STABLE_RUNS: Final = 3
CONTROL_RUNS: Final = 10
"""Base runs that control a suspect. In a stable suite the base runs as often as the change instead."""
SMALL_CONTROL: Final = 3
"""Base runs that suffice at a suspect's first look if they leave no doubt."""
SLICES: Final = ((3, 10, 0.06), (4, 4, 0.02), (6, 2, 0.02))
"""Per slice: its least number of cases, the divisor of the suite's size (the larger number counts), its error share.

Together the slices spend the error of the first pass, which decides nothing where slices can be made.
"""
BESIDE_CONTROL: Final = 0.05
"""A slice must also be below its own control with at most this p."""
LOST: Final = 0.5
"""A suite that lost this share of main's mean is controlled before single cases are run again."""
MAIN_SLICE: Final = 10
"""Main must have lost that share on a slice of at least this many cases (or on the largest slice) to end the run."""
IN_DOUBT: Final = 0.05


class Status(enum.StrEnum):
    """The outcome of a suspect."""

    CONFIRMED = "confirmed"
    WITH_SUITE = "with_suite"  # part of a drop confirmed for the whole criterion; undecided by itself
    WITH_MAIN = "with_main"  # part of a drop that main's agent shows too; undecided by itself
    CLEARED = "cleared"  # worse in the first pass, as on main when run again
    ON_MAIN = "on_main"  # as bad on the base commit's agent
    OPEN = "open"  # too few re-runs to tell
    UNCONTROLLED = "uncontrolled"  # worse than its history, but the base commit's agent was not run


@dataclass(frozen=True, slots=True)
class SuspectTest:
    """One suspect. ``p`` is adjusted over the criterion's suspects; ``fresh`` are the re-runs its test counts."""

    fresh: tuple[float, ...]
    p: float
    status: Status


@dataclass(frozen=True, slots=True)
class MeanTest:
    """The mean of a criterion over the suite, a slice of it, or all suspects.

    ``drop`` is on the criterion's scale, positive if worse. ``beyond``: the drop exceeds the allowed one.
    """

    p: float
    drop: float
    level: float
    beyond: bool = False
    confirmed: bool = False

    @property
    def sure(self) -> bool:
        """Whether the drop exceeds the allowed one and is significant."""
        return self.beyond and self.p <= self.level


@dataclass(frozen=True, slots=True)
class Collapse:
    """Means over the cases of a slice: main's history, this change, and the base commit's agent in this run."""

    cases: int
    before: float
    now: float
    main: float


class _Row(NamedTuple):
    """A pair with the attempts and control scores that a test uses."""

    pair: Pair
    now: tuple[float, ...]
    control: tuple[float, ...]


@dataclass(frozen=True)
class CriterionEvidence:
    """The pairs of a criterion that have history and may block, and the tests over them.

    ``alpha``: the criterion's share of the error. ``control``: whether the base commit's agent can be run.
    """

    criterion: str
    pairs: tuple[Pair, ...]
    policy: CriterionPolicy
    rules: GateRules
    alpha: float
    control: bool

    @cached_property
    def grid(self) -> ScoreGrid:
        return ScoreGrid.for_pairs(self.pairs)

    @property
    def share(self) -> float:
        """The criterion's share of the run's error, which also scales its doubt levels."""
        return self.alpha / (1 - self.rules.policy.confidence)

    @property
    def min_effect(self) -> float:
        return self.rules.policy.min_effect

    @cached_property
    def stable(self) -> bool:
        """Whether the scores of main's agent never varied in at least ``STABLE_REPEATS`` repeated attempts."""
        return never_differed(self.pairs)

    @cached_property
    def confirmed(self) -> bool:
        return self.fell_as_a_whole or Status.CONFIRMED in self.statuses

    @cached_property
    def fell_as_a_whole(self) -> bool:
        """Whether the suite's mean, or the suspects as a group, are confirmed to be worse."""
        return self.together_confirmed or (self.suite_test is not None and self.suite_test.confirmed)

    # --- what a pair is compared with ---------------------------------------------------------------

    def is_binary(self, pair: Pair) -> bool:
        """Whether a pair only passes or fails. Such a failure counts as one, however lucky its history."""
        return self.grid.binary or is_binary([score for score, _ in pair.history], pair.attempts[: pair.first])

    def is_large(self, pair: Pair, before: float, now: float) -> bool:
        """Whether a drop may block: it is at least ``min_effect``, or goes from meeting the threshold to missing it."""
        if before - now >= self.min_effect - TOLERANCE:
            return True
        limit = pair.threshold
        fell = before - now > TOLERANCE * max(1.0, abs(before))
        return fell and limit is not None and meets(before, limit, pair.goal) and not meets(now, limit, pair.goal)

    def fresh(self, pair: Pair) -> tuple[float, ...]:
        """The attempts that are evidence. The first pass selected the suspect and is none, unless repeats are fixed."""
        return pair.attempts[pair.first :] if self.rules.adaptive else pair.attempts

    def _control_of(self, pair: Pair) -> tuple[float, ...]:
        """The control scores that count at the suspect's current look; each look uses a fixed number."""
        first_look = self.rules.adaptive and 0 < self.runs(pair) <= FRESH_LOOKS[0][0]
        return pair.control[:SMALL_CONTROL] if first_look else pair.control

    def _stratum(self, pair: Pair, runs: int, control: bool) -> Stratum:
        """A suspect's reference and fresh runs.

        A graded suspect was selected for scoring below its history, which makes that history a little lucky. Adding
        the first pass to the reference makes reference and fresh runs exchangeable again. Its scores enter as
        ``floor``, which is no better than they are: the test stays conservative, and a worse first score gains nothing.
        """
        reference = self._reference(pair, self._control_of(pair) if control else ())
        stratum = self.grid.stratum(reference, self.fresh(pair)[:runs])
        if self.is_binary(pair) or not self.rules.adaptive:
            return stratum
        low, high = pair.past.low, pair.past.high
        far_below = self.grid.level(low - max(self.min_effect, high - low, 2 * self._spread))
        floor = min(far_below, self.grid.level(low) - 1)  # on a large scale min_effect is less than a step
        return Stratum(merged((*stratum.reference, (floor, pair.first)), floor), merged(stratum.current, floor))

    def _reference(self, pair: Pair, control: tuple[float, ...], *, moved: bool = False) -> tuple[ScoreCount, ...]:
        """History plus control; the control alone if main ``moved``."""
        if not control:
            return pair.history
        if moved or self.main_moved(pair):
            return counted(control)
        return tuple(sorted((Counter(dict(pair.history)) + Counter(control)).items()))

    def _reference_mean(self, pair: Pair, *, control: bool = True) -> float:
        return history_stats(self._reference(pair, self._control_of(pair) if control else ())).mean

    @cached_property
    def _spread(self) -> float:
        """The average range of the pairs' histories; a single short history shows too little of it."""
        return sum(pair.past.high - pair.past.low for pair in self.pairs) / len(self.pairs)

    def main_moved(self, pair: Pair) -> bool:
        """Whether main's control is significantly below its history and explains at least half of the change's drop."""
        control = self._control_of(pair)
        if not control:
            return False
        past, here = pair.past.mean, fmean(self.fresh(pair) or pair.attempts)
        if self._drop(past, fmean(control)) < self._drop(past, here) / 2:
            return False
        return lower_than_reference([self.grid.stratum(pair.history, control)]) <= DRIFTED

    # --- suspects -----------------------------------------------------------------------------------

    @cached_property
    def suspects(self) -> tuple[Pair, ...]:
        """Pairs that scored below their own history in the first pass; later runs do not add any."""
        return () if self.grid.minimize else tuple(pair for pair in self.pairs if self._is_suspect(pair))

    def _is_suspect(self, pair: Pair) -> bool:
        past, now = pair.past, fmean(pair.attempts[: pair.first])
        if not self.is_large(pair, past.mean, now):
            return False
        if self.is_binary(pair) or self.stable or not self.rules.adaptive:
            return True
        return sum(times for score, times in pair.history if score <= now) < past.n / 10

    def runs(self, pair: Pair) -> int:
        """The number of fresh runs that count: those up to the last look reached."""
        made = len(self.fresh(pair))
        if not self.rules.adaptive:
            return made
        return next((runs for runs, _ in reversed(FRESH_LOOKS) if runs <= made), made)

    @cached_property
    def common_runs(self) -> int:
        """Fresh runs that every suspect has. The joint test uses only these, so that its design is the same for all."""
        if not self.rules.adaptive:
            return 0
        return min((self.runs(pair) for pair in self.suspects if not pair.errors), default=0)

    def missing_control(self, pair: Pair) -> int:
        """Base runs that a suspect still lacks."""
        if not self.control or not pair.controllable:
            return 0
        if self.worse_each_time(pair):
            wanted = STABLE_RUNS
        else:
            small = self._clear_at_first_look(pair) or self._control_leaves_no_doubt(pair)
            wanted = SMALL_CONTROL if small else CONTROL_RUNS
        return max(0, wanted - pair.control_made)

    def awaits_control(self, pair: Pair) -> bool:
        """Whether a suspect could be run on the base, and was not yet."""
        return self.control and pair.controllable and not pair.control_attempts

    def _control_leaves_no_doubt(self, pair: Pair) -> bool:
        """Whether a small control suffices: significant against history, with the control, and against it alone."""
        if len(pair.control) < SMALL_CONTROL or not self.runs(pair):
            return False
        beside = self.grid.stratum(counted(pair.control), self.fresh(pair))
        return (
            self.is_sure(pair, control=False)
            and self.is_sure(pair, control=True)
            and self._worse_beside_control(pair)
            and lower_than_reference([beside]) <= BESIDE_CONTROL
        )

    def _clear_at_first_look(self, pair: Pair) -> bool:
        """Whether the first look already decides a suspect, so that a small control suffices."""
        if not self.rules.adaptive or self.runs(pair) != FRESH_LOOKS[0][0]:
            return False
        if self.main_moved(pair):
            return not any(self.is_large(pair, score, fmean(self.fresh(pair))) for score in self._control_of(pair))
        return self.is_sure(pair, control=True) and self._worse_beside_control(pair)

    def is_sure(self, pair: Pair, *, control: bool) -> bool:
        """Whether a suspect is significant by its own evidence, with Bonferroni's correction over all suspects."""
        p = self.p_of(pair, control=control) / self._part_spent(self.runs(pair))
        return p * len(self.suspects) <= self.alpha * SINGLE

    def _worse_beside_control(self, pair: Pair) -> bool:
        """True if the change is also worse in runs interleaved with the base; otherwise the drop was transient."""
        return not pair.interleaved or self.is_large(pair, self._reference_mean(pair), fmean(pair.interleaved))

    def _worse_again(self, pair: Pair) -> tuple[bool, ...]:
        """Per fresh run (at most three), whether it is worse than on main. () unless the suite is stable."""
        again = self.fresh(pair)[:STABLE_RUNS] if self.stable else ()
        return tuple(self.is_large(pair, pair.past.mean, score) for score in again)

    def worse_each_time(self, pair: Pair, least: int = 1) -> bool:
        """Whether, in a stable suite, all fresh runs (at least ``least``) were worse than on main."""
        worse = self._worse_again(pair)
        return len(worse) >= least and all(worse)

    def recovered(self, pair: Pair) -> bool:
        """Whether, in a stable suite, all three fresh runs were as on main."""
        worse = self._worse_again(pair)
        return len(worse) == STABLE_RUNS and not any(worse)

    def _part_spent(self, runs: int) -> float:
        """The share of the error spent at the look after this many runs."""
        if not self.rules.adaptive:
            return 1.0
        return next((part for least, part in reversed(FRESH_LOOKS) if least <= runs), FRESH_LOOKS[0][1])

    def p_of(self, pair: Pair, *, control: bool) -> float:
        """A suspect's own p, not adjusted for the number of looks or of suspects."""
        runs = self.runs(pair)
        return lower_than_reference([self._stratum(pair, runs, control)]) if runs else 1.0

    def together(self, *, control: bool) -> MeanTest:
        """Test all suspects at once: one exact test, stratified by case."""
        runs = self.common_runs
        level = self.alpha * TOGETHER * self._part_spent(runs)
        if not runs:
            return MeanTest(1.0, 0.0, level)
        # a suspect without a fresh score (all re-runs were errors) tells nothing here
        tested = [pair for pair in self.suspects if self.fresh(pair)]
        p = lower_than_reference([self._stratum(pair, runs, control) for pair in tested])
        before = {pair.key: self._reference_mean(pair, control=control) for pair in self.suspects}
        drop = sum(before[pair.key] - fmean(self.fresh(pair)[:runs]) for pair in tested) / len(tested)
        beside = [before[pair.key] - fmean(pair.interleaved) for pair in self.suspects if pair.interleaved]
        least = self.min_effect / 2
        also_beside = not beside or sum(beside) / len(beside) >= least
        return MeanTest(p, drop, level, drop >= least, p <= level and drop >= least and also_beside)

    @property
    def controlled(self) -> bool:
        """Whether every suspect was run often enough on the base commit's agent."""
        return bool(self.suspects) and not any(self.missing_control(pair) for pair in self.suspects)

    @cached_property
    def together_confirmed(self) -> bool:
        """Whether the suspects as a group are confirmed to be worse, after their control where one is possible."""
        return (self.controlled or not self.control) and self.together(control=True).confirmed

    @cached_property
    def tests(self) -> Mapping[CaseKey, SuspectTest]:
        """The test of each suspect, with the runs so far.

        Each p is corrected for the looks and, by Holm, for the other suspects. With fixed repeats the same attempts
        select and test a suspect, so that every pair counts as tested.
        """
        own = [min(1.0, self.p_of(pair, control=True) / self._part_spent(self.runs(pair))) for pair in self.suspects]
        unseen = 0 if self.rules.adaptive else len(self.pairs) - len(own)
        adjusted = holm([*own, *[1.0] * unseen])[: len(own)]
        return {
            pair.key: SuspectTest(self.fresh(pair)[: self.runs(pair)], p, self._status(pair, p))
            for pair, p in zip(self.suspects, adjusted, strict=True)
        }

    @cached_property
    def statuses(self) -> set[Status]:
        return {test.status for test in self.tests.values()}

    def _status(self, pair: Pair, p: float) -> Status:
        if self.worse_each_time(pair, STABLE_RUNS) and (status := self._stable_status(pair)):
            return status
        runs = self.fresh(pair)[: self.runs(pair)]
        if runs:
            sure = p <= self.alpha * SINGLE and self.is_large(pair, self._reference_mean(pair), fmean(runs))
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
        """Whether the drop is not nearly confirmed and at least one re-run was as on main."""
        if self.recovered(pair):
            return True
        if self.rules.adaptive and len(runs) < FRESH_LOOKS[0][0]:
            return False
        before = self._reference_mean(pair)
        once = any(not self.is_large(pair, before, score) for score in runs)
        return (
            not self._worse_beside_control(pair)
            or not self.is_large(pair, before, fmean(runs))
            or (once and p > self.alpha)
        )

    def _stable_status(self, pair: Pair) -> Status | None:
        """The status after three runs that were all worse; None if the control runs contradict each other."""
        if self.missing_control(pair) or not pair.control:
            return Status.UNCONTROLLED if self.missing_control(pair) else Status.CONFIRMED
        worst = max(self.fresh(pair)[:STABLE_RUNS])
        better = [self.is_large(pair, score, worst) for score in pair.control]
        if not any(better):
            return Status.ON_MAIN
        return Status.CONFIRMED if all(better) else None

    # --- the suite's mean ---------------------------------------------------------------------------

    @property
    def can_fall(self) -> bool:
        """Whether the policy limits the change of the suite's mean, and there is one."""
        limit = self.policy.max_rise if self.grid.minimize else self.policy.max_drop
        return limit is not None and bool(self.complete)

    @cached_property
    def complete(self) -> tuple[Pair, ...]:
        """The pairs with a score for every attempt of the first pass and no error."""
        return tuple(pair for pair in self.pairs if not pair.errors and pair.again >= 0)

    @cached_property
    def again(self) -> int:
        """Further passes of every case. A suspect's further attempts do not count: they would overweight it."""
        return min((pair.again for pair in self.complete), default=0)

    def suite(self, again: int, *, control: bool = False) -> MeanTest:
        """Test the suite's mean over the first pass and ``again`` further ones, paired and stratified by case."""
        spent = SUITE_LOOKS[min(again, len(SUITE_LOOKS) - 1)] if self.rules.adaptive else 1.0
        control = control and self.suite_controlled
        rows = [
            _Row(pair, pair.attempts[: pair.first + again], pair.control if control else ()) for pair in self.complete
        ]
        level = self.alpha * SUITE * spent
        test = self._mean_test(rows, level)
        if not test.sure or (self.control and not control):
            return test
        # it must be worse in the interleaved runs too
        beside = [_Row(pair, pair.interleaved, pair.control) for pair in self.complete if pair.controllable]
        made = beside and all(row.now for row in beside)
        return replace(test, confirmed=not made or self._mean_test(beside, level).drop > 0)

    def _mean_test(self, rows: Sequence[_Row], level: float) -> MeanTest:
        """Test whether the mean over these rows fell. If main fell too, its control alone is the reference."""
        fell = self._main_fell(rows)
        if fell:
            rows = [row for row in rows if row.control]
        references = [self._reference(row.pair, row.control, moved=fell) for row in rows]
        before = sum(history_stats(reference).mean for reference in references) / len(rows)
        drop = self._drop(before, sum(fmean(row.now) for row in rows) / len(rows))
        if drop <= 0:
            return MeanTest(1.0, drop, level)
        p = lower_than_reference(
            self.grid.stratum(reference, row.now) for reference, row in zip(references, rows, strict=True)
        )
        limit = self.policy.max_drop
        if self.grid.minimize:
            limit = None if self.policy.max_rise is None else self.policy.max_rise * abs(before)
        return MeanTest(p, drop, level, limit is not None and drop > limit + TOLERANCE * max(1.0, abs(before)))

    def _main_fell(self, rows: Sequence[_Row]) -> bool:
        """Whether main is significantly below its history over all controlled cases, by at least half of the drop."""
        rows = [row for row in rows if row.control]
        past = sum(row.pair.past.mean for row in rows)
        explained = self._drop(past, sum(fmean(row.control) for row in rows))
        if explained <= 0 or explained < self._drop(past, sum(fmean(row.now) for row in rows)) / 2:
            return False
        strata = (self.grid.stratum(row.pair.history, row.control) for row in rows)
        return lower_than_reference(strata) <= DRIFTED

    def _drop(self, before: float, now: float) -> float:
        return now - before if self.grid.minimize else before - now

    @property
    def suite_controlled(self) -> bool:
        """Whether every case whose agent the base has was run on the base."""
        return bool(self.complete) and all(pair.control or not pair.controllable for pair in self.complete)

    @cached_property
    def suite_test(self) -> MeanTest | None:
        """The test of the first slice that confirms a drop, else of the whole suite; None if the mean has no limit."""
        if not self.can_fall:
            return None
        for size in self.slices:
            if (test := self.slice_test(size)) is not None and test.confirmed:
                return test
        return self.suite(self.again, control=True)

    # --- slices of the suite: the control of a large fall -------------------------------------------

    @cached_property
    def fell_far(self) -> bool:
        """Whether the first pass is so far below history that the suite is controlled before anything else."""
        if not self.slices or not self.can_fall:
            return False
        test = self.suite(0)
        if not test.beyond or test.p > IN_DOUBT:
            return False
        before = sum(pair.past.mean for pair in self.complete) / len(self.complete)
        return test.p <= self.alpha * SUITE * SLICES[0][2] or test.drop >= LOST * abs(before)

    @cached_property
    def slices(self) -> Mapping[int, float]:
        """The level of the test of each slice, by its number of cases. Larger slices contain the smaller ones.

        Empty if the base lacks an agent: a slice stands for the whole suite, so that all of it must be controllable.
        """
        cases, controllable = len(self.complete), all(pair.controllable for pair in self.complete)
        if not self.control or not controllable or not self.rules.adaptive or cases < SLICES[0][0]:
            return {}
        found: dict[int, float] = {}
        for least, part, spent in SLICES:
            size = min(cases, max(least, math.ceil(cases / part)))
            found[size] = found.get(size, 0.0) + self.alpha * SUITE * spent
        return found

    @cached_property
    def shuffled(self) -> tuple[Pair, ...]:
        """The pairs that slices begin with, in an order that depends on the cases' names but not on their scores."""
        return tuple(sorted(self.complete, key=lambda pair: (zlib.crc32(repr(pair.key).encode()), repr(pair.key))))

    def _slice_rows(self, size: int) -> list[_Row]:
        """Per case its first pass, one more run and one control run; empty until all of them are made."""
        chosen = self.shuffled[:size]
        if not all(pair.control and pair.again for pair in chosen):
            return []
        return [_Row(pair, pair.attempts[: pair.first + 1], pair.control[:1]) for pair in chosen]

    def slice_test(self, size: int) -> MeanTest | None:
        """Test the suite's mean over the first pass and the further runs of a slice; None until those are made.

        The slice must also be below its control alone, including in the interleaved runs.
        """
        rows = self._slice_rows(size)
        if not rows:
            return None
        rest = [_Row(pair, pair.attempts[: pair.first], ()) for pair in self.shuffled[size:]]
        test = self._mean_test([*rows, *rest], self.slices[size])
        control = sum(fmean(row.control) for row in rows) / size
        interleaved = sum(fmean(row.pair.interleaved[:1] or row.now[-1:]) for row in rows) / size
        if not test.sure or self._drop(control, interleaved) < test.drop / 2:
            return test
        strata = [self.grid.stratum(counted(row.control), row.now) for row in rows]
        return replace(test, confirmed=lower_than_reference(strata) <= BESIDE_CONTROL)

    @cached_property
    def main_collapse(self) -> Collapse | None:
        """The drop, if main's own agent lost at least half of its mean as well and this change is no worse than it.

        No number of runs can show the effect of the change then.
        """
        if not self.fell_far:
            return None
        least = min(MAIN_SLICE, max(self.slices))
        found = (self.collapse_of(size) for size in self.slices if size >= least)
        return next((collapse for collapse in found if collapse is not None), None)

    def collapse_of(self, size: int) -> Collapse | None:
        """The collapse that one slice shows; None if it shows none or was not run."""
        test = self.slice_test(size)
        if test is None or test.beyond or self.grid.minimize:
            return None
        rows = self._slice_rows(size)
        before = sum(row.pair.past.mean for row in rows) / size
        now = sum(fmean(row.now) for row in rows) / size
        main = sum(fmean(row.control) for row in rows) / size
        lost = self._main_fell(rows) and before - max(now, main) >= LOST * abs(before)
        return Collapse(size, before, now, main) if lost else None


def never_differed(pairs: Iterable[Pair]) -> bool:
    """Whether the scores of main's agent never varied in at least ``STABLE_REPEATS`` repeated attempts."""
    histories = [pair.past for pair in pairs]
    constant = all(past.high - past.low <= TOLERANCE * max(1.0, abs(past.high)) for past in histories)
    return constant and sum(past.n - 1 for past in histories) >= STABLE_REPEATS


def assess(state: GateState, rules: GateRules) -> dict[str, CriterionEvidence]:
    """The evidence by criterion, sorted by name; without pairs if none has history and may block."""
    groups: dict[str, list[Pair]] = {}
    goals = {pair.criterion: pair.goal for pair in state.pairs}
    policies = {name: rules.policy.for_criterion(name, goals[name]) for name in sorted(goals)}
    sets = rules.policy.sets
    for pair in state.pairs:
        if sets and sets.get(pair.key.eval_set, "blocking") != "blocking":
            continue
        may_block = policies[pair.criterion].mode == "blocking"
        if may_block and pair.history and not pair.added and pair.again >= 0:
            groups.setdefault(pair.criterion, []).append(pair)
    return {
        name: CriterionEvidence(
            criterion=name,
            pairs=tuple(sorted(pairs, key=lambda pair: pair.key)),
            policy=policy,
            rules=rules,
            alpha=(1 - rules.policy.confidence) / max(1, len(groups)),
            control=state.control and any(pair.controllable for pair in pairs),
        )
        for name, policy in policies.items()
        for pairs in [groups.get(name, [])]
    }
