"""Google's models, at the Gemini API and at Vertex AI: where and as whom they are asked, answers and errors."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import importlib
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_eval_action.diagnostics.suggestions import did_you_mean
from agent_eval_action.llm import errors
from agent_eval_action.llm.client import (
    RESERVED_OPTIONS,
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
from agent_eval_action.llm.credentials import CREDENTIALS_FILE, GOOGLE_KEYS, uses_vertex
from agent_eval_action.llm.providers.base import ModelProvider

if TYPE_CHECKING:
    import aiohttp
    from google.genai import Client
    from google.genai.types import GenerateContentConfig, GenerateContentResponse, HttpOptions

C = TypeVar("C")

_BAD_KEY: Final = re.compile(rb"API_KEY_INVALID|API key not valid")  # which Gemini calls a bad request
_KEY_ADVICE: Final = "check GOOGLE_API_KEY or GEMINI_API_KEY"
_GEMINI_ADVICE: Final = {
    400: "check the key and the options in judge_model_config",
    401: _KEY_ADVICE,
    403: f"{_KEY_ADVICE}: the key may not use this model, or its project has the Gemini API switched off",
    404: "check the model's name, and GOOGLE_GEMINI_BASE_URL if it is set",
}
_VERTEX_ADVICE: Final = {
    400: "check the options in judge_model_config",
    401: "the credentials are not valid for Vertex AI: sign in again or renew them",
    403: "grant the identity the role Vertex AI User in GOOGLE_CLOUD_PROJECT, and enable the Vertex AI API there",
    404: "check the model's name, and whether GOOGLE_CLOUD_LOCATION has it",
}
_BLOCKED: Final = re.compile(
    r"SAFETY|RECITATION|LANGUAGE|BLOCKLIST|PROHIBITED_CONTENT|SPII|MODEL_ARMOR|IMAGE_(SAFETY|PROHIBITED_CONTENT|RECITATION)"
)


def from_response(failure: HttpFailure, *, vertex: bool, secrets: Iterable[str]) -> LlmError:
    """A response that is not 200; Google's envelope is read where there is one."""
    envelope = _envelope(failure.body)
    plain = failure.body.decode("utf-8", "replace")
    page = plain.lstrip().startswith("<")  # a proxy's error page says nothing in one line
    text = quoted(envelope.get("message") if envelope else "" if page else plain, secrets)
    advice = _VERTEX_ADVICE if vertex else _GEMINI_ADVICE
    if failure.status == HTTPStatus.BAD_REQUEST and _BAD_KEY.search(failure.body):
        advice = {HTTPStatus.BAD_REQUEST: f"{_KEY_ADVICE}: the key is not valid"}
    details = [detail for detail in envelope.get("details") or [] if isinstance(detail, dict)]
    if failure.status == errors.TOO_MANY and (quota := _daily_quota(details)):
        # Its RetryInfo says seconds all the same; no wait of ours reaches the next day.
        sentence = f"the quota of the day is used up ({quoted(quota, secrets, 120)}): {text}"
        return LlmError(LlmErrorKind.REFUSED, sentence, status=failure.status)
    delays = (errors.duration(detail.get("retryDelay")) for detail in _of_type(details, "RetryInfo"))
    waits = [wait for wait in (errors.retry_after(failure.headers), *delays) if wait is not None]
    return errors.from_status(
        _service(vertex=vertex), failure.status, text, advice, retry_after=max(waits, default=None)
    )


def from_exception(error: Exception, *, vertex: bool, secrets: Iterable[str]) -> LlmError:
    """What the client raised."""
    import aiohttp  # noqa: PLC0415 - loaded by now: a call was made
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - see above
    from google.genai.errors import UnknownApiResponseError  # noqa: PLC0415 - see above
    from pydantic import ValidationError  # noqa: PLC0415 - see above

    name = _service(vertex=vertex)
    text = quoted(str(error), secrets) or type(error).__name__
    if isinstance(error, HttpFailure):
        return from_response(error, vertex=vertex, secrets=secrets)
    if isinstance(error, GoogleAuthError):
        return _from_identity(error, text)
    if isinstance(error, TimeoutError):
        return errors.from_timeout(name)
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        message = f"{name} cannot be reached: {text} — check the base URL and SSL_CERT_FILE"
        return LlmError(LlmErrorKind.REFUSED, message)
    if isinstance(error, aiohttp.ClientError | OSError):
        return errors.from_connection(name, text)
    return errors.from_unreadable(name, error, secrets, UnknownApiResponseError, ValidationError)


