"""The evidence of a run: which suspects are confirmed, which are cleared, whether a suite's mean fell. Pure.

docs/statistics.md says why each number is what it is; benchmarks/gate_fidelity.py measures them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from agent_eval_action.gate.evidence import CriterionRule, GateState, PairEvidence, Rules
from agent_eval_action.gate.grid import Grid, known, mean
from agent_eval_action.gate.tested import Status, SuiteTest, SuspectTest, TogetherTest
from agent_eval_action.model.measured import meets
from agent_eval_action.stats import Levels, Stratum, holm, lower_than_reference

FRESH_LOOKS: Final = ((5, 0.2), (10, 0.3), (20, 0.5))
"""Fresh runs of every suspect at each look, and the part of the error spent there."""
SUITE_LOOKS: Final = (0.1, 0.1, 0.15, 0.15, 0.2, 0.3)
"""The part of the suite's error spent at each pass."""
SINGLE, TOGETHER, SUITE = 0.3, 0.3, 0.4
"""How a criterion's error is split over its three tests."""
STABLE_REPEATS: Final = 30
STABLE_RUNS: Final = 3
CONTROL_RUNS: Final = 10
"""Runs of the base commit's agent that control a suspect; of one in a stable suite as many as of the change."""
DRIFTED: Final = 0.05
"""A control this surely below history shows that main is no longer what its history says."""


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

    @property
    def share(self) -> float:
        """The part of the run's error, and of its doubts, that is this criterion's."""
        return self.alpha / (1 - self.rules.confidence)

    # --- suspects ---------------------------------------------------------------------------------

    @cached_property
    def stable(self) -> bool:
        """Whether main's agent never differed in at least thirty repeated attempts."""
        histories = [known(pair.history) for pair in self.pairs]
        return sum(one.n - 1 for one in histories) >= STABLE_REPEATS and all(one.constant for one in histories)

    @cached_property
    def suspects(self) -> tuple[PairEvidence, ...]:
        """Pairs worse than their own history in the first pass, chosen by that pass alone."""
        if self.grid.minimize:
            return ()
        return tuple(pair for pair in self.pairs if self._suspect(pair))

    def _suspect(self, pair: PairEvidence) -> bool:
        past = known(pair.history)
        now = mean(pair.attempts[: pair.first])
        if not self.large(pair, past.mean, now):
            return False
        if self.plain(pair) or self.stable or not self.rules.adaptive:
            return True
        as_low = sum(times for score, times in pair.history if score <= now)
        return as_low < past.n / 10

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

    def runs(self, pair: PairEvidence) -> int:
        """Runs of a suspect that count: down to the last look it reached."""
        made = len(self.evidence(pair))
        if not self.rules.adaptive:
            return made
        return next((runs for runs, _ in reversed(FRESH_LOOKS) if runs <= made), made)

    @cached_property
    def common(self) -> int:
        """Fresh runs every suspect has, which is what they are tested together on: one design for all of them."""
        if not self.rules.adaptive:
            return 0
        return min((self.runs(pair) for pair in self.suspects if not pair.errors), default=0)

    def agrees(self, pair: PairEvidence) -> bool:
        """In a stable suite: whether three more runs were all as much worse as the first."""
        return self.agreeing(pair) and len(self.fresh(pair, STABLE_RUNS)) == STABLE_RUNS

    def needs(self, pair: PairEvidence) -> int:
        """Runs of the base commit's agent that control a suspect. Scores it did not give cannot be waited for."""
        wanted = STABLE_RUNS if self.agreeing(pair) else CONTROL_RUNS
        return max(0, wanted - max(pair.tried, len(pair.control))) if self.control else 0

    def lasting(self, pair: PairEvidence) -> bool:
        """Whether a change did worse in turn with the base's agent, too: what was over by then was not the change."""
        return not pair.beside or self.large(pair, self.reference_mean(pair, control=True), mean(pair.beside))

    def agreeing(self, pair: PairEvidence) -> bool:
        """In a stable suite: whether the runs so far were all as much worse as the first."""
        again, past = self.fresh(pair, STABLE_RUNS), known(pair.history).mean
        return self.stable and bool(again) and all(self.large(pair, past, score) for score in again)

    def recovered(self, pair: PairEvidence) -> bool:
        """In a stable suite: whether three more runs were all as on main."""
        again, past = self.fresh(pair, STABLE_RUNS), known(pair.history).mean
        return self.stable and len(again) == STABLE_RUNS and not any(self.large(pair, past, score) for score in again)

    def spent(self, pair: PairEvidence) -> float:
        """The part of the error that belongs to a suspect's look."""
        return _spent(self.runs(pair)) if self.rules.adaptive else 1.0

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

    def together(self, control: bool) -> TogetherTest:
        """All suspects in one exact test stratified by case."""
        runs = self.common
        level = self.alpha * TOGETHER * _spent(runs)
        if not runs:
            return TogetherTest(1.0, 0.0, level)
        p = lower_than_reference([self.stratum(pair, runs, control) for pair in self.suspects])
        drops = [self.reference_mean(pair, control) - mean(self.fresh(pair, runs)) for pair in self.suspects]
        drop, least = sum(drops) / len(drops), self.rules.min_effect / 2
        beside = [self.reference_mean(pair, control) - mean(pair.beside) for pair in self.suspects if pair.beside]
        lasting = not beside or sum(beside) / len(beside) >= least
        return TogetherTest(p, drop, level, p <= level and drop >= least and lasting)

    @property
    def controlled(self) -> bool:
        """Whether every suspect was run on the base commit's agent."""
        return bool(self.suspects) and not any(self.needs(pair) for pair in self.suspects)

    @cached_property
    def tests(self) -> tuple[SuspectTest, ...]:
        """Every suspect with what became of it, as far as the runs go."""
        found = []
        for pair, p in zip(self.suspects, self.adjusted(control=True), strict=True):
            runs = self.fresh(pair, self.runs(pair))
            drop = self.reference_mean(pair, control=True) - mean(runs) if runs else 0.0
            found.append(SuspectTest(pair, runs, p, drop, self._status(pair, p <= self.alpha * SINGLE)))
        return tuple(found)

    def _status(self, pair: PairEvidence, sure: bool) -> Status:
        if self.agrees(pair) and (status := self._stable_status(pair)):
            return status
        runs = self.runs(pair)
        if not runs:
            return Status.OPEN
        large = self.large(pair, self.reference_mean(pair, control=True), mean(self.fresh(pair, runs)))
        if sure and large and self.lasting(pair):
            return Status.UNCONTROLLED if self.needs(pair) else Status.CONFIRMED
        if self.moved(pair):
            return Status.ON_MAIN
        return (
            Status.CLEARED
            if self.recovered(pair) or runs >= FRESH_LOOKS[0][0] or not self.rules.adaptive
            else Status.OPEN
        )

    def _stable_status(self, pair: PairEvidence) -> Status | None:
        """What three agreeing runs say, given the control; None where the control itself is of two minds."""
        if self.needs(pair) or not pair.control:
            return Status.UNCONTROLLED if self.needs(pair) else Status.CONFIRMED
        worst = max(self.fresh(pair, STABLE_RUNS))
        better = [self.large(pair, score, worst) for score in pair.control]
        if not any(better):
            return Status.ON_MAIN
        return Status.CONFIRMED if all(better) else None

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
        level = self.alpha * SUITE * spent
        control = control and all(pair.control for pair in self.whole)
        now = sum(mean(self.passed(pair, passes)) for pair in self.whole) / len(self.whole)
        before = sum(self.reference_mean(pair, control) for pair in self.whole) / len(self.whole)
        drop = now - before if self.grid.minimize else before - now
        beyond = self._beyond(before, drop)
        if drop <= 0:
            return SuiteTest(passes, 1.0, drop, level, False)
        p = lower_than_reference(
            Stratum(self._reference(pair, control), self.grid.levels(self.passed(pair, passes))) for pair in self.whole
        )
        sure = beyond and p <= level and self._suite_lasting()
        return SuiteTest(passes, p, drop, level, beyond, sure and (control or not self.control))

    def _suite_lasting(self) -> bool:
        """Whether the mean was worse in turn with the base's agent, too."""
        if not all(pair.beside for pair in self.whole):
            return True
        drop = sum(self.reference_mean(pair, control=True) - mean(pair.beside) for pair in self.whole)
        return drop < 0 if self.grid.minimize else drop > 0

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
    def together_confirmed(self) -> bool:
        """Whether the suspects together are worse, after their control where there is one."""
        return (self.controlled or not self.control) and self.together(control=True).confirmed

    @cached_property
    def confirmed(self) -> bool:
        """Whether anything of this criterion blocks."""
        if any(test.status is Status.CONFIRMED for test in self.tests):
            return True
        if self.together_confirmed:
            return True
        return self.suite_test is not None and self.suite_test.confirmed


def _yes_or_no(scores: Sequence[float]) -> bool:
    return all(score in {0.0, 1.0} for score in scores)


def _spent(runs: int) -> float:
    return next((part for least, part in reversed(FRESH_LOOKS) if least <= runs), FRESH_LOOKS[0][1])


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
