"""What is confirmed, cleared, as bad on main, or left open; and what the loop asks for on the way."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.config.options import BY_NAME
from agent_eval_action.gate.assess import Status, assess
from agent_eval_action.gate.next_step import Run, Stop, next_step
from agent_eval_action.gate.pairs import GateRules, GateState, Pair
from agent_eval_action.gate.simulate import Agent, Sampler, SimulatedCase, SimulatedRun, SimulatedSuite, simulate
from agent_eval_action.stats import Stratum, lower_than_reference, passes

RULES = GateRules()
MANY = settings(max_examples=60, deadline=None)


def passed(n, times):
    return tuple((score, count) for score, count in ((0.0, times - n), (1.0, n)) if count)


def pair(case, history, *attempts, **fields):
    return Pair(case, "quality", history, tuple(map(float, attempts)), **fields)


def noisy(*others):
    """Nineteen cases of which one failed now and then, and these."""
    rest = [pair(n, passed(10, 10), 1) for n in range(1, 19)]
    return (*others, *rest, pair(19, passed(8, 10), 1))


def blocked(state, rules):
    return any(found.confirmed for found in assess(state, rules).values())


def status(state, rules=RULES):
    (one,) = assess(state, rules).values()
    return {key: test.status for key, test in one.tests.items()}


def test_what_got_worse_in_the_first_pass_is_run_again_and_nothing_else():
    step = next_step(GateState(noisy(pair(0, passed(10, 10), 0))), RULES)
    assert step == Run("rerun", ((0, 5),), step.why)


@pytest.mark.parametrize("control", [False, True])
def test_a_suspect_whose_further_attempts_were_all_errors_decides_nothing_by_itself(control):
    others = (pair(0, passed(10, 10), 0, 0, 0, 0, 0, 0), pair(20, passed(10, 10), 0, errors=5))
    found = status(GateState(noisy(*others), control=control))
    assert found[0] is (Status.OPEN if control else Status.WITH_SUITE)
    assert found[20] not in {Status.CONFIRMED, Status.CLEARED}, "nothing was measured of it"


def test_nothing_worse_needs_nothing():
    assert isinstance(next_step(GateState(noisy(pair(0, passed(10, 10), 1))), RULES), Stop)


def test_the_choice_is_no_evidence():
    chosen = GateState(noisy(pair(0, passed(10, 10), 0, first=1)))
    assert status(chosen) == {0: Status.OPEN}
    assert not blocked(chosen, RULES)
    again = pair(0, passed(10, 10), 0, 1, 1, 0, 1, 1)
    (one,) = assess(GateState(noisy(again)), RULES).values()
    assert one.p_of(again, control=False) == lower_than_reference([Stratum(passes(10, 10), passes(4, 5))])


def test_a_suspect_that_fails_again_goes_to_the_control_and_then_blocks():
    again = pair(0, passed(10, 10), 0, *[0] * 5)
    step = next_step(GateState(noisy(again), control=True), RULES)
    assert step.purpose == "control"
    assert (step.attempts, step.interleaved) == (((0, 3),), ((0, 3),)), "what is plain takes a small control"
    controlled = pair(0, passed(10, 10), 0, *[0] * 5, control=(1.0,) * 3)
    state = GateState(noisy(controlled), control=True)
    assert status(state) == {0: Status.CONFIRMED}
    assert next_step(state, RULES) == Stop("a regression is confirmed")


def test_without_a_control_the_verdict_stands_on_history():
    assert status(GateState(noisy(pair(0, passed(10, 10), 0, *[0] * 5)))) == {0: Status.CONFIRMED}


def test_a_suspect_whose_agent_the_base_lacks_stands_on_history_and_the_others_are_controlled():
    bad = [0, *[0] * 5]
    lacking = pair(0, passed(10, 10), *bad, controllable=False)
    suspect = pair(20, passed(10, 10), *bad)
    step = next_step(GateState(noisy(lacking, suspect), control=True), RULES)
    assert step.purpose == "control"
    assert [case for case, _ in step.attempts] == [20]
    on_main = replace(suspect, attempts=(0.0,) * 21, control=(0.0,) * 10)
    lacking = replace(lacking, attempts=(0.0,) * 21)
    state = GateState(noisy(lacking, on_main), control=True)
    assert status(state) == {0: Status.CONFIRMED, 20: Status.ON_MAIN}


@pytest.mark.parametrize("cases", [1, 4, 9, 20])
def test_no_step_asks_for_a_control_that_the_base_lacks_and_a_collapse_still_blocks(cases):
    """Every second case is of an agent that the base lacks; everything fails on the change and nothing on main."""
    pairs = {n: pair(n, passed(10, 10), 0, controllable=bool(n % 2)) for n in range(2 * cases)}
    for _ in range(50):
        state = GateState(tuple(pairs.values()), control=True)
        step = next_step(state, RULES)
        if isinstance(step, Stop):
            break
        for case, more in step.attempts:
            one = pairs[case]
            if step.purpose == "control":
                assert one.controllable
                score = (1.0,) * more
                pairs[case] = replace(one, control=one.control + score, control_attempts=one.control_attempts + more)
            else:
                pairs[case] = replace(one, attempts=one.attempts + (0.0,) * more)
        for case, more in step.interleaved:
            one, score = pairs[case], (0.0,) * more
            pairs[case] = replace(one, attempts=one.attempts + score, interleaved=one.interleaved + score)
    assert isinstance(step, Stop)
    assert blocked(state, RULES)


def test_as_bad_on_the_base_commit_is_not_held_against_the_change():
    drifted = pair(0, passed(10, 10), 0, *[0] * 20, control=(0.0,) * 10)
    state = GateState(noisy(drifted), control=True)
    assert status(state) == {0: Status.ON_MAIN}
    assert not blocked(state, RULES)


def test_a_suspect_that_passes_again_is_cleared():
    state = GateState(noisy(pair(0, passed(9, 10), 0, 1, 1, 1, 1, 1)))
    assert status(state) == {0: Status.CLEARED}
    assert getattr(next_step(state, RULES), "purpose", "") not in {"rerun", "control"}


def test_a_case_that_is_run_again_is_run_once_for_all_its_criteria():
    two = [Pair(0, name, passed(9, 10), (0.0,)) for name in ("words", "tools")]
    rest = [Pair(n, name, passed(9, 10), (1.0,)) for n in range(1, 9) for name in ("words", "tools")]
    step = next_step(GateState((*two, *rest)), RULES)
    assert step.purpose == "rerun"
    assert step.attempts == ((0, 5),)


def test_a_limit_of_extra_runs_ends_the_loop_with_a_message():
    step = next_step(GateState(noisy(pair(0, passed(10, 10), 0)), extra=3), GateRules(extra_runs=7))
    assert isinstance(step, Stop)
    assert step.limited


def test_without_a_limit_given_the_documented_default_holds() -> None:
    per_case, for_the_run = map(int, re.findall(r"\d+", BY_NAME["max_extra_runs"].shown))
    assert [GateRules().limit(cases) for cases in (0, 1, 20)] == [for_the_run + per_case * n for n in (0, 1, 20)]
    assert GateRules().limit(20) == 300
    assert GateRules(extra_runs=0).limit(20) == 0


def test_the_whole_suite_is_passed_again_only_for_the_cases_that_need_it():
    cases = [pair(n, passed(9, 10), *([0, 1, 1, 1, 1, 1] if n < 3 else [1])) for n in range(20)]
    step = next_step(GateState(tuple(cases)), RULES)
    assert step.purpose == "suite"
    assert dict(step.attempts) == dict.fromkeys(range(3, 20), 1)


@pytest.mark.parametrize(("limit", "limited"), [(16, True), (17, False)])
def test_a_pass_of_the_suite_is_made_whole_or_not_at_all(limit: int, limited: bool) -> None:
    cases = tuple(pair(n, passed(9, 10), *([0, 1, 1, 1, 1, 1] if n < 3 else [1])) for n in range(20))
    step = next_step(GateState(cases), GateRules(extra_runs=limit))
    assert (isinstance(step, Stop) and step.limited) is limited


def test_advisory_pairs_are_not_tested():
    rules = GateRules(Policy(criteria={"quality": CriterionPolicy(mode="advisory")}))
    assert isinstance(next_step(GateState(noisy(pair(0, passed(10, 10), 0))), rules), Stop)


def test_lower_is_better_is_held_by_its_mean():
    rows = [Pair(n, "tokens", ((100.0, 5), (110.0, 5)), (150.0,), goal="minimize") for n in range(12)]
    rules = GateRules(Policy(criteria={"tokens": CriterionPolicy(max_rise=0.1)}))
    assert blocked(GateState(tuple(rows)), rules)
    wide = GateRules(Policy(criteria={"tokens": CriterionPolicy(max_rise=0.6)}))
    assert not blocked(GateState(tuple(rows)), wide)
    fewer = [Pair(n, "tokens", ((100.0, 5), (110.0, 5)), (50.0,), goal="minimize") for n in range(12)]
    assert not blocked(GateState(tuple(fewer)), rules)


# --- the control takes turns with the change -------------------------------------------------------


def in_turn(history, before, interleaved, control, **fields):
    """A suspect that was run again, and then in turn with its control."""
    return pair(
        0,
        history,
        0,
        *before,
        *interleaved,
        interleaved=tuple(map(float, interleaved)),
        control=tuple(map(float, control)),
        **fields,
    )


def test_a_drop_that_is_gone_in_the_control_is_not_blamed_on_the_change():
    """The model was ill for the re-runs and well when the base's agent was asked: both arms say so."""
    over = in_turn(passed(40, 40), [0] * 5, [1] * 5, [1] * 10)
    state = GateState(noisy(over), control=True)
    (one,) = assess(state, RULES).values()
    assert one.tests[0].p < 0.001, "all fresh runs together would do"
    assert status(state) == {0: Status.CLEARED}
    assert not blocked(state, RULES)
    lasting = in_turn(passed(10, 10), [0] * 5, [0, 0, 1, 0, 0], [1] * 10)
    assert status(GateState(noisy(lasting), control=True)) == {0: Status.CONFIRMED}


