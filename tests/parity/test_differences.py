"""Each deliberate difference from google-adk in the criteria that need no model: what it says, and what we say."""

from __future__ import annotations

import pytest

from agent_eval_action.results.run_result import ScoreStatus
from support.turns import call, criterion, recorded, score, turn

USED = {"prompt_token_count": 100, "candidates_token_count": 20}


def test_a_call_without_args_is_a_call_with_empty_args(adk):
    expected, actual = [turn("", {"name": "now"})], [turn("", {"name": "now", "args": {}})]
    for match_type in ("EXACT", "IN_ORDER", "ANY_ORDER"):
        options = {"threshold": 1, "match_type": match_type}
        assert adk("tool_trajectory_avg_score", options, expected, actual)["score"] == 0
        assert score(criterion("tool_trajectory_avg_score", **options), expected, actual).score == 1


def test_thoughts_are_no_part_of_a_response(adk):
    parts = [{"text": "The user wants a number. ", "thought": True}, {"text": "Seventeen"}]
    expected, actual = [turn("Seventeen")], [turn(final_response={"parts": parts})]
    assert adk("response_match_score", 0.8, expected, actual)["status"] == "FAILED"
    assert score(criterion("response_match_score", threshold=0.8), expected, actual).score == 1


def test_a_turn_without_reported_usage_is_left_out_of_the_mean(adk):
    actual = [recorded({"usage_metadata": USED}), recorded({"model_version": "silent"})]
    assert adk("token_usage_v1", None, [], actual)["score"] == 60
    ours = score(criterion("token_usage_v1"), actual, actual)
    assert ours.score == 120
    assert "not measured" in ours.reason


def test_seconds_are_those_in_model_and_tools(adk):
    actual = [recorded(duration=9.0, model_duration=2.0, tool_duration=1.5)]
    theirs = adk("invocation_duration_v1", None, [], actual)
    ours = score(criterion("invocation_duration_v1"), actual, actual)
    assert theirs["score"] == 9.0
    assert ours.score == 3.5
    assert ours.details == theirs["details"]


def test_efficiency_can_have_a_threshold(adk):
    actual = [turn("", call("roll"), call("roll"))]
    assert "does not support a threshold" in adk("tool_call_count_v1", 1, actual, actual)["error"]
    assert score(criterion("tool_call_count_v1", threshold=1), actual, actual).passed is False
    assert score(criterion("tool_call_count_v1", threshold=2), actual, actual).passed is True


@pytest.mark.parametrize("name", ["tool_trajectory_avg_score", "response_match_score"])
def test_turns_that_are_missing_are_an_error_of_the_case_and_not_of_the_run(adk, name):
    expected, actual = [turn("a"), turn("b")], [turn("a")]
    assert adk(name, 0.5, expected, actual)["error"].startswith("ValueError")
    ours = score(criterion(name, threshold=0.5), expected, actual)
    assert (ours.status, ours.score, ours.passed) == (ScoreStatus.ERROR, None, None)
    assert ours.reason == "the agent made 1 of the 2 turns of the case"


@pytest.mark.parametrize("name", ["tool_trajectory_avg_score", "response_match_score", "tool_call_count_v1"])
def test_an_empty_conversation_is_an_error(adk, name):
    threshold = None if name.endswith("_v1") else 0.5
    assert adk(name, threshold, [], [])["score"] is None
    ours = score(criterion(name, threshold=threshold), [], [])
    assert ours.status is ScoreStatus.ERROR
    assert "nothing to measure" in ours.reason


def test_a_long_run_of_combining_marks_is_not_sorted(adk):
    """Sorting it as NFKC does takes time by the square of its length: minutes for a megabyte."""
    sorted_marks = "a" + "\u0316" * 50 + "\u0301" * 50
    mixed_marks = "a" + "\u0301\u0316" * 50
    expected, actual = [turn(sorted_marks)], [turn(mixed_marks)]
    assert adk("response_match_score", 0.8, expected, actual)["score"] == 1
    assert score(criterion("response_match_score", threshold=0.8), expected, actual).score == 0
    shorter = [turn("a" + "\u0316" * 31 + "\u0301" * 31)], [turn("a" + "\u0301\u0316" * 31)]
    assert adk("response_match_score", 0.8, *shorter)["score"] == 1
    assert score(criterion("response_match_score", threshold=0.8), *shorter).score == 1


def test_a_text_without_any_space_is_cut(adk):
    """Normalised in pieces, for one character can become eighteen."""
    expected, actual = [turn("ä" * 65_536)], [turn("ä" * 65_540)]
    assert adk("response_match_score", 0.8, expected, actual)["score"] == 0
    assert score(criterion("response_match_score", threshold=0.8), expected, actual).score == pytest.approx(2 / 3)
