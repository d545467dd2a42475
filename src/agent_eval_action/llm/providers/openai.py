"""Models behind an OpenAI-compatible API: dialects of servers, answers, errors."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from agent_eval_action.diagnostics.suggestions import snake_case
from agent_eval_action.llm.client import (
    LlmError,
    LlmErrorKind,
    LlmReply,
    LlmRequest,
    LlmUsage,
    ProviderConfig,
    quoted,
    sendable,
    sendable_json,
)
from agent_eval_action.llm.credentials import EXTRA_MISSING, OPENAI_KEY, OPENAI_URLS
from agent_eval_action.llm.providers.base import (
    ModelProvider,
    exception_error,
    retry_after,
    status_error,
    unusable_answer,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

_URL: Final = "https://api.openai.com/v1"
_DIALECTS: Final = 4  # tries to find one that a server takes: three answer formats, two names of the length option
_CONNECTIONS: Final = 1000
_KEY: Final = "check OPENAI_API_KEY, and OPENAI_BASE_URL: the key has to be of the server it names"
_ADVICE: Final = {
    300: "check OPENAI_BASE_URL",
    400: "check the model's name and the options in judge_model_config",
    401: _KEY,
    403: _KEY,
    404: "check the model's name, and OPENAI_BASE_URL: it mostly ends with /v1",
}
# By Google's name of an option: OpenAI's name, allowed types, and their description.
_OPTIONS: Final[dict[str, tuple[str, tuple[type, ...], str]]] = {
    "temperature": ("temperature", (int, float), "a number"),
    "top_p": ("top_p", (int, float), "a number"),
    "max_output_tokens": ("", (int,), "a whole number"),  # the name depends on the dialect
    "seed": ("seed", (int,), "a whole number"),
    "stop_sequences": ("stop", (list, tuple), "a list"),
    "presence_penalty": ("presence_penalty", (int, float), "a number"),
    "frequency_penalty": ("frequency_penalty", (int, float), "a number"),
    "thinking_config": ("reasoning_effort", (dict,), "a mapping"),
}
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh")
_FORM_NAMES: Final = re.compile(r"response[_ ]format|json[_ ]schema|json[_ ]object|structured[_ ]output", re.IGNORECASE)
_LENGTH_NAMES: Final = re.compile(r"\bmax_(?:completion_)?tokens\b")
_BAD_REQUESTS: Final = frozenset({400, 404, 415, 422, 501})
_THOUGHT: Final = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_FENCED: Final = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)

# The next weaker way to request JSON; "prompt": only in the prompt's words.
_WEAKER_FORM: Final = {"json_schema": "json_object", "json_object": "prompt"}


@dataclass(frozen=True)
class Dialect:
    """What a server understands: how to request JSON, and its name for the maximum length of an answer."""

    form: str = "json_schema"
    length: str = "max_tokens"

    @classmethod
    def for_server(cls, base_url: str) -> Dialect:
        """The dialect to try first: OpenAI's reasoning models take only the newer name, most others the older."""
        host = urlsplit(base_url).hostname or ""
        newer = host.endswith(("openai.com", "openai.azure.com"))
        return cls(length="max_completion_tokens" if newer else "max_tokens")

    def after(self, status: int, body: object, request: LlmRequest) -> Dialect | None:
        """The next dialect to try after this error; None if it does not reject a part of ``request`` as unknown."""
        words = json.dumps(body, default=str)[:4000] if status in _BAD_REQUESTS else ""
        if _FORM_NAMES.search(words):
            weaker = _WEAKER_FORM.get(self.form) if request.schema is not None else None
            return replace(self, form=weaker) if weaker else None
        if _LENGTH_NAMES.search(words) and "max_output_tokens" in _snake_case_options(request.options):
            return replace(self, length="max_completion_tokens" if self.length == "max_tokens" else "max_tokens")
        return None


