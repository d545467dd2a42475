"""Efficiency criteria: units, parts, thresholds that are ceilings, and not measured is never zero."""

from __future__ import annotations

import asyncio

import pytest

from agent_eval_action.criteria.base import Sample, ScoringContext
from agent_eval_action.llm.budget import Price, Prices
from agent_eval_action.results.evalset import ConversationScenario, EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus
from support.turns import call, criterion, recorded, score, turn


def measured(name: str, *turns: Invocation, **options: float) -> CriterionScore:
    return score(criterion(name, **options), turns, turns)


def model(prompt: int | None = None, answer: int | None = None, **more: int) -> dict[str, object]:
    usage = {"prompt_token_count": prompt, "candidates_token_count": answer, **more}
    return {"usage_metadata": {key: value for key, value in usage.items() if value is not None}}


def test_tool_calls_are_counted_and_named():
    found = measured("tool_call_count_v1", turn("", call("roll"), call("roll"), call("check")), turn("none"))
    assert (found.score, found.reason) == (1.5, "1.5 tool calls a turn (3, 0)")
    assert found.turns[0].reason == "3 tool calls (roll x2, check)"


def test_model_calls_are_events_with_usage_or_a_model_version():
    events = [model(1, 1), {"model_version": "m"}, {"content": {"parts": [{"text": "tool result"}]}}]
    assert measured("inference_call_count_v1", recorded(*events)).score == 2
    assert measured("inference_call_count_v1", recorded()).score == 0


def test_tokens_are_input_and_output_with_their_parts():
    first = recorded(model(100, 20, thoughts_token_count=5, cached_content_token_count=60), model(130, 10))
    found = measured("token_usage_v1", first)
    assert (found.score, found.reason) == (265, "265 tokens")
    assert found.details == {
        "prompt_tokens": 230, "candidates_tokens": 30, "reasoning_tokens": 5, "cached_tokens": 60,
        "input_tokens": 230, "output_tokens": 35,
    }  # fmt: skip


def test_tokens_in_camel_case_count_too():
    event = {"usage_metadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 99}}
    assert measured("token_usage_v1", recorded(event)).score == 10


def test_a_model_call_without_text_is_reported():
    found = measured("token_usage_v1", recorded(model(10, 5), {"model_version": "m"}, model()))
    assert (found.score, found.reason) == (15, "15 tokens (2 of 3 model calls reported no usage)")


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_token_count": None},
        {"prompt_token_count": "many"},
        {"prompt_token_count": float("inf")},
        {"total_token_count": 9},
        {"cached_content_token_count": 9},
    ],
)
def test_what_is_not_reported_is_not_zero(usage):
    found = measured("token_usage_v1", recorded({"usage_metadata": usage}))
    assert (found.status, found.score, found.passed) == (ScoreStatus.ERROR, None, None)
    assert found.reason == "the model reported no usage"


def test_an_unmeasured_turn_is_left_out_of_the_mean():
    found = measured("token_usage_v1", recorded(model(10, 10)), recorded(), recorded(model(20, 20)))
    assert (found.score, found.reason) == (30, "30 tokens a turn (20, not measured, 40)")
    assert [one.score for one in found.turns] == [20, None, 40]
    assert found.turns[1].status is ScoreStatus.ERROR


def test_seconds_are_those_of_model_and_tools():
    found = measured("invocation_duration_v1", recorded(duration=2.5, model_duration=1.0, tool_duration=0.5))
    assert (found.score, found.reason) == (1.5, "1.5 seconds (model 1, tools 0.5, in all 2.5)")
    assert found.details["framework_seconds"] == 1.0
    assert found.details["total_seconds"] == 2.5


@pytest.mark.parametrize("fields", [{}, {"duration": 2.0}, {"duration": 2.0, "model_duration": 1.0}])
def test_seconds_that_were_not_taken_are_no_seconds(fields):
    found = measured("invocation_duration_v1", recorded(**fields))
    assert (found.status, found.reason) == (ScoreStatus.ERROR, "the turns were not timed")


@pytest.mark.parametrize(("threshold", "passed"), [(2, True), (3, True), (1.9, False), (0, False), (None, None)])
def test_a_threshold_is_a_ceiling(threshold, passed):
    made = criterion("tool_call_count_v1", threshold=threshold)
    assert made.goal == "minimize"
    both = turn("", call("a"), call("b"))
    assert score(made, [both], [both]).passed is passed


def test_a_simulated_conversation_is_measured_too():
    scenario = ConversationScenario(starting_prompt="hi", conversation_plan="ask")
    sample = Sample(EvalCase(eval_id="s", conversation_scenario=scenario), (recorded(model(1, 1)),) * 3)
    assert asyncio.run(criterion("token_usage_v1").score(sample)).score == 2
    empty = Sample(EvalCase(eval_id="s", conversation_scenario=scenario), ())
    assert asyncio.run(criterion("token_usage_v1").score(empty)).status is ScoreStatus.ERROR


def test_cost_is_priced_call_by_call():
    one = model(1000, 100) | {"model_version": "gemini-2.5-flash"}
    two = model(1000, 100) | {"model_version": "gemini-2.5-pro"}
    found = measured("cost_usd_v1", recorded(one, two), recorded(one))
    flash, pro = (1000 * 0.30 + 100 * 2.50) / 1e6, (1000 * 1.25 + 100 * 10) / 1e6
    assert found.score == pytest.approx(flash + pro / 2)
    assert found.details == pytest.approx({"gemini-2.5-flash": flash, "gemini-2.5-pro": pro / 2})
    assert criterion("cost_usd_v1").goal == "minimize"


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (model(5, 5) | {"model_version": "house"}, "no price of house"),
        (model(5, 5), "a model that does not say its name"),
        (model(5) | {"model_version": "gemini-2.5-flash"}, "did not report its tokens"),
    ],
)
def test_a_cost_that_is_not_known_is_not_measured(event, why):
    priced = model(5, 5) | {"model_version": "gemini-2.5-flash"}
    found = measured("cost_usd_v1", recorded(priced, event))
    assert (found.status, found.score) == (ScoreStatus.ERROR, None)
    assert why in found.turns[0].reason


def test_the_price_table_is_part_of_what_cost_means():
    assert "prices 20" in criterion("cost_usd_v1").version()


def test_cost_uses_the_runs_own_prices():
    made = (recorded(model(1_000_000, 0) | {"model_version": "house"}),)
    given = ScoringContext(prices=Prices({"house": Price(7.0, 1.0)}))
    case = EvalCase(eval_id="c", conversation=made)
    assert asyncio.run(criterion("cost_usd_v1").score(Sample(case, made, context=given))).score == 7.0
