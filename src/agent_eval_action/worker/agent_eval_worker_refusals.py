"""Calls of models that are refused for asking too much (429): made again here, whatever client the model has."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from agent_eval_worker_errors import kind_of, retry_after
from agent_eval_worker_rate import ModelRates, backoff, seconds

REFUSED = "rate_limited"


class Refusals:
    """Shared by all sessions of a worker, whose calls of one model share its rate.

    ``waits_s``: how long a refused call may wait for its answer, in all. ``record`` is that of the turn
    (``TurnRecord``): it counts refusals, and its time spent waiting is no time of the turn.
    """

    def __init__(self, waits_s: float) -> None:
        self._rates = ModelRates(waits_s)
        self._waits_s = waits_s

    async def before(self, record: Any, agent: str, request: Any) -> None:
        """Wait for the start of a call."""
        with record.wait():
            record.starts[agent] = await self._rates.start(request.model)

    def met(self, record: Any, agent: str, request: Any, error: BaseException) -> None:
        """A call failed: a refusal is counted, and teaches the rate."""
        start = record.starts.pop(agent, None)
        if start is not None and kind_of(error) == REFUSED:
            record.throttled += 1
            self._rates.refused(request.model, start, seconds(retry_after(error)))

    async def again(self, record: Any, agent: str, model: Any, request: Any, error: BaseException) -> Any:
        """The answer to a refused call after all; None: it failed otherwise, or stays refused."""
        tries, deadline = 0, time.monotonic() + self._waits_s
        while model is not None and kind_of(error) == REFUSED:
            wait = backoff(tries, seconds(retry_after(error)))
            if time.monotonic() + wait > deadline:
                return None
            with record.wait():
                await asyncio.sleep(wait)
            await self.before(record, agent, request)
            record.model_asked(agent, request)
            try:
                return await _whole_answer(model, request)
            except Exception as failed:  # noqa: BLE001 - any client's; the first error is raised when this is no refusal
                record.model_ended(agent)
                self.met(record, agent, request, failed)
                tries, error = tries + 1, failed
        return None


async def _whole_answer(model: Any, request: Any) -> Any:
    """The model's last word on a request; nothing of it was heard before."""
    answer = None
    async with contextlib.aclosing(model.generate_content_async(request, stream=False)) as stream:
        async for part in stream:
            answer = part
    return answer
