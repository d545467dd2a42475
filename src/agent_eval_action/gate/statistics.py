"""The tests of a compared run by pair and criterion, its intervals, and what got better than main. Pure.

What got better decides nothing and no run is spent on it: the attempts that there are, are the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent_eval_action.config.models import Policy
from agent_eval_action.gate.assess import CriterionEvidence, Status, SuspectTest, assess
from agent_eval_action.gate.evidence import (
    EvidenceRules,
    GateState,
    Key,
    PairEvidence,
    ScoreQuantizer,
    history_stats,
    mean,
)
from agent_eval_action.gate.pairs import ComparedCriterion, ComparedPair, Comparison, rules_of, state_of
from agent_eval_action.results.pair_scores import PairScores
from agent_eval_action.results.run_result import CaseKey, RunResult
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

_PAIRS, _MEAN = 0.5, 0.5
"""How a criterion's error is split over its pairs and its mean."""
_STABLE_REPEATS: Final = 30


@dataclass(frozen=True, slots=True)
class Improvement:
    """What of one criterion is better beyond chance. ``mean``: by how much its mean over the cases is, if it is."""

    criterion: str
    cases: frozenset[Key] = frozenset()
    mean: float | None = None
    p: float = 1.0


def improvements(state: GateState, rules: EvidenceRules) -> tuple[Improvement, ...]:
    """Of every criterion with history, sorted by name. The error is split over the criteria as for what got worse."""
    groups: dict[str, list[PairEvidence]] = {}
    for pair in state.pairs:
        if pair.history and pair.attempts and not pair.errors:
            groups.setdefault(pair.criterion, []).append(pair)
    alpha = (1 - rules.confidence) / max(1, len(groups))
    return tuple(_improvement(name, groups[name], alpha, rules.min_effect) for name in sorted(groups))


def _improvement(name: str, pairs: Sequence[PairEvidence], alpha: float, least: float) -> Improvement:
    grid = ScoreQuantizer.for_pairs(pairs, pairs[0].goal)
    sign = -1 if grid.minimize else 1
    # what a suspect has beyond the first pass was asked for because that was bad: it is no evidence of a rise
    rises = [sign * (mean(pair.attempts[: pair.first]) - history_stats(pair.history).mean) for pair in pairs]
    strata = [_stratum(grid, pair) for pair in pairs]
    own = [lower_than_reference([stratum]) if up > 0 else 1.0 for stratum, up in zip(strata, rises, strict=True)]
    adjusted = holm(own)
    steady = _never_differed(pairs)
    better = frozenset(
        pair.case
        for pair, rise, p in zip(pairs, rises, adjusted, strict=True)
        if rise > 0 and (grid.minimize or rise >= least) and (steady or p <= alpha * _PAIRS)
    )
    rise = sum(rises) / len(rises)
    p = lower_than_reference(strata) if rise > 0 else 1.0
    return Improvement(name, better, rise if p <= alpha * _MEAN else None, p)


def _stratum(grid: ScoreQuantizer, pair: PairEvidence) -> Stratum:
    """The two sides changed over: whether main's scores are lower than this run's."""
    return Stratum(grid.levels(pair.attempts[: pair.first]), grid.counted(pair.history))


def _never_differed(pairs: Sequence[PairEvidence]) -> bool:
    """Whether main's agent never differed in at least thirty repeated attempts: then any other score is a change."""
    histories = [history_stats(pair.history) for pair in pairs]
    repeated = sum(history.n - 1 for history in histories)
    return repeated >= _STABLE_REPEATS and all(history.constant for history in histories)


_MOST_SCORES = 2_000


