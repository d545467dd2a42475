"""The rate at which a model's server lets calls through, learnt from its refusals (429).

Standard library only: the worker loads this file in the agent's interpreter, ``llm.rate_limit`` loads it for judges.
"""

from __future__ import annotations

import random
import re
from collections import deque

WINDOW_S = 1.0  # over which the rate that is let through is measured
MARGIN = 0.95  # of the measured rate, so that the next refusal is a while off
LARGEST_CUT = 0.85  # at the edge of a window little is seen of what was let through
FEWEST_CALLS = 3  # fewer calls let through in a window say little about a rate
LOWEST_RATE = 1 / 30  # starts a second: a server that refuses everything is still asked twice a minute
CREEP = 0.025  # growth a second at first: a limit that stands is passed slowly
DOUBLES_AFTER_S = 1.5  # then the limit has moved, or who shared it has left: the rate doubles every second
FORGOTTEN = 8.0  # so much faster than when last refused, the bound is dropped
LATENESS_S = 0.1  # of a timer that is made up for
LONGEST_WAIT_S = 30.0
FIRST_WAIT_S = 0.25


class Start:
    """One call that was started, at a monotonic time in seconds."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.refused = False


class RateEstimator:
    """One model's rate: unbounded until a refusal, then a little below what was let through, and growing again.

    At a refusal the calls of the last second that were not refused are what the server lets through. Times are
    monotonic seconds; ``longest_pause_s`` bounds what a server may ask for by Retry-After.
    """

    def __init__(self, longest_pause_s: float = 120.0) -> None:
        self._longest_pause_s = longest_pause_s
        self._starts: deque[Start] = deque()
        self._learnt: float | None = None
        self._learnt_at = self._next_start = self._paused_until = 0.0

    def rate(self, now: float) -> float | None:
        """Starts a second allowed now; None: unbounded."""
        if self._learnt is None:
            return None
        age = min(max(0.0, now - self._learnt_at), 60.0)
        growth = max(1.0 + CREEP * age, 2.0 ** (age - DOUBLES_AFTER_S))
        return self._learnt * growth if growth < FORGOTTEN else None

    def wait(self, now: float) -> float:
        """Seconds until a call may start; 0: now. Ask again after waiting."""
        pause, rate = self._paused_until - now, self.rate(now)
        if rate is None:
            return max(0.0, pause)
        # A burst that was let through fills the server's window: more before it is over would be refused.
        room = max(1, int(rate * WINDOW_S + 1e-9) + 1)
        starts = self._let_through(now - WINDOW_S)
        window = starts[-room] + WINDOW_S - now if len(starts) >= room else 0.0
        return max(0.0, pause, window, self._next_start - now)

    def start(self, now: float) -> Start:
        """A call starts now; ``refused`` takes what is returned."""
        while self._starts and self._starts[0].time <= now - 2 * WINDOW_S:
            self._starts.popleft()
        if (rate := self.rate(now)) is not None:
            self._next_start = max(self._next_start, now - LATENESS_S) + 1.0 / rate
        self._starts.append(started := Start(now))
        return started

    def refused(self, start: Start, now: float, retry_after: float | None = None) -> bool:
        """The server answered 429, and may ask to wait ``retry_after`` seconds.

        Returns False when no rate explains it: hardly anything was let through although little was asked.
        """
        start.refused = True
        if retry_after is not None:
            self._paused_until = max(self._paused_until, now + min(retry_after, self._longest_pause_s))
        rate, fresh = self.rate(now), start.time >= self._learnt_at
        begin = start.time - WINDOW_S
        starts = self._let_through(begin)
        # Over the time of the starts, not until now: a burst's refusals may take a while to arrive.
        measured = len(starts) / max([WINDOW_S, *(time - begin for time in starts[-1:])]) * MARGIN
        few = len(starts) < FEWEST_CALLS
        if rate is None:
            learnt = max(measured, 1.0 / WINDOW_S) if few else measured
        else:  # one burst's refusals arrive one by one, and each makes the measurement of that burst better
            lowest = rate * LARGEST_CUT if fresh else 0.0
            learnt = max(lowest, rate if few and not fresh else lowest if few else min(rate, measured))
        self._learnt = max(LOWEST_RATE, learnt)
        if fresh:
            self._learnt_at = now
            # What was let through has arrived by now: a window later the server has forgotten all of it.
            self._next_start = max(self._next_start, now + (WINDOW_S if rate is None else 0.0))
        return rate is None or not few

    def _let_through(self, since: float) -> list[float]:
        return [start.time for start in self._starts if not start.refused and start.time > since]


def backoff(tries: int, retry_after: float | None) -> float:
    """Seconds before the next try: short, with jitter; just after ``retry_after`` where the server gives it."""
    wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(tries, 8)) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
    return wait if retry_after is None else min(LONGEST_WAIT_S, retry_after) + wait


def seconds(text: str | None) -> float | None:
    """The seconds in what ``agent_eval_worker_errors.retry_after`` found; None where it is a date or nothing."""
    found = re.fullmatch(r"([0-9.]+) ?s", text or "")
    try:
        return float(found.group(1)) if found else None
    except ValueError:
        return None
