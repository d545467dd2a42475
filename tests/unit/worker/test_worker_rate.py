"""The worker's pace: unbound until a refusal, then at what was let through."""

from __future__ import annotations

import asyncio

import pytest
from agent_eval_worker_rate import Pace, backoff, seconds


async def test_nothing_waits_before_a_refusal_and_everything_after_one() -> None:
    pace = Pace()
    starts = [await pace.start() for _ in range(16)]
    assert starts[-1][0] - starts[0][0] < 0.5
    for start in starts[10:]:
        pace.refused(start, None)
    assert pace._bound(pace._since) == pytest.approx(10 * 0.93)
    with pytest.raises(TimeoutError):  # a window later the server has forgotten what it let through
        await asyncio.wait_for(pace.start(), 0.2)


async def test_what_the_server_says_pauses_the_model_but_not_beyond_what_a_call_may_wait() -> None:
    pace = Pace(longest_wait_s=5.0)
    start = await pace.start()
    pace.refused(start, 60.0)
    assert 4.0 < pace._paused_until - start[0] < 6.0


async def test_a_pause_outlasts_the_pace() -> None:
    pace = Pace()
    pace.refused(await pace.start(), 20.0)
    pace._since -= 1000.0  # long enough that the pace itself is forgotten
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pace.start(), 0.1)


async def test_one_refusal_of_a_call_that_was_alone_is_no_rate() -> None:
    pace = Pace()
    pace.refused(await pace.start(), None)
    assert pace._bound(pace._since) == 1.0


@pytest.mark.parametrize(("text", "found"), [("17s", 17.0), ("2 s", 2.0), ("0.5s", 0.5), ("Wed", None), (None, None)])
def test_seconds_of_what_was_said(text: str | None, found: float | None) -> None:
    assert seconds(text) == found


def test_a_wait_is_short_and_never_before_the_servers_word() -> None:
    assert all(0.125 <= backoff(0, None) <= 0.25 for _ in range(100))
    assert all(3.0 < backoff(2, 3.0) <= 4.0 for _ in range(100))
    assert backoff(50, 10_000.0) <= 60.0
