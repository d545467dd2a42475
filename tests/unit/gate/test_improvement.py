"""Better needs evidence as worse does; and every verdict that is no pass says why."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.reports import REPORTS, ReportInput
from agent_eval_action.results.decision import ChangeKind, Verdict
from agent_eval_action.results.run_result import Base, Totals
from support.messages import headline
from support.records import stored
from support.results import QUALITY, attempt, case, info, run, simple

MANY = settings(max_examples=60, deadline=None)
BETTER = {ChangeKind.FIXED, ChangeKind.BETTER}


def flips(chance, rate, times):
    return [float(chance.random() < rate) for _ in range(times)]


def test_an_unchanged_noisy_agent_has_fixed_nothing():
    chance, claims = random.Random(4), 0  # noqa: S311 - a simulation
    for _ in range(60):
        main = run(*[simple(f"c{n}", *flips(chance, 0.6, 5)) for n in range(20)])
        now = run(*[simple(f"c{n}", *flips(chance, 0.6, 1)) for n in range(20)])
        decision = decide(compare(stored(from_result(main)), now), now, Policy())
        claims += any(pair.kind in BETTER for pair in decision.pairs) or "better" in headline(decision)
    assert claims <= 2


def test_what_is_really_fixed_is_called_so():
    main = run(*[simple(f"c{n}", *[0.0] * 10) for n in range(12)], *[simple(f"z{n}", *[1.0] * 10) for n in range(4)])
    now = run(
        *[simple(f"c{n}", *[1.0] * 5) for n in range(12)], *[simple(f"z{n}", *[1.0] * 5) for n in range(4)], repeats=5
    )
    decision = decide(compare(stored(from_result(main)), now), now, Policy())
    assert decision.outcome is Verdict.PASS
    assert "12 cases fixed" in headline(decision)
    assert "`quality` is better on average" in headline(decision)


SCORES = st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.6, 0.8, 1.0]), min_size=1, max_size=7)
SUITES = st.dictionaries(st.sampled_from("abcdef"), st.tuples(SCORES, SCORES, SCORES), min_size=1)
POLICIES = st.builds(
    Policy,
    threshold_on=st.sampled_from(["regression", "case", "suite", "off"]),
    criteria=st.dictionaries(st.just(QUALITY), st.builds(CriterionPolicy, max_drop=st.none() | st.floats(0, 0.5))),
)


def rerun_case(name, scores, control):
    made = [attempt({QUALITY: score}, repeat=n) for n, score in enumerate(scores)]
    again = [one.model_copy(update={"purpose": "rerun"}) for one in made[1:]]
    base = tuple(attempt({QUALITY: score}, repeat=n) for n, score in enumerate(control))
    return case(name, made[0], *again).model_copy(update={"control": base})


@MANY
@given(SUITES, POLICIES, st.sampled_from(["", "the limit of 5 extra runs is reached"]), st.booleans(), st.floats(0, 1))
def test_a_verdict_that_is_no_pass_names_what_it_is_about(suite, policy, cut_short, controlled, threshold):
    infos = (info(threshold=threshold),)
    main = run(*[simple(name, *before) for name, (before, _, _) in suite.items()], criteria=infos)
    now = run(
        *[rerun_case(name, now, base if controlled else ()) for name, (_, now, base) in suite.items()], criteria=infos
    )
    result = now.model_copy(
        update={"cut_short": cut_short, "totals": Totals(extra=6), "base": Base(commit="b") if controlled else None}
    )
    decision = decide(compare(stored(from_result(main)), result), result, policy)
    if decision.outcome in {Verdict.FAIL, Verdict.INCONCLUSIVE}:
        assert any(f"`{name}" in headline(decision) for name in (*suite, QUALITY)), headline(decision)


def test_a_graded_case_that_fell_and_still_meets_its_threshold_blocks_with_a_reason():
    names = [f"c{n:02}" for n in range(12)]
    main = run(*[simple(name, *[0.9, 0.92] * 10) for name in names])
    now = run(rerun_case("c00", [0.6] * 7, ()), *[simple(name, 0.91) for name in names[1:]])
    decision = decide(compare(stored(from_result(main)), now), now, Policy())
    assert decision.outcome is Verdict.FAIL
    assert headline(decision).startswith("1 of 12 cases got worse: `c00`")
    (pair,) = [pair for pair in decision.pairs if pair.blocking]
    assert pair.kind is ChangeKind.WORSE
    shown = ReportInput(now.model_copy(update={"decision": decision}))
    for name in ("markdown", "junit", "annotations", "summary"):
        assert "c00" in REPORTS[name](shown, None), name


@MANY
@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(SCORES, SCORES), min_size=1))
def test_no_interval_leaves_what_is_possible(suite):
    infos = (info(low=0.0, high=1.0),)
    main = run(*[simple(name, *before) for name, (before, _) in suite.items()], criteria=infos)
    now = run(*[simple(name, *after) for name, (_, after) in suite.items()], criteria=infos, repeats=7)
    decision = decide(compare(stored(from_result(main)), now), now, Policy())
    for row in (*decision.pairs, *decision.criteria):
        before = row.baseline if isinstance(row.baseline, float | None) else row.baseline.mean
        if row.interval is not None:
            assert before + row.interval[0] >= -1e-9
            assert before + row.interval[1] <= 1 + 1e-9


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_verdict_goes_by_the_rules_that_the_loop_recorded(adaptive):
    """Five repeats with re-runs on, none made: nothing but the first pass, which only chooses."""
    main = run(*[simple(f"c{n}", *[1.0] * 9, 0.0) for n in range(10)])
    cases = [simple("c0", *[0.0] * 5), *[simple(f"c{n}", *[1.0] * 5) for n in range(1, 10)]]
    now = run(*cases, repeats=5, adaptive=adaptive)
    decision = decide(compare(stored(from_result(main)), now), now, Policy(confidence=0.9))
    assert (decision.outcome is Verdict.FAIL) is not adaptive
