"""What of a run becomes a baseline, and what of an older one stays."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import baseline_text, from_result, update
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.run_result import AgentConditions, RunStatus
from support.results import QUALITY, attempt, broken, calls, case, eval_set, info, run, run_of, simple

A, B, C = (CaseKey("bot", "set", name) for name in "abc")
ROLL_17 = calls(("roll_die", {"sides": 17}))
ROLL_16 = calls(("roll_die", {"sides": 16}))


def record(baseline, name="a"):
    return next(one for one in baseline.cases if one.case == name)


def test_a_record_counts_distinct_scores_and_attempts_that_met_the_threshold():
    kept = record(from_result(run(simple("a", 1.0, 0.25, 1.0, 0.5, 1.0), repeats=5))).criteria[QUALITY]
    assert kept.scores == ((0.25, 1), (0.5, 1), (1.0, 3))
    assert (kept.n, kept.passed, kept.threshold) == (5, 4, 0.5)
    assert kept.average == pytest.approx(0.75)


def test_met_means_at_most_the_threshold_where_lower_is_better():
    tokens = info("tokens", 100.0, goal="minimize")
    kept = record(from_result(run(simple("a", 90.0, 100.0, 101.0, criterion="tokens"), criteria=[tokens])))
    assert kept.criteria["tokens"].passed == 2


def test_the_trajectory_is_the_one_most_attempts_took():
    attempts = [attempt({QUALITY: 1.0}, turn) for turn in (ROLL_16, ROLL_17, ROLL_17)]
    kept = record(from_result(run(case("a", *attempts)))).trajectory
    assert kept.turns[0][0].args == {"sides": 17}
    assert (kept.seen, kept.attempts) == (2, 3)


def test_a_tie_between_trajectories_does_not_depend_on_the_order_of_attempts():
    one, two = (attempt({QUALITY: 1.0}, turn) for turn in (ROLL_16, ROLL_17))
    assert from_result(run(case("a", one, two))) == from_result(run(case("a", two, one)))


def test_the_order_in_which_cases_finished_does_not_show():
    cases = [simple(f"case {n}", *([n % 3 / 2] * 3), 0.125 * (n % 5)) for n in range(40)]
    before = baseline_text(from_result(run(*cases)))
    for one in cases:
        assert one.case in before
    cases = cases[::-3] + cases[::-1][1::3] + cases[::-1][2::3]
    assert (
        baseline_text(from_result(run(*(c.model_copy(update={"attempts": c.attempts[::-1]}) for c in cases)))) == before
    )


def test_noise_beyond_ten_decimals_is_not_written():
    assert from_result(run(simple("a", 0.1 + 0.2))) == from_result(run(simple("a", 0.3)))


@pytest.mark.parametrize("scores", [("judge is down",), (1.0, "judge is down"), (None,)])
def test_a_pair_without_clean_scores_is_not_written(scores):
    good = simple("b", 1.0)
    assert [one.case for one in from_result(run(simple("a", *scores), good)).cases] == ["b"]


def test_an_attempt_without_an_answer_leaves_the_older_record_of_the_case():
    old = from_result(run(simple("a", 0.75), simple("b", 0.75)))
    after = update(old, run(case("a", attempt({QUALITY: 1.0}), broken()), simple("b", 1.0)))
    assert record(after.record, "a") == record(old, "a")
    assert record(after.record, "b").criteria[QUALITY].average == 1.0
    assert after.kept == ("a › quality",)
    assert after.missing == ()
    assert (after.added, after.changed) == ((), (B,))


def test_one_criterion_without_a_score_keeps_its_older_record_beside_the_new_ones():
    criteria = [info("judge"), info("words")]
    old = from_result(run(case("a", attempt({"judge": 0.5, "words": 0.5})), criteria=criteria))
    after = update(old, run(case("a", attempt({"judge": "down", "words": 1.0})), criteria=criteria))
    kept = record(after.record).criteria
    assert (kept["judge"].average, kept["words"].average) == (0.5, 1.0)
    assert after.kept == ("a › judge",)


def test_of_an_edited_case_nothing_old_is_mixed_with_the_new():
    criteria = [info("judge"), info("words")]
    old = from_result(run(case("a", attempt({"judge": 0.5, "words": 0.5})), criteria=criteria))
    edited = case("a", attempt({"judge": "down", "words": 1.0}), digest="edited")
    after = update(old, run(edited, criteria=criteria))
    assert set(record(after.record).criteria) == {"words"}
    assert after.missing == ("a › judge",)


def test_an_errored_case_never_seen_before_is_said_to_be_missing():
    after = update(None, run(case("a", broken())))
    assert after.record.cases == ()
    assert after.missing == ("a › quality",)


def test_a_run_of_the_whole_suite_prunes_what_is_gone():
    old = from_result(run(simple("a", 1.0), simple("b", 1.0)))
    after = update(old, run(simple("a", 1.0), simple("c", 1.0)))
    assert [one.case for one in after.record.cases] == ["a", "c"]
    assert (after.added, after.pruned, after.changed) == ((C,), (B,), ())


@pytest.mark.parametrize(
    "partial", [{"selection": ("--case", "a")}, {"status": RunStatus.INTERRUPTED}, {"status": RunStatus.TIMED_OUT}]
)
def test_a_run_of_some_cases_leaves_the_others(partial):
    old = from_result(run(simple("a", 1.0), simple("b", 0.5)))
    after = update(old, run_of(eval_set(simple("a", 0.75)), **partial))
    assert [(one.case, one.criteria[QUALITY].average) for one in after.record.cases] == [("a", 0.75), ("b", 0.5)]
    assert (after.changed, after.left, after.pruned) == ((A,), (B,), ())


def test_the_same_measurement_again_changes_no_record():
    made = run(simple("a", 1.0, 0.5), simple("b", 1.0))
    after = update(from_result(made), made)
    assert not after.differs
    assert [case.key for case in after.record.cases] == [A, B]


def test_agents_of_other_runs_stay_while_they_have_cases():
    def of(agent, model):
        conditions = AgentConditions(agent=agent, path=agent, models=(model,), packages_digest="0123456789abcdef0123")
        return run_of(eval_set(simple("a", 1.0), agent=agent), agents=(conditions,), selection=(agent,))

    first = from_result(of("one", "gemini-2.5-flash"))
    both = update(first, of("two", "gemini-3-flash")).record
    assert [(agent.agent, agent.models) for agent in both.agents] == [
        ("one", ("gemini-2.5-flash",)),
        ("two", ("gemini-3-flash",)),
    ]
    whole = of("two", "gemini-3-flash")
    whole = whole.model_copy(update={"conditions": whole.conditions.model_copy(update={"selection": ()})})
    assert [agent.agent for agent in update(both, whole).record.agents] == ["two"]


def test_where_it_came_from_is_written_once():
    baseline = from_result(run(simple("a", 1.0), repeats=5))
    assert (baseline.commit, baseline.created_at, baseline.repeats) == ("c0ffee", "2026-11-20T12:00:00+00:00", 5)
    assert baseline_text(baseline).count("2026") == 1
