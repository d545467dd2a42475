"""The tests of one criterion's suspects: each by itself, all of them together, and what became of each. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from agent_eval_action.gate.evidence import PairEvidence
from agent_eval_action.gate.grid import known, mean
from agent_eval_action.gate.held import HeldAgainst
from agent_eval_action.gate.tested import Status, SuspectTest, TogetherTest
from agent_eval_action.stats import holm, lower_than_reference

FRESH_LOOKS: Final = ((5, 0.2), (10, 0.3), (20, 0.5))
"""Fresh runs of every suspect at each look, and the part of the error spent there."""
SINGLE, TOGETHER, SUITE = 0.3, 0.3, 0.4
"""How a criterion's error is split over its three tests."""
STABLE_RUNS: Final = 3
CONTROL_RUNS: Final = 10
"""Runs of the base commit's agent that control a suspect; of one in a stable suite as many as of the change."""


class SuspectEvidence(HeldAgainst):
    """Which pairs are suspects, and the tests over their fresh runs."""

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

    @cached_property
    def together_confirmed(self) -> bool:
        """Whether the suspects together are worse, after their control where there is one."""
        return (self.controlled or not self.control) and self.together(control=True).confirmed


def _spent(runs: int) -> float:
    return next((part for least, part in reversed(FRESH_LOOKS) if least <= runs), FRESH_LOOKS[0][1])
