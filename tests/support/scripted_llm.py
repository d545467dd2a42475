"""A model of the tests' own: an ``Llm`` that answers by a function and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from agent_eval_action.llm.client import LlmError, LlmReply, LlmRequest

Answer = Callable[[LlmRequest], LlmReply | LlmError | str]


@dataclass
class ScriptedLlm:
    """``answer`` gives the reply to a request, or its text. ``latency`` in seconds lets requests overlap."""

    answer: Answer
    latency: float = 0.0
    asked: list[LlmRequest] = field(default_factory=list)
    at_once: int = 0
    _open: int = 0

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        self.asked.append(request)
        self._open += 1
        self.at_once = max(self.at_once, self._open)
        try:
            await asyncio.sleep(self.latency)
        finally:
            self._open -= 1
        answered = self.answer(request)
        return LlmReply(answered) if isinstance(answered, str) else answered
