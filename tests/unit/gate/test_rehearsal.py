"""A policy on a history: what it blocks, what it lets pass, and what is left out and why."""

from __future__ import annotations

import pytest

from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.gate.simulate import Backtest, backtest_policy
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.history import History, PairHistory, ScoreCount


def history(*pairs: tuple[ScoreCount, ...], criterion: str = "quality") -> History:
    known = {
        (CaseKey("bot", "s", f"c{n:02}"), criterion): PairHistory(scores=scores, by_run=(scores,))
        for n, scores in enumerate(pairs)
    }
    return History(pairs=known, source="main")


def rates(found: Backtest) -> dict[str, float]:
    return {row.change: row.blocked for row in found.rows}


def go(known: History, policy: Policy | None = None, runs: int = 30) -> Backtest:
    return backtest_policy(known, policy or Policy(), {"tokens": "minimize"}, runs=runs)


def test_a_stable_suite_is_never_blocked_for_nothing_and_a_broken_case_always():
    found = go(history(*[((1.0, 10),)] * 10))
    assert rates(found)["nothing (a harmless change)"] == 0
    assert rates(found)["its most reliable case always fails"] == 1
    harmless = found.rows[0]
    assert harmless.runs_per_case == 1
    assert (harmless.cases, harmless.history) == (10, 10)


def test_the_same_seed_gives_the_same_numbers():
    noisy = history(*[((0.0, 2), (1.0, 8))] * 6)
    assert go(noisy) == go(noisy)


def test_graded_scores_are_simulated_with_their_spread():
    found = go(history(*[((0.8, 5), (0.9, 5))] * 8))
    assert rates(found)["its most reliable case always fails"] == 1
    assert rates(found)["nothing (a harmless change)"] <= 0.1


def test_a_milder_policy_catches_less():
    noisy = history(*[((0.0, 1), (1.0, 19))] * 10)
    strict, mild = (rates(go(noisy, Policy(max_drop=None, min_effect=effect))) for effect in (0.1, 1.0))
    assert strict["five cases lose half"] > mild["five cases lose half"]


@pytest.mark.parametrize(
    ("criterion", "scores", "policy", "words"),
    [
        ("tokens", ((100.0, 5),), Policy(), "only scores from 0 to 1"),
        ("stars", ((4.0, 5),), Policy(), "only scores from 0 to 1"),
        ("quality", ((1.0, 5),), Policy(criteria={"quality": CriterionPolicy(mode="advisory")}), "mode is advisory"),
    ],
)
def test_what_is_not_simulated_is_reported(criterion, scores, policy, words):
    found = go(history(scores, criterion=criterion), policy)
    assert found.rows == ()
    assert words in found.left_out[0]
