"""The rule, case by case: what blocks, what only advises, what leaves the verdict open."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.results.decision import ChangeKind, Verdict
from agent_eval_action.results.findings import FindingCode as C
from agent_eval_action.results.run_result import AgentConditions, ErrorKind, RunStatus
from support.messages import headline, notes, pair_sentence, sentences, states
from support.records import stored
from support.results import QUALITY, attempt, broken, calls, case, eval_set, info, run, run_of, simple

POLICY = Policy(threshold_on="case")
TOKENS = info("tokens", None, goal="minimize")


def verdict(result, before=None, policy=POLICY):
    baseline = from_result(before) if before else None
    return decide(compare(stored(baseline, ".agent-eval/baseline.json"), result), result, policy)


def rule(**fields):
    """A policy with these rules for every criterion."""
    return Policy(**{"max_drop": None, "threshold_on": "case", **fields})


def place(name):
    """A case, as a finding names it."""
    return {"agent": "bot", "eval_set": "set", "case": name}


def effects(decision):
    return [(finding.severity, finding.subject.case, finding.subject.criterion) for finding in decision.findings]


def test_every_case_at_its_threshold_passes():
    decision = verdict(run(simple("a", 0.5), simple("b", 1.0)), run(simple("a", 0.5), simple("b", 1.0)))
    assert decision.outcome is Verdict.PASS
    assert decision.findings == ()
    assert states(decision.reasons[0], C.NOTHING_WORSE, cases=2, criteria=1, compared=2, scores=2)
    assert [row.status for row in decision.criteria] == ["pass"]


def test_one_case_below_its_threshold_blocks_and_is_named_with_the_call_that_changed():
    expected = [calls(("roll_die", {"sides": 17}))]

    def roll(sides, score, reason=""):
        made = attempt({QUALITY: score}, calls(("roll_die", {"sides": sides})), reason=reason)
        return run(case("roll_die_twice", made, expected=expected), simple("b", 1.0))

    decision = verdict(roll(16, 0.0, "the wrong die"), roll(17, 1.0), rule())
    assert decision.outcome is Verdict.FAIL
    assert states(decision.reasons[0], C.CASES_WORSE, named=[place("roll_die_twice")], total=2)
    (finding,) = decision.findings
    assert (finding.subject.agent, finding.subject.eval_set, finding.subject.case) == ("bot", "set", "roll_die_twice")
    changed = {"turn": 1, "change": "replaced", "old": "roll_die(sides=17)", "new": "roll_die(sides=16)"}
    values = {"score": 0.0, "threshold": 0.5, "baseline": 1.0, "judgement": "the wrong die", "calls": changed}
    assert states(finding, C.BELOW_THRESHOLD, **values)
    assert [(pair.case, pair.blocking) for pair in decision.pairs] == [("b", False), ("roll_die_twice", True)]


def test_a_missing_reason_of_the_trajectory_criterion_is_made_from_the_calls():
    name = "tool_trajectory_avg_score"
    wrong = attempt({name: 0.0}, calls(("roll_die", {"sides": 16})))
    decision = verdict(
        run(case("a", wrong, expected=[calls(("roll_die", {"sides": 17}))]), criteria=[info(name, 1.0)]), policy=rule()
    )
    made = "turn 1 expected roll_die(sides=17), got roll_die(sides=16)"
    assert states(decision.findings[0], C.BELOW_THRESHOLD, baseline=None, why="no_baseline", judgement=made)


def test_a_case_failing_as_before_blocks_as_in_adk_and_says_so():
    decision = verdict(run(simple("a", 0.0)), run(simple("a", 0.0)))
    assert decision.outcome is Verdict.FAIL
    assert states(decision.reasons[0], C.CASES_STILL_BELOW_THRESHOLD, named=[place("a")], total=1)


def test_repeats_are_said_and_judged_by_their_mean():
    decision = verdict(run(simple("a", 0.0, 1.0, 0.25)), run(simple("a", 1.0)), rule())
    assert states(decision.findings[0], C.BELOW_THRESHOLD, score=pytest.approx(1.25 / 3), n=3, passed=1)
    assert verdict(run(simple("a", 0.0, 1.0)), run(simple("a", 1.0)), rule()).outcome is Verdict.PASS


# --- suite thresholds and allowed changes ---------------------------------------------------------


@pytest.mark.parametrize(("threshold", "outcome"), [(0.5, Verdict.PASS), (0.51, Verdict.FAIL)])
def test_a_suite_threshold_is_held_by_the_mean_over_cases(threshold, outcome):
    result = run(simple("a", 0.0), simple("b", 1.0), criteria=[info(threshold=threshold)])
    decision = verdict(result, policy=rule(threshold_on="suite"))
    assert decision.outcome is outcome
    if outcome is Verdict.FAIL:
        assert states(decision.reasons[0], C.MEAN_MISSES_THRESHOLD, score=0.5, cases=2, threshold=0.51)
        assert effects(decision) == [("blocks", None, QUALITY)]
        assert not any(pair.blocking for pair in decision.pairs)


def test_a_suite_mean_is_not_failed_by_its_last_binary_digit():
    scores = [0.1, 0.2, 0.3]  # their mean in floating point is 0.19999999999999998
    result = run(*(simple(f"c{n}", s) for n, s in enumerate(scores)), criteria=[info(threshold=0.2)])
    assert verdict(result, policy=rule(threshold_on="suite")).outcome is Verdict.PASS


def test_sets_with_thresholds_of_their_own_are_suites_of_their_own():
    strict = eval_set(simple("a", 0.8), criteria=[info(threshold=0.9)], name="strict")
    loose = eval_set(*(simple(f"b{n}", 1.0) for n in range(9)), criteria=[info(threshold=0.1)], name="loose")
    decision = verdict(run_of(strict, loose), policy=rule(threshold_on="suite"))
    assert decision.outcome is Verdict.FAIL
    assert states(decision.reasons[0], C.MEAN_MISSES_THRESHOLD, score=0.8, cases=1, threshold=0.9)
    assert decision.criteria[0].threshold is None


def test_with_thresholds_off_a_case_that_newly_fails_is_only_shown():
    decision = verdict(run(simple("a", 0.0)), run(simple("a", 1.0)), rule(threshold_on="off"))
    assert decision.outcome is Verdict.PASS
    assert effects(decision) == [("advisory", "a", QUALITY)]
    alone = verdict(run(simple("a", 0.0)), policy=rule(threshold_on="off"))
    assert any(states(note, C.CRITERIA_WITHOUT_LIMIT, criteria=[QUALITY]) for note in alone.notes)


DOZEN = [f"c{n:02}" for n in range(12)]


def everywhere(*scores, criterion=QUALITY):
    """A dozen cases with the same scores."""
    return [simple(name, *scores, criterion=criterion) for name in DOZEN]


@pytest.mark.parametrize(("now", "outcome"), [(0.95, Verdict.PASS), (0.93, Verdict.FAIL)])
def test_max_drop_holds_the_paired_suite_mean(now, outcome):
    before = run(*everywhere(*[1.0] * 10), simple("gone", 0.0))
    after = run(*everywhere(now), simple("new", 0.6))
    decision = verdict(after, before, rule(max_drop=0.05))
    assert decision.outcome is outcome
    row = decision.criteria[0]
    assert row.max_drop == 0.05
    if outcome is Verdict.FAIL:
        values = {"goal": "maximize", "baseline": 1.0, "score": pytest.approx(0.93), "cases": 12, "limit": 0.05}
        assert states(decision.findings[0], C.MEAN_BEYOND_LIMIT, **values, worse=12)
        assert [one["case"] for one in decision.findings[0].data["worst"]] == DOZEN[:3]
        assert row.status == "fail"
        assert row.interval == pytest.approx((-0.07, -0.07))


def test_a_drop_of_exactly_what_is_allowed_is_allowed():
    before, after = run(*everywhere(*[0.8] * 10)), run(*everywhere(0.7))  # 0.8 - 0.7 > 0.1 in floating point
    assert verdict(after, before, rule(max_drop=0.1, min_effect=0.5)).outcome is Verdict.PASS
    assert verdict(after, before, rule(max_drop=0.0999, min_effect=0.5)).outcome is Verdict.FAIL


def test_a_drop_that_may_be_chance_is_shown_and_does_not_block():
    before, after = run(simple("a", 1.0), simple("b", 1.0)), run(simple("a", 1.0), simple("b", 0.8))
    decision = verdict(after, before, rule(max_drop=0.05))
    assert decision.outcome is Verdict.PASS
    about_the_suite = next(finding for finding in decision.findings if finding.subject.case is None)
    assert about_the_suite.severity == "advisory"
    worst = [{**place("b"), "baseline": 1.0, "score": 0.8}]
    assert states(about_the_suite, C.MEAN_BEYOND_LIMIT, limit=0.05, worst=worst, doubt="chance")


def test_beside_a_case_that_newly_misses_its_threshold_the_mean_is_not_called_chance():
    before, after = run(simple("a", 1.0), simple("b", 1.0)), run(simple("a", 1.0), simple("b", 0.0))
    decision = verdict(after, before, rule(max_drop=0.05))
    assert decision.outcome is Verdict.FAIL
    (about_the_suite,) = [finding for finding in decision.findings if finding.code is C.MEAN_BEYOND_LIMIT]
    assert "doubt" not in about_the_suite.data


@pytest.mark.parametrize(("now", "outcome"), [(110.0, Verdict.PASS), (111.0, Verdict.FAIL), (50.0, Verdict.PASS)])
def test_max_rise_is_relative_and_only_a_rise_counts(now, outcome):
    before = run(*everywhere(*[100.0] * 10, criterion="tokens"), criteria=[TOKENS])
    after = run(*everywhere(now, criterion="tokens"), criteria=[TOKENS])
    decision = verdict(after, before, rule(max_rise=0.1))
    assert decision.outcome is outcome
    if outcome is Verdict.FAIL:
        values = {"goal": "minimize", "baseline": 100.0, "score": 111.0, "limit": 0.1}
        assert states(decision.reasons[0], C.MEAN_BEYOND_LIMIT, **values)
        assert decision.criteria[0].max_rise == 0.1


def test_any_rise_from_nothing_is_a_rise():
    before = run(*everywhere(*[0.0] * 10, criterion="tokens"), criteria=[TOKENS])
    after = run(*everywhere(1.0, criterion="tokens"), criteria=[TOKENS])
    decision = verdict(after, before, rule(max_rise=0.5))
    assert decision.outcome is Verdict.FAIL
    assert states(decision.reasons[0], C.MEAN_BEYOND_LIMIT, goal="minimize", baseline=0.0, score=1.0)


def test_more_tokens_are_no_drop():
    before, after = (run(simple("a", score, criterion="tokens"), criteria=[TOKENS]) for score in (9.0, 1.0))
    assert verdict(after, before, Policy(max_drop=0.05, max_rise=0.1)).outcome is Verdict.PASS


def test_a_threshold_of_a_lower_is_better_criterion_is_an_upper_bound():
    tokens = info("tokens", 100.0, goal="minimize")
    decision = verdict(run(simple("a", 101.0, criterion="tokens"), criteria=[tokens]))
    assert decision.outcome is Verdict.FAIL
    assert states(decision.findings[0], C.BELOW_THRESHOLD, score=101.0, threshold=100.0, goal="minimize")


def test_lower_is_better_without_a_limit_is_a_row_that_decides_nothing():
    criteria = [info(), TOKENS]
    before, after = (
        run(case("a", attempt({QUALITY: 1.0, "tokens": tokens})), criteria=criteria) for tokens in (9.0, 9e6)
    )
    decision = verdict(after, before)
    assert decision.outcome is Verdict.PASS
    row = decision.criteria[1]
    assert (row.criterion, row.status, row.blocks_nothing) == ("tokens", "advisory", "no_limit")
    assert decision.pairs[1].kind is ChangeKind.WORSE


# --- modes ----------------------------------------------------------------------------------------


def test_an_advisory_criterion_shows_and_does_not_block():
    policy = Policy(criteria={QUALITY: CriterionPolicy(mode="advisory")})
    result = run(case("a", attempt({QUALITY: 0.0, "words": 1.0})), criteria=[info(), info("words")])
    decision = verdict(result, policy=policy)
    assert decision.outcome is Verdict.PASS
    assert effects(decision) == [("advisory", "a", QUALITY)]
    assert decision.criteria[0].status == "advisory"
    assert decision.reasons[0].data["advisories"] == 1


def test_an_error_of_an_advisory_criterion_leaves_the_verdict_alone():
    policy = Policy(criteria={QUALITY: CriterionPolicy(mode="advisory")})
    result = run(case("a", attempt({QUALITY: "no credentials", "words": 1.0})), criteria=[info(), info("words")])
    decision = verdict(result, policy=policy)
    assert decision.outcome is Verdict.PASS
    assert effects(decision) == [("advisory", "a", QUALITY)]


def test_a_criterion_that_is_off_is_named_once_and_not_judged():
    policy = Policy(criteria={QUALITY: CriterionPolicy(mode="off")})
    result = run(case("a", attempt({QUALITY: 0.0, "words": 1.0})), criteria=[info(), info("words")])
    decision = verdict(result, policy=policy)
    assert decision.outcome is Verdict.PASS
    assert {row.criterion for row in decision.criteria} == {pair.criterion for pair in decision.pairs} == {"words"}
    assert any(states(note, C.CRITERIA_OFF, criteria=[QUALITY], total=1) for note in decision.notes)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [broken(), attempt({QUALITY: "the judge is down"}), attempt({})])
def test_what_could_not_be_measured_is_neither_fail_nor_pass(bad):
    decision = verdict(run(case("a", bad), simple("b", 1.0)), run(simple("a", 1.0), simple("b", 1.0)))
    assert decision.outcome is Verdict.INCONCLUSIVE
    assert effects(decision)[0][:2] == ("inconclusive", "a")
    assert decision.reasons[0] == decision.findings[0]
    assert decision.reasons[0].code in {C.NO_ANSWER, C.NO_SCORE}
    assert decision.criteria[0].status == "error"


def test_one_bad_attempt_of_several_leaves_it_open_too():
    decision = verdict(run(case("a", *[attempt({QUALITY: 1.0})] * 4, broken())), run(simple("a", 1.0)))
    assert decision.outcome is Verdict.INCONCLUSIVE
    assert states(decision.reasons[0], C.NO_ANSWER, errors=1, attempts=5, error="timeout: no answer in 60 s")


def test_a_measured_failure_outweighs_an_error_and_both_are_reported():
    decision = verdict(run(simple("a", 0.0), case("b", broken())), run(simple("a", 1.0), simple("b", 1.0)))
    assert decision.outcome is Verdict.FAIL
    assert states(decision.reasons[0], C.CASES_WORSE, named=[place("a")], total=2)
    assert [(finding.code, finding.subject.case) for finding in decision.reasons[1:]] == [(C.NO_ANSWER, "b")]
    assert [finding.severity for finding in decision.findings] == ["blocks", "inconclusive", "advisory"]


def test_a_case_without_an_answer_is_one_finding_whatever_it_would_be_scored_by():
    criteria = [info(), info("words"), TOKENS]
    decision = verdict(run(case("a", broken()), criteria=criteria))
    assert [finding.subject.criterion for finding in decision.findings if finding.subject.case == "a"] == [None]


@pytest.mark.parametrize("status", [RunStatus.TIMED_OUT, RunStatus.INTERRUPTED])
def test_a_run_cut_short_is_open_and_does_not_list_every_case_it_did_not_reach(status):
    stopped = [case(f"c{n:03}", broken(ErrorKind.STOPPED, "the run ended")) for n in range(50)]
    decision = verdict(run_of(eval_set(simple("a", 1.0), *stopped), status=status))
    assert decision.outcome is Verdict.INCONCLUSIVE
    assert len(decision.findings) == 1
    assert states(decision.reasons[0], C.RUN_ENDED_EARLY, status=status, missing=50, cases=51)


def test_a_complete_looking_run_that_was_interrupted_is_open():
    assert verdict(run_of(eval_set(simple("a", 1.0)), status=RunStatus.INTERRUPTED)).outcome is Verdict.INCONCLUSIVE


def test_a_failure_seen_before_the_time_was_up_is_a_failure():
    stopped = case("b", broken(ErrorKind.STOPPED, "the run ended"))
    decision = verdict(run_of(eval_set(simple("a", 0.0), stopped), status=RunStatus.TIMED_OUT))
    assert decision.outcome is Verdict.FAIL
    assert any(states(finding, C.RUN_ENDED_EARLY, status="timed_out", missing=1) for finding in decision.reasons)


@pytest.mark.parametrize(
    "result",
    [
        run_of(),
        run(),
        run(simple("a", None)),
        run(case("a", attempt({QUALITY: None, "tokens": 9.0})), criteria=[info(), TOKENS]),
    ],
)
def test_nothing_measured_that_could_block_is_no_pass(result):
    decision = verdict(result)
    assert decision.outcome is Verdict.INCONCLUSIVE
    assert decision.reasons[0].code is C.NOTHING_MEASURED


def test_a_criterion_that_applies_nowhere_is_reported_once():
    criteria = [info(), info("words")]
    cases = [case(n, attempt({QUALITY: 1.0, "words": None})) for n in "abcde"]
    decision = verdict(run(*cases, criteria=criteria))
    assert decision.outcome is Verdict.PASS
    assert decision.criteria[1].status == "not_applicable"
    (note,) = (note for note in decision.notes if note.subject.criterion == "words")
    assert states(note, C.CRITERION_NOT_APPLICABLE, judgement="no reference")


def test_a_case_that_main_has_scores_of_does_not_leave_the_comparison_in_silence():
    before = run(simple("a", 1.0), simple("b", 1.0), simple("new", None))
    now = run(simple("a", None), simple("b", 1.0), simple("new", None))
    decision = verdict(now, before, Policy())
    assert decision.outcome is Verdict.PASS
    (found,) = decision.findings
    assert (found.severity, found.subject.criterion) == ("advisory", QUALITY)
    assert states(found, C.NO_LONGER_APPLICABLE, cases=1, named=[place("a")], judgement="no reference")
    edited = run(case("a", attempt({QUALITY: None}), digest="another"), simple("b", 1.0))
    assert verdict(edited, before, Policy()).findings == ()


# --- no baseline, collecting -----------------------------------------------------------------------


def test_without_a_baseline_own_thresholds_decide_and_it_is_reported():
    assert verdict(run(simple("a", 0.0))).outcome is Verdict.FAIL
    passed = verdict(run(simple("a", 1.0)))
    assert passed.outcome is Verdict.PASS
    assert states(passed.reasons[0], C.THRESHOLDS_MET, cases=1, criteria=1)
    assert any(note.code is C.NO_BASELINE for note in passed.notes)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_neither_baseline_nor_own_thresholds_is_collecting_and_says_how_to_begin(score):
    decision = verdict(run(simple("a", score), criteria=[info(source="default"), TOKENS][:1]), policy=Policy())
    assert decision.outcome is Verdict.COLLECTING
    assert states(decision.reasons[0], C.COLLECTING, cases=1, below=int(not score), store="file")
    assert decision.notes == ()
    assert effects(decision) == ([] if score else [("advisory", "a", QUALITY)])
    assert not any(pair.blocking for pair in decision.pairs)


@pytest.mark.parametrize("threshold_on", ["case", "suite"])
def test_default_thresholds_apply_with_threshold_on_case_or_suite(threshold_on):
    policy = Policy(threshold_on=threshold_on)
    for score, outcome in ((0.0, Verdict.FAIL), (1.0, Verdict.PASS)):
        decision = verdict(run(simple("a", score), criteria=[info(source="default")]), policy=policy)
        assert decision.outcome is outcome


def test_with_a_baseline_the_default_thresholds_count():
    default = [info(source="default")]
    result = run(simple("a", 0.0), criteria=default)
    assert verdict(result, run(simple("a", 0.0), criteria=default)).outcome is Verdict.FAIL


def test_collecting_does_not_hide_that_nothing_could_be_measured():
    result = run(case("a", broken()), simple("b", 1.0), criteria=[info(source="default")])
    assert verdict(result).outcome is Verdict.INCONCLUSIVE


def test_an_own_threshold_that_is_switched_off_is_none():
    assert verdict(run(simple("a", 0.0)), policy=rule(threshold_on="off")).outcome is Verdict.COLLECTING


# --- what else is said ------------------------------------------------------------------------------


def test_a_removed_failing_case_is_noticed():
    decision = verdict(run(simple("b", 1.0)), run(simple("a", 0.0), simple("b", 1.0)))
    assert decision.outcome is Verdict.PASS
    assert decision.reasons[0].data["gone"] == 1
    (note,) = decision.notes
    assert states(note, C.CASES_GONE, named=[place("a")], below={"cases": 1, "named": [place("a")]})
    assert [(pair.case, pair.kind) for pair in decision.pairs] == [("a", ChangeKind.REMOVED), ("b", ChangeKind.SAME)]


def test_a_dropped_criterion_is_noticed():
    criteria = [info(), info("words")]
    before = run(*(case(n, attempt({QUALITY: 1.0, "words": 0.0})) for n in "ab"), criteria=criteria)
    decision = verdict(run(simple("a", 1.0), simple("b", 1.0)), before)
    (note,) = decision.notes
    assert states(note, C.CRITERION_NOT_CONFIGURED, cases=2, below=2)
    assert note.subject.criterion == "words"


def test_other_models_and_packages_are_noted_and_compared_all_the_same():
    def made(model, packages):
        agent = AgentConditions(agent="bot", path="bot", models=(model,), adk_version="2.13", packages_digest=packages)
        return run(simple("a", 1.0), agents=(agent,))

    decision = verdict(made("gemini-3-flash", "p2"), made("gemini-2.5-flash", "p1"))
    assert decision.criteria[0].compared == 1
    model, packages = decision.notes
    assert states(model, C.MODEL_CHANGED, old=["gemini-2.5-flash"], new=["gemini-3-flash"])
    assert packages.code is C.PACKAGES_CHANGED
    assert model.subject.agent == packages.subject.agent == "bot"


def test_pairs_without_history_are_listed_by_reason():
    before = run(simple("a", 1.0), simple("b", 1.0))
    edited = simple("a", 1.0).model_copy(update={"digest": "edited"})
    decision = verdict(run(edited, simple("b", 1.0), simple("c", 1.0)), before)
    assert decision.outcome is Verdict.PASS
    edited, new = decision.notes
    assert states(edited, C.CASES_NOT_COMPARED, why="case_edited", named=[place("a")])
    assert states(new, C.CASES_NOT_COMPARED, why="case_new", named=[place("c")])
    assert states(decision.reasons[0], C.NOTHING_WORSE, compared=1, scores=3)


def test_a_moved_threshold_is_noted():
    before = run(simple("a", 0.6), criteria=[info(threshold=0.7)])
    decision = verdict(run(simple("a", 0.6)), before)
    (note,) = decision.notes
    assert states(note, C.THRESHOLD_MOVED, old=0.7, new=0.5, cases=1)
    assert note.subject.criterion == QUALITY


def test_cases_of_the_same_name_are_distinguished():
    def result(score):
        return run_of(eval_set(simple("a", score), name="one"), eval_set(simple("a", 1.0), name="two"))

    decision = verdict(result(0.0), result(1.0), rule())
    assert states(decision.reasons[0], C.CASES_WORSE, named=[{**place("a"), "eval_set": "one"}], total=2)
    assert headline(decision).endswith("`bot / one / a`")


def test_where_the_baseline_came_from_is_in_the_decision():
    baseline = verdict(run(simple("a", 1.0)), run(simple("a", 1.0), repeats=5)).baseline
    assert (baseline.path, baseline.commit, baseline.repeats) == (".agent-eval/baseline.json", "c0ffee", 5)


def test_the_baselines_calls_are_given_where_a_report_goes_into_the_case():
    roll = calls(("roll_die", {"sides": 6}))
    before = run(*(case(n, attempt({QUALITY: 1.0}, roll)) for n in ("bad", "gone", "good")))
    after = run(case("bad", attempt({QUALITY: 0.0})), case("good", attempt({QUALITY: 1.0}, roll)))
    kept = verdict(after, before).baseline_trajectories
    assert [(one.case, one.turns[0].calls[0].name) for one in kept] == [("bad", "roll_die"), ("gone", "roll_die")]


def test_sentences_are_bounded_and_on_one_line_whatever_is_in_them():
    evil = "line\nbreak\r\x1b[31m\u2028`<!-- " + "x" * 100_000
    bad = attempt({evil: 0.0}, calls((evil, {evil: evil})), reason=evil)
    decision = verdict(
        run(
            case(evil, bad, expected=[calls(("b", {}))]),
            case(evil + "2", broken(message=evil)),
            criteria=[info(evil)],
            selection=(evil,),
        ),
        run(case(evil, attempt({evil: 1.0}, calls(("b", {})))), simple("c", 1.0), criteria=[info(evil)]),
    )
    texts = [headline(decision), *notes(decision), *sentences(decision), *map(pair_sentence, decision.pairs)]
    for said in texts:
        assert len(said) <= 1_500
        assert not any(char in said for char in "\n\r\x1b\u2028")
