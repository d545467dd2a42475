"""What every provider does alike: one client for each address, one try for each call, and errors as values."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import time
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from agent_eval_action.llm.client import LlmError, LlmReply, LlmRequest, ProviderConfig

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")


class ModelProvider(abc.ABC, Generic[K, C]):
    """An ``Llm`` that speaks to a server, without a retry of its own. Lives in one event loop."""

    def __init__(self, setup: ProviderConfig) -> None:
        self.setup = setup
        self._clients: dict[K, asyncio.Task[C]] = {}

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> str:
        """What is wrong with these options (judge_model_config), in one sentence; "" if nothing. No network."""
        del options
        return ""

    @abc.abstractmethod
    def address(self, model: str) -> K:
        """Where a model is asked and as whom."""

    @abc.abstractmethod
    async def open(self, address: K) -> C:
        """Make the client of an address. What blocks runs in a thread: it would hold up every other call."""

    @abc.abstractmethod
    async def ask(self, client: C, request: LlmRequest) -> LlmReply | LlmError:
        """One call. May raise whatever the client raises."""

    @abc.abstractmethod
    def describe(self, error: Exception, model: str) -> LlmError:
        """What opening or asking raised."""

    @abc.abstractmethod
    async def close_client(self, client: C) -> None:
        """Give a client's connections back. May raise."""

    async def client(self, model: str) -> C:
        """The client of a model: hundreds of first calls wait for one making, and one that failed is made anew."""
        address = self.address(model)
        task = self._clients.get(address)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._clients[address] = asyncio.create_task(self.open(address))
        return await asyncio.shield(task)

    async def warm_up(self, model: str) -> str:
        """Load what the first call needs while something else is waited for; what fails, in one sentence, or ""."""
        try:
            await self.client(model)
        except Exception as error:  # noqa: BLE001 - whatever the client raises becomes a sentence
            return self.describe(error, model).message
        return ""

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """One call within ``setup.timeout``; raises nothing but CancelledError."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.setup.timeout):  # around everything, the renewal of a token included
                client = await self.client(request.model)
                started = time.monotonic()
                answer = await self.ask(client, request)
        except Exception as error:  # noqa: BLE001 - errors of a part are values
            answer = self.describe(error, request.model)
        return replace(answer, seconds=time.monotonic() - started) if isinstance(answer, LlmError) else answer

    async def close(self) -> None:
        """Give all connections back; never raises."""
        for task in self._clients.values():
            task.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await self.close_client(await task)
        self._clients.clear()