def test_what_becomes_ill_in_between_is_as_bad_on_main():
    ill = in_turn(passed(10, 10), [0] * 5, [0] * 5, [0] * 10)
    assert status(GateState(noisy(ill), control=True)) == {0: Status.ON_MAIN}


def test_suspects_that_are_well_in_turn_with_their_control_do_not_block_together():
    def several(interleaved):
        attempts, control = (0.0, *[0.0] * 5, *interleaved), (1.0,) * 10
        made = [
            Pair(n, "quality", passed(19, 20), attempts, control=control, interleaved=interleaved) for n in range(6)
        ]
        rest = [pair(n, passed(10, 10), 1) for n in range(6, 20)]
        (one,) = assess(GateState((*made, *rest), control=True), RULES).values()
        assert one.together(control=True).p < 1e-6, "all fresh runs together would do"
        return one

    ill, well = several((0.0, 0.0, 1.0, 0.0, 1.0)), several((1.0,) * 5)
    assert ill.together_confirmed
    assert ill.controlled
    assert not well.together_confirmed


@pytest.mark.parametrize("best", [1.0, 5.0, 9.0, 10.0, 100.0, 5000.0])
@pytest.mark.parametrize("lost", [0.5, 0.2, 0.1])
def test_a_loss_is_as_sure_on_every_scale(best, lost):
    worse = best * (1 - lost)
    fell = [pair(case, ((best, 5),), worse, *[worse] * 5) for case in range(3)]
    rest = [pair(case, ((best, 5),), best) for case in range(3, 7)]
    (criterion,) = assess(GateState((*fell, *rest)), RULES).values()
    assert criterion.together_confirmed
    assert all(criterion.p_of(suspect, control=False) == pytest.approx(6 / 462) for suspect in criterion.suspects)


