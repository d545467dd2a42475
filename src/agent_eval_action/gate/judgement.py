"""One criterion of a run under its policy: what may block, limits, intervals, and improvements. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Final, Literal

from agent_eval_action.config.models import CriterionPolicy
from agent_eval_action.gate.assess import CriterionEvidence, Status, SuspectTest, never_differed
from agent_eval_action.gate.pairs import (
    NEW_CASE,
    TOLERANCE,
    GateRules,
    Pair,
    ScoreGrid,
    is_binary,
    mean_of,
)
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import CriterionChange
from agent_eval_action.results.findings import Finding, Severity
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.results.run_result import Goal
from agent_eval_action.stats import (
    Interval,
    Stratum,
    clustered,
    detectable_drop,
    holm,
    lower_than_reference,
    newcombe,
    welch,
)

_IMPROVED_PAIRS, _IMPROVED_MEAN = 0.5, 0.5
"""How a criterion's error is split between its pairs and its mean when testing for improvements."""
_MOST_SCORES: Final = 2_000


@dataclass(frozen=True, slots=True)
class Improvement:
    """Significant improvements of one criterion: which cases, and whether the mean over the cases is better."""

    cases: frozenset[CaseKey] = frozenset()
    mean: bool = False
    p: float = 1.0


@dataclass(frozen=True)
class CriterionJudgement:
    """A criterion over its pairs, under the run's policy and its own.

    ``collecting``: the threshold is only a default and there is no baseline yet, so the criterion blocks nothing.
    ``cut_short``: the limit that ended the re-runs early.
    """

    pairs: tuple[Pair, ...]
    evidence: CriterionEvidence
    improvement: Improvement
    collecting: bool
    cut_short: str

    @property
    def name(self) -> str:
        return self.evidence.criterion

    @property
    def policy(self) -> CriterionPolicy:
        return self.evidence.policy

    @property
    def goal(self) -> Goal:
        return self.pairs[0].goal

    @cached_property
    def compared(self) -> tuple[Pair, ...]:
        """The pairs with comparable scores on both sides."""
        return tuple(pair for pair in self.pairs if pair.change is not None)

    @cached_property
    def baseline(self) -> float | None:
        """Main's mean over the compared pairs."""
        return mean_of(pair.baseline.mean for pair in self.compared if pair.baseline)

    @cached_property
    def paired(self) -> float | None:
        """This run's mean over the compared pairs."""
        return mean_of(pair.current.mean for pair in self.compared if pair.current)

    @property
    def change(self) -> float | None:
        return None if self.paired is None or self.baseline is None else self.paired - self.baseline

    # --- evidence -----------------------------------------------------------------------------------

    def test(self, pair: Pair) -> SuspectTest | None:
        """A suspect's test; None for other pairs."""
        return self.evidence.tests.get(pair.key)

    def status(self, pair: Pair) -> Status | None:
        """A suspect's status; None for other pairs."""
        test = self.test(pair)
        return test.status if test else None

    def interval(self, pair: Pair) -> Interval | None:
        """The 95 % confidence interval of a pair's change, over its fresh runs if it has any."""
        if not pair.history or not pair.attempts:
            return None
        test = self.test(pair)
        found = interval_of(pair, test.fresh if test and test.fresh else pair.attempts)
        return _within_scale(found, [pair]) if found else None

    # --- what may block -----------------------------------------------------------------------------

    @property
    def gating(self) -> bool:
        """Whether this criterion can block. A lower-is-better one needs a configured limit."""
        return self.policy.mode == "blocking" and (self.goal == "maximize" or self.has_limit)

    @property
    def has_limit(self) -> bool:
        """Whether there is a threshold, a baseline or a limit to miss."""
        thresholds = self.policy.threshold_on != "off" and any(pair.threshold is not None for pair in self.pairs)
        compared = self.goal == "maximize" and bool(self.compared)
        return thresholds or compared or self.policy.max_drop is not None or self.policy.max_rise is not None

    @property
    def severity(self) -> Literal["blocks", "advisory"]:
        return "blocks" if self.gating and not self.collecting else "advisory"

    def severity_of(self, pair: Pair) -> Literal["blocks", "advisory"]:
        """The effect for one pair. Added and advisory pairs never block, new cases only if the policy says so."""
        rules = self.evidence.rules.policy
        advised = pair.incomparable == NEW_CASE and rules.new_cases == "advise"
        if pair.added or advised or rules.sets.get(pair.key.eval_set) == "advisory":
            return "advisory"
        return self.severity

    def threshold_counts(self, pair: Pair) -> bool:
        """Whether missing its threshold counts against this pair, whatever main scores."""
        if self.policy.threshold_on == "case":
            return True
        return self.policy.threshold_on == "regression" and pair.incomparable is not None and not pair.accepted

    def misses_threshold(self, pair: Pair) -> bool:
        """Whether the threshold alone makes the run fail, even if the change is accepted."""
        return pair.below and self.threshold_counts(pair) and self.severity_of(pair) == "blocks"

    def blocks(self, pair: Pair) -> bool:
        if self.status(pair) is Status.CONFIRMED:
            return self.severity == "blocks"
        return self.misses_threshold(pair)

    def missed_suite_thresholds(self) -> Iterator[tuple[float, float, int]]:
        """Mean, threshold and number of cases for each missed threshold, if the policy applies thresholds to means."""
        groups: dict[float, list[float]] = {}
        for pair in self.pairs if self.policy.threshold_on == "suite" else ():
            if pair.current is not None and pair.threshold is not None:
                groups.setdefault(pair.threshold, []).append(pair.current.mean)
        for threshold, scores in sorted(groups.items()):
            average = mean_of(scores)
            # means of equal scores may differ in the last binary digit, which must not decide
            if average is None or math.isclose(average, threshold, rel_tol=TOLERANCE):
                continue
            if not meets(average, threshold, self.goal):
                yield average, threshold, len(scores)

    @property
    def limit_exceeded(self) -> float | None:
        """The policy's limit that the change of the mean exceeds; None if it exceeds none."""
        before, change = self.baseline, self.change
        if before is None or change is None:
            return None
        slack = TOLERANCE * max(1.0, abs(before))
        drop, rise = self.policy.max_drop, self.policy.max_rise
        if drop is not None and -change > drop + slack:
            return drop
        return rise if rise is not None and change > rise * abs(before) + slack else None

    # --- the line in the table ----------------------------------------------------------------------

    def row(self, findings: Sequence[Finding]) -> CriterionChange:
        """The criterion's line in the table. ``findings``: those about this criterion."""
        scored = [pair for pair in self.pairs if pair.current is not None]
        with_threshold = [pair for pair in scored if pair.threshold is not None]
        thresholds = {pair.threshold for pair in self.pairs}
        errors = sum(1 for pair in self.pairs if pair.errors)
        interval = clustered([pair.change for pair in self.compared if pair.change is not None])
        return CriterionChange(
            criterion=self.name,
            goal=self.goal,
            unit=self.pairs[0].unit,
            threshold=next(iter(thresholds)) if len(thresholds) == 1 else None,
            current=mean_of(pair.current.mean for pair in scored if pair.current),
            baseline=self.baseline,
            paired=self.paired,
            change=self.change,
            interval=_within_scale(interval, self.compared) if interval else None,
            detectable=_smallest_drop(self.evidence),
            flaky=sum(self.status(pair) is Status.CLEARED for pair in self.pairs),
            pairs=len(self.pairs),
            compared=len(self.compared),
            passing=sum(not pair.below for pair in with_threshold),
            failing=sum(pair.below for pair in with_threshold),
            errors=errors,
            misses_suite_threshold=self.severity == "blocks" and any(self.missed_suite_thresholds()),
            max_drop=self.policy.max_drop,
            max_rise=self.policy.max_rise,
            status=self._row_status({found.severity for found in findings}, scored=len(scored), errors=errors),
            blocks_nothing=self._blocks_nothing(),
        )

    def _row_status(
        self, severities: set[Severity], *, scored: int, errors: int
    ) -> Literal["pass", "fail", "error", "advisory", "not_applicable"]:
        if not scored and not errors:
            return "not_applicable"
        if "blocks" in severities:
            return "fail"
        if not self.gating:
            return "advisory"
        if errors:
            return "error"
        return "advisory" if "advisory" in severities else "pass"

    def _blocks_nothing(self) -> Literal["", "advisory", "no_limit", "collecting"]:
        if self.policy.mode == "advisory":
            return "advisory"
        if not self.has_limit:
            return "no_limit"
        return "collecting" if self.collecting else ""


