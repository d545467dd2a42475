"""Estimate the rate at which a model's server accepts calls from its refusals (429).

Standard library only: the worker loads this file in the agent's interpreter, ``llm.rate_limit`` loads it for judges.
"""

from __future__ import annotations

import random
import re
from collections import deque

WINDOW_S = 1.0  # over which the accepted rate is measured
MARGIN = 0.95  # of the measured rate, so that the next refusal takes a while
LARGEST_CUT = 0.85  # at the edge of a window few of the accepted calls are visible
FEWEST_CALLS = 3  # fewer accepted calls in a window say little about the rate
LOWEST_RATE = 1 / 30  # starts per second: a server that refuses everything is still called twice a minute
CREEP = 0.025  # growth per second at first: an unchanged limit is exceeded slowly
DOUBLES_AFTER_S = 1.5  # then the limit has risen, or fewer share it: the rate doubles every second
FORGOTTEN = 8.0  # at this multiple of the last learnt rate, the bound is dropped
LATENESS_S = 0.1  # the delay of a timer that is made up for
LONGEST_WAIT_S = 30.0
FIRST_WAIT_S = 0.25


class Start:
    """The start of one call, in monotonic seconds."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.refused = False


class RateEstimator:
    """One model's rate: unbounded until a refusal, then slightly below the accepted rate, and growing again.

    The accepted rate is that of the calls in the last second before a refusal that were not refused. Times are
    monotonic seconds; ``longest_pause_s`` limits what a server may request with Retry-After.
    """

    def __init__(self, longest_pause_s: float = 120.0) -> None:
        self._longest_pause_s = longest_pause_s
        self._starts: deque[Start] = deque()
        self._learnt: float | None = None
        self._learnt_at = self._next_start = self._paused_until = 0.0

    def rate(self, now: float) -> float | None:
        """Return the starts per second that are allowed now; None if unbounded."""
        if self._learnt is None:
            return None
        age = min(max(0.0, now - self._learnt_at), 60.0)
        growth = max(1.0 + CREEP * age, 2.0 ** (age - DOUBLES_AFTER_S))
        return self._learnt * growth if growth < FORGOTTEN else None

    def wait(self, now: float) -> float:
        """Return the seconds until a call may start, 0 for now. Ask again after waiting."""
        pause, rate = self._paused_until - now, self.rate(now)
        if rate is None:
            return max(0.0, pause)
        # An accepted burst fills the server's window: more calls within it would be refused.
        room = max(1, int(rate * WINDOW_S + 1e-9) + 1)
        starts = self._accepted(now - WINDOW_S)
        window = starts[-room] + WINDOW_S - now if len(starts) >= room else 0.0
        return max(0.0, pause, window, self._next_start - now)

    def start(self, now: float) -> Start:
        """Note a call that starts now; pass the result to ``refused``."""
        while self._starts and self._starts[0].time <= now - 2 * WINDOW_S:
            self._starts.popleft()
        if (rate := self.rate(now)) is not None:
            self._next_start = max(self._next_start, now - LATENESS_S) + 1.0 / rate
        self._starts.append(started := Start(now))
        return started

    def refused(self, start: Start, now: float, retry_after: float | None = None) -> bool:
        """Note that the server answered 429; it may ask to wait ``retry_after`` seconds.

        Returns False if no rate explains it: hardly any call was accepted although few were made.
        """
        start.refused = True
        if retry_after is not None:
            self._paused_until = max(self._paused_until, now + min(retry_after, self._longest_pause_s))
        rate, fresh = self.rate(now), start.time >= self._learnt_at
        begin = start.time - WINDOW_S
        starts = self._accepted(begin)
        # Over the time of the starts, not until now: a burst's refusals may take a while to arrive.
        measured = len(starts) / max([WINDOW_S, *(time - begin for time in starts[-1:])]) * MARGIN
        few = len(starts) < FEWEST_CALLS
        if rate is None:
            learnt = max(measured, 1.0 / WINDOW_S) if few else measured
        else:  # a burst's refusals arrive one by one, and each improves its measurement
            lowest = rate * LARGEST_CUT if fresh else 0.0
            learnt = max(lowest, rate if few and not fresh else lowest if few else min(rate, measured))
        self._learnt = max(LOWEST_RATE, learnt)
        if fresh:
            self._learnt_at = now
            # Accepted calls have arrived by now: one window later the server has forgotten all of them.
            self._next_start = max(self._next_start, now + (WINDOW_S if rate is None else 0.0))
        return rate is None or not few

    def _accepted(self, since: float) -> list[float]:
        return [start.time for start in self._starts if not start.refused and start.time > since]


def backoff(tries: int, retry_after: float | None) -> float:
    """Return the seconds before the next try: short, with jitter; just after ``retry_after`` if there is one."""
    wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(tries, 8)) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
    return wait if retry_after is None else min(LONGEST_WAIT_S, retry_after) + wait


def seconds(text: str | None) -> float | None:
    """Parse the seconds that ``agent_eval_worker_errors.retry_after`` found; None for a date or for None."""
    found = re.fullmatch(r"([0-9.]+) ?s", text or "")
    try:
        return float(found.group(1)) if found else None
    except ValueError:
        return None
