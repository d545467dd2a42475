"""The worker's rates: unbounded until a refusal, then at what was let through."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from agent_eval_worker_rate import MARGIN, RateEstimator, backoff, seconds
from agent_eval_worker_turn import RateLimitRetries, Turn
from google.genai.errors import ClientError


async def test_nothing_waits_before_a_refusal_and_everything_after_one() -> None:
    retries, turn, refusal = RateLimitRetries(30.0), Turn(), ClientError(429, {})
    request = SimpleNamespace(model="m")
    for number in range(16):
        await retries.start_call(turn, f"agent {number}", request)
    starts = [started for (started,) in turn.open_model.values()]
    assert starts[-1].time - starts[0].time < 0.5
    for number in range(10, 16):
        retries.record_failure(turn, f"agent {number}", request, refusal)
    assert turn.throttled == 6
    with pytest.raises(TimeoutError):  # a window later the server has forgotten what it let through
        await asyncio.wait_for(retries.start_call(turn, "another agent", request), 0.2)
    await asyncio.wait_for(retries.start_call(turn, "another agent", SimpleNamespace(model="another model")), 0.2)


def test_the_rate_is_what_was_let_through() -> None:
    learnt = RateEstimator()
    starts = [learnt.start(n / 100) for n in range(16)]
    for start in starts[10:]:
        learnt.refused(start, 0.2)
    assert learnt.rate(0.2) == pytest.approx(10 * MARGIN)


def test_what_the_server_says_pauses_the_model_but_not_beyond_what_a_call_may_wait() -> None:
    learnt = RateEstimator(longest_pause_s=5.0)
    learnt.refused(learnt.start(0.0), 0.0, 60.0)
    assert learnt.wait(0.0) == 5.0


def test_a_pause_outlasts_the_rate() -> None:
    learnt = RateEstimator()
    learnt.refused(learnt.start(0.0), 0.0, 20.0)
    assert learnt.rate(19.0) is None
    assert learnt.wait(19.0) == 1.0


def test_one_refusal_of_a_call_that_was_alone_is_no_rate() -> None:
    learnt = RateEstimator()
    learnt.refused(learnt.start(0.0), 0.0)
    assert learnt.rate(0.0) == 1.0


@pytest.mark.parametrize(("text", "found"), [("17s", 17.0), ("2 s", 2.0), ("0.5s", 0.5), ("Wed", None), (None, None)])
def test_seconds_of_what_was_said(text: str | None, found: float | None) -> None:
    assert seconds(text) == found


def test_a_wait_is_short_and_never_before_the_servers_word() -> None:
    assert all(0.125 <= backoff(0, None) <= 0.25 for _ in range(100))
    assert all(3.0 < backoff(2, 3.0) <= 4.0 for _ in range(100))
    assert backoff(50, 10_000.0) <= 60.0
