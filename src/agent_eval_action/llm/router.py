"""The client for judges and simulated users: all policies around all providers, built once per run.

From the outside in: the cache (its answers are free and immediate, even when the budget is spent), candidates, the
budget, retries (waits between tries hold no permit), the rate limit, the provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_eval_action.config.models import LlmOptions
from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.budget import Budgeted, Meter
from agent_eval_action.llm.cache import AnswerStore, Cached
from agent_eval_action.llm.client import Llm, LlmError, LlmReply, LlmRequest, ProviderConfig
from agent_eval_action.llm.credentials import OPENAI_URLS, uses_vertex
from agent_eval_action.llm.providers import PROVIDERS, provider_of
from agent_eval_action.llm.providers.base import ModelProvider
from agent_eval_action.llm.rate_limit import RateLimited
from agent_eval_action.llm.retries import OneRequest, Retrying

CACHE_FOLDER = "llm"


@dataclass
class ProviderRouter:
    """Sends calls to providers, creating each on first use because their libraries are heavy.

    ``meter`` counts cancelled calls; ``observe`` is called with the outcome of all others.
    """

    setup: ProviderConfig
    meter: Meter
    observe: Callable[[LlmReply | LlmError], None] = lambda _: None
    made: dict[str, ModelProvider[Any, Any]] = field(default_factory=dict)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        try:
            reply = await self.find(request.model).generate(request)
        except asyncio.CancelledError:
            self.meter.count_abandoned(request)
            raise
        self.observe(reply)
        return reply

    def find(self, model: str) -> ModelProvider[Any, Any]:
        name = provider_of(model)
        if name not in self.made:
            self.made[name] = PROVIDERS[name](self.setup)
        return self.made[name]

    def identity(self, model: str) -> tuple[str, str]:
        """Provider and server, for the cache: answers of another server are not reused."""
        name = provider_of(model)
        setup = self.setup
        if name == "openai":
            return name, setup.openai_base_url or setup.value(*OPENAI_URLS)
        if name == "google" and not uses_vertex(setup, model):
            return name, setup.value("GOOGLE_GEMINI_BASE_URL")
        parts = ("GOOGLE_VERTEX_BASE_URL", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
        return name, "vertex " + " ".join(setup.value(part) for part in parts)


@dataclass
class LlmStack:
    """An ``Llm`` with all policies around it. ``environ``: what judges may use (``credentials.judge_environ``).

    ``cache`` None: cache nothing. ``read_cache`` False (for a run that writes history): cached votes are not reused,
    because history would understate the judges' noise. ``say`` is called once if the cache cannot be used.
    """

    options: LlmOptions
    environ: Mapping[str, str] = field(repr=False)
    cache: OutputFolder | None
    read_cache: bool
    meter: Meter
    say: Callable[[str], None] = lambda _: None
    observe: Callable[[LlmReply | LlmError], None] = lambda _: None

    def __post_init__(self) -> None:
        options = self.options
        setup = ProviderConfig(self.environ, options.timeout_s, options.openai_base_url or "")
        self._router = ProviderRouter(setup, self.meter, self.observe)
        self.rated = RateLimited(self._router, options)
        self._llm: Llm = OneRequest(Budgeted(Retrying(self.rated, options.retry_deadline), self.meter))
        self._store = None
        if self.cache is not None and options.cache:
            self._store = AnswerStore(self.cache / CACHE_FOLDER, self.say)
            self._llm = Cached(self._llm, self._store, self._router.identity, self.read_cache, self.meter.count_cached)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        return await self._llm.generate(request)

    async def warm_up(self, models: Iterable[str]) -> dict[str, str]:
        """Open clients (about a second) while agents start. Returns the models that will not work, and why."""
        asked = sorted(set(models))
        problems = await asyncio.gather(*(self._router.find(model).warm_up(model) for model in asked))
        return {model: problem for model, problem in zip(asked, problems, strict=True) if problem}

    async def close(self) -> None:
        """Prune the cache and close connections; never raises."""
        if self._store is not None:
            await asyncio.to_thread(self._store.prune)
        for provider in self._router.made.values():
            await provider.close()