@pytest.mark.parametrize(("interleaved", "confirmed"), [(0.0, True), (1.0, False)])
def test_a_suite_that_is_well_in_turn_with_its_control_does_not_block(interleaved, confirmed):
    rows = [pair(n, passed(19, 20), 0, interleaved, interleaved=(interleaved,), control=(1.0,)) for n in range(30)]
    (one,) = assess(GateState(tuple(rows), control=True), RULES).values()
    assert one.suite_test
    assert (one.suite_test.beyond, one.suite_test.confirmed) == (True, confirmed)


def test_a_large_fall_of_the_suite_is_controlled_on_a_slice_before_anything_is_run_again():
    rows = [Pair(n, "tokens", ((100.0, 5), (110.0, 5)), (150.0,), goal="minimize") for n in range(12)]
    rules = GateRules(Policy(criteria={"tokens": CriterionPolicy(max_rise=0.1)}))
    step = next_step(GateState(tuple(rows), control=True), rules)
    assert step.purpose == "control"
    assert step.attempts == step.interleaved
    assert [runs for _, runs in step.attempts] == [1] * 3

    def controlled(score):
        chosen = dict(step.attempts)
        more = {"attempts": (150.0, 150.0), "interleaved": (150.0,), "control": (score,), "control_attempts": 1}
        return GateState(tuple(replace(one, **more) if one.key in chosen else one for one in rows), control=True)

    assert next_step(controlled(105.0), rules) == Stop("a regression is confirmed")
    assert not blocked(controlled(150.0), rules), "main is as bad"


