"""The meter: what was asked and what it cost, limits that stop hard, prices that are never guessed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_eval_action.config.models import LlmOptions
from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.budget import (
    AGENT,
    SIMULATED_USER,
    Budgeted,
    Estimate,
    Meter,
    Price,
    Prices,
    Spend,
    SpendingLimits,
    agent_calls,
    reported_usage,
)
from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage, Message, ProviderConfig
from agent_eval_action.llm.rate_limit import RateLimited
from agent_eval_action.llm.router import ProviderRouter
from agent_eval_action.results.evalset import Content, Invocation, InvocationEvent, InvocationEvents, Part
from support.scripted_llm import ScriptedLlm

FLASH = "gemini-2.5-flash"


def request(text: str = "Is it?", model: str = FLASH, purpose: str = "criterion") -> LlmRequest:
    return LlmRequest(model, (Message("user", text),), purpose=purpose)


def budgeted(answer: LlmReply | LlmError, *, latency: float = 0.0, **limits: float) -> tuple[Budgeted, ScriptedLlm]:
    llm = ScriptedLlm(lambda _: answer, latency)
    return Budgeted(llm, Meter(SpendingLimits(**limits))), llm


async def test_what_was_asked_is_counted_by_purpose_and_model() -> None:
    asked, _ = budgeted(LlmReply("yes", LlmUsage(1000, 100)))
    for purpose in ("b", "a", "b"):
        await asked.generate(request(purpose=purpose))
    asked.meter.count_cached(request(purpose="b"))
    a, b = asked.meter.uses()
    assert (a.purpose, a.calls, a.cached, b.calls, b.cached) == ("a", 1, 0, 2, 1)
    assert (b.provider, b.model, b.input_tokens, b.output_tokens) == ("google", FLASH, 2000, 200)
    assert b.usd == pytest.approx(2 * (1000 * 0.30 + 100 * 2.50) / 1e6)
    assert asked.meter.usd() == pytest.approx(b.usd * 1.5)


async def test_missing_usage_is_counted_and_estimated_and_not_free() -> None:
    asked, _ = budgeted(LlmReply("yes " * 100))
    await asked.generate(request("x" * 4000))
    use = asked.meter.uses()[0]
    assert (use.calls_without_usage, use.unpriced, use.usd) == (1, 1, None)
    assert asked.meter.spent.tokens == 1000 + 100
    assert asked.meter.spent.usd == pytest.approx((1000 * 0.30 + 100 * 2.50) / 1e6)


@pytest.mark.parametrize(
    ("kind", "costs"),
    [("empty", True), ("timeout", True), ("blocked", True), ("rate_limited", False), ("unavailable", False)],
)
async def test_a_failed_call_costs_where_the_server_may_have_worked(kind: str, *, costs: bool) -> None:
    asked, _ = budgeted(LlmError(LlmErrorKind(kind), "no"))
    await asked.generate(request())
    use = asked.meter.uses()[0]
    assert (use.calls, use.failed, use.calls_without_usage) == (1, 1, int(costs))
    assert (asked.meter.spent.usd > 0) == costs


async def test_tokens_of_an_answer_that_was_cut_are_known() -> None:
    asked, _ = budgeted(LlmError(LlmErrorKind.EMPTY, "cut", usage=LlmUsage(10, 8)))
    await asked.generate(request())
    assert asked.meter.spent.tokens == 18
    assert asked.meter.uses()[0].calls_without_usage == 0


@pytest.mark.parametrize(
    ("limits", "answered", "said"),
    [
        ({"calls": 3}, 3, "the limit of 3 model calls was reached"),
        ({"tokens": 2300}, 3, "the limit of 2,300 tokens was reached"),
        ({"usd": 0.0015}, 3, "the limit of 0.0015 USD was reached"),
    ],
)
async def test_a_limit_stops_hard_and_is_not_passed_by_all_at_once(
    limits: dict[str, float], answered: int, said: str
) -> None:
    asked, llm = budgeted(LlmReply("yes", LlmUsage(1000, 100)), latency=0.001, **limits)
    replies = await asyncio.gather(*(asked.generate(request()) for _ in range(50)))
    errors = [reply for reply in replies if isinstance(reply, LlmError)]
    assert len(llm.asked) == answered
    assert {(error.kind, error.message) for error in errors} == {(LlmErrorKind.BUDGET, said)}
    assert len(errors) == 50 - answered
    reserved = asked.meter.reserved
    assert (reserved.calls, reserved.tokens, round(reserved.usd, 12)) == (0, 0, 0.0)


async def test_what_was_set_aside_is_free_again_when_a_call_is_given_up() -> None:
    asked, llm = budgeted(LlmReply("yes", LlmUsage(1, 1)), latency=60.0, calls=1)
    first = asyncio.create_task(asked.generate(request()))
    await asyncio.sleep(0)
    second = asyncio.create_task(asked.generate(request()))
    await asyncio.sleep(0.01)
    assert len(llm.asked) == 1
    llm.latency = 0.0
    first.cancel()
    assert isinstance(await second, LlmReply)


async def test_a_call_given_up_on_the_wire_is_counted_and_one_in_the_queue_is_not() -> None:
    """The server works on: what it bills is not zero because nobody waits for it."""
    meter = Meter()

    server: Any = ScriptedLlm(lambda _: "yes", latency=600.0)
    wired = ProviderRouter(ProviderConfig({}), meter, made={"google": server})
    llm = Budgeted(RateLimited(wired, LlmOptions(concurrency=1)), meter)
    asking = [asyncio.create_task(llm.generate(request("x" * 4000))) for _ in range(3)]
    await asyncio.sleep(0.01)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    (use,) = meter.uses()
    assert (use.calls, use.failed, use.calls_without_usage, use.unpriced) == (1, 1, 1, 1)
    assert (meter.spent.calls, meter.spent.tokens > 1000, meter.reserved.calls) == (1, True, 0)


async def test_what_is_asked_inside_something_set_aside_does_not_wait_for_it() -> None:
    asked, _ = budgeted(LlmReply("yes", LlmUsage(1, 1)), calls=2)
    for _ in range(2):
        assert await asked.meter.reserve(Spend(1)) == ""
    judge = asyncio.create_task(asked.generate(request()))
    assert isinstance(await asyncio.wait_for(asked.generate(request(purpose=SIMULATED_USER)), 10), LlmReply)
    assert not judge.done()
    asked.meter.settle(Spend(1), Spend(1))
    assert isinstance(await judge, LlmError)


async def test_a_limit_in_dollars_ends_at_the_first_call_without_a_price() -> None:
    asked, llm = budgeted(LlmReply("yes", LlmUsage(1, 1)), usd=100.0)
    said = [await asked.generate(request(model="openai/house-model")) for _ in range(2)]
    assert isinstance(said[1], LlmError)
    assert "openai/house-model" in said[1].message
    assert "llm: {prices:" in said[1].message
    assert len(llm.asked) <= 1


def turn_of(*events: dict[str, object]) -> Invocation:
    said = Content(role="user", parts=(Part(text="u" * 400),))
    made = tuple(InvocationEvent(author="bot", **event) for event in events)
    return Invocation(user_content=said, intermediate_data=InvocationEvents(invocation_events=made))


def test_agents_calls_have_a_model_and_tokens_or_an_estimate() -> None:
    full = {"promptTokenCount": 100, "candidatesTokenCount": 20, "thoughtsTokenCount": 5, "cachedContentTokenCount": 40}
    reported, silent = agent_calls(
        (turn_of({"usage_metadata": full, "model_version": FLASH}, {"model_version": FLASH}),)
    )
    assert reported.usage == reported.estimate == LlmUsage(100, 25, 40)
    assert silent.usage == LlmUsage()
    assert 100 <= (silent.estimate.input_tokens or 0) <= 130

    meter = Meter()
    spent = meter.count_agent([reported, silent])
    use = meter.uses()[0]
    assert (use.purpose, use.calls, use.calls_without_usage, use.unpriced) == (AGENT, 2, 1, 1)
    assert use.usd == pytest.approx((60 * 0.30 + 40 * 0.03 + 25 * 2.50) / 1e6)
    assert spent.usd > use.usd


def test_what_a_report_lacks_is_not_zero() -> None:
    assert reported_usage({"prompt_token_count": 7, "total_token_count": 10}) == LlmUsage(7, 3)
    assert reported_usage({"prompt_token_count": 7}) == LlmUsage(7, None)
    assert reported_usage({"total_token_count": "many"}) == LlmUsage()
    assert reported_usage({"prompt_token_count": 1, "tool_use_prompt_token_count": 2, "candidates_token_count": 3}) == (
        LlmUsage(3, 3)
    )


@pytest.mark.parametrize(
    ("model", "input_price"),
    [
        (FLASH, 0.30),
        ("gemini-2.5-flash-lite", 0.10),
        ("gemini-2.5-flash-preview-09-2025", 0.30),
        ("gemini-2.5-flash-lite-001", 0.10),
        ("projects/p/locations/l/publishers/google/models/gemini-2.5-pro", 1.25),
        ("openai/gpt-4.1-mini-2025-04-14", 0.40),
        ("gpt-4.1", 2.0),
        ("gpt-5-pro", None),
        ("gpt-4.15", None),
        ("gemini-2.5-flash-image", None),
        ("claude-opus-4-5@20251101", 5.0),
        ("", None),
    ],
)
def test_the_longest_name_that_is_the_same_model_wins(model: str, input_price: float | None) -> None:
    found = Prices().find(model)
    assert (found.input if found else None) == input_price


def test_own_prices_win_and_hold_for_versions() -> None:
    prices = Prices({"openai/house": Price(1, 2), "house-large": Price(5, 6), FLASH: Price(9, 9)})
    assert prices.find("openai/house-v2") == Price(1, 2)
    assert prices.find("other/house-large") == Price(5, 6)
    assert prices.find("openai/houses") is None
    assert prices.find("gemini-2.5-flash-001") == Price(9, 9)
    assert prices.find("gemini-2.5-pro") == Prices().find("gemini-2.5-pro")


def test_cached_input_is_cheaper_and_long_prompts_are_dearer() -> None:
    price = Price(2.0, 10.0, 0.5, above=200, long=Price(4.0, 20.0, 1.0))
    assert price.usd(LlmUsage(200, 10, 100)) == pytest.approx((100 * 2 + 100 * 0.5 + 10 * 10) / 1e6)
    assert price.usd(LlmUsage(201, 10, 1)) == pytest.approx((200 * 4 + 1 + 10 * 20) / 1e6)
    assert Price(2.0, 10.0).usd(LlmUsage(10, 0, 10)) == pytest.approx(20 / 1e6)
    assert price.usd(LlmUsage(10, None, 99)) == pytest.approx(10 * 0.5 / 1e6), "no more is cached than is sent"


def test_a_model_without_a_price_is_refused_where_dollars_are_limited() -> None:
    Prices().require([FLASH, "house"], None)
    Prices({"house": Price(1, 1)}).require([FLASH, "house"], 2.5)
    with pytest.raises(ConfigError, match=r"max_cost is 2\.5 USD, and there is no price of house") as refused:
        Prices().require([FLASH, "house"], 2.5)
    assert 'llm: {prices: {"house": {input: 0.30, output: 2.50}}}' in (refused.value.hint or "")


def test_the_estimate_counts_votes_that_agree_and_all_of_them() -> None:
    found = Estimate(Prices())
    found.add(FLASH, 80, 5)
    found.add(FLASH, 80)
    assert (found.calls, found.most_calls) == (80 * 3 + 80, 80 * 5 + 80)
    assert found.usd == pytest.approx(320 * (1500 * 0.30 + 600 * 2.50) / 1e6)
    assert found.sentence.startswith("judges: about 320 answers and ")
    found.add("house", 1)
    assert found.most_usd is None
    assert "llm.prices" in found.sentence
    assert Estimate(Prices()).sentence == ""


@pytest.mark.parametrize(
    ("questions", "samples", "says"),
    [(1, 5, "; less than $0.01"), (1, 9, "; at most $0.02"), (200, 5, "; about $1.17, at most $1.95")],
)
def test_the_estimate_says_no_more_of_cents_than_it_knows(questions: int, samples: int, says: str) -> None:
    found = Estimate(Prices())
    found.add(FLASH, questions, samples)
    assert found.sentence.endswith(says)