def _arguments(name: str, request: LlmRequest, dialect: Dialect) -> dict[str, Any]:
    system = sendable(request.system)
    asked: dict[str, Any] = {"model": name}
    if request.candidates > 1:
        asked["n"] = request.candidates
    if request.schema is not None:
        schema = sendable_json(request.schema)
        if dialect.form == "json_schema":
            answer = {"name": "answer", "strict": True, "schema": schema}
            asked["response_format"] = {"type": "json_schema", "json_schema": answer}
        else:
            words = (
                "Answer with one JSON object and nothing else: no text around it, no Markdown. "
                f"It must fit this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
            )
            system = f"{system}\n\n{words}".strip()
        if dialect.form == "json_object":
            asked["response_format"] = {"type": "json_object"}
    roles = {"user": "user", "model": "assistant"}
    turns = [{"role": roles[m.role], "content": sendable(m.text)} for m in request.messages]
    asked["messages"] = [{"role": "system", "content": system}, *turns] if system else turns
    for option, value in _snake_case_options(request.options).items():
        if option == "thinking_config":
            asked["reasoning_effort"] = _effort(value)
        else:
            asked[_OPTIONS[option][0] or dialect.length] = sendable_json(value)
    return asked


def _snake_case_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with snake_case keys; None values dropped."""
    return {snake_case(key): value for key, value in options.items() if value is not None}


def _effort(thinking: Any) -> str:
    options = _snake_case_options(thinking)
    return str(options.get("thinking_level", "")).lower() if set(options) == {"thinking_level"} else ""


class OpenAiProvider(ModelProvider[str, "AsyncOpenAI"]):
    """One call per request, plus one for each part of the request that the server rejects as unknown."""

    def __init__(self, setup: ProviderConfig) -> None:
        super().__init__(setup)
        self._dialects: dict[str, Dialect] = {}
        self._base_url = setup.openai_base_url or setup.value(*OPENAI_URLS) or _URL

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> str:
        """A sentence about what is wrong with these options, which have Google's names; "" if nothing."""
        for name, value in _snake_case_options(options).items():
            if name not in _OPTIONS:
                return f"the option `{name}` does not exist on OpenAI's wire: known are {', '.join(_OPTIONS)}"
            _, kinds, kind = _OPTIONS[name]
            if not isinstance(value, kinds) or isinstance(value, bool):
                return f"the option `{name}` must be {kind}"
            if name == "thinking_config" and _effort(value) not in _EFFORTS:
                return "of `thinking_config` OpenAI's wire knows only thinking_level: " + ", ".join(_EFFORTS)
        return ""

    def address(self, model: str) -> str:
        del model  # one client for every model, unlike Google's
        return self._base_url

    async def open(self, address: str) -> AsyncOpenAI:
        return await asyncio.to_thread(_new_client, self.setup, address)

    async def close_client(self, client: AsyncOpenAI) -> None:
        await client.close()

    async def ask(self, client: AsyncOpenAI, request: LlmRequest) -> LlmReply | LlmError:
        """Make the call; if the server rejects the dialect, try the next one and remember it."""
        from openai import APIStatusError  # noqa: PLC0415 - loaded by now

        name = request.model.removeprefix("openai/")
        for _ in range(_DIALECTS):
            dialect = self._dialects.get(name) or Dialect.for_server(self._base_url)
            try:
                completion = await client.chat.completions.create(**_arguments(name, request, dialect))
            except APIStatusError as error:
                simpler = dialect.after(error.status_code, error.body, request)
                if simpler is None:
                    raise
                self._dialects[name] = simpler
            else:
                return _read(completion)
        server = self._server(())
        return LlmError(LlmErrorKind.REFUSED, f"{server} takes no form of the request that we know")

    def describe(self, error: Exception, model: str) -> LlmError:
        del model
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "openai":
            return LlmError(LlmErrorKind.REFUSED, EXTRA_MISSING)
        import openai  # noqa: PLC0415 - loaded by now

        secrets = (self.setup.value(OPENAI_KEY),)
        name = self._server(secrets)
        if isinstance(error, openai.APIStatusError):
            return _response_error(error, name, secrets)
        causes: list[BaseException] = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        # httpx-aiohttp calls a reset connection a timeout too; what aiohttp raised itself is among the causes
        if timeouts := [cause for cause in causes if isinstance(cause, TimeoutError)]:
            return exception_error(name, timeouts[0], secrets)
        if isinstance(error, openai.APIConnectionError):
            text = quoted(str(causes[-1]), secrets) or type(causes[-1]).__name__
            if isinstance(causes[-1], ValueError):  # for example a URL with credentials: retrying is pointless
                return LlmError(LlmErrorKind.REFUSED, f"{name} cannot be asked so: {text} — check OPENAI_BASE_URL")
            return LlmError(LlmErrorKind.UNAVAILABLE, f"the connection to {name} failed: {text}")
        if isinstance(error, openai.OpenAIError) and not isinstance(error, ValueError):
            error = ValueError(str(error) or type(error).__name__)
        return exception_error(name, error, secrets)

    def _server(self, secrets: tuple[str, ...]) -> str:
        """The server's name for messages, without user and password of the base URL."""
        return urlsplit(self._base_url).netloc.rpartition("@")[2] or quoted(self._base_url, secrets, 100)


