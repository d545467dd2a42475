"""Calls of models that are refused for asking too much: waited for, made again, and from then on paced.

The same rule as the judges' (llm/pace.py); this package stands alone, so it is said here again, smaller, and
bolder: a worker shares the model's rate with others that come and go.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import deque
from typing import Any

WINDOW_S = 1.0
BELOW = 0.93
AT_LEAST_ASKED = 0.5
LEAST = 1 / 30
SLACK_S = 0.1
FORGOTTEN = 8.0
LARGEST_CUT = 0.85
UNMEASURED = 3
LONGEST_WAIT_S = 30.0
FIRST_WAIT_S = 0.25


class Pace:
    """One model's starts: unbound until a refusal, then at the rate that was let through, and slowly faster."""

    def __init__(self, longest_wait_s: float = LONGEST_WAIT_S) -> None:
        self._longest_wait_s = longest_wait_s
        self._starts: deque[list[float]] = deque()  # [when, 1.0 where it was refused]
        self._rate = 0.0
        self._since = self._next = self._paused_until = 0.0
        self._gate = asyncio.Lock()

    async def start(self) -> list[float]:
        """Wait for the next start; what is returned names it to ``refused``."""
        now = time.monotonic()
        if not self._bound(now) and self._paused_until <= now:
            return self._started(now, 0.0)
        async with self._gate:
            while True:
                now = time.monotonic()
                rate = self._bound(now)
                wait = max(self._paused_until - now, self._window(now, rate) if rate else 0.0)
                wait = max(wait, self._next - now if rate else 0.0)
                if wait <= 0:
                    return self._started(now, rate)
                await asyncio.sleep(wait)

    def refused(self, start: list[float], retry_after: float | None) -> None:
        """The server said 429: the calls of the last second that it let through are its rate."""
        now = time.monotonic()
        start[1] = 1.0
        if retry_after:
            self._paused_until = max(self._paused_until, now + min(retry_after, self._longest_wait_s))
        old, fresh = self._bound(now), start[0] >= self._since
        began = start[0] - WINDOW_S
        asked = [(when, refused) for when, refused in self._starts if when > began]
        let = sum(not refused for _, refused in asked)
        # At first another worker may have taken more than its share of what was let through.
        guess = let * BELOW if old else max(let * BELOW, len(asked) * AT_LEAST_ASKED)
        # Over the time of the starts, not until now: a burst's refusals may take a while to arrive.
        measured = guess / max(WINDOW_S, asked[-1][0] - began if asked else 0.0)
        if old and let < UNMEASURED:
            measured = old * LARGEST_CUT if fresh else old
        self._rate = max(LEAST, min(old, measured)) if old else max(1.0 / WINDOW_S, measured)
        if old and fresh:  # at the edge of a window little is seen of what was let through
            self._rate = max(self._rate, old * LARGEST_CUT)
        if fresh:
            # What was let through has arrived by now: a window later the server has forgotten all of it.
            self._since, self._next = now, max(self._next, now + (0.0 if old else WINDOW_S))

    def _bound(self, now: float) -> float:
        """Starts a second; 0: unbound."""
        age = now - self._since
        growth = 1.0 + 0.05 * age + 0.25 * age**2
        return self._rate * growth if growth < FORGOTTEN else 0.0

    def _window(self, now: float, rate: float) -> float:
        room = max(1, int(rate * WINDOW_S) + 1)
        let = [when for when, refused in self._starts if not refused and when > now - WINDOW_S]
        return let[-room] + WINDOW_S - now if len(let) >= room else 0.0

    def _started(self, now: float, rate: float) -> list[float]:
        while self._starts and self._starts[0][0] <= now - 2 * WINDOW_S:
            self._starts.popleft()
        if rate:
            self._next = max(self._next, now - SLACK_S) + 1.0 / rate
        start = [now, 0.0]
        self._starts.append(start)
        return start


class Paces:
    """A pace per model, shared by all sessions of the worker."""

    def __init__(self, longest_wait_s: float) -> None:
        self._longest_wait_s = min(longest_wait_s, LONGEST_WAIT_S)
        self._paces: dict[str, Pace] = {}

    def of(self, model: Any) -> Pace:
        """The pace of a model by the name it is asked under."""
        return self._paces.setdefault(str(model or ""), Pace(self._longest_wait_s))


def backoff(tries: int, retry_after: float | None) -> float:
    """Seconds before the next try: short, with jitter; when the server said when, then just after that."""
    wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(tries, 8)) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
    return wait if retry_after is None else min(LONGEST_WAIT_S, retry_after) + wait


def seconds(text: str | None) -> float | None:
    """The seconds in what ``retry_after`` of agent_eval_worker_errors found; None where it is a date or nothing."""
    found = re.fullmatch(r"([0-9.]+) ?s", text or "")
    try:
        return float(found.group(1)) if found else None
    except ValueError:
        return None
