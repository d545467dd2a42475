"""What loosens a criterion is the criterion's own knowledge; an option of no known direction may always loosen it."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria import CRITERIA, build, criterion_info, relaxes
from agent_eval_action.results.run_result import CriterionInfo

JUDGED = "final_response_match_v2"
RUBRICS = "rubric_based_final_response_quality_v1"
CALLS = "tool_trajectory_avg_score"


def info(name: str, **options: Any) -> CriterionInfo:
    (criterion,) = build([CriterionSpec(name, {"threshold": 0.5, **options})])
    return criterion_info(criterion)


def rubric(name: str, text: str) -> dict[str, Any]:
    return {"rubric_id": name, "rubric_content": {"text_property": text}}


POLITE, SHORT = rubric("polite", "The answer is polite."), rubric("short", "The answer is short.")


@pytest.mark.parametrize(
    ("name", "strict", "loose", "option"),
    [
        (CALLS, {"match_type": "EXACT"}, {"match_type": "IN_ORDER"}, "match_type"),
        (CALLS, {"match_type": "IN_ORDER"}, {"match_type": "ANY_ORDER"}, "match_type"),
        (CALLS, {}, {"ignore_args": True}, "ignore_args"),
        (
            JUDGED,
            {"judge_model_options": {"num_samples": 5}},
            {"judge_model_options": {"num_samples": 1}},
            "judge_model_options.num_samples",
        ),
        (RUBRICS, {"rubrics": [POLITE, SHORT]}, {"rubrics": [POLITE]}, "rubrics"),
    ],
)
def test_what_asks_for_less_is_named_and_the_way_back_is_not(name, strict, loose, option):
    assert [change.option for change in relaxes(info(name, **strict), info(name, **loose))] == [option]
    assert relaxes(info(name, **loose), info(name, **strict)) == ()


@pytest.mark.parametrize(
    ("name", "one", "other", "option"),
    [
        (
            JUDGED,
            {"judge_model_options": {"judge_model": "gemini-2.5-flash"}},
            {"judge_model_options": {"judge_model": "openai/always-yes"}},
            "judge_model_options.judge_model",
        ),
        (
            JUDGED,
            {"judge_model_options": {"judge_model_config": {"temperature": 0.0}}},
            {"judge_model_options": {"judge_model_config": {"temperature": 2.0}}},
            "judge_model_options.judge_model_config",
        ),
        (RUBRICS, {"rubrics": [POLITE]}, {"rubrics": [rubric("polite", "It is any answer.")]}, "rubrics"),
        (
            RUBRICS,
            {"rubrics": [POLITE, SHORT], "weights": {"polite": 5.0}},
            {"rubrics": [POLITE, SHORT], "weights": {"short": 5.0}},
            "weights",
        ),
    ],
)
def test_an_option_of_no_direction_is_named_whichever_way_it_changes(name, one, other, option):
    for then, now in ((one, other), (other, one)):
        assert [change.option for change in relaxes(info(name, **then), info(name, **now))] == [option]


@pytest.mark.parametrize("name", sorted(CRITERIA))
def test_no_option_of_any_criterion_changes_unseen_in_both_directions(name):
    """Whatever option a criterion has or will have: of two values one way at least is named."""
    options = (
        CriterionInfo(name=name, digest="x", options={"some_option": 1}),
        CriterionInfo(name=name, digest="y", options={"some_option": 2}),
    )
    assert relaxes(*options)
    assert relaxes(*reversed(options))
    for option in CRITERIA[name].relaxed_when:
        assert option.partition(".")[0] in CRITERIA[name].model_fields


def test_of_a_custom_metric_another_function_and_every_option_counts():
    then, now = (
        CriterionInfo(name="tone", digest=name, scoring_version=f"1 bot.metrics.{name}", options=options)
        for name, options in (("tone", {"tolerance": 0.1}), ("any", {"tolerance": 0.9, "pattern": ".+"}))
    )
    assert [change.option for change in relaxes(then, now)] == ["function", "pattern", "tolerance"]


def test_what_another_tool_did_not_record_is_no_change():
    assert relaxes(CriterionInfo(name=CALLS, digest="a"), info(CALLS)) == ()
