"""The limiter against servers in virtual time: fast without a limit, near the limit with one, wasting little."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agent_eval_action.config.models import LlmOptions
from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage, Message
from agent_eval_action.llm.rate_limit import AdaptiveSemaphore, Limiter, MinuteLimits, RatedCall, RateLimited
from agent_eval_action.worker.agent_eval_worker_rate import MARGIN, RateEstimator
from support import virtual_time
from support.scripted_llm import ScriptedLlm

CHANCE = random.Random(7)  # noqa: S311 - jitter, the same in every run


@dataclass
class Server:
    """Lets ``per_second`` calls through in any one second, and ``at_once`` at a time; each takes about ``latency``."""

    per_second: float = float("inf")
    latency: float = 0.2
    at_once: float = float("inf")
    retry_after: float | None = None
    refused: int = 0
    answered: int = 0
    now: int = 0
    most: int = 0
    let: deque[float] = field(default_factory=deque)
    asked_at: list[float] = field(default_factory=list)

    async def ask(self) -> bool:
        await asyncio.sleep(CHANCE.uniform(0.002, 0.02))
        at = asyncio.get_running_loop().time()
        self.asked_at.append(at)
        while self.let and at - self.let[0] >= 1:
            self.let.popleft()
        if len(self.let) >= self.per_second or self.now >= self.at_once:
            self.refused += 1
            return False
        self.let.append(at)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.latency * CHANCE.uniform(0.8, 1.2))
        self.now -= 1
        self.answered += 1
        return True


def play(server: Server, calls: int, limiter: Callable[[], Limiter] | None = None) -> tuple[float, Limiter]:
    """All calls asked for at once, each made again until it is answered. Returns the seconds it took."""
    CHANCE.seed(7)

    async def main() -> tuple[float, Limiter]:
        loop = asyncio.get_running_loop()
        made = limiter() if limiter else Limiter(clock=loop.time)

        async def one() -> None:
            tries = 0
            while True:
                async with made.call() as call:
                    answered = await server.ask()
                    if not answered:
                        call.refused, call.retry_after = True, server.retry_after
                if answered:
                    return
                tries += 1
                await asyncio.sleep(min(8.0, 0.5 * 2.0**tries) * CHANCE.random())

        await asyncio.gather(*(one() for _ in range(calls)))
        return loop.time(), made

    return virtual_time.run(main)


def test_without_a_limit_it_is_as_fast_as_the_wire() -> None:
    seconds, _ = play(server := Server(), 240)
    assert server.refused == 0
    assert seconds < 4 * 0.24 + 0.1, "240 calls of 0.2 s: half the ceiling, then all of it, twice"
    assert server.most == 96


@pytest.mark.parametrize("latency", [0.05, 0.2, 2.0])
def test_under_a_limit_it_reaches_what_the_limit_allows(latency: float) -> None:
    calls, per_second = 400, 20
    seconds, _ = play(server := Server(per_second, latency), calls)
    assert server.answered == calls
    assert calls / per_second / (seconds - latency * 1.2) >= 0.85
    assert server.refused <= 48 + calls * 0.08, "the first burst, and now and then one to see whether there is more"


def test_a_limit_on_what_is_under_way_is_found_too() -> None:
    seconds, limiter = play(server := Server(latency=2.0, at_once=8), 120)
    assert seconds <= 120 / 8 * 2.4 / 0.7
    assert limiter.permits.size < 48
    assert server.answered == 120


def test_a_limit_that_goes_is_found_gone() -> None:
    async def main() -> tuple[float | None, float | None]:
        learnt = RateEstimator()
        starts = [learnt.start(0.0) for _ in range(48)]
        for start in starts[20:]:
            learnt.refused(start, 0.01)
        return learnt.rate(0.02), learnt.rate(30.0)

    soon, later = virtual_time.run(main)
    assert soon == pytest.approx(20 * MARGIN, rel=0.05)
    assert later is None


def test_when_the_server_says_when_nobody_asks_before() -> None:
    server = Server(per_second=5, latency=0.1, retry_after=10.0)
    play(server, 8)
    first = [at for at in server.asked_at if at < 1]
    assert len(first) == 8
    assert min(at for at in server.asked_at if at > 1) >= 10


def test_calls_in_the_users_minute_are_not_exceeded() -> None:
    server = Server(latency=0.01)

    def bounded() -> Limiter:
        return Limiter(minute=MinuteLimits(requests=30), clock=asyncio.get_running_loop().time)

    seconds, _ = play(server, 90, bounded)
    for start in server.asked_at:
        assert sum(start <= at < start + 59.9 for at in server.asked_at) <= 30
    assert seconds == pytest.approx(120, abs=1)


def test_tokens_in_the_users_minute_are_not_exceeded() -> None:
    minute = MinuteLimits(tokens=1000)
    for at in (0.0, 1.0):
        assert minute.wait(at, 400) == 0
        minute.calls.append(RatedCall(at, 500))
    assert minute.wait(2.0, 400) == pytest.approx(58.0)
    assert MinuteLimits(tokens=10).wait(0.0, 400) == 0, "what is larger than the bound goes alone"


def test_one_more_place_a_round_after_a_cut_and_one_cut_a_burst() -> None:
    async def main() -> list[float]:
        slots, seen = AdaptiveSemaphore(100, 10), []
        async with slots.permit() as one, slots.permit() as two:
            slots.size, slots._most = 10.0, 10
            for permit in (one, two):
                slots.refused(permit)
                seen.append(slots.size)
        slots.taken = 7
        for _ in range(8):
            slots.succeeded()
        return [*seen, slots.size]

    assert virtual_time.run(main) == pytest.approx([7.0, 7.0, 8.0], abs=0.1)


def test_who_gives_up_waiting_leaves_no_hole() -> None:
    async def main() -> int:
        slots = AdaptiveSemaphore(1)

        async def hold(seconds: float) -> None:
            async with slots.permit():
                await asyncio.sleep(seconds)

        first, second, third = (asyncio.create_task(hold(n)) for n in (1.0, 1.0, 1.0))
        await asyncio.sleep(0.5)
        second.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        async with slots.permit():
            waiting = asyncio.create_task(hold(1.0))
            await asyncio.sleep(0)
        waiting.cancel()  # woken by the one that left, and given up before it ran
        await asyncio.gather(waiting, return_exceptions=True)
        return slots.taken

    assert virtual_time.run(main) == 0


def request(model: str = "m") -> LlmRequest:
    return LlmRequest(model, (Message("user", "?"),))


async def test_each_model_has_a_limiter_and_its_own_bounds() -> None:
    options = LlmOptions(concurrency=3, requests_per_minute={"*": 60, "b": 5}, tokens_per_minute={"b": 9})
    rated = RateLimited(ScriptedLlm(lambda _: "yes"), options)
    a, b = rated.limiter("a"), rated.limiter("b")
    assert rated.limiter("a") is a
    assert (a.minute.requests, a.minute.tokens) == (60, None)
    assert (b.minute.requests, b.minute.tokens) == (5, 9)
    assert a.permits.ceiling == 3


async def test_only_a_429_is_a_refusal_and_reported_tokens_replace_the_estimate() -> None:
    answers = iter(
        [
            LlmError(LlmErrorKind.UNAVAILABLE, "503"),
            LlmReply("yes", LlmUsage(7, 2)),
            LlmError(LlmErrorKind.RATE_LIMITED, "429"),
        ]
    )

    class Provider:
        async def generate(self, _: LlmRequest) -> LlmReply | LlmError:
            return next(answers)

    rated = RateLimited(Provider(), LlmOptions(tokens_per_minute={"*": 10_000}))
    for refusals in (0, 0, 1):
        await rated.generate(request())
        assert rated.limiter("m").refusals == refusals
    assert [call.tokens for call in rated.limiter("m").minute.calls][1:] == [9]


def test_one_refusal_of_a_call_that_was_alone_costs_seconds_not_half_a_minute() -> None:
    learnt = RateEstimator()
    learnt.refused(learnt.start(0.0), 0.1)
    now, waited = 0.1, 0.0
    for _ in range(10):
        wait = learnt.wait(now)
        now, waited = now + wait, waited + wait
        learnt.start(now)
    assert waited < 12


def test_a_share_that_others_leave_is_taken_up_within_seconds() -> None:
    learnt = RateEstimator()
    for n in range(5):
        learnt.start(n / 5)
    learnt.refused(learnt.start(1.0), 1.0)
    at_first, crept, later = (learnt.rate(1.0 + after) or 0.0 for after in (0.0, 1.5, 4.0))
    assert at_first < 5.0
    assert crept < 1.05 * at_first, "past a limit that stands it only creeps"
    assert later > 4 * at_first, "who had the rest may have left"
