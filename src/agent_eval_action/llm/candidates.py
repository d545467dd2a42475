"""Ask for several samples of one question in one request, where the model gives several candidates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage

MOST_CANDIDATES: Final = 8  # of one request to Gemini; OpenAI takes more
# Another answer to the same question may come through.
_OF_ONE_ANSWER: Final = frozenset({LlmErrorKind.BLOCKED, LlmErrorKind.EMPTY})


@dataclass(eq=False)
class _Batch:
    """Requests that differ in ``sample`` alone, and what is asked for them. ``waiting``: those not cancelled."""

    request: LlmRequest
    samples: list[int] = field(default_factory=list)
    waiting: int = 0
    answers: asyncio.Task[LlmError | list[LlmReply]] | None = None


@dataclass
class OneRequest:
    """An ``Llm`` that makes one request of those that differ in ``sample`` alone and come at the same moment.

    The prompt is then paid for once. Candidates are sampled independently, as requests are. What a model or a server
    gives fewer of than were asked for is asked one by one, and a model that gave one is not asked for more again.
    """

    inner: Llm
    _open: list[_Batch] = field(default_factory=list)
    _one_only: set[str] = field(default_factory=set)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """One reply: a candidate of its own."""
        if request.model in self._one_only:
            return await self.inner.generate(request)
        batch = self._join(request)
        place = len(batch.samples)
        batch.samples.append(request.sample)
        batch.waiting += 1
        if batch.answers is None:  # a task begins when all that are ready now have joined
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
        """The batch of this request: one that is open, or a new one."""
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
            return [] if size > 1 and reply.kind in _OF_ONE_ANSWER else reply
        if size > 1 and not reply.more:
            self._one_only.add(batch.request.model)
        more = [LlmReply(text, LlmUsage(0, 0, 0)) for text in reply.more]
        return [replace(reply, more=()), *more]
