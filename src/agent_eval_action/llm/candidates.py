"""Ask for several samples of one question in one request, where the model gives several candidates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage

MOST_CANDIDATES: Final = 8  # of one request to Gemini; OpenAI takes more
# One answer alone may come through, or come in time: some servers make candidates one after another.
OF_ONE_ANSWER: Final = frozenset({LlmErrorKind.BLOCKED, LlmErrorKind.EMPTY, LlmErrorKind.TIMEOUT})


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
    gives fewer of than were asked for is asked one by one; ``_several`` is what the first answer to several showed of
    a model, and one that did not give them is not asked for several again.
    """

    inner: Llm
    _open: list[_Batch] = field(default_factory=list)
    _several: dict[str, bool] = field(default_factory=dict)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """One reply: a candidate of its own."""
        if not self._several.get(request.model, True):
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
            if reply.kind is LlmErrorKind.TIMEOUT and size > 1:
                self._several.setdefault(batch.request.model, False)
            return [] if size > 1 and reply.kind in OF_ONE_ANSWER else reply
        if size > 1:
            self._several.setdefault(batch.request.model, bool(reply.more))
        more = [LlmReply(text, LlmUsage(0, 0, 0)) for text in reply.more]
        return [replace(reply, more=()), *more]
