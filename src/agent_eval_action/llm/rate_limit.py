"""Places for what runs at once: as many as the ceiling allows until somebody is turned away, then fewer, then more."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent_eval_action.llm.budget import estimated_tokens, total_tokens
from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest

_CUT = 0.7  # CUBIC's: half is too much where what was refused is asked again anyway (RFC 9438, 4.6)


@dataclass(frozen=True, slots=True)
class Place:
    """One taken place. ``generation``: how many cuts there had been when it was taken."""

    generation: int


class AdaptiveSemaphore:
    """A semaphore whose size follows what it is told: ``went_well`` grows it, ``refused`` cuts it.

    It begins with ``start`` places and has one more for everything that goes well (doubling each round
    trip), until the first refusal; from then on one more a round. Refusals of what was begun before the
    last cut are the same news and do not cut again.
    """

    def __init__(self, ceiling: int, start: int | None = None) -> None:
        self.ceiling = ceiling
        self.size = float(min(ceiling, start or ceiling))
        self.taken = 0
        self._most = 0  # taken at once since the last cut: what was refused may be told when most have left
        self._cuts = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        """A place, in the order of asking."""
        if self._waiting or self.taken >= int(self.size):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn  # whoever wakes it has counted it as taken
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._leave()
                raise
        else:
            self.taken += 1
        self._most = max(self._most, self.taken)
        try:
            yield Place(self._cuts)
        finally:
            self._leave()

    def went_well(self) -> None:
        """Something in a place was not refused."""
        if self.taken * 2 >= int(self.size):  # growth nobody uses would be a burst later
            step = 1.0 if self._cuts == 0 else 1.0 / self.size
            self.size = min(float(self.ceiling), self.size + step)
            self._wake()

    def refused(self, place: Place) -> None:
        """What took this place was turned away."""
        if place.generation == self._cuts:
            self._cuts += 1
            self.size = max(1.0, min(self.size, float(self._most)) * _CUT)
            self._most = self.taken

    def _leave(self) -> None:
        self.taken -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.taken < int(self.size):
            turn = self._waiting.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)


_WINDOW_S = 1.0  # over which the rate that is let through is measured
_BELOW = 0.97  # what is let through less a little, so that the next refusal is a while off
_LEAST = 1 / 30  # starts a second: a server that refuses everything is still asked twice a minute
_SLACK_S = 0.1  # of lateness of a timer that is made up for
_CREEP_S = 1.5  # slowly past a limit that stands; after that the limit has moved, or who shared it has left
_CREPT = 1.0375
_SPEED_UP = 2.0  # times a second
_FORGOTTEN = 8.0  # so much faster than when last refused: the bound is dropped
_MINUTE_S = 60.0
_LONGEST_PAUSE_S = 120.0
_LARGEST_CUT = 0.85
_UNMEASURED = 3  # fewer calls let through in a window say little about a rate


@dataclass
class Started:
    """A call that was started. ``tokens``: as estimated, then as used."""

    start: float
    tokens: int
    refused: bool = False


@dataclass
class Pace:
    """One model's starts.

    The rate is learnt: at a refusal, the calls of the last second that were not refused are what the
    server lets through. The pace goes a little below it, creeps past it within two seconds and multiplies
    after that: a share that others leave is taken up within seconds, and so is a limit that has gone.
    ``per_minute`` and ``tokens_per_minute`` are the user's bounds, over any 60 seconds; None: none.
    """

    per_minute: int | None = None
    tokens_per_minute: int | None = None
    _calls: deque[Started] = field(default_factory=deque)
    _rate: float | None = None
    _since: float = 0.0
    _next: float = 0.0
    _paused_until: float = 0.0

    def rate(self, now: float) -> float | None:
        """Starts a second allowed now; None: unbound."""
        if self._rate is None:
            return None
        age = max(0.0, now - self._since)
        growth = 1.0 + 0.01 * age + 0.01 * age**2 if age <= _CREEP_S else _CREPT * _SPEED_UP ** (age - _CREEP_S)
        return self._rate * growth if growth < _FORGOTTEN else None

    def wait(self, now: float, tokens: int = 0) -> float:
        """Seconds until a call of about so many tokens may start; 0: now. Ask again after waiting."""
        self._forget(now)
        waits = [self._paused_until - now, self._minute(now, tokens)]
        if (rate := self.rate(now)) is not None:
            waits += [self._next - now, self._window(now, rate)]
        return max(0.0, *waits)

    def started(self, now: float, tokens: int = 0) -> Started:
        """A call starts now; what is returned names it to ``refused`` and ``used``."""
        if (rate := self.rate(now)) is not None:
            self._next = max(self._next, now - _SLACK_S) + 1.0 / rate
        call = Started(now, tokens)
        self._calls.append(call)
        return call

    def used(self, call: Started, tokens: int) -> None:
        """How many tokens it came to."""
        call.tokens = tokens

    def refused(self, call: Started, now: float, retry_after: float | None = None) -> bool:
        """The server said: too many. ``retry_after``: and told when to ask again, in seconds.

        Returns whether a rate explains it: False when hardly anything was let through although little was asked.
        """
        call.refused, call.tokens = True, 0
        if retry_after is not None:
            self._paused_until = max(self._paused_until, now + min(retry_after, _LONGEST_PAUSE_S))
        old, fresh = self.rate(now), call.start >= self._since
        began = call.start - _WINDOW_S
        starts = [c.start for c in self._calls if not c.refused and c.start > began]
        # Over the time of the starts, not until now: a burst's refusals may take a while to arrive.
        let, span = len(starts), max([_WINDOW_S, *(start - began for start in starts[-1:])])
        measured = let / span * _BELOW
        if let < _UNMEASURED:
            # Slower than a window can measure, or too little was asked to say: found step by step, from one a window.
            measured = max(measured, 1.0 / _WINDOW_S) if old is None else old * _LARGEST_CUT if fresh else old
        # Refusals of one burst arrive one by one; each makes the measurement of that burst better.
        self._rate = max(_LEAST, measured if old is None else min(old, measured))
        if old is not None and fresh:  # at the edge of a window little is seen of what was let through
            self._rate = max(self._rate, old * _LARGEST_CUT)
        if fresh:
            self._since = now
            # What was let through has arrived by now: a window later the server has forgotten all of it.
            self._next = max(self._next, now + (_WINDOW_S if old is None else 0.0))
        return old is None or let >= _UNMEASURED

    def _window(self, now: float, rate: float) -> float:
        """A burst that was let through fills the server's window: more before it is over would be refused."""
        room = max(1, int(rate * _WINDOW_S + 1e-9) + 1)
        starts = [c.start for c in self._calls if not c.refused and c.start > now - _WINDOW_S]
        return starts[-room] + _WINDOW_S - now if len(starts) >= room else 0.0

    def _minute(self, now: float, tokens: int) -> float:
        wait = 0.0
        kept = [c for c in self._calls if not c.refused and c.start > now - _MINUTE_S]
        if self.per_minute is not None and len(kept) >= self.per_minute:
            wait = kept[-self.per_minute].start + _MINUTE_S - now
        if self.tokens_per_minute is not None:
            total = sum(c.tokens for c in kept)
            for call in kept:  # one that is larger than the bound goes alone
                if total + tokens <= self.tokens_per_minute:
                    break
                wait, total = max(wait, call.start + _MINUTE_S - now), total - call.tokens
        return wait

    def _forget(self, now: float) -> None:
        bound = self.per_minute is not None or self.tokens_per_minute is not None
        keep = _MINUTE_S if bound else 2 * _WINDOW_S
        while self._calls and self._calls[0].start <= now - keep:
            self._calls.popleft()


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
        self.slots = AdaptiveSemaphore(ceiling, _START)
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
class RateLimited:
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