@pytest.mark.parametrize(("cases", "runs"), [(5, 3), (9, 2.34), (20, 2), (50, 1.6)])
def test_where_main_collapsed_as_well_nothing_more_is_run_and_nothing_is_decided(cases, runs):
    fallen = SimulatedCase(Agent(0.0), Agent(0.0), Agent(0.95))
    for outcome in simulate(SimulatedSuite((fallen,) * cases, history=5), RULES, 10, 1):
        assert (outcome.blocked, outcome.inconclusive) == (False, True)
        assert outcome.runs <= runs


def test_a_change_that_is_worse_than_a_main_that_fell_still_blocks():
    fallen = SimulatedCase(Agent(0.4), Agent(0.0), Agent(0.95))
    found = list(simulate(SimulatedSuite((fallen,) * 20, history=5), RULES, 20, 1))
    assert sum(outcome.blocked for outcome in found) >= 19


@pytest.mark.parametrize("control", [(), (1.0,), (1.0,) * 2])
def test_a_control_cut_off_confirms_nothing_and_its_missing_runs_are_requested(control):
    cut = pair(0, passed(10, 10), 0, *[0] * 5, control=control, control_attempts=len(control))
    state = GateState(noisy(cut), control=True)
    assert status(state) == {0: Status.UNCONTROLLED}
    assert not blocked(state, RULES)
    step = next_step(state, RULES)
    assert step.purpose == "control"
    assert step.attempts == ((0, 3 - len(control)),)


def test_a_control_that_gave_no_score_is_not_waited_for():
    silent = pair(0, passed(10, 10), 0, *[0] * 5, control_attempts=10)
    state = GateState(noisy(silent), control=True)
    assert status(state) == {0: Status.CONFIRMED}
    assert next_step(state, RULES) == Stop("a regression is confirmed")


@pytest.mark.parametrize(("limit", "limited"), [(10, True), (11, False)])
def test_a_limit_counts_both_arms(limit, limited):
    state = GateState(noisy(pair(0, passed(10, 10), 0, *[0] * 5)), control=True, extra=5)
    assert isinstance(next_step(state, GateRules(extra_runs=limit)), Stop) is limited


# --- a suite that never differs -------------------------------------------------------------------


def stable(*others):
    return (*others, *[pair(n, passed(5, 5), 1) for n in range(1, 10)])