@dataclass(frozen=True)
class EvidenceIndex:
    """Tests by pair and criterion. ``cut_short``: a limit ended the re-runs before everything was decided."""

    tests: Mapping[tuple[CaseKey, str], SuspectTest] = field(default_factory=dict)
    pairs: Mapping[tuple[CaseKey, str], PairEvidence] = field(default_factory=dict)
    criteria: Mapping[str, CriterionEvidence] = field(default_factory=dict)
    better: Mapping[str, Improvement] = field(default_factory=dict)
    cut_short: str = ""

    def test(self, pair: ComparedPair) -> SuspectTest | None:
        """What became of a suspect; None for pairs that are none."""
        return self.tests.get((pair.key, pair.criterion))

    def status(self, pair: ComparedPair) -> Status | None:
        """The same in a word."""
        test = self.test(pair)
        return test.status if test else None

    def improved(self, pair: ComparedPair) -> bool:
        """Whether a pair is better than main beyond chance."""
        found = self.better.get(pair.criterion)
        return found is not None and pair.key in found.cases

    def interval(self, pair: ComparedPair) -> Interval | None:
        """The change of a pair with 95 % confidence: over its fresh runs where it has them."""
        one = self.pairs.get((pair.key, pair.criterion))
        if one is None or not one.attempts:
            return None
        test = self.test(pair)
        found = interval_of(one, test.fresh if test and test.fresh else one.attempts)
        return within_scale(found, [pair]) if found else None


def index_evidence(comparison: Comparison, result: RunResult, policy: Policy) -> EvidenceIndex:
    """The tests of every pair with comparable history that may block."""
    history = {(pair.key, pair.criterion): pair.history for pair in comparison.pairs if pair.change is not None}
    if not history:
        return EvidenceIndex(cut_short=result.cut_short)

    def scores(pair: PairScores) -> tuple[tuple[float, int], ...]:
        return history.get((pair.key, pair.info.name), ())

    base = result.base is not None and not result.base.unavailable
    state = state_of(result, scores, policy, control=base)
    rules = rules_of(policy, result)
    found = assess(state, rules).criteria
    return EvidenceIndex(
        tests={(_key(test.pair), one.criterion): test for one in found for test in one.tests},
        pairs={(_key(pair), pair.criterion): pair for pair in state.pairs if pair.history},
        criteria={one.criterion: one for one in found},
        better={improvement.criterion: improvement for improvement in improvements(state, rules)},
        cut_short=result.cut_short,
    )


def interval_of(pair: PairEvidence, current: tuple[float, ...]) -> Interval | None:
    """Newcombe's interval of pass rates where every score is 0 or 1, Welch's of means elsewhere."""
    past = history_stats(pair.history)
    if all(score in {0.0, 1.0} for score in (*current, *(score for score, _ in pair.history))):
        return newcombe((round(past.mean * past.n), past.n), (round(sum(current)), len(current)))
    if past.n > _MOST_SCORES:
        return None
    return welch([score for score, times in pair.history for _ in range(times)], current)


def suite_interval(one: ComparedCriterion) -> Interval | None:
    """The change of a criterion's mean, 95 %: over cases, whose repeats are one observation."""
    found = clustered([pair.change for pair in one.pairs if pair.change is not None])
    return within_scale(found, [pair for pair in one.pairs if pair.change is not None]) if found else None


def within_scale(interval: Interval, pairs: Sequence[ComparedPair]) -> Interval:
    """An interval of a change cut where no score can be: from its baseline nothing leaves the criterion's scale.

    Scores beyond the scale that was declared widen it: they were there.
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


def smallest_drop(one: CriterionEvidence) -> float | None:
    """The fall of the suite's mean this run would have found four times out of five; None where none is looked for."""
    if one.suite_test is None or one.grid.minimize:
        return None
    sizes = [(_variance(pair), history_stats(pair.history).n, len(one.passed(pair, one.passes))) for pair in one.whole]
    found = detectable_drop(sizes, one.suite_test.level)
    return None if found is None else max(found, one.rule.max_drop or 0.0)


def _variance(pair: PairEvidence) -> float:
    """Of one attempt. A history that never differed may still: half a failure is added to a pass rate's."""
    past = history_stats(pair.history)
    if past.low >= 0 and past.high <= 1 and all(score in {0.0, 1.0} for score, _ in pair.history):
        rate = (past.mean * past.n + 0.5) / (past.n + 1)
        return rate * (1 - rate)
    return _spread(pair.history, past.mean) / max(1, past.n - 1)


def _spread(history: Iterable[tuple[float, int]], middle: float) -> float:
    return sum(times * (score - middle) ** 2 for score, times in history)


def _key(pair: PairEvidence) -> CaseKey:
    if not isinstance(pair.case, CaseKey):
        raise TypeError(pair.case)
    return pair.case
