"""What keeps a harmless change from being blocked: the error is shared by suspects, looks and cases."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.gate.assess import Status, assess
from agent_eval_action.gate.pairs import GateRules, GateState, Pair
from agent_eval_action.stats import clustered
from support.records import stored
from support.results import run, simple

RULES = GateRules()


def history(passed, n):
    return tuple((score, count) for score, count in ((0.0, n - passed), (1.0, passed)) if count)


def suspect(case, past, passed, runs):
    """Failed in the first pass, and passed so many of so many runs after it."""
    return Pair(case, "quality", past, (0.0, *[1.0] * passed, *[0.0] * (runs - passed)))


def statuses(*suspects):
    rest = [Pair(n, "quality", history(10, 10), (1.0,)) for n in range(10, 28)]
    noisy = Pair(28, "quality", history(8, 10), (1.0,))
    (one,) = assess(GateState((*suspects, *rest, noisy)), RULES).values()
    return {key: test.status for key, test in one.tests.items()}


def test_what_confirms_one_suspect_does_not_confirm_one_of_two():
    sure = suspect(0, history(10, 10), 8, 20)
    assert statuses(sure) == {0: Status.CONFIRMED}
    assert statuses(sure, suspect(1, history(10, 10), 20, 20))[0] is not Status.CONFIRMED


def test_an_early_look_takes_more_than_the_last_one():
    """Fisher's p is 0.0013 here: below what a single test would need, above what is to be spent after five runs."""
    assert statuses(suspect(0, history(14, 14), 1, 5)) == {0: Status.OPEN}
    assert statuses(suspect(0, history(14, 14), 0, 5)) == {0: Status.CONFIRMED}


def test_the_suite_is_compared_case_by_case():
    """Two of ten cases that always pass fail: plain beside themselves, nothing beside ten that never did."""
    always = [Pair(n, "quality", history(10, 10), (float(n > 1),)) for n in range(10)]
    never = [Pair(n, "quality", history(0, 10), (0.0,)) for n in range(10, 20)]
    rules = GateRules(Policy(criteria={"quality": CriterionPolicy(max_drop=0.05)}))
    (one,) = assess(GateState((*always, *never)), rules).values()
    assert one.suite(0).p == pytest.approx(1 / 11**2)


def test_the_interval_of_a_mean_counts_cases_and_not_their_repeats():
    before = run(*(simple(f"c{n}", *[1.0] * 5) for n in range(4)))
    now = run(*(simple(f"c{n}", *[score] * 5) for n, score in enumerate((1.0, 0.8, 0.6, 0.4))), repeats=5)
    (row,) = decide(compare(stored(from_result(before)), now), now, Policy()).criteria
    assert row.interval == pytest.approx(clustered([0.0, -0.2, -0.4, -0.6]))


def test_a_policy_s_confidence_decides_what_confirms():
    sure = suspect(0, history(10, 10), 8, 20)
    for confidence, status in ((0.99, Status.CONFIRMED), (0.9999, Status.CLEARED)):
        rest = [Pair(n, "quality", history(9, 10), (1.0,)) for n in range(1, 19)]
        (one,) = assess(GateState((sure, *rest)), GateRules(Policy(confidence=confidence))).values()
        assert [test.status for test in one.tests.values()] == [status]


def test_a_policy_s_least_effect_decides_what_is_large_enough():
    """Fell from 1.00 to 0.80 beyond doubt, thirty times."""
    past = tuple((score, 20) for score in (0.98, 1.0))
    fell = Pair(0, "quality", past, (0.8, *[0.8, 0.78] * 10))
    rest = [Pair(n, "quality", past, (1.0,)) for n in range(1, 9)]
    for least, found in ((0.1, [Status.CONFIRMED]), (0.5, [])):
        (one,) = assess(GateState((fell, *rest)), GateRules(Policy(min_effect=least))).values()
        assert [test.status for test in one.tests.values()] == found
