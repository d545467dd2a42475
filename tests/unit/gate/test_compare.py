"""What became of each pair: kinds, comparability, aggregates; on both directions of better."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import Policy
from agent_eval_action.gate import decide
from agent_eval_action.gate.pairs import compare
from agent_eval_action.results.decision import ChangeKind as K
from agent_eval_action.results.decision import Verdict
from agent_eval_action.results.findings import FindingCode as C
from agent_eval_action.results.run_result import RunStatus
from support.messages import states
from support.records import stored
from support.results import QUALITY, attempt, broken, case, eval_set, info, run, run_of, simple


def compared(before, after, **criterion):
    """The one pair of the case a: scores then, scores now."""
    criteria = [info(**criterion)]
    name = criteria[0].name
    old = from_result(run(simple("a", *before, criterion=name), criteria=criteria))
    (pair,) = compare(stored(old), run(simple("a", *after, criterion=name), criteria=criteria)).pairs
    return pair


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ([1.0], [1.0], K.SAME),
        ([0.6], [0.9], K.BETTER),
        ([0.9], [0.6], K.WORSE),
        ([1.0], [0.4], K.NEWLY_FAILING),
        ([0.4], [0.5], K.FIXED),
        ([0.4], [0.3], K.STILL_FAILING),
        ([0.2], [0.4], K.STILL_FAILING),
        ([0.1, 0.2, 0.3], [0.3, 0.1, 0.2], K.STILL_FAILING),
        ([0.1 + 0.2, 0.9], [0.3, 0.9], K.SAME),
    ],
)
def test_kinds_where_higher_is_better(before, after, kind):
    assert compared(before, after).kind is kind


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ([90.0], [90.0], K.SAME),
        ([90.0], [80.0], K.BETTER),
        ([80.0], [100.0], K.WORSE),
        ([100.0], [100.5], K.NEWLY_FAILING),
        ([101.0], [100.0], K.FIXED),
        ([120.0], [110.0], K.STILL_FAILING),
    ],
)
def test_kinds_where_lower_is_better(before, after, kind):
    assert compared(before, after, name="tokens", threshold=100.0, goal="minimize").kind is kind


@pytest.mark.parametrize(("after", "kind"), [([0.7], K.WORSE), ([0.9], K.BETTER), ([0.8], K.SAME)])
def test_without_a_threshold_there_is_only_better_and_worse(after, kind):
    assert compared([0.8], after, threshold=None).kind is kind


def test_a_case_passes_by_its_mean_over_the_repeats():
    pair = compared([1.0], [1.0, 0.0])
    assert not pair.below
    assert pair.current.passed == 1
    assert compared([1.0], [1.0, 0.0, 0.0]).below


def test_equal_scores_have_their_own_value_as_mean():
    for score in (0.8, 0.1, 0.7, 1 / 3):  # a sum of three 0.7 is below 2.1
        assert not compared([1.0], [score] * 3, threshold=score).below
        assert compared([1.0], [score] * 3, threshold=score).kind is not K.NEWLY_FAILING


def test_the_threshold_is_met_exactly_as_in_adk():
    assert not compared([1.0], [0.8], threshold=0.8).below
    assert compared([1.0], [0.8 - 1e-16 * 2], threshold=0.8).below


def test_a_baseline_at_its_threshold_met_it_although_it_was_rounded():
    for score in (1 / 3, 2 / 3):
        assert compared([score], [0.1], threshold=score).kind is K.NEWLY_FAILING
        assert compared([score], [1.0], threshold=score).kind is K.BETTER
    assert compared([0.5 - 1e-14], [0.5 - 1e-14], threshold=0.5).kind is K.STILL_FAILING


def test_a_moved_threshold_is_no_change_of_the_agents():
    old = from_result(run(simple("a", 0.6), criteria=[info(threshold=0.5)]))
    (raised,) = compare(stored(old), run(simple("a", 0.6), criteria=[info(threshold=0.7)])).pairs
    assert (raised.kind, raised.change) == (K.STILL_FAILING, 0.0)
    (lowered,) = compare(stored(old), run(simple("a", 0.6), criteria=[info(threshold=0.2)])).pairs
    assert lowered.kind is K.SAME
    assert (lowered.old_threshold, lowered.threshold) == (0.5, 0.2)


OLD = from_result(run(simple("a", 1.0), simple("b", 1.0)))


@pytest.mark.parametrize(
    ("now", "criteria", "kind", "why"),
    [
        (simple("a", 1.0).model_copy(update={"digest": "edited"}), [info()], K.CHANGED, "case_edited"),
        (simple("a", 0.0).model_copy(update={"digest": "edited"}), [info()], K.FAILING, "case_edited"),
        (simple("a", 1.0), [info(digest="other options")], K.CHANGED, "criterion_changed"),
        (simple("a", 0.0), [info(digest="other options")], K.FAILING, "criterion_changed"),
        (simple("c", 1.0), [info()], K.NEW, "case_new"),
        (simple("c", 0.0), [info()], K.FAILING, "case_new"),
        (simple("a", 1.0, criterion="words"), [info("words")], K.NEW, "criterion_new"),
    ],
)
def test_what_has_no_comparable_history_is_judged_alone_and_says_why(now, criteria, kind, why):
    (pair,) = compare(stored(OLD), run(now, criteria=criteria)).pairs
    assert pair.kind is kind
    assert pair.incomparable is not None
    assert pair.incomparable.why == why
    assert pair.change is None


def test_a_digest_longer_than_what_is_kept_is_still_the_same_definition():
    long = [info(digest="sha256:" + "0123456789abcdef" * 4)]
    one = simple("a", 1.0).model_copy(update={"digest": "fedcba9876543210" * 4})
    (pair,) = compare(stored(from_result(run(one, criteria=long))), run(one, criteria=long)).pairs
    assert pair.kind is K.SAME


@pytest.mark.parametrize("baseline", [None, from_result(run())])
def test_without_a_baseline_a_pair_is_passing_or_failing(baseline):
    comparison = compare(stored(baseline), run(simple("a", 1.0), simple("b", 0.0)))
    assert [pair.kind for pair in comparison.pairs] == [K.PASSING, K.FAILING]
    assert comparison.baseline is None


@pytest.mark.parametrize("attempts", [[broken()], [attempt({QUALITY: "judge is down"})], [attempt({})], []])
def test_no_score_is_an_error_never_a_zero(attempts):
    (pair, _) = compare(stored(OLD), run(case("a", *attempts), simple("b", 1.0))).pairs
    assert pair.kind is K.ERROR
    assert pair.current is None
    assert not pair.below
    assert pair.measured.errors == 1


def test_a_score_that_is_no_number_is_an_error():
    poisoned = attempt({QUALITY: 1.0})
    score = poisoned.scores[0].model_construct(**dict(poisoned.scores[0]) | {"score": float("nan")})
    (pair, _) = compare(
        stored(OLD), run(case("a", poisoned.model_copy(update={"scores": (score,)})), simple("b", 1.0))
    ).pairs
    assert pair.kind is K.ERROR


def test_what_was_measured_beside_an_error_is_compared():
    (pair, _) = compare(stored(OLD), run(case("a", attempt({QUALITY: 0.0}), broken()), simple("b", 1.0))).pairs
    assert (pair.kind, pair.current.n, pair.measured.errors) == (K.NEWLY_FAILING, 1, 1)


def test_not_applicable_is_neither_error_nor_removed():
    (pair, _) = (comparison := compare(stored(OLD), run(simple("a", None), simple("b", 1.0)))).pairs
    assert pair.kind is K.NOT_APPLICABLE
    assert comparison.removed == ()


def test_removed_cases_and_criteria_are_listed():
    criteria = [info(), info("words")]
    old = from_result(run(*(case(n, attempt({QUALITY: 1.0, "words": 0.0})) for n in "ab"), criteria=criteria))
    removed = compare(stored(old), run(simple("b", 1.0))).removed
    assert [(pair.key.case, pair.criterion, pair.incomparable.why, pair.below) for pair in removed] == [
        ("a", QUALITY, "case_gone", False),
        ("a", "words", "case_gone", True),
        ("b", "words", "criterion_gone", True),
    ]


def test_what_a_narrowed_run_leaves_out_is_not_removed():
    comparison = compare(stored(OLD), run(simple("a", 1.0), selection=("--case", "a")))
    assert comparison.removed == ()
    decision = decide(comparison, run(simple("a", 1.0), selection=("--case", "a")), Policy())
    (note,) = decision.notes
    assert states(note, C.CASES_NOT_RUN, cases=1, selection="--case, a")


def test_means_are_paired_over_what_both_runs_have():
    old = from_result(run(simple("a", 1.0), simple("b", 0.5), simple("gone", 0.0)))
    new = run(simple("a", 0.5), simple("b", 0.5), simple("c", 0.25), case("d", broken()))
    (one,) = decide(compare(stored(old), new), new, Policy()).criteria
    assert (one.baseline, one.paired, one.change, one.compared) == (0.75, 0.5, -0.25, 2)
    assert one.current == pytest.approx(1.25 / 3)


def test_cases_of_other_agents_and_sets_are_other_cases():
    def of(agent, name, score):
        return eval_set(simple("a", score), agent=agent, name=name)

    old = from_result(run_of(of("one", "s", 1.0), of("one", "t", 0.0), of("two", "s", 0.0)))
    pairs = compare(stored(old), run_of(of("two", "s", 0.0), of("one", "t", 0.0), of("one", "s", 1.0))).pairs
    assert [(pair.key.agent, pair.key.eval_set, pair.kind) for pair in pairs] == [
        ("one", "s", K.SAME),
        ("one", "t", K.STILL_FAILING),
        ("two", "s", K.STILL_FAILING),
    ]


def test_whose_threshold_it_is():
    default = info("words", source="default")
    measured = case("a", attempt({QUALITY: 1.0, "words": 1.0, "tokens": 9.0}))
    tokens = info("tokens", None, goal="minimize")
    for criteria, verdict in (([info(), default, tokens], Verdict.PASS), ([default, tokens], Verdict.COLLECTING)):
        result = run(measured, criteria=criteria)
        assert decide(compare(stored(None), result), result, Policy()).outcome is verdict


def test_a_run_that_is_cut_short_has_removed_nothing_it_planned():
    stopped = run_of(eval_set(simple("a", 1.0), case("b", broken())), status=RunStatus.TIMED_OUT)
    assert compare(stored(OLD), stopped).removed == ()
