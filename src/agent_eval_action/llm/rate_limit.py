"""Limit the concurrency and the start rate of a model's calls by the user's limits and by 429 responses.

The rate estimator is the file that agents' workers also use. docs/cost.md shows what it gains.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from agent_eval_action.config.models import JUDGE_CALLS, LlmOptions
from agent_eval_action.llm.budget import estimated_usage
from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest
from agent_eval_action.worker.agent_eval_worker_rate import RateEstimator

_CUT = 0.7  # CUBIC's factor (RFC 9438, 4.6): halving is too much, since refused calls are retried anyway
_FIRST_PERMITS = 48  # before the first answer; doubles each round trip
_MINUTE_S = 60.0


class AdaptiveSemaphore:
    """A semaphore whose size grows with ``succeeded`` and is cut by ``refused``.

    It starts with ``start`` permits. Until the first refusal, every success adds one (doubling each round trip); after
    it, every round adds one. Refusals of calls that started before the last cut do not cut again.
    """

    def __init__(self, ceiling: int, start: int | None = None) -> None:
        self.ceiling = ceiling
        self.size = float(min(ceiling, start or ceiling))
        self.taken = 0
        self._most = 0  # most permits taken at once since the last cut: when a refusal arrives, few may be left
        self._cuts = 0
        self._in_order = asyncio.Lock()  # held by the first who waits
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def permit(self) -> AsyncIterator[int]:
        """Hold a permit, first come first served; pass the yielded value to ``refused``."""
        async with self._in_order:
            while self.taken >= int(self.size):
                self._freed.clear()
                await self._freed.wait()
            self.taken += 1
        self._most = max(self._most, self.taken)
        try:
            yield self._cuts
        finally:
            self.taken -= 1
            self._freed.set()

    def succeeded(self) -> None:
        """Report that a call with a permit was not refused."""
        if self.taken * 2 >= int(self.size):  # unused growth would allow a burst later
            step = 1.0 if self._cuts == 0 else 1.0 / self.size
            self.size = min(float(self.ceiling), self.size + step)
            self._freed.set()

    def refused(self, permit: int) -> None:
        """Report that the call with this permit was refused because of too many requests."""
        if permit == self._cuts:
            self._cuts += 1
            self.size = max(1.0, min(self.size, float(self._most)) * _CUT)
            self._most = self.taken


@dataclass(eq=False)
class RatedCall:
    """A call in flight and its estimated ``tokens``. The caller sets ``refused`` on a 429, and the actual tokens."""

    start: float
    tokens: int
    refused: bool = False
    retry_after: float | None = None


@dataclass
class MinuteLimits:
    """The user's limits on a model over any 60 seconds, without refused calls; None: no limit."""

    requests: int | None = None
    tokens: int | None = None
    calls: deque[RatedCall] = field(default_factory=deque)

    def wait(self, now: float, tokens: int) -> float:
        """Seconds until a call with about ``tokens`` tokens may start; 0: now."""
        while self.calls and self.calls[0].start <= now - _MINUTE_S:
            self.calls.popleft()
        wait = 0.0
        if self.requests is not None and len(self.calls) >= self.requests:
            wait = self.calls[-self.requests].start + _MINUTE_S - now
        if self.tokens is not None:
            total = sum(call.tokens for call in self.calls)
            for call in self.calls:  # a call over the limit goes alone
                if total + tokens <= self.tokens:
                    break
                wait, total = max(wait, call.start + _MINUTE_S - now), total - call.tokens
        return wait


class Limiter:
    """The permits and the rate of one model. ``clock`` returns monotonic seconds."""

    def __init__(
        self,
        ceiling: int = JUDGE_CALLS,
        minute: MinuteLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.permits = AdaptiveSemaphore(ceiling, _FIRST_PERMITS)
        self.minute = minute or MinuteLimits()
        self.rate = RateEstimator()
        self.refusals = 0
        self._clock = clock
        self._in_order = asyncio.Lock()

    @asynccontextmanager
    async def call(self, tokens: int = 0) -> AsyncIterator[RatedCall]:
        """Wait for a permit and for the rate; make the call inside. ``tokens``: its estimated tokens."""
        async with self.permits.permit() as permit:
            async with self._in_order:  # calls start in order, even while one waits
                while wait := max(self.rate.wait(self._clock()), self.minute.wait(self._clock(), tokens)):  # noqa: ASYNC110 - nothing sets an event: the wait is known
                    await asyncio.sleep(wait)
                started, call = self.rate.start(self._clock()), RatedCall(self._clock(), tokens)
                self.minute.calls.append(call)
            try:
                yield call
            finally:
                if call.refused:
                    self.refusals += 1
                    with suppress(ValueError):  # over a minute old
                        self.minute.calls.remove(call)
                    if not self.rate.refused(started, self._clock(), call.retry_after):
                        self.permits.refused(permit)  # not explained by the rate: the server limits concurrency
                else:
                    self.permits.succeeded()


@dataclass
class RateLimited:
    """An ``Llm`` whose calls wait for their turn. Retries wrap it, so waits between tries hold no permit."""

    inner: Llm
    options: LlmOptions = field(default_factory=LlmOptions)
    _limiters: dict[str, Limiter] = field(default_factory=dict)

    def limiter(self, model: str) -> Limiter:
        """The limiter of a model; limits under the key ``*`` apply to models without their own."""
        if model not in self._limiters:
            requests, tokens = self.options.requests_per_minute, self.options.tokens_per_minute
            minute = MinuteLimits(requests.get(model, requests.get("*")), tokens.get(model, tokens.get("*")))
            self._limiters[model] = Limiter(self.options.concurrency, minute)
        return self._limiters[model]

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """Make one try."""
        async with self.limiter(request.model).call(estimated_usage(request).total or 0) as call:
            answer = await self.inner.generate(request)
            if isinstance(answer, LlmReply):
                call.tokens = call.tokens if answer.usage.total is None else answer.usage.total
            elif answer.kind is LlmErrorKind.RATE_LIMITED:
                call.refused, call.retry_after = True, answer.retry_after
            return answer
