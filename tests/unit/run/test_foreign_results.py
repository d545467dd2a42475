"""google-adk's results as a run of ours: statuses, pooling, definitions that changed, names."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eval_action import criteria
from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.formats.adk_results import AdkResults
from agent_eval_action.results.run_result import AttemptError, CaseResult, RunResult
from agent_eval_action.run.foreign_results import align_names, import_results
from support.results import calls, case, eval_set


def metric(score: float | None = 1.0, status: int = 1, name: str = "tool_trajectory_avg_score", **rest: Any) -> Any:
    return {"metric_name": name, "threshold": 0.5, "score": score, "eval_status": status, **rest}


def turn(asked: str = "roll") -> Any:
    said = {"user_content": {"parts": [{"text": asked}]}, "final_response": {"parts": [{"text": "six"}]}}
    return {"actual_invocation": said, "expected_invocation": said, "eval_metric_results": []}


def file(*metrics: Any, at: float = 1.0, asked: str = "roll", turns: bool = True, **rest: Any) -> AdkResults:
    one = {
        "eval_id": "a",
        "final_eval_status": 1,
        "overall_eval_metric_results": metrics,
        "eval_metric_result_per_invocation": [turn(asked)] if turns else [],
    }
    value = {"eval_set_id": "dice", "eval_set_result_id": f"bot_dice_{at}", "creation_timestamp": at}
    return AdkResults.model_validate({**value, "eval_case_results": [one], **rest})


def only(result: RunResult) -> CaseResult:
    (one,) = result.sets
    (found,) = one.cases
    return found


@pytest.mark.parametrize(("status", "score"), [(3, None), (3, 1.0), (1, None), (9, 1.0), (1, float("inf"))])
def test_only_a_score_that_somebody_gave_is_one(status, score):
    """NOT_EVALUATED is an error even where a number stands beside it."""
    result, _ = import_results([file(metric(score, status))])
    (found,) = only(result).attempts[0].scores
    assert (found.status.value, found.score, found.passed) == ("error", None, None)


def test_a_case_without_metrics_is_an_error_of_the_attempt():
    result, _ = import_results([file(turns=False)])
    assert isinstance(only(result).attempts[0].error, AttemptError)
    assert result.totals.errors == 1


def test_the_threshold_decides_and_not_the_imported_status():
    result, _ = import_results([file(metric(0.2, status=1))])
    assert only(result).attempts[0].scores[0].passed is False


def test_files_are_repeats_whatever_their_order():
    files = [file(metric(score), at=at) for at, score in ((1.0, 0.0), (2.0, 1.0), (3.0, 1.0))]
    one, other = import_results(files)[0], import_results(files[::-1])[0]
    assert one == other
    assert [made.repeat for made in only(one).attempts] == [0, 1, 2]
    assert one.conditions.repeats == 3


def test_the_newest_definition_counts_and_what_is_left_out_is_counted():
    old, new = file(metric(0.0), at=1.0, asked="roll"), file(metric(1.0), at=2.0, asked="roll twice")
    result, notes = import_results([old, new])
    assert [made.scores[0].score for made in only(result).attempts] == [1.0]
    assert "1 older results" in notes[0]


def test_a_metric_with_other_options_is_another_one():
    old = file(metric(0.0, criterion={"threshold": 0.5, "match_type": 2}), at=1.0)
    result, notes = import_results([old, file(metric(1.0), at=2.0)])
    assert [len(made.scores) for made in only(result).attempts] == [1, 0]
    assert notes


def test_our_own_digest_is_that_of_a_criterion_of_ours():
    (ours,) = criteria.build((CriterionSpec("tool_trajectory_avg_score", {"threshold": 0.9}),))
    result, _ = import_results([file(metric())])
    assert result.sets[0].criteria[0].digest == criteria.criterion_digest(ours)


def test_names_of_the_agent_come_from_the_session_or_from_the_id():
    assert import_results([file(metric())])[0].sets[0].agent == "bot"
    session = file(metric(), turns=True)
    session = session.model_copy(
        update={
            "eval_case_results": (
                session.eval_case_results[0].model_validate(
                    {"eval_id": "a", "session_details": {"app_name": "app"}, "final_eval_status": 1}
                ),
            )
        }
    )
    assert import_results([session])[0].sets[0].agent == "app"


def test_beside_a_run_of_ours_sets_take_its_names_and_cases_its_digests():
    result, _ = import_results([file(metric())])
    like = align_names(result, [eval_set(case("a", digest="d"), agent="dice_agent", name="evals/dice")])
    (one,) = like.sets
    assert (one.agent, one.eval_set, one.cases[0].digest) == ("dice_agent", "evals/dice", "d")


def test_a_name_that_two_sets_end_in_names_neither():
    result, _ = import_results([file(metric())])
    two = [eval_set(case("a"), name="x/dice"), eval_set(case("a"), name="y/dice")]
    assert align_names(result, two) == result


def test_a_case_that_expects_something_else_keeps_its_own_digest():
    result, _ = import_results([file(metric())])
    other = eval_set(case("a", digest="d", expected=[calls(("flip", {}))]), name="evals/dice")
    assert align_names(result, [other]).sets[0].cases[0].digest != "d"
