"""What a run left out for want of credentials: said once, and excused only where GitHub withheld them."""

from __future__ import annotations

import pytest

from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.results.decision import ChangeKind, Verdict
from agent_eval_action.results.findings import FindingCode as C
from agent_eval_action.results.run_result import RunStatus
from support.messages import states
from support.records import stored
from support.results import attempt, broken, case, eval_set, info, run_of

WHY = "not measured: no credentials on this pull request"
JUDGE, QUALITY = info("judge", unmeasured=WHY), info("quality")
FORK = "GitHub gives no secrets to a pull request from a fork"


def decided(*cases, criteria=(QUALITY, JUDGE), policy=None, withheld=FORK, status=RunStatus.COMPLETE, **conditions):
    run = run_of(eval_set(*cases, criteria=criteria), status=status, withheld=withheld, **conditions)
    return decide(compare(stored(None), run), run, policy or Policy())


def good(name="a"):
    return case(name, attempt({"quality": 1.0}))


def test_it_is_one_finding_however_many_cases_there_are():
    decision = decided(*(good(str(number)) for number in range(40)))
    assert (decision.outcome, decision.excused) == (Verdict.INCONCLUSIVE, True)
    (finding,) = decision.findings
    assert states(finding, C.CREDENTIALS_MISSING, text=WHY, why=FORK)
    assert [entry["criterion"] for entry in finding.data["criteria"]] == ["judge"]
    assert decision.reasons[0] == finding
    assert states(decision.reasons[1], C.THRESHOLDS_MET, cases=40, criteria=1, rest=True)
    kinds = {pair.kind for pair in decision.pairs if pair.criterion == "judge"}
    assert kinds == {ChangeKind.NOT_APPLICABLE}


def test_where_nobody_withheld_them_it_is_not_excused_and_says_what_to_set():
    decision = decided(good(), withheld="", lacking=("no credentials for `m`: set KEY",))
    assert (decision.outcome, decision.excused) == (Verdict.INCONCLUSIVE, False)
    assert decision.reasons[0].data["why"] == "no credentials for `m`: set KEY"


def test_a_failure_beside_it_stays_one():
    decision = decided(good(), case("b", attempt({"quality": 0.0})), policy=Policy(threshold_on="case"))
    assert (decision.outcome, decision.excused) == (Verdict.FAIL, False)
    assert any(states(finding, C.CREDENTIALS_MISSING, text=WHY) for finding in decision.reasons)


@pytest.mark.parametrize("status", [RunStatus.TIMED_OUT, RunStatus.INTERRUPTED, RunStatus.LIMITED])
def test_a_run_that_did_not_end_is_not_excused(status):
    assert not decided(good(), status=status).excused


def test_an_error_beside_it_is_not_excused():
    decision = decided(good(), case("b", broken()))
    assert (decision.outcome, decision.excused) == (Verdict.INCONCLUSIVE, False)
    assert C.THRESHOLDS_MET not in {finding.code for finding in decision.reasons}


def test_what_only_advises_leaves_the_verdict():
    policy = Policy(criteria={"judge": CriterionPolicy(mode="advisory")})
    decision = decided(good(), policy=policy)
    assert (decision.outcome, decision.excused) == (Verdict.PASS, False)
    assert [one.severity for one in decision.findings] == ["advisory"]


def test_cases_that_were_not_run_are_counted_apart():
    left = case("talk").model_copy(update={"unmeasured": WHY})
    decision = decided(good(), left, criteria=(QUALITY,))
    (left_out, met) = decision.reasons
    assert left_out.data["criteria"] == [{"criterion": "quality", "cases": 1, "of": 2}]
    assert states(met, C.THRESHOLDS_MET, cases=1, criteria=1)


def test_nothing_at_all_is_reported_once_and_is_no_pass():
    decision = decided(case("a", attempt({})), criteria=(JUDGE,))
    assert (decision.outcome, decision.excused, len(decision.findings)) == (Verdict.INCONCLUSIVE, True, 1)


def test_a_run_that_left_nothing_out_is_as_it_was():
    decision = decided(good(), criteria=(QUALITY,))
    assert (decision.outcome, decision.excused, decision.findings) == (Verdict.PASS, False, ())