def no_answer(finish_reason: str, block_reason: str, usage: LlmUsage) -> LlmError:
    """A response without a usable answer, by the reasons it gives."""
    if block_reason:
        message = f"the prompt was blocked ({quoted(block_reason, limit=60)})"
        return LlmError(LlmErrorKind.BLOCKED, message, usage=usage)
    if _BLOCKED.fullmatch(finish_reason):
        return LlmError(LlmErrorKind.BLOCKED, f"the answer was blocked ({finish_reason})", usage=usage)
    if finish_reason == "MAX_TOKENS":
        return errors.cut_short(usage, "raise max_output_tokens, or lower thinking_config")
    return errors.without_text(finish_reason, usage)


def _service(*, vertex: bool) -> str:
    return "Vertex AI" if vertex else "the Gemini API"


def _from_identity(error: Any, text: str) -> LlmError:
    from google.auth import exceptions as auth  # noqa: PLC0415 - loaded by now

    if isinstance(error, auth.TransportError) or getattr(error, "retryable", False):
        return LlmError(LlmErrorKind.UNAVAILABLE, f"Google's credentials could not be renewed: {text}")
    if isinstance(error, auth.DefaultCredentialsError):
        hint = "set GOOGLE_APPLICATION_CREDENTIALS, or sign in with `gcloud auth application-default login`"
        return LlmError(LlmErrorKind.REFUSED, f"no usable credentials for Vertex AI: {text} — {hint}")
    return LlmError(LlmErrorKind.REFUSED, f"Google refuses the credentials: {text} — sign in again or renew them")