def test_a_deterministic_break_takes_three_runs_and_three_of_the_control():
    suite = SimulatedSuite(
        (SimulatedCase(Agent(1.0), Agent(0.0)), *[SimulatedCase(Agent(1.0), Agent(1.0))] * 9), history=5
    )
    for outcome in simulate(suite, RULES, 20, 1):
        assert outcome.blocked
        assert outcome.runs == (10 + 3 + 3) / 10


def test_in_a_stable_suite_the_last_two_of_three_take_turns_with_the_control():
    state = GateState(stable(pair(0, passed(5, 5), 0)), control=True)
    assert next_step(state, RULES) == Run("rerun", ((0, 1),), "1 case did worse than on main")
    once = next_step(GateState(stable(pair(0, passed(5, 5), 0, 0)), control=True), RULES)
    assert once.purpose == "control"
    assert (once.attempts, once.interleaved) == (((0, 3),), ((0, 2),))
    recovered = next_step(GateState(stable(pair(0, passed(5, 5), 0, 1)), control=True), RULES)
    assert recovered == Run("rerun", ((0, 2),), "1 case did worse than on main")
    alone = next_step(GateState(stable(pair(0, passed(5, 5), 0))), RULES)
    assert alone == Run("rerun", ((0, 3),), "1 case did worse than on main")


def test_a_stable_suite_that_was_ill_for_a_moment_is_not_blocked():
    ill = pair(0, passed(5, 5), 0, 0, 1, 1, interleaved=(1.0, 1.0), control=(1.0,) * 3, control_attempts=3)
    state = GateState(stable(ill), control=True)
    assert not blocked(state, RULES)
    assert next_step(state, RULES).purpose == "rerun"


def test_an_unchanged_deterministic_agent_takes_no_extra_run():
    suite = SimulatedSuite((SimulatedCase(Agent(1.0), Agent(1.0)),) * 10, history=5)
    assert all(not outcome.blocked and outcome.runs == 1 for outcome in simulate(suite, RULES, 20, 1))


def test_three_that_agree_block_with_a_history_too_short_for_a_test():
    broken = stable(pair(0, passed(1, 1), 0, 0, 0, 0))
    assert status(GateState(broken)) == {0: Status.CONFIRMED}
    mixed = stable(pair(0, passed(1, 1), 0, 0, 1, 0))
    assert status(GateState(mixed)) == {0: Status.OPEN}


def test_a_control_that_breaks_too_says_main_is_broken():
    broken = stable(pair(0, passed(5, 5), 0, 0, 0, 0, control=(0.0,) * 3))
    assert status(GateState(broken, control=True)) == {0: Status.ON_MAIN}


# --- what holds for every state -------------------------------------------------------------------

HISTORY = st.integers(1, 12).flatmap(lambda n: st.integers(0, n).map(lambda k: passed(k, n)))
BINARY = st.sampled_from([0.0, 1.0])
ATTEMPTS = st.lists(BINARY, min_size=1, max_size=22)
PAIRS = st.lists(st.tuples(HISTORY, ATTEMPTS, st.lists(BINARY, max_size=12)), min_size=1, max_size=6)


def made(rows):
    return tuple(
        Pair(n, "quality", before, tuple(scores), control=tuple(control))
        for n, (before, scores, control) in enumerate(rows)
    )


