"""How fast a model is asked: places at once and starts a second, learnt from what the server refuses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent_eval_action.llm.base import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest
from agent_eval_action.llm.pace import Pace, Started
from agent_eval_action.llm.slots import Slots
from agent_eval_action.llm.tokens import estimated_tokens, total_tokens

_START = 48  # places before the first answer; they double each round trip


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What the user allows, of every model or of one: a model's own entry wins. None: no bound.

    ``concurrency`` is calls at once of one model.
    """

    concurrency: int = 96
    requests_per_minute: Mapping[str, int] = field(default_factory=dict)
    tokens_per_minute: Mapping[str, int] = field(default_factory=dict)

    def of(self, model: str) -> tuple[int | None, int | None]:
        """(requests, tokens) a minute of a model as configured; the key ``*`` holds for those without their own."""
        requests, tokens = self.requests_per_minute, self.tokens_per_minute
        return requests.get(model, requests.get("*")), tokens.get(model, tokens.get("*"))


class Call:
    """A call under way: tell it what became of it."""

    def __init__(self, done: Callable[[Call], None]) -> None:
        self.throttled = False
        self.retry_after: float | None = None
        self.tokens: int | None = None
        self._done = done

    def refuse(self, retry_after: float | None = None) -> None:
        """The server answered 429."""
        self.throttled, self.retry_after = True, retry_after

    def finish(self) -> None:
        """Tell the limiter."""
        self._done(self)


class Limiter:
    """One model's places and pace. ``clock`` is monotonic."""

    def __init__(
        self,
        ceiling: int = 96,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slots = Slots(ceiling, _START)
        self.pace = Pace(requests_per_minute, tokens_per_minute)
        self.refusals = 0
        self._clock = clock
        self._gate = asyncio.Lock()

    @asynccontextmanager
    async def call(self, tokens: int = 0) -> AsyncIterator[Call]:
        """Wait for a place and for the pace; inside, the call is made. ``tokens``: about how many it will take."""
        async with self.slots.place() as place:
            async with self._gate:  # starts are in order: one that waits keeps those behind it from slipping past
                started = await self._start(tokens)

            def told(call: Call) -> None:
                if call.throttled:
                    self.refusals += 1
                    if not self.pace.refused(started, self._clock(), call.retry_after):
                        self.slots.refused(place)  # no rate: the server minds how many are under way
                    return
                self.slots.went_well()
                if call.tokens is not None:
                    self.pace.used(started, call.tokens)

            call = Call(told)
            try:
                yield call
            finally:
                call.finish()

    async def _start(self, tokens: int) -> Started:
        while True:  # what is learnt meanwhile may move the start
            wait = self.pace.wait(self._clock(), tokens)
            if wait <= 0:
                return self.pace.started(self._clock(), tokens)
            await asyncio.sleep(wait)


@dataclass
class Limiters:
    """One limiter per provider and model, made when first asked for."""

    limits: RateLimits = field(default_factory=RateLimits)
    _made: dict[str, Limiter] = field(default_factory=dict)

    def of(self, model: str) -> Limiter:
        """The limiter of a model as configured, whose name says the provider too."""
        if model not in self._made:
            requests, tokens = self.limits.of(model)
            self._made[model] = Limiter(self.limits.concurrency, requests_per_minute=requests, tokens_per_minute=tokens)
        return self._made[model]

    def refusals(self) -> int:
        """How often a server said: too many."""
        return sum(limiter.refusals for limiter in self._made.values())


@dataclass(frozen=True)
class Rated:
    """An ``Llm`` whose every call waits for its turn. Retries go around it: a wait between two tries holds no place."""

    inner: Llm
    limiters: Limiters

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """One try."""
        limiter = self.limiters.of(request.model)
        async with limiter.call(estimated_tokens(request)) as call:
            said = await self.inner.generate(request)
            if isinstance(said, LlmError):
                if said.kind is LlmErrorKind.RATE_LIMITED:
                    call.refuse(said.retry_after)
            else:
                call.tokens = total_tokens(said.usage)
            return said