def _envelope(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and len(value) == 1:  # how a stream's error comes
        value = value[0]
    found = value.get("error") if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _of_type(details: Iterable[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    return (detail for detail in details if str(detail.get("@type")).endswith(f".{name}"))


def _daily_quota(details: Iterable[dict[str, Any]]) -> str:
    """The id of a quota counted by the day among google.rpc.QuotaFailure's violations."""
    for detail in _of_type(details, "QuotaFailure"):
        for violation in detail.get("violations") or ():
            if isinstance(violation, dict) and "PerDay" in (quota := str(violation.get("quotaId", ""))):
                return quota
    return ""


_GEMINI_URL: Final = "https://generativelanguage.googleapis.com/"
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_MULTI_REGIONS: Final = ("us", "eu")
_IN_PROJECT: Final = re.compile(r"projects/([^/]+)/locations/([^/]+)/")
_LONGEST_ERROR: Final = 64 * 1024


class HttpFailure(Exception):  # noqa: N818 - a response, carried past the client's own reading of it
    """A response that is not 200, with the beginning of its body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status, self.headers, self.body = status, headers, body


@dataclass(frozen=True)
class Address:
    """Which service is asked and as whom: one client each. ``project`` "" on Vertex: the credentials know it."""

    vertex: bool
    key: str = field(default="", repr=False)
    project: str = ""
    location: str = ""


def address(setup: ProviderConfig, model: str) -> Address:
    """Where a model is asked. A full resource name says its project and its place itself."""
    if not uses_vertex(setup, model):
        return Address(vertex=False, key=setup.value(*GOOGLE_KEYS))
    if named := _IN_PROJECT.match(model):
        return Address(vertex=True, project=named[1], location=named[2])
    project = setup.value("GOOGLE_CLOUD_PROJECT")
    # As google-genai: a project wins over a key, and a key alone is Vertex's express mode, which has neither.
    if not project and not setup.value(CREDENTIALS_FILE) and (key := setup.value(*GOOGLE_KEYS)):
        return Address(vertex=True, key=key)
    return Address(vertex=True, project=project, location=setup.value("GOOGLE_CLOUD_LOCATION") or "global")


def base_url(setup: ProviderConfig, where: Address) -> str:
    """Always said to the client, which would otherwise read the process's environment."""
    if not where.vertex:
        return setup.value("GOOGLE_GEMINI_BASE_URL") or _GEMINI_URL
    if url := setup.value("GOOGLE_VERTEX_BASE_URL"):
        return url
    if where.location in ("", "global"):
        return "https://aiplatform.googleapis.com/"
    if where.location in _MULTI_REGIONS:
        return f"https://aiplatform.{where.location}.rep.googleapis.com/"
    return f"https://{where.location}-aiplatform.googleapis.com/"


def new_session() -> aiohttp.ClientSession:
    """Connections without a bound (the limiter's is the bound), made in the running loop.

    aiohttp and not httpx: with hundreds of connections httpx takes ten times the processor time per call. Proxies
    are the process's own (HTTPS_PROXY), as every client has them.
    """
    import aiohttp  # noqa: PLC0415 - a tenth of a second, which only a run with a model needs

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), trust_env=True, raise_for_status=_raise_for_status
    )


def http_options(setup: ProviderConfig, where: Address, session: aiohttp.ClientSession) -> HttpOptions:
    """One try, no redirect, our own connections."""
    from google.genai.types import HttpOptions, HttpRetryOptions  # noqa: PLC0415 - see new_client

    return HttpOptions(
        base_url=base_url(setup, where),
        timeout=round(setup.timeout * 1000),  # sent along too, so that a server stops when we have
        retry_options=HttpRetryOptions(attempts=1),  # without it, it sleeps up to 10 s and asks again on its own
        # The client would follow a redirect with the key in a header of its own, to whatever host it names.
        async_client_args={"allow_redirects": False},
        aiohttp_client=session,
    )


def new_client(setup: ProviderConfig, where: Address, session: aiohttp.ClientSession) -> Client:
    """Make the client; blocks for a tenth of a second, longer where Vertex's credentials are looked up."""
    from google import genai  # noqa: PLC0415 - most of a second, which only a run with a model needs

    # It says on stderr that two keys are set, and the like: we say what we think about variables ourselves.
    logging.getLogger("google_genai").addHandler(logging.NullHandler())
    options = http_options(setup, where, session)
    if not where.vertex:
        return genai.Client(vertexai=False, api_key=where.key, http_options=options)
    if where.key:
        return genai.Client(vertexai=True, api_key=where.key, http_options=options)
    credentials, project = identity(setup)
    if not (where.project or project):
        raise LookupError("no project for Vertex AI: set GOOGLE_CLOUD_PROJECT")
    return genai.Client(
        vertexai=True,
        credentials=credentials,
        project=where.project or project,
        location=where.location,
        http_options=options,
    )


def identity(setup: ProviderConfig) -> tuple[Any, str]:
    """Application default credentials and the project they belong to; GoogleAuthError where there are none."""
    import google.auth  # noqa: PLC0415 - see new_client

    quota_project = setup.value("GOOGLE_CLOUD_QUOTA_PROJECT") or None
    file = setup.value(CREDENTIALS_FILE)
    if not file:
        found = google.auth.default(scopes=[_SCOPE], quota_project_id=quota_project)
    else:
        with warnings.catch_warnings():
            # It warns of files from strangers; this one is named by whoever runs us (never by an agent's .env).
            warnings.simplefilter("ignore", DeprecationWarning)
            load: Any = google.auth.load_credentials_from_file
            found = load(file, scopes=[_SCOPE], quota_project_id=quota_project)
    credentials, project = found
    return credentials, project or ""


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Take an error before the client reads it: it would read all of it, and lose the status if it is broken JSON."""
    if response.status == 200:  # noqa: PLR2004 - what the client takes for an answer
        return
    body = bytearray()
    with contextlib.suppress(Exception):  # a body that ends early says less; the status stands
        while len(body) < _LONGEST_ERROR and (chunk := await response.content.read(_LONGEST_ERROR - len(body))):
            body += chunk
    response.close()
    raise HttpFailure(response.status, dict(response.headers), bytes(body))


class GoogleService(ModelProvider[Address, tuple[C, "aiohttp.ClientSession"]]):
    """A service of Google's: a client of its SDK over a session of our own."""

    def address(self, model: str) -> Address:
        return address(self.setup, model)

    @abc.abstractmethod
    def make_client(self, where: Address, session: aiohttp.ClientSession) -> C:
        """Make the client; blocks."""

    async def open(self, address: Address) -> tuple[C, aiohttp.ClientSession]:
        await asyncio.to_thread(importlib.import_module, "aiohttp")  # for the session, made by the loop itself
        session = new_session()
        try:
            return await asyncio.to_thread(self.make_client, address, session), session
        except BaseException:
            await session.close()
            raise

    async def close_client(self, client: tuple[C, aiohttp.ClientSession]) -> None:
        sdk: Any = client[0]
        with contextlib.suppress(Exception):
            sdk.close()
        await client[1].close()

    def describe(self, error: Exception, model: str) -> LlmError:
        where = self.address(model)
        return from_exception(error, vertex=where.vertex, secrets=[where.key] if where.key else [])


class GoogleProvider(GoogleService["Client"]):
    """Google's models, each request one call."""

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> str:
        """What is wrong with these fields of GenerateContentConfig, in one sentence; "" if nothing."""
        if not options:
            return ""
        from google.genai.types import GenerateContentConfig  # noqa: PLC0415 - most of a second
        from pydantic import ValidationError  # noqa: PLC0415 - see above
        from pydantic.alias_generators import to_snake  # noqa: PLC0415 - see above

        for name in options:
            if why := RESERVED_OPTIONS.get(to_snake(name)):
                return f"`{name}` cannot be set for a judge: {why}"
            if to_snake(name) not in GenerateContentConfig.model_fields:
                hint = did_you_mean(name, GenerateContentConfig.model_fields)
                return f"unknown option `{name}` of a Google model{f': {hint}' if hint else ''}"
        try:
            GenerateContentConfig.model_validate(dict(options))
        except ValidationError as wrong:
            first = wrong.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in first["loc"])
            return f"the option `{quoted(place, limit=80)}` of a Google model is wrong: {quoted(first['msg'])}"
        return ""

    def make_client(self, where: Address, session: aiohttp.ClientSession) -> Client:
        return new_client(self.setup, where, session)

    async def ask(self, client: tuple[Client, aiohttp.ClientSession], request: LlmRequest) -> LlmReply | LlmError:
        models = client[0].aio.models
        return _read(
            await models.generate_content(model=request.model, contents=_contents(request), config=_config(request))
        )