@MANY
@given(PAIRS, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_pairs_and_of_fresh_runs_within_a_look_does_not_matter(rows, control, shuffler):
    pairs = made(rows)
    mixed = [
        Pair(
            one.key,
            one.criterion,
            one.history,
            (one.attempts[0], *shuffler.sample(one.attempts[1:6], len(one.attempts[1:6])), *one.attempts[6:]),
            control=(*shuffler.sample(one.control[:3], len(one.control[:3])), *one.control[3:]),
        )
        for one in shuffler.sample(pairs, len(pairs))
    ]
    rules = GateRules(Policy(max_drop=None))  # the suite's passes are in the order they were made
    before, after = GateState(pairs, control=control), GateState(tuple(mixed), control=control)
    assert status_of_all(before, rules) == status_of_all(after, rules)
    assert next_step(before, rules) == next_step(after, rules)


@MANY
@given(PAIRS, st.lists(BINARY, min_size=1, max_size=5), st.data())
def test_a_failure_more_in_turn_with_the_control_never_unblocks(rows, interleaved, data):
    def controlled(scores):
        again = [(*one.attempts, *scores) for one in made(rows)]
        pairs = zip(made(rows), again, strict=True)
        return GateState(
            tuple(replace(one, attempts=all_, interleaved=tuple(scores)) for one, all_ in pairs), control=True
        )

    at = data.draw(st.integers(0, len(interleaved) - 1))
    worse = [*interleaved[:at], 0.0, *interleaved[at + 1 :]]
    assert blocked(controlled(worse), RULES) >= blocked(controlled(interleaved), RULES)


def status_of_all(state, rules):
    return [[(key, test.status, test.p) for key, test in one.tests.items()] for one in assess(state, rules).values()]


@MANY
@given(PAIRS, st.data())
def test_a_failure_more_never_unblocks(rows, data):
    pairs = made([(before, scores, []) for before, scores, _ in rows])
    n = data.draw(st.integers(0, len(pairs) - 1))
    one = pairs[n]
    at = data.draw(st.integers(0, len(one.attempts) - 1))
    worse = Pair(one.key, one.criterion, one.history, (*one.attempts[:at], 0.0, *one.attempts[at + 1 :]))
    spoilt = (*pairs[:n], worse, *pairs[n + 1 :])
    if at > 0:  # the first pass only chooses: what it chooses more is one more to correct for
        assert blocked(GateState(spoilt), RULES) >= blocked(GateState(pairs), RULES)


# --- calibration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sd", [None, 0.1])
def test_a_suspects_p_is_conservative_though_it_was_chosen(sd):
    """Nothing changed: among the suspects, p at or below a level must be at most that share."""
    cases = tuple(SimulatedCase(Agent(mean, sd), Agent(mean, sd)) for mean in (0.95, 0.9, 0.8, 0.8, 0.7, 0.6))
    sampler = Sampler(SimulatedSuite(cases, history=4), seed=3)
    found = []
    for _ in range(500):
        drawn = sampler.draw(16)
        run = SimulatedRun(sampler, drawn, RULES)
        (one,) = assess(run.state, RULES).values()
        again = tuple(
            Pair(p.key, p.criterion, p.history, tuple(drawn.head[int(p.key.case), 0, :6].tolist())) for p in one.pairs
        )
        (tested,) = assess(GateState(again), RULES).values()
        found += [tested.p_of(suspect, control=False) for suspect in tested.suspects]
    assert len(found) > 300
    for level in (0.02, 0.1, 0.3):
        share = sum(p <= level for p in found) / len(found)
        assert share <= level + 3 * (level * (1 - level) / len(found)) ** 0.5


def test_a_harmless_change_is_hardly_ever_blocked_and_a_break_nearly_always_found():
    rates = [0.95] * 10 + [0.8] * 10
    chance = random.Random(5)  # noqa: S311 - a simulation
    same = tuple(SimulatedCase(Agent(rate), Agent(rate)) for rate in rates)
    broken = (SimulatedCase(Agent(0.95), Agent(0.0)), *same[1:])
    harmless = list(simulate(SimulatedSuite(same, history=10), RULES, 150, chance.randrange(999)))
    found = list(simulate(SimulatedSuite(broken, history=10), RULES, 60, chance.randrange(999)))
    assert sum(outcome.blocked for outcome in harmless) <= 2
    assert sum(outcome.runs for outcome in harmless) / 150 < 2.5
    assert sum(outcome.blocked for outcome in found) >= 58


def test_a_first_pass_of_several_repeats_counts_whole():
    cases = tuple(pair(n, passed(10, 10), *[0, 1] * 2, first=4) for n in range(20))
    (one,) = assess(GateState(cases), GateRules(adaptive=False)).values()
    assert one.suite_test
    assert one.suite_test.drop == pytest.approx(0.5)
    assert one.suite_test.confirmed


# --- collapses ------------------------------------------------------------------------------------


def collapsed(cases, history, seed, *, past=None):
    """Runs of a suite that passes nothing any more, half of it noisy; ``past``: main is as bad by now."""
    main = [Agent(0.95 if case % 2 == 0 else 0.8) for case in range(cases)]
    made = tuple(SimulatedCase(Agent(0.0) if past else rate, Agent(0.0), rate if past else None) for rate in main)
    return simulate(SimulatedSuite(made, history), RULES, 40, seed)


@pytest.mark.parametrize("cases", [5, 9, 20])
@pytest.mark.parametrize("history", [3, 5, 10])
def test_a_collapse_blocks_at_the_default_limits_and_costs_little(cases, history):
    outcomes = list(collapsed(cases, history, seed=7))
    assert all(outcome.blocked for outcome in outcomes)
    assert sum(outcome.runs for outcome in outcomes) / len(outcomes) <= 3


@pytest.mark.parametrize("cases", [5, 20])
def test_a_collapse_of_main_itself_is_not_the_change_s(cases):
    assert not any(outcome.blocked for outcome in collapsed(cases, 5, seed=7, past=True))


@MANY
@given(st.integers(3, 12), st.integers(1, 10), st.integers(0, 60), st.randoms(use_true_random=False))
def test_a_step_never_costs_more_than_the_limit_leaves(cases, history, limit, chance):
    rules = GateRules(extra_runs=limit)
    main = [chance.choice([0.6, 0.8, 0.95]) for _ in range(cases)]
    suite = SimulatedSuite(tuple(SimulatedCase(Agent(rate), Agent(0.0)) for rate in main), history)
    sampler = Sampler(suite, chance.randrange(999))
    run = SimulatedRun(sampler, sampler.draw(24), rules)
    run.finish()
    assert run.state.extra <= limit


@pytest.mark.parametrize("limit", [12, 20, 40])
def test_a_small_limit_does_not_turn_a_collapse_into_doubt(limit):
    made = tuple(SimulatedCase(Agent(0.9), Agent(0.0)) for _ in range(9))
    rules = GateRules(extra_runs=limit)
    outcomes = list(simulate(SimulatedSuite(made, 5), rules, 60, 3))
    assert sum(outcome.blocked for outcome in outcomes) >= 54


def test_a_control_that_was_cut_off_decides_where_it_leaves_no_doubt():
    """The limit came before the tenth run of the control; what there is of it is plain."""
    cut = pair(0, passed(10, 10), 0, *[0] * 10, interleaved=(0.0,) * 5, control=(1.0,) * 6, control_attempts=6)
    state = GateState(noisy(cut), control=True)
    assert status(state) == {0: Status.CONFIRMED}


@pytest.mark.parametrize("history", [1, 2, 5])
@pytest.mark.parametrize("runs", [5, 10, 20])
def test_what_never_passed_again_is_never_called_flaky(history, runs):
    found = status(GateState(noisy_rest(pair(0, passed(history, history), 0, *[0] * runs))))
    assert found[0] in {Status.OPEN, Status.CONFIRMED}


def test_flaky_is_what_passed_when_it_was_run_again():
    assert status(GateState(noisy_rest(pair(0, passed(9, 10), 0, 1, 1, 0, 1, 1)))) == {0: Status.CLEARED}


def test_a_suspect_is_run_again_only_where_the_limit_leaves_room_for_its_control():
    fell = noisy(pair(0, passed(10, 10), 0))
    assert isinstance(next_step(GateState(fell, control=True), GateRules(extra_runs=10)), Stop)
    assert next_step(GateState(fell, control=True), GateRules(extra_runs=11)).purpose == "rerun"
    two = (pair(0, passed(7, 10), 0), pair(1, passed(10, 10), 0), *noisy()[1:])
    step = next_step(GateState(two, control=True), GateRules(extra_runs=12))
    assert step.purpose == "rerun"
    assert step.attempts == ((1, 5),), "the one that fell furthest"


def noisy_rest(*others):
    taken = {one.key for one in others}
    return (*others, *[pair(n, passed(8, 10), 1) for n in range(10, 20) if n not in taken])
