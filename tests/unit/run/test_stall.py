"""A run without progress ends: what counts as progress, and what has a bound of its own. In virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmUsage
from agent_eval_action.results.run_result import Attempt, AttemptError, CriterionScore, ErrorKind, ScoreStatus
from agent_eval_action.run.attempt_runner import StallDetector, stall_timeout
from support import virtual_time

REPLY = LlmReply("yes", LlmUsage(1, 1))
REFUSED = LlmError(LlmErrorKind.RATE_LIMITED, "429: too many requests")
BOUND = 300.0


def attempt(error: ErrorKind | None = None, status: ScoreStatus = ScoreStatus.SCORED) -> Attempt:
    failed = AttemptError(kind=error, message="no") if error else None
    score = CriterionScore(
        criterion="response_match_score", status=status, score=1.0 if status is ScoreStatus.SCORED else None
    )
    return Attempt(
        agent="bot", eval_set="s", case="c", repeat=0, case_digest="", error=failed, scores=() if error else (score,)
    )


PROGRESS: dict[str, Callable[[StallDetector], None]] = {
    "a turn": lambda progress: progress.record_progress(),
    "a reply": lambda progress: progress.observe_reply(REPLY),
    "a scored attempt": lambda progress: progress.observe_attempt(attempt()),
    "an agent that raised": lambda progress: progress.observe_attempt(attempt(ErrorKind.EXCEPTION)),
    "an agent that timed out": lambda progress: progress.observe_attempt(attempt(ErrorKind.TIMEOUT)),
}
NONE: dict[str, Callable[[StallDetector], None]] = {
    "a refused call": lambda progress: progress.observe_reply(REFUSED),
    "an attempt refused": lambda progress: progress.observe_attempt(attempt(ErrorKind.RATE_LIMITED)),
    "an attempt without a server": lambda progress: progress.observe_attempt(attempt(ErrorKind.UNAVAILABLE)),
    "an attempt its judge did not score": lambda progress: progress.observe_attempt(attempt(None, ScoreStatus.ERROR)),
}


def ended_at(
    events: list[tuple[float, Callable[[StallDetector], None]]], starting_until: float = 0.0
) -> tuple[float, str]:
    """When the run is said to have stalled, and why. ``events``: seconds since the one before, and what happens."""

    async def main() -> tuple[float, str]:
        loop = asyncio.get_running_loop()
        progress = StallDetector()
        for (_, happen), at in zip(events, itertools.accumulate(wait for wait, _ in events), strict=True):
            loop.call_at(at, happen, progress)
        reason = await progress.wait_for_stall(BOUND, excused=lambda: loop.time() < starting_until)
        return loop.time(), reason

    return virtual_time.run(main)


@pytest.mark.parametrize("happen", PROGRESS.values(), ids=PROGRESS)
def test_what_is_answered_is_progress(happen: Callable[[StallDetector], None]) -> None:
    assert ended_at([(200.0, happen), (200.0, happen)])[0] == pytest.approx(700.0)


@pytest.mark.parametrize("happen", NONE.values(), ids=NONE)
def test_what_is_refused_is_none_and_is_named(happen: Callable[[StallDetector], None]) -> None:
    when, reason = ended_at([(100.0, happen)] * 50)
    assert when == pytest.approx(BOUND)
    assert "nothing was answered for 300 s (stall_timeout)" in reason
    if happen is not NONE["an attempt its judge did not score"]:
        assert "the last message was: " in reason


@given(st.lists(st.tuples(st.floats(0.0, 900.0), st.sampled_from([*PROGRESS, *NONE])), max_size=30))
def test_it_ends_exactly_one_bound_after_the_last_progress(said: list[tuple[float, str]]) -> None:
    happening = {**PROGRESS, **NONE}
    end = BOUND
    for at, (_, name) in zip(itertools.accumulate(wait for wait, _ in said), said, strict=True):
        if at > end:
            break
        assume(at != end)
        if name in PROGRESS:
            end = at + BOUND
    when, _ = ended_at([(wait, happening[name]) for wait, name in said])
    assert when == pytest.approx(end)


def test_agents_that_are_starting_have_a_bound_of_their_own() -> None:
    started = [(1_000.0, PROGRESS["a turn"])]  # as the pipeline says when a start is over
    assert ended_at(started, starting_until=1_000.0)[0] == pytest.approx(1_300.0)


def test_the_bound_is_longer_than_any_answer_may_take_unless_it_is_configured() -> None:
    assert stall_timeout(None, 60.0) == 300.0
    assert stall_timeout(None, 900.0) == 960.0
    assert stall_timeout(5.0, 900.0) == 5.0
