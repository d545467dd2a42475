"""A baseline that is measured beside the run: what of it is missing, and what that means for the verdict."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import baseline_of, unmeasured_on_base, without_control
from agent_eval_action.config.models import Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.run_result import Base, ErrorKind, RunResult, Totals
from support.messages import headline, sentence
from support.records import stored
from support.results import QUALITY, attempt, broken, case, run

WHY = "the agent of bbb could not be run: SyntaxError: invalid syntax (agent.py, line 3)"
ONE_AGENT, OF_SEVERAL = Base(commit="b", unavailable=WHY), Base(commit="b", unavailable_agents={"bot": WHY})


def measured(base: Base, *control: float | ErrorKind) -> RunResult:
    """A run of one case whose baseline is what the base commit's agent did: scores, or errors."""
    made = tuple(
        broken(one, "503 Service Unavailable", n) if isinstance(one, ErrorKind) else attempt({QUALITY: one}, repeat=n)
        for n, one in enumerate(control)
    )
    one = case("a", attempt({QUALITY: 1.0})).model_copy(update={"control": made})
    return run(one).model_copy(update={"base": base, "totals": Totals(control=len(made))})


def verdict(result: RunResult) -> Decision:
    held = without_control(result)
    found = compare(stored(baseline_of(result)), held, unmeasured=unmeasured_on_base(result))
    return decide(found, held, Policy())


@pytest.mark.parametrize("base", [ONE_AGENT, OF_SEVERAL])
def test_a_base_agent_that_does_not_start_decides_nothing_and_is_named_with_its_reason(base: Base) -> None:
    decision = verdict(measured(base))
    assert decision.outcome is Verdict.INCONCLUSIVE
    (finding,) = [one for one in decision.findings if one.severity == "inconclusive"]
    assert "the base commit's agent did not answer `a`" in sentence(finding)
    assert "SyntaxError: invalid syntax (agent.py, line 3)" in headline(decision)


def test_an_agent_that_the_base_commit_does_not_have_is_new_and_nothing_is_missing() -> None:
    new = Base(commit="b", unavailable="the base commit has no agent in bot", absent=("bot",))
    assert unmeasured_on_base(measured(new)) == {}
    assert verdict(measured(new)).outcome is not Verdict.INCONCLUSIVE


def test_an_agent_that_lacks_credentials_on_both_sides_has_words_of_its_own() -> None:
    assert unmeasured_on_base(measured(Base(commit="b", unavailable=WHY, lacking=("bot",)))) == {}


@pytest.mark.parametrize(
    ("kind", "lost"), [(ErrorKind.UNAVAILABLE, True), (ErrorKind.RATE_LIMITED, True), (ErrorKind.EXCEPTION, False)]
)
def test_a_case_that_no_attempt_of_the_base_answered_is_lost_where_its_code_is_not_why(
    kind: ErrorKind, lost: bool
) -> None:
    result = measured(Base(commit="b"), *[kind] * 5)
    assert bool(unmeasured_on_base(result)) is lost
    if lost:
        assert unmeasured_on_base(result) == {CaseKey("bot", "set", "a"): "503 Service Unavailable"}


def test_one_failed_attempt_of_the_base_leaves_the_scores_of_the_others() -> None:
    result = measured(Base(commit="b"), 1.0, ErrorKind.UNAVAILABLE, 1.0, 1.0, 1.0)
    assert unmeasured_on_base(result) == {}
    (pair,) = verdict(result).pairs
    assert pair.baseline
    assert (pair.baseline.n, pair.baseline.mean) == (4, 1.0)
