"""The exact tests against scipy's, against brute force, and against what a p-value promises."""

from __future__ import annotations

import importlib
import itertools
import random
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action import stats
from agent_eval_action.stats import Stratum, counted, lower_than_reference, passes


def scipy_stats() -> Any:
    """A second to import, which only the process that runs these tests pays for."""
    return importlib.import_module("scipy.stats")


FEW = settings(max_examples=150, deadline=None)
COUNTS = st.integers(1, 25).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
SCORES = st.lists(st.integers(0, 9), min_size=1, max_size=4)
GRADED = st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=3)


def stratum(reference, current):
    return Stratum(counted(reference), counted(current))


def brute_force(pairs):
    """Every assignment of every case's scores to reference and current, one by one."""
    observed = sum(sum(current) for _, current in pairs)
    sums = [[sum(drawn) for drawn in itertools.combinations([*before, *now], len(now))] for before, now in pairs]
    every = [sum(parts) for parts in itertools.product(*sums)]
    return sum(total <= observed for total in every) / len(every)


@FEW
@given(COUNTS, COUNTS)
def test_one_stratum_of_passes_is_fishers_exact_test(before, now):
    table = [[before[0], before[1] - before[0]], [now[0], now[1] - now[0]]]
    expected = scipy_stats().fisher_exact(table, alternative="greater").pvalue
    assert lower_than_reference([stats.Stratum(stats.passes(*before), stats.passes(*now))]) == pytest.approx(
        expected, abs=1e-12
    )


@FEW
@given(st.integers(0, 14), st.integers(0, 14))
def test_single_runs_of_many_cases_are_the_sign_test(fell, rose):
    """A case with one run on either side says something only where they differ: McNemar's exact test."""
    pairs = [stratum([1], [0])] * fell + [stratum([0], [1])] * rose + [stratum([1], [1])] * 5
    expected = scipy_stats().binomtest(fell, fell + rose, alternative="greater").pvalue if fell + rose else 1.0
    assert lower_than_reference(pairs) == pytest.approx(expected, abs=1e-12)


@FEW
@given(GRADED)
def test_graded_strata_agree_with_brute_force(pairs):
    found = lower_than_reference([stratum(before, now) for before, now in pairs])
    assert found == pytest.approx(brute_force(pairs), abs=1e-12)


@FEW
@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_cases_does_not_matter(tables, shuffler):
    strata = [Stratum(passes(*before), passes(*now)) for before, now in tables]
    mixed = shuffler.sample(strata, len(strata))
    assert lower_than_reference(mixed) == lower_than_reference(strata)


@FEW
@given(GRADED, st.data())
def test_a_lower_score_is_never_less_evidence(pairs, data):
    at = data.draw(st.integers(0, len(pairs) - 1))
    now = pairs[at][1]
    n = data.draw(st.integers(0, len(now) - 1))
    lower = [*now[:n], data.draw(st.integers(-3, now[n])), *now[n + 1 :]]
    worse = [*pairs[:at], (pairs[at][0], lower), *pairs[at + 1 :]]
    before, after = (lower_than_reference([stratum(*pair) for pair in some]) for some in (pairs, worse))
    assert after <= before + 1e-12


@pytest.mark.parametrize("level", [0.001, 0.01, 0.05, 0.2])
def test_p_is_uniform_or_conservative_when_nothing_changed(level):
    chance = random.Random(7)  # noqa: S311 - a simulation
    below = 0
    for _ in range(4_000):
        strata = []
        for rate in (0.95, 0.8, 0.5):
            before, now = (sum(chance.random() < rate for _ in range(n)) for n in (10, 6))
            strata.append(Stratum(passes(before, 10), passes(now, 6)))
        below += lower_than_reference(strata) <= level
    # three standard errors of so many draws
    assert below / 4_000 <= level + 3 * (level * (1 - level) / 4_000) ** 0.5


def test_nothing_to_compare_is_no_evidence():
    assert lower_than_reference([]) == 1.0
    assert lower_than_reference([stats.Stratum(stats.passes(5, 5), stats.passes(3, 3))]) == 1.0


@FEW
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_agrees_with_its_definition(p_values):
    adjusted = stats.holm(p_values)
    for level in (0.01, 0.05, 0.3):
        rejected = set()
        for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
            if p_values[index] * (len(p_values) - rank) > level:
                break
            rejected.add(index)
        assert {index for index, p in enumerate(adjusted) if p <= level} == rejected


@FEW
@given(COUNTS)
def test_wilson_agrees_with_scipy(counts):
    expected = scipy_stats().binomtest(*counts).proportion_ci(0.95, method="wilson")
    assert stats.wilson(*counts) == pytest.approx((expected.low, expected.high), abs=1e-9)


@FEW
@given(*[st.lists(st.floats(0, 1), min_size=2, max_size=9)] * 2)
def test_welch_agrees_with_scipy(before, now):
    before, now = [round(score, 2) for score in before], [round(score, 2) for score in now]
    if len(set(before)) == 1 and len(set(now)) == 1:
        assert stats.welch(before, now) == pytest.approx((now[0] - before[0],) * 2)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy's, about equal scores on one side
        expected = scipy_stats().ttest_ind(now, before, equal_var=False).confidence_interval(0.95)
    assert stats.welch(before, now) == pytest.approx((expected.low, expected.high), abs=1e-6)


@FEW
@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0, 1))
def test_one_score_beside_several_is_student_s_interval_of_one_variance(before, now):
    found = stats.welch(before, [now])
    assert found is not None
    # scipy's pooled variance takes nothing from a side with one score
    spread = (sum((x - sum(before) / len(before)) ** 2 for x in before) / (len(before) - 1)) ** 0.5
    half = scipy_stats().t.ppf(0.975, len(before) - 1) * spread * (1 + 1 / len(before)) ** 0.5
    change = now - sum(before) / len(before)
    assert found == pytest.approx((change - half, change + half), abs=1e-7)
    assert stats.welch([0.5], [0.4]) is None


def test_newcombe_matches_the_example_of_his_paper():
    # Newcombe 1998, Statistics in Medicine 17:873, table II: 56/70 against 48/80, method 10
    low, high = stats.newcombe((48, 80), (56, 70))
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)


def test_repeats_of_a_case_are_one_observation():
    few = stats.clustered([-0.1, 0.0, 0.1])
    expected = scipy_stats().t.interval(0.95, 2, loc=0, scale=scipy_stats().sem([-0.1, 0.0, 0.1]))
    assert few == pytest.approx(expected)
    assert stats.clustered([0.3]) is None


def test_what_can_be_found_shrinks_with_runs():
    once, often = (stats.detectable_drop([(0.09, 10, runs)] * 50, 0.002) for runs in (1, 5))
    assert once > often > 0