def _contents(request: LlmRequest) -> list[Any]:
    from google.genai.types import Content, Part  # noqa: PLC0415 - loaded by now

    return [Content(role=m.role, parts=[Part(text=sendable(m.text))]) for m in request.messages]


def _config(request: LlmRequest) -> GenerateContentConfig:
    from google.genai.types import AutomaticFunctionCallingConfig, GenerateContentConfig  # noqa: PLC0415 - loaded by now

    asked: dict[str, Any] = sendable_json(dict(request.options))
    if request.system:
        asked["system_instruction"] = sendable(request.system)
    if request.schema is not None:
        asked["response_mime_type"] = "application/json"
        asked["response_json_schema"] = sendable_json(request.schema)
    return GenerateContentConfig(**asked, automatic_function_calling=AutomaticFunctionCallingConfig(disable=True))


def _read(response: GenerateContentResponse) -> LlmReply | LlmError:
    """The first candidate's text without its thoughts, if it is whole."""
    usage = _usage(response)
    feedback = response.prompt_feedback
    candidate = next(iter(response.candidates or ()), None)
    block = getattr(feedback, "block_reason", None)
    finish = str(getattr(candidate.finish_reason, "value", "") or "") if candidate else ""
    parts = (candidate.content.parts if candidate and candidate.content else None) or []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    if not text or finish not in ("", "STOP", "FINISH_REASON_UNSPECIFIED"):
        return no_answer(finish, str(getattr(block, "value", "") or ""), usage)
    return LlmReply(sendable(text), usage, model_version=quoted(response.model_version, limit=100))


def _usage(response: GenerateContentResponse) -> LlmUsage:
    """Thoughts are paid for as output and reported apart from it."""
    usage = response.usage_metadata
    if usage is None:
        return LlmUsage()
    answer, thoughts = usage.candidates_token_count, usage.thoughts_token_count
    output = None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0)
    return LlmUsage(usage.prompt_token_count, output, usage.cached_content_token_count)
