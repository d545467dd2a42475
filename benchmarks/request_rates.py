"""A judge's calls under a server's rate limit: a learnt rate compared with halving concurrency at a 429.

``python -m benchmarks.request_rates``: the server allows twenty calls a second. The clients are one judge, then two
independent ones, as judges and an agent's worker are.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest, Message, ProviderConfig
from agent_eval_action.llm.providers.google import GoogleProvider
from agent_eval_action.llm.rate_limit import AdaptiveSemaphore, RateLimited
from agent_eval_action.llm.retries import Retrying
from benchmarks.judged_job import MODEL
from support.gemini_server import client

CALLS = 400
PER_SECOND = 20
LATENCY = 0.2


@dataclass
class Halving:
    """Halves the concurrency after a 429, then adds one each round, as many clients do."""

    inner: Llm
    permits: AdaptiveSemaphore = field(default_factory=lambda: AdaptiveSemaphore(96, 48))

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """Make one call and adapt the concurrency."""
        async with self.permits.permit() as permit:
            answer = await self.inner.generate(request)
            if isinstance(answer, LlmError) and answer.kind is LlmErrorKind.RATE_LIMITED:
                self.permits.refused(permit)
                self.permits.size = max(1.0, self.permits.size * 0.5 / 0.7)
            else:
                self.permits.succeeded()
            return answer


def learning(inner: Llm) -> Llm:
    """Learn the server's rate, as a run does."""
    return RateLimited(inner)


async def ask_all(gemini: client.RunningGemini, limited: Callable[[Llm], Llm], clients: int) -> float:
    """Return the seconds until all calls are answered; each client starts its share at once."""
    providers = [GoogleProvider(ProviderConfig(gemini.environ)) for _ in range(clients)]
    llms = [Retrying(limited(provider), deadline=600) for provider in providers]
    for provider in providers:
        await provider.warm_up("gemini-2.5-flash")
    began = time.monotonic()
    requests = [LlmRequest("gemini-2.5-flash", (Message("user", f"{n}"),), schema=SCHEMA) for n in range(CALLS)]
    replies = await asyncio.gather(*(llms[n % clients].generate(request) for n, request in enumerate(requests)))
    seconds = time.monotonic() - began
    for provider in providers:
        await provider.close()
    if lost := [reply for reply in replies if isinstance(reply, LlmError)]:
        raise RuntimeError(lost[0].message)
    return seconds


SCHEMA = {"type": "object", "properties": {"verdict": {"type": "string"}}, "required": ["verdict"]}


def main() -> int:
    """Print, for each strategy, its time relative to the ideal and its refused calls."""
    ideal = CALLS / PER_SECOND + LATENCY
    with client.running(MODEL) as gemini:
        gemini.configure(latency=LATENCY, per_second=PER_SECOND)
        for name, limited in (("learnt rate", learning), ("halved at a 429", Halving)):
            for clients in (1, 2):
                gemini.reset()
                seconds = asyncio.run(ask_all(gemini, limited, clients))
                refused = gemini.seen()["faults"].get("rate", 0)
                print(f"{name:<16} {clients} client(s): {seconds / ideal:.2f} of the ideal, {refused} refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
