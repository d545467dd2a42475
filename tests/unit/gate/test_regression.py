"""The verdict on evidence: what is said of a confirmed, a cleared, a broken and an undecided suspect."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.history_session import regressed
from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.reports import REPORTS, ReportInput
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import ChangeKind, TurnBrief, Verdict
from agent_eval_action.results.findings import FindingCode as C
from agent_eval_action.results.run_result import AttemptSummary, Base, CaseResult, RunStatus, Totals, Usage
from support.messages import headline, pair_sentence, states
from support.records import stored
from support.results import QUALITY, attempt, case, run, simple


def again(name, *scores, control=()):
    """A case with one attempt of the first pass and these after it."""
    made = [attempt({QUALITY: score}, repeat=n) for n, score in enumerate(scores)]
    fresh = [one.model_copy(update={"purpose": "rerun"}) for one in made[1:]]
    base = tuple(attempt({QUALITY: score}, repeat=n) for n, score in enumerate(control))
    return case(name, made[0], *fresh).model_copy(update={"control": base})


def rest(*scores):
    return [simple(f"z{n:02}", *scores) for n in range(12)]


HISTORY = run(simple("a", *[1.0] * 14), simple("b", *[1.0] * 9, 0.0), *rest(*[1.0] * 10))


def verdict(*cases: CaseResult, policy=None, cut_short="", controlled=None):
    controlled = any(one.control for one in cases) if controlled is None else controlled
    result = run(*cases, *rest(1.0)).model_copy(
        update={"totals": Totals(extra=6), "base": Base(commit="b") if controlled else None, "cut_short": cut_short}
    )
    return decide(compare(stored(from_result(HISTORY)), result), result, policy or Policy())


def kinds(decision):
    return {pair.case: pair.kind for pair in decision.pairs if not pair.case.startswith("z")}


def counts(finding, code):
    """How often the case passed of how many times: on main, here, and as the control; checks the code."""
    assert finding.code is code
    sides = (finding.data[side] for side in ("main", "here", "control"))
    return tuple(side and [side["passed"], side["n"]] for side in sides)


def test_beside_a_case_that_is_surely_worse_the_mean_is_not_called_chance():
    decision = verdict(again("a", 0.0, *[0.0] * 6))
    (of_mean,) = [one for one in decision.findings if one.code is C.MEAN_BEYOND_LIMIT]
    assert decision.findings[0].code is C.WORSE
    assert of_mean.severity == "advisory"
    assert "doubt" not in of_mean.data


def test_a_confirmed_suspect_blocks_with_its_counts():
    decision = verdict(again("a", 0.0, *[0.0] * 6))
    assert decision.outcome is Verdict.FAIL
    assert counts(decision.findings[0], C.WORSE) == ([14, 14], [0, 5], None)
    assert decision.findings[0].severity == "blocks"
    (pair,) = [pair for pair in decision.pairs if pair.blocking]
    assert regressed(decision) == ((CaseKey("bot", "set", "a"), QUALITY),)
    assert pair.fresh
    assert (pair.fresh.n, pair.fresh.passed) == (5, 0)
    assert pair.interval
    assert pair.interval[1] < -0.4


def test_what_blocks_by_its_threshold_alone_is_not_withheld_from_main_s_history():
    decision = verdict(again("a", 0.0, *[1.0] * 5), again("b", 0.0), policy=Policy(threshold_on="case"))
    assert [pair.case for pair in decision.pairs if pair.blocking] == ["b"]
    assert regressed(decision) == ()


def test_a_cleared_suspect_is_flaky_with_its_rate_and_blocks_nothing():
    decision = verdict(again("a", 0.0, *[1.0] * 5))
    assert decision.outcome is Verdict.PASS
    assert kinds(decision) == {"a": ChangeKind.FLAKY, "b": ChangeKind.REMOVED}
    reason = next(pair_sentence(pair) for pair in decision.pairs if pair.case == "a")
    assert "5 of 5 here" in reason
    (flaky,) = (note for note in decision.notes if note.code is C.CASES_FLAKY)
    assert [(one["case"], one["criterion"], one["passed"], one["n"]) for one in flaky.data["named"]] == [
        ("a", QUALITY, 5, 5)
    ]
    assert decision.criteria[0].flaky == 1


def test_what_is_as_bad_on_the_base_commit_is_reported_and_does_not_block():
    decision = verdict(again("a", *[0.0] * 21, control=[0.0] * 10))
    assert decision.outcome is Verdict.PASS
    assert kinds(decision)["a"] is ChangeKind.ON_MAIN
    (finding,) = [finding for finding in decision.findings if finding.subject.case == "a"]
    assert counts(finding, C.BROKEN_ON_MAIN) == ([14, 14], [0, 20], [0, 10])


@pytest.mark.parametrize(("control", "outcome"), [(0.0, Verdict.INCONCLUSIVE), (1.0, Verdict.FAIL)])
def test_what_main_always_could_and_neither_arm_can_now_is_reported_once_for_the_suite(control, outcome):
    def both(name):
        made = again(name, 0.0, 0.0, control=[control])
        interleaved = made.attempts[1].model_copy(update={"purpose": "control"})
        return made.model_copy(update={"attempts": (made.attempts[0], interleaved)})

    history = run(*[simple(f"c{n}", *[1.0] * 19, 0.0) for n in range(12)])
    now = run(*[both(f"c{n}") for n in range(12)])
    made = now.model_copy(update={"base": Base(commit="b"), "totals": Totals(extra=12, control=12)})
    decision = decide(compare(stored(from_result(history)), made), made, Policy())
    assert decision.outcome is outcome
    (finding,) = [one for one in decision.findings if one.severity != "advisory"]
    if outcome is Verdict.INCONCLUSIVE:
        values = {"baseline": pytest.approx(0.95), "control": 0.0, "score": 0.0, "cases": 6}
        assert states(finding, C.MAIN_COLLAPSED, **values)
        assert finding.subject.criterion == QUALITY
        assert {pair.kind for pair in decision.pairs} == {ChangeKind.ON_MAIN}
        assert regressed(decision) == ()


@pytest.mark.parametrize("cut_short", ["", "the run reached max_calls"])
def test_a_suspect_that_was_not_run_again_leaves_it_open(cut_short):
    decision = verdict(again("a", 0.0), cut_short=cut_short)
    assert decision.outcome is Verdict.INCONCLUSIVE
    assert decision.reasons[0].data.get("limit", "") == cut_short


LIMITS = [
    "the limit of 7 extra runs is reached before this: checking 1 case on main",
    "the limit of 100 model calls was reached",
    "the limit of 5,000 tokens was reached",
    "max_time of 60 s was reached",
]


@pytest.mark.parametrize("control", [[], [1.0]])
@pytest.mark.parametrize("cut_short", LIMITS)
def test_a_limit_before_the_control_is_no_fail_and_says_which(cut_short, control):
    decision = verdict(again("a", 0.0, *[0.0] * 6, control=control), cut_short=cut_short, controlled=True)
    assert decision.outcome is Verdict.INCONCLUSIVE
    (finding,) = [finding for finding in decision.findings if finding.severity == "inconclusive"]
    assert finding.data["limit"] == cut_short
    assert counts(finding, C.WORSE_UNCONTROLLED) == ([14, 14], [0, 5], [1, 1] if control else None)
    assert finding in decision.reasons


def test_an_interrupt_before_the_control_says_that_it_ended_the_decision_not_the_first_pass():
    made = run(again("a", 0.0, *[0.0] * 6), *rest(1.0)).model_copy(
        update={"totals": Totals(extra=6), "base": Base(commit="b"), "status": RunStatus.INTERRUPTED}
    )
    decision = decide(compare(stored(from_result(HISTORY)), made), made, Policy())
    assert decision.outcome is Verdict.INCONCLUSIVE
    assert any(states(found, C.RUN_ENDED_EARLY, status="interrupted", missing=0) for found in decision.reasons)


def test_a_limit_where_no_base_can_be_had_leaves_the_verdict_to_history():
    decision = verdict(again("a", 0.0, *[0.0] * 6), cut_short=LIMITS[0])
    assert decision.outcome is Verdict.FAIL
    gone = run(again("a", 0.0, *[0.0] * 6), *rest(1.0)).model_copy(
        update={"totals": Totals(extra=6), "base": Base(commit="b", unavailable="it is gone"), "cut_short": LIMITS[0]}
    )
    decision = decide(compare(stored(from_result(HISTORY)), gone), gone, Policy())
    assert decision.outcome is Verdict.FAIL
    assert any(states(note, C.NO_CONTROL, error="it is gone") for note in decision.notes)


def test_a_limit_before_the_suites_control_is_no_fail_and_no_pass():
    history = run(*[simple(f"c{n}", *[1.0] * 19, 0.0) for n in range(30)])
    now = run(*[simple(f"c{n}", 1.0 if n < 15 else 0.0) for n in range(30)])
    for base, effect in ((Base(commit="b"), "inconclusive"), (None, "blocks")):
        made = now.model_copy(update={"cut_short": LIMITS[1], "base": base})
        decision = decide(compare(stored(from_result(history)), made), made, Policy())
        assert decision.outcome is (Verdict.FAIL if effect == "blocks" else Verdict.INCONCLUSIVE)
        (finding,) = [one for one in decision.findings if one.subject.case is None and one.severity != "advisory"]
        assert finding.severity == effect
        if effect == "inconclusive":
            values = {"drop": pytest.approx(0.45), "cases": 30, "doubt": "not_confirmed", "limit_met": LIMITS[1]}
            assert states(finding, C.MEAN_WORSE, **values)


def test_an_advisory_set_is_shown_and_never_blocks_and_one_that_is_off_is_not_judged():
    broken = again("a", 0.0, *[0.0] * 6)
    shown = verdict(broken, policy=Policy(sets={"set": "advisory"}))
    assert shown.outcome is not Verdict.FAIL
    assert not any(pair.blocking for pair in shown.pairs)
    off = verdict(broken, policy=Policy(sets={"set": "off"}))
    assert not any(finding.subject.case == "a" for finding in off.findings)


def test_a_new_failing_case_is_advisory_until_it_is_merged():
    decision = verdict(again("new", 0.0), again("a", 1.0))
    assert decision.outcome is Verdict.PASS
    assert [(finding.severity, finding.subject.case) for finding in decision.findings] == [("advisory", "new")]


def test_a_silent_agent_without_a_token_billed_was_not_measured():
    silent = AttemptSummary(
        repeat=0,
        scores=attempt({QUALITY: 0.0}).scores,
        turns=(TurnBrief(user="hello"),),
        usage=Usage(model_calls=1, calls_without_usage=1),
    )
    decision = verdict(case("a", silent))
    assert decision.outcome is Verdict.INCONCLUSIVE
    assert "no token was billed" in headline(decision)


def test_the_smallest_drop_it_could_have_found_stands_with_the_criterion():
    decision = verdict(again("a", 1.0))
    assert decision.criteria[0].detectable
    result = run(again("a", 1.0)).model_copy(update={"decision": decision})
    comment = REPORTS["markdown"](ReportInput(result), None)
    assert "Four times out of five, " in comment
