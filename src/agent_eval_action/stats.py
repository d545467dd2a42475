"""Exact tests, intervals and corrections on plain numbers. docs/statistics.md cites the literature for each.

Higher is always better: a test asks whether the current numbers are *lower* than the reference's.
scipy and numpy are imported on use, so that a run without statistics does not pay for them.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

Score = TypeVar("Score", int, float)
Levels = tuple[tuple[int, int], ...]
"""Integer scores with their counts, sorted by score."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """One case: its reference scores and its current ones, as integers (passes are 1, failures 0)."""

    reference: Levels
    current: Levels


def warm_up() -> None:
    """Import numpy and scipy before the first test; to be called in a thread."""
    for name in ("numpy", "scipy.special"):
        importlib.import_module(name)


def counted(scores: Iterable[Score]) -> tuple[tuple[Score, int], ...]:
    """The distinct scores with the number of times that each occurs, sorted by score."""
    return tuple(sorted(Counter(scores).items()))


def passes(passed: int, n: int) -> Levels:
    """The counts of a pass/fail score."""
    return counted([0] * (n - passed) + [1] * passed)


def lower_than_reference(strata: Iterable[Stratum]) -> float:
    """One-sided p: the chance of current scores this low if each case's scores come from one distribution.

    The exact conditional test stratified by case: within a case every assignment of its scores to
    reference and current is equally likely, and the sum of the current scores over all cases is
    compared with its exact distribution. One stratum of passes is Fisher's exact test; several are
    the exact conditional Cochran–Mantel–Haenszel test; graded scores make it Pitman's permutation test.
    """
    informative = [found for stratum in strata if (found := _informative(stratum.reference, stratum.current))]
    if not informative:
        return 1.0
    import numpy as np  # noqa: PLC0415 - only tests and intervals need it

    total = sum(observed for _, _, observed in informative)
    kinds = Counter((pool, draws) for pool, draws, _ in informative)
    sums: Floats = np.ones(1)
    for (pool, draws), times in sorted(kinds.items()):  # sorted, so that p does not depend on the order of the strata
        for _ in range(times):
            # sums above the observed one never fall below it again
            sums = np.convolve(sums, _sums(pool, draws))[: total + 1]
    return min(1.0, float(sums.sum()))


@lru_cache(maxsize=50_000)
def _informative(reference: Levels, current: Levels) -> tuple[Levels, int, int] | None:
    """A stratum's pool, shifted to start at 0, the number of draws and their sum; None if all scores are equal."""
    both = Counter(dict(reference))
    both.update(dict(current))
    pooled = tuple(sorted(both.items()))
    draws = sum(times for _, times in current)
    if len(pooled) < 2 or not 0 < draws < sum(times for _, times in pooled):  # noqa: PLR2004 - two scores that differ
        return None
    low = pooled[0][0]
    return tuple((level - low, times) for level, times in pooled), draws, sum((x - low) * times for x, times in current)


@lru_cache(maxsize=20_000)
def _sums(pool: Levels, draws: int) -> Floats:
    """Distribution of the sum of ``draws`` scores drawn from the pool without replacement; the lowest level is 0."""
    import numpy as np  # noqa: PLC0415 - only tests and intervals need it

    if len(pool) == 2 and pool[1][0] == 1:  # noqa: PLR2004 - failures and passes: the hypergeometric distribution
        failures, passed = pool[0][1], pool[1][1]
        total = math.comb(failures + passed, draws)
        range_of_passes = range(min(draws, passed) + 1)
        return np.array([math.comb(passed, x) * math.comb(failures, draws - x) / total for x in range_of_passes])
    if draws == 1:
        single: Floats = np.zeros(pool[-1][0] + 1)
        n = sum(times for _, times in pool)
        for level, times in pool:
            single[level] = times / n
        return single
    highest = draws * pool[-1][0]
    ways: Floats = np.zeros((draws + 1, highest + 1))
    ways[0, 0] = 1.0
    seen = 0
    for level, times in pool:
        for _ in range(times):
            seen += 1
            # normalising keeps the counts within the range of a float
            taken = min(seen, draws)
            shift = ways[:taken, : highest + 1 - level]
            ways[1 : taken + 1, level:] = ways[1 : taken + 1, level:] + shift
        ways /= ways.sum()
    row: Floats = ways[draws] / ways[draws].sum()
    return row


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjustment, which controls the family-wise error rate."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return tuple(adjusted)


# --- intervals ------------------------------------------------------------------------------------

Interval = tuple[float, float]
"""The ends of a 95 % confidence interval."""

_CONFIDENCE: Final = 0.95
_POWER: Final = 0.8


def wilson(passed: float, n: int) -> Interval:
    """Wilson's score interval of a pass rate."""
    z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    rate = passed / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if passed == 0 else max(0.0, middle - half)
    return low, 1.0 if passed == n else min(1.0, middle + half)


def newcombe(reference: tuple[int, int], current: tuple[int, int]) -> Interval:
    """Newcombe's hybrid score interval of current minus reference pass rate. Pairs are (passed, n)."""
    before, now = reference[0] / reference[1], current[0] / current[1]
    low_before, high_before = wilson(*reference)
    low_now, high_now = wilson(*current)
    change = now - before
    low = change - math.hypot(now - low_now, high_before - before)
    high = change + math.hypot(high_now - now, before - low_before)
    return max(-1.0, low), min(1.0, high)


def welch(reference: Sequence[float], current: Sequence[float]) -> Interval | None:
    """Welch's interval of current minus reference mean; Student's, with one variance, if a side has one score.

    None if both sides have a single score, which says nothing about the spread.
    """
    sizes = len(reference), len(current)
    change = fmean(current) - fmean(reference)
    if max(sizes) < 2:  # noqa: PLR2004 - one score has no variance
        return None
    if min(sizes) < 2:  # noqa: PLR2004 - as above
        variance = _variance(max(reference, current, key=len))
        return _interval(change, variance * (1 / sizes[0] + 1 / sizes[1]), max(sizes) - 1)
    first, second = _variance(reference) / sizes[0], _variance(current) / sizes[1]
    small = first**2 / (sizes[0] - 1) + second**2 / (sizes[1] - 1)
    if small == 0:  # no variance, or one whose square underflows
        return change, change
    return _interval(change, first + second, (first + second) ** 2 / small)


def clustered(changes: Sequence[float]) -> Interval | None:
    """Student's interval of the mean change, one value per case: repeats of a case are one observation."""
    n = len(changes)
    return _interval(fmean(changes), _variance(changes) / n, n - 1) if n > 1 else None


def _interval(middle: float, variance: float, freedom: float) -> Interval:
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # noqa: PLC0415 - only tests and intervals need it

    half = float(stdtrit(freedom, (1 + _CONFIDENCE) / 2)) * math.sqrt(variance)
    return middle - half, middle + half


def detectable_drop(variances: Sequence[tuple[float, int, int]], alpha: float) -> float | None:
    """The drop of the suite's mean that is detected with 80 % power, by the normal approximation.

    ``variances``: per case the variance of its scores and the numbers of reference and current attempts.
    """
    if not variances:
        return None
    spread = sum(variance * (1 / before + 1 / now) for variance, before, now in variances)
    return (NormalDist().inv_cdf(1 - alpha) + NormalDist().inv_cdf(_POWER)) * math.sqrt(spread) / len(variances)


def _variance(values: Sequence[float]) -> float:
    middle = fmean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)
