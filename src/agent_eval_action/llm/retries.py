"""Ask for several samples of one question in one request, and ask again after failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from agent_eval_action.config.models import RETRY_SECONDS
from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage

MOST_CANDIDATES: Final = 8  # Gemini's limit per request; OpenAI allows more
# A request for one answer may still succeed, or be fast enough: some servers generate candidates one after another.
_OF_ONE_ANSWER: Final = frozenset({LlmErrorKind.BLOCKED, LlmErrorKind.EMPTY, LlmErrorKind.TIMEOUT})


@dataclass(eq=False)
class _Batch:
    """Requests that differ only in ``sample``, and their common call. ``waiting`` counts those not cancelled."""

    request: LlmRequest
    samples: list[int] = field(default_factory=list)
    waiting: int = 0
    answers: asyncio.Task[LlmError | list[LlmReply]] | None = None


@dataclass
class OneRequest:
    """An ``Llm`` that merges simultaneous requests that differ only in ``sample``, so the prompt is paid for once.

    Candidates are sampled independently, just like separate requests. Missing candidates are requested one by one.
    ``_several`` records whether a model's first answer showed that it returns several; if not, it is not asked for
    several again.
    """

    inner: Llm
    _open: list[_Batch] = field(default_factory=list)
    _several: dict[str, bool] = field(default_factory=dict)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """Return a reply; no two requests share a candidate."""
        if not self._several.get(request.model, True):
            return await self.inner.generate(request)
        batch = self._join(request)
        place = len(batch.samples)
        batch.samples.append(request.sample)
        batch.waiting += 1
        if batch.answers is None:  # the task starts after all requests that are ready now have joined
            batch.answers = asyncio.create_task(self._ask(batch))
        try:
            answers = await asyncio.shield(batch.answers)
        except asyncio.CancelledError:
            batch.waiting -= 1
            if not batch.waiting:
                batch.answers.cancel()
                await asyncio.gather(batch.answers, return_exceptions=True)
            raise
        if isinstance(answers, LlmError):
            return answers
        return answers[place] if place < len(answers) else await self.inner.generate(request)

    def _join(self, request: LlmRequest) -> _Batch:
        for batch in self._open:
            has_room = len(batch.samples) < MOST_CANDIDATES and request.sample not in batch.samples
            if has_room and replace(request, sample=batch.request.sample) == batch.request:
                return batch
        self._open.append(batch := _Batch(request))
        return batch

    async def _ask(self, batch: _Batch) -> LlmError | list[LlmReply]:
        self._open.remove(batch)
        size = len(batch.samples)
        reply = await self.inner.generate(replace(batch.request, candidates=size))
        if isinstance(reply, LlmError):
            if reply.kind is LlmErrorKind.TIMEOUT and size > 1:
                self._several.setdefault(batch.request.model, False)
            return [] if size > 1 and reply.kind in _OF_ONE_ANSWER else reply
        if size > 1:
            self._several.setdefault(batch.request.model, bool(reply.more))
        return [replace(reply, more=()), *(LlmReply(text, LlmUsage(0, 0, 0)) for text in reply.more)]


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
            wasted += answer.usage or LlmUsage(0, 0, 0)
            wait = self._wait(tries, answer.retry_after)
            one_by_one = request.candidates > 1 and answer.kind in _OF_ONE_ANSWER  # they are asked for so now
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
