"""Retry failed calls of judges and simulated users, depending on the error and the server's Retry-After."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from agent_eval_action.config.models import RETRY_SECONDS
from agent_eval_action.llm.candidates import OF_ONE_ANSWER
from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 30.0
# Empty and truncated answers cost tokens, and a fourth try rarely helps.
EMPTY_TRIES: Final = 3
_PASSING: Final = frozenset(
    {LlmErrorKind.RATE_LIMITED, LlmErrorKind.UNAVAILABLE, LlmErrorKind.TIMEOUT, LlmErrorKind.EMPTY}
)


@dataclass(frozen=True)
class Retrying:
    """An ``Llm`` that calls ``llm`` until it answers, fails permanently, or has used up ``deadline`` seconds.

    Failed tries and the waits between them count towards the deadline, time in the limiter's queue does not. The usage
    returned includes failed tries. Tenacity does not fit: errors are values here, the deadline is not wall-clock time,
    and the server influences each wait.
    """

    llm: Llm
    deadline: float = RETRY_SECONDS
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """Return a reply, or the last try's error."""
        spent, tries, empty, wasted = 0.0, 0, 0, LlmUsage(0, 0, 0)
        while True:
            answer = await self.llm.generate(request)
            tries += 1
            if isinstance(answer, LlmReply):
                return replace(answer, usage=answer.usage + wasted) if tries > 1 else answer
            spent += answer.seconds
            empty += answer.kind is LlmErrorKind.EMPTY
            wasted = wasted + answer.usage if answer.usage else wasted
            wait = self._wait(tries, answer.retry_after)
            one_by_one = request.candidates > 1 and answer.kind in OF_ONE_ANSWER  # they are asked for so now
            end = "" if one_by_one else self._end(answer, empty, spent, wait)
            if end is not None:
                message = f"{answer.message.removesuffix('.')}{end}" if end else answer.message
                return replace(answer, message=message, seconds=spent, usage=wasted)
            await self.sleep(wait)
            spent += wait

    def _wait(self, tries: int, retry_after: float | None) -> float:
        """Seconds before the next try. Jitter added to Retry-After keeps clients from retrying at the same moment."""
        longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(tries - 1, 10))
        if retry_after is None:
            return self.jitter() * longest
        return retry_after + self.jitter() * min(longest, max(retry_after, FIRST_WAIT) / 2)

    def _end(self, error: LlmError, empty: int, spent: float, wait: float) -> str | None:
        """The end of the error's sentence if there is no further try; None: try again."""
        if error.kind not in _PASSING:
            return ""
        if error.kind is LlmErrorKind.EMPTY and empty >= EMPTY_TRIES:
            return f" ({empty} times)"
        left = max(0.0, self.deadline - spent)
        if error.retry_after is not None and error.retry_after > left:
            return f"; it asks to wait {error.retry_after:.0f} s, and {left:.0f} s are left of llm.retry_deadline"
        if left <= 0 or wait > left:
            # name the deadline, not the time spent: cases in one outage then have equal messages, which reports merge
            return f"; given up after {self.deadline:g} s (llm.retry_deadline)"
        return None
