"""The evidence of a run: which suspects are confirmed, which are cleared, whether a suite's mean fell. Pure.

What a criterion is held against is in ``held``, its suspects' tests in ``suspected``, the suite's here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from agent_eval_action.gate.evidence import GateState, PairEvidence, Rules
from agent_eval_action.gate.grid import mean
from agent_eval_action.gate.suspected import SUITE, SuspectEvidence
from agent_eval_action.gate.tested import Status, SuiteTest
from agent_eval_action.stats import Stratum, lower_than_reference

SUITE_LOOKS: Final = (0.1, 0.1, 0.15, 0.15, 0.2, 0.3)
"""The part of the suite's error spent at each pass."""


@dataclass(frozen=True)
class Assessment:
    """The evidence of a run, by criterion."""

    criteria: tuple[CriterionEvidence, ...] = ()

    @property
    def blocked(self) -> bool:
        """Whether anything is confirmed."""
        return any(one.confirmed for one in self.criteria)


class CriterionEvidence(SuspectEvidence):
    """The tests of one criterion: its suspects', and the suite's mean."""

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
    def confirmed(self) -> bool:
        """Whether anything of this criterion blocks."""
        if any(test.status is Status.CONFIRMED for test in self.tests):
            return True
        if self.together_confirmed:
            return True
        return self.suite_test is not None and self.suite_test.confirmed


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
