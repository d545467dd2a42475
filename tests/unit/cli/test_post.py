"""What of a stranger's results can be held to anything: the verdict must follow from its own findings and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.ci.github_actions import read_posted_run
from agent_eval_action.cli.comment import find_inconsistency
from agent_eval_action.errors import UsageError
from agent_eval_action.reports import results_json
from agent_eval_action.results.decision import Verdict
from agent_eval_action.results.run_result import RunStatus

GOLDEN = Path(__file__).parents[2] / "golden"
SCENARIOS = sorted(path.parent.name for path in GOLDEN.glob("*/results.json"))
WORKFLOW_RUN = {"GITHUB_EVENT_NAME": "workflow_run"}


def golden(name):
    result = results_json.read(GOLDEN / name / "results.json")
    return result, result.decision


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_we_write_ourselves_holds(name):
    assert find_inconsistency(*golden(name)) == ""


@pytest.mark.parametrize("name", SCENARIOS)
def test_another_verdict_does_not_follow(name):
    result, decision = golden(name)
    same = {Verdict.PASS, Verdict.COLLECTING}
    for outcome in Verdict:
        forged = find_inconsistency(result, decision.model_copy(update={"outcome": outcome}))
        fits = outcome is decision.outcome or {outcome, decision.outcome} == same
        assert (forged == "") == fits


def test_a_pass_of_a_run_that_did_not_end_does_not_follow():
    result, decision = golden("passed")
    cut = result.model_copy(update={"status": RunStatus.TIMED_OUT})
    assert "its findings say inconclusive" in find_inconsistency(cut, decision)


def test_findings_that_are_taken_away_are_missed():
    result, decision = golden("regressed")
    forged = decision.model_copy(update={"outcome": Verdict.PASS, "findings": ()})
    assert "no finding says so" in find_inconsistency(result, forged)


def changed(decision, **fields):
    first = next(pair for pair in decision.pairs if pair.current is not None)
    rest = [pair for pair in decision.pairs if pair is not first]
    return decision.model_copy(update={"pairs": (first.model_copy(update=fields), *rest)})


def test_a_score_that_was_not_measured_is_found():
    result, decision = golden("passed")
    pair = next(pair for pair in decision.pairs if pair.current is not None)
    better = pair.current.model_copy(update={"mean": pair.current.mean + 0.1})
    more = pair.current.model_copy(update={"n": pair.current.n + 1})
    for fields in ({"current": better}, {"current": more}, {"current": None}, {"case": "another"}, {"errors": 3}):
        assert "not the one that was measured" in find_inconsistency(result, changed(decision, **fields)), fields


@pytest.mark.parametrize("said", [None, {}, {"workflow_run": 3}, {"workflow_run": {"head_sha": "x"}}, []])
def test_an_event_that_does_not_say_which_run_is_refused(said):
    with pytest.raises(UsageError, match="does not say"):
        read_posted_run(WORKFLOW_RUN, said)
