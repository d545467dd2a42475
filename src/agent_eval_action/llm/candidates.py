"""Request several samples of one question as candidates of one request, if the model supports that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage

MOST_CANDIDATES: Final = 8  # Gemini's limit per request; OpenAI allows more
# A request for one answer may still succeed, or be fast enough: some servers generate candidates one after another.
OF_ONE_ANSWER: Final = frozenset({LlmErrorKind.BLOCKED, LlmErrorKind.EMPTY, LlmErrorKind.TIMEOUT})


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
            return [] if size > 1 and reply.kind in OF_ONE_ANSWER else reply
        if size > 1:
            self._several.setdefault(batch.request.model, bool(reply.more))
        more = [LlmReply(text, LlmUsage(0, 0, 0)) for text in reply.more]
        return [replace(reply, more=()), *more]
