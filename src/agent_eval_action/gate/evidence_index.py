"""The evidence of a compared run, looked up by pair and criterion. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent_eval_action.config.models import Policy
from agent_eval_action.gate.assess import CriterionEvidence, Status, SuspectTest, assess
from agent_eval_action.gate.compare import ComparedCriterion, ComparedPair, Comparison
from agent_eval_action.gate.evidence import PairEvidence, known
from agent_eval_action.gate.improvement import Improvement, improvements
from agent_eval_action.gate.state import rules_of, state_of
from agent_eval_action.results.pair_scores import Measured
from agent_eval_action.results.run_result import CaseKey, RunResult
from agent_eval_action.stats import Interval, clustered, detectable_drop, newcombe, welch

_MOST_SCORES = 2_000


@dataclass(frozen=True)
class Weighed:
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


def weigh(comparison: Comparison, result: RunResult, policy: Policy) -> Weighed:
    """The tests of every pair with comparable history that may block."""
    history = {(pair.key, pair.criterion): pair.history for pair in comparison.pairs if pair.change is not None}
    if not history:
        return Weighed(cut_short=result.cut_short)

    def scores(pair: Measured) -> tuple[tuple[float, int], ...]:
        return history.get((pair.key, pair.info.name), ())

    base = result.base is not None and not result.base.unavailable
    state = state_of(result, scores, policy, control=base)
    rules = rules_of(policy, result)
    found = assess(state, rules).criteria
    return Weighed(
        tests={(_key(test.pair), one.criterion): test for one in found for test in one.tests},
        pairs={(_key(pair), pair.criterion): pair for pair in state.pairs if pair.history},
        criteria={one.criterion: one for one in found},
        better={improvement.criterion: improvement for improvement in improvements(state, rules)},
        cut_short=result.cut_short,
    )


def interval_of(pair: PairEvidence, current: tuple[float, ...]) -> Interval | None:
    """Newcombe's interval of pass rates where every score is 0 or 1, Welch's of means elsewhere."""
    past = known(pair.history)
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
    sizes = [(_variance(pair), known(pair.history).n, len(one.passed(pair, one.passes))) for pair in one.whole]
    found = detectable_drop(sizes, one.suite_test.level)
    return None if found is None else max(found, one.rule.max_drop or 0.0)


def _variance(pair: PairEvidence) -> float:
    """Of one attempt. A history that never differed may still: half a failure is added to a pass rate's."""
    past = known(pair.history)
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
