"""Model servers in the test's own loop, and providers whose environment names nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from agent_eval_action.llm.client import LlmRequest, Message, ProviderConfig
from agent_eval_action.llm.providers.google import GoogleProvider
from agent_eval_action.llm.providers.openai import OpenAiProvider
from support.gemini_server.messages import Reply
from support.gemini_server.server import GeminiServer
from support.openai_server.messages import ChatReply
from support.openai_server.server import OpenAiServer

KEY = "key-of-the-tests-4711"
SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"type": "boolean"}},
    "required": ["verdict"],
    "additionalProperties": False,
}
ANSWER = '{"verdict": true}'
Ask = Callable[..., LlmRequest]


def ask(text: str = "Is it so?", *, model: str = "gemini-2.5-flash", **fields: object) -> LlmRequest:
    """A judge's question."""
    given = {"schema": SCHEMA, "system": "You judge.", **fields}
    return LlmRequest(model, (Message("user", text),), **given)


def never_answer(gemini: GeminiServer) -> asyncio.Event:
    """Let every request wait; the event is set when the first has arrived."""
    arrived = asyncio.Event()

    async def hold(_: object) -> None:
        arrived.set()
        await asyncio.sleep(600)

    gemini.hold = hold
    return arrived


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process's environment says must not matter, a proxy of this machine aside."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in ("GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/not-this-one")
    monkeypatch.setenv("GOOGLE_API_KEY", "not-this-key")
    monkeypatch.setenv("OPENAI_API_KEY", "not-this-key")
    monkeypatch.setenv("OPENAI_ORG_ID", "not-this-organisation")


@pytest.fixture
async def gemini() -> AsyncIterator[GeminiServer]:
    server = GeminiServer(lambda _: Reply(ANSWER, thought="Let me think."))
    listening, server.url = await server.start()
    async with listening:
        yield server


@pytest.fixture
async def openai() -> AsyncIterator[OpenAiServer]:
    server = OpenAiServer(lambda _: ChatReply(ANSWER))
    listening, server.url = await server.start()
    async with listening:
        yield server


@pytest.fixture
async def google(gemini: GeminiServer) -> AsyncIterator[GoogleProvider]:
    provider = GoogleProvider(
        ProviderConfig({"GOOGLE_API_KEY": f" {KEY}\n", "GOOGLE_GEMINI_BASE_URL": gemini.url}, timeout=20)
    )
    yield provider
    await provider.close()


@pytest.fixture
async def compat(openai: OpenAiServer) -> AsyncIterator[OpenAiProvider]:
    provider = OpenAiProvider(
        ProviderConfig({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{openai.url}/v1"}, timeout=20)
    )
    yield provider
    await provider.close()