def _response_error(error: Any, name: str, secrets: tuple[str, ...]) -> LlmError:
    body = error.body if isinstance(error.body, dict) else {}
    message = body.get("message") or (body.get("error") if isinstance(body.get("error"), str) else None)
    plain = error.body if isinstance(error.body, str) and error.body.lstrip()[:1] != "<" else ""
    text = quoted(message or plain, secrets)
    code = str(body.get("code") or body.get("type") or "")
    if code == "content_filter":  # Azure's code for a blocked prompt
        return LlmError(LlmErrorKind.BLOCKED, "the prompt was blocked (content_filter)", status=error.status_code)
    if error.status_code == HTTPStatus.TOO_MANY_REQUESTS and code == "insufficient_quota":
        sentence = f"the account at {name} has no quota left: {text} — add credit, or use another key"
        return LlmError(LlmErrorKind.REFUSED, sentence, status=error.status_code)
    return status_error(name, error.status_code, text, _ADVICE, wait=retry_after(error.response.headers))


def _new_client(setup: ProviderConfig, base_url: str) -> AsyncOpenAI:
    import openai  # noqa: PLC0415 - takes most of a second, and is an extra
    from httpx import Limits  # noqa: PLC0415 - comes with the SDK

    client = openai.AsyncOpenAI(
        api_key=setup.value(OPENAI_KEY) or "none",  # the SDK requires a key, self-hosted servers often do not
        admin_api_key="",
        organization=setup.value("OPENAI_ORG_ID"),
        project=setup.value("OPENAI_PROJECT_ID"),
        base_url=base_url,
        timeout=setup.timeout,
        max_retries=0,  # the SDK would wait inside the limiter's slot
        # aiohttp rather than httpx: see GoogleService.open.
        http_client=openai.DefaultAioHttpClient(
            limits=Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
            follow_redirects=False,
        ),
    )
    # Passed as "" above because for None the SDK reads the environment; reset here because some servers reject empty
    # headers.
    client.organization, client.project = client.organization or None, client.project or None
    client.admin_api_key = None
    _ = client.chat.completions  # imports modules for a third of a second: do it here, in a thread
    return client


def _read(completion: ChatCompletion) -> LlmReply | LlmError:
    """The texts of complete choices. The SDK validates nothing, so every field may be missing."""
    reported = getattr(completion, "usage", None)
    details = getattr(reported, "prompt_tokens_details", None)
    usage = LlmUsage(
        _count(getattr(reported, "prompt_tokens", None)),
        _count(getattr(reported, "completion_tokens", None)),
        _count(getattr(details, "cached_tokens", None)),
    )
    texts, problem = [], no_answer("", None, usage)
    for choice in getattr(completion, "choices", None) or ():
        message = getattr(choice, "message", None)
        finish = str(getattr(choice, "finish_reason", None) or "")
        content = getattr(message, "content", None)
        text = answer_text(content) if isinstance(content, str) else ""
        refusal = getattr(message, "refusal", None)
        if refusal or not text or finish in ("length", "content_filter"):
            problem = no_answer(finish, refusal, usage)
        else:
            texts.append(sendable(text))
    return LlmReply(texts[0], usage, more=tuple(texts[1:])) if texts else problem


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def answer_text(content: str) -> str:
    """Remove what some servers leave in an answer: leading thoughts, a surrounding Markdown fence."""
    content = _THOUGHT.sub("", content, count=1) if content.lstrip().startswith("<think>") else content
    fenced = _FENCED.fullmatch(content)
    return (fenced[1] if fenced else content).strip()


def no_answer(finish: str, refusal: object, usage: LlmUsage) -> LlmError:
    """The error of a completion without a usable answer."""
    if refusal:
        return LlmError(LlmErrorKind.BLOCKED, f"the model declined to answer: {quoted(refusal)}", usage=usage)
    longest = "raise max_output_tokens" if finish == "length" else ""
    return unusable_answer(finish, usage, blocked=finish == "content_filter", longest=longest)
