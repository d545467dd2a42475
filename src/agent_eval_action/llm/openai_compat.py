"""Whatever speaks OpenAI's wire, through the openai SDK (the extra ``openai``): ``openai/<model>``."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.llm.base import LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage
from agent_eval_action.llm.credentials import OPENAI_KEY, OPENAI_URLS
from agent_eval_action.llm.openai_dialect import Dialect, answer_text, body, check_options, refused_part
from agent_eval_action.llm.openai_errors import from_exception, no_answer, server_name
from agent_eval_action.llm.setup import Setup
from agent_eval_action.llm.text import quoted, sendable

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

_URL: Final = "https://api.openai.com/v1"
_DIALECTS: Final = 4  # how many a server can be asked in: three forms of the answer, two names of its length
_CONNECTIONS: Final = 1000


@dataclass
class OpenAiProvider:
    """Each request one call, and one more where a server refuses a form it does not know. Lives in one event loop."""

    setup: Setup
    _client: asyncio.Task[AsyncOpenAI] | None = field(default=None, init=False, repr=False)
    _dialects: dict[str, Dialect] = field(default_factory=dict, init=False, repr=False)

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> str:
        """What is wrong with these options, in Google's names, for this wire; "" if nothing."""
        return check_options(options)

    @property
    def base_url(self) -> str:
        """Where models are asked: the configuration's word, then the environment's."""
        return self.setup.openai_base_url or self.setup.value(*OPENAI_URLS) or _URL

    async def warm_up(self, model: str) -> str:  # noqa: ARG002 - one client for every model, unlike Google's
        """Load the SDK and make the client while something else is waited for; what fails, in one sentence."""
        try:
            await self._ready()
        except Exception as error:  # noqa: BLE001 - told as a sentence
            return self._failed(error).message
        return ""

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """One call; never raises but when it is cancelled."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.setup.timeout):
                client = await self._ready()
                started = time.monotonic()
                said = await self._asked(client, request)
        except Exception as error:  # noqa: BLE001 - errors of a part are values
            said = self._failed(error)
        return replace(said, seconds=time.monotonic() - started) if isinstance(said, LlmError) else said

    async def close(self) -> None:
        """Give the connections back."""
        task, self._client = self._client, None
        if task is not None:
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await (await task).close()

    async def _asked(self, client: AsyncOpenAI, request: LlmRequest) -> LlmReply | LlmError:
        """Ask; where the server does not know the form of what is asked, ask in the next and remember it."""
        from openai import APIStatusError  # noqa: PLC0415 - loaded by now

        name = request.model.removeprefix("openai/")
        for _ in range(_DIALECTS):
            dialect = self._dialects.get(name) or Dialect.of(self.base_url)
            try:
                completion = await client.chat.completions.create(**body(name, request, dialect))
            except APIStatusError as error:
                simpler = dialect.without(refused_part(error.status_code, error.body), request)
                if simpler is None:
                    raise
                self._dialects[name] = simpler
            else:
                return _read(completion)
        return LlmError(LlmErrorKind.REFUSED, f"{server_name(self.base_url)} takes no form of the request that we know")

    async def _ready(self) -> AsyncOpenAI:
        """The client; hundreds of first calls wait for one making."""
        if self._client is None or (self._client.done() and self._client.exception()):
            self._client = asyncio.create_task(self._made())
        return await asyncio.shield(self._client)

    async def _made(self) -> AsyncOpenAI:
        return await asyncio.to_thread(_new_client, self.setup, self.base_url)

    def _failed(self, error: Exception) -> LlmError:
        key = self.setup.value(OPENAI_KEY)
        return from_exception(error, where=self.base_url, secrets=[key] if key else [])


def _new_client(setup: Setup, base_url: str) -> AsyncOpenAI:
    import openai  # noqa: PLC0415 - most of a second, and an extra
    from httpx import Limits  # noqa: PLC0415 - comes with the SDK

    client = openai.AsyncOpenAI(
        api_key=setup.value(OPENAI_KEY) or "none",  # a server of one's own often wants none; the SDK wants some
        admin_api_key="",
        organization=setup.value("OPENAI_ORG_ID"),
        project=setup.value("OPENAI_PROJECT_ID"),
        base_url=base_url,
        timeout=setup.timeout,
        max_retries=0,  # the SDK would wait inside the limiter's slot
        # aiohttp and not httpx alone: see google_client.new_session.
        http_client=openai.DefaultAioHttpClient(
            limits=Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
            follow_redirects=False,
        ),
    )
    # Said as "" above, since for None it reads the process's environment; an empty header is refused by some servers.
    client.organization, client.project = client.organization or None, client.project or None
    client.admin_api_key = None
    _ = client.chat.completions  # loads a third of a second of modules, here in a thread
    return client


def _read(completion: ChatCompletion) -> LlmReply | LlmError:
    """The first choice's text, if it is whole. The SDK checks nothing: every field may be missing."""
    said = getattr(completion, "usage", None)
    details = getattr(said, "prompt_tokens_details", None)
    usage = LlmUsage(
        _count(getattr(said, "prompt_tokens", None)),
        _count(getattr(said, "completion_tokens", None)),
        _count(getattr(details, "cached_tokens", None)),
    )
    choice = next(iter(getattr(completion, "choices", None) or ()), None)
    message = getattr(choice, "message", None)
    finish = str(getattr(choice, "finish_reason", None) or "")
    content = getattr(message, "content", None)
    text = answer_text(content) if isinstance(content, str) else ""
    refusal = getattr(message, "refusal", None)
    if refusal or not text or finish in ("length", "content_filter"):
        return no_answer(finish, refusal, usage)
    return LlmReply(sendable(text), usage, model_version=quoted(getattr(completion, "model", ""), limit=100))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