def pairs_of(criteria: Iterable[CriterionJudgement], *, gating: bool = False) -> list[Pair]:
    """All pairs of these criteria; ``gating``: only of criteria that can block."""
    return [pair for criterion in criteria if criterion.gating or not gating for pair in criterion.pairs]


# --- improvements: they decide nothing, and no run is spent on them ---------------------------------


def improvements(pairs: Sequence[Pair], rules: GateRules) -> Mapping[str, Improvement]:
    """Significant improvements by criterion. The error is split between the criteria as for regressions."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.history and pair.attempts and not pair.errors:
            groups.setdefault(pair.criterion, []).append(pair)
    alpha = (1 - rules.policy.confidence) / max(1, len(groups))
    return {name: _improvement(own, alpha, rules.policy.min_effect) for name, own in groups.items()}


def _improvement(pairs: Sequence[Pair], alpha: float, min_effect: float) -> Improvement:
    grid = ScoreGrid.for_pairs(pairs)
    sign = -1 if grid.minimize else 1
    # re-runs were requested because the first pass was bad: regression to the mean is no improvement
    rises = [sign * (fmean(pair.attempts[: pair.first]) - pair.past.mean) for pair in pairs]
    # sides swapped: tests whether main's scores are lower than this run's
    strata = [grid.stratum(pair.history, pair.attempts[: pair.first]) for pair in pairs]
    strata = [Stratum(reference=found.current, current=found.reference) for found in strata]
    own = [lower_than_reference([stratum]) if up > 0 else 1.0 for stratum, up in zip(strata, rises, strict=True)]
    stable = never_differed(pairs)
    better = frozenset(
        pair.key
        for pair, rise, p in zip(pairs, rises, holm(own), strict=True)
        if rise > 0 and (grid.minimize or rise >= min_effect) and (stable or p <= alpha * _IMPROVED_PAIRS)
    )
    p = lower_than_reference(strata) if sum(rises) > 0 else 1.0
    return Improvement(better, p <= alpha * _IMPROVED_MEAN, p)


# --- intervals: displayed only ----------------------------------------------------------------------


def interval_of(pair: Pair, current: tuple[float, ...]) -> Interval | None:
    """Newcombe's interval of pass rates if every score is 0 or 1, else Welch's of means."""
    past = pair.past
    if is_binary(current, [score for score, _ in pair.history]):
        return newcombe((round(past.mean * past.n), past.n), (round(sum(current)), len(current)))
    if past.n > _MOST_SCORES:
        return None
    return welch([score for score, times in pair.history for _ in range(times)], current)


def _within_scale(interval: Interval, pairs: Sequence[Pair]) -> Interval:
    """Clip the interval of a change: starting from the baseline, no score can leave the criterion's scale.

    Scores outside the declared scale widen it.
    """
    before = [pair.baseline.mean for pair in pairs if pair.baseline]
    if not before:
        return interval
    middle = sum(before) / len(before)
    infos = [pair.measured.info for pair in pairs if pair.measured]
    seen = [end for pair in pairs for stat in (pair.baseline, pair.current) if stat for end in (stat.low, stat.high)]
    lows, highs = [info.low for info in infos], [info.high for info in infos]
    low = -math.inf if None in lows or not lows else min(*(end for end in lows if end is not None), *seen)
    high = math.inf if None in highs or not highs else max(*(end for end in highs if end is not None), *seen)
    return max(interval[0], low - middle), min(interval[1], high - middle)


def _smallest_drop(found: CriterionEvidence) -> float | None:
    """The drop of the suite's mean that this run would detect with 80 % power; None if it tests for none."""
    if found.suite_test is None or found.grid.minimize:
        return None
    sizes = [(_variance(pair), pair.past.n, pair.first + found.again) for pair in found.complete]
    drop = detectable_drop(sizes, found.suite_test.level)
    return None if drop is None else max(drop, found.policy.max_drop or 0.0)


def _variance(pair: Pair) -> float:
    """The variance of one attempt. Half a failure is added to pass rates: a constant history may still vary."""
    past = pair.past
    if is_binary([score for score, _ in pair.history]):
        rate = (past.mean * past.n + 0.5) / (past.n + 1)
        return rate * (1 - rate)
    return sum(times * (score - past.mean) ** 2 for score, times in pair.history) / max(1, past.n - 1)
