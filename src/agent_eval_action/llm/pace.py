"""When the next call may start: not at all bound at first, then at the rate that was found to be let through.

Pure: seconds of any monotonic clock come in, the next start comes out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

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
