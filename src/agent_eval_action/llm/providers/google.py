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
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_eval_action.diagnostics.suggestions import did_you_mean, snake_case
from agent_eval_action.llm.client import (
    RESERVED_OPTIONS,
    LlmError,
    LlmErrorKind,
    LlmReply,
    LlmRequest,
    LlmUsage,
    quoted,
    sendable,
    sendable_json,
)
from agent_eval_action.llm.credentials import CREDENTIALS_FILE, GOOGLE_KEYS, uses_vertex
from agent_eval_action.llm.providers.base import (
    ModelProvider,
    exception_error,
    retry_after,
    seconds_of,
    status_error,
    unusable_answer,
)

if TYPE_CHECKING:
    import aiohttp
    from google.genai import Client
    from google.genai.types import GenerateContentResponse, HttpOptions

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


class GoogleService(ModelProvider[Address, tuple[C, "aiohttp.ClientSession"]]):
    """A service of Google's: a client of its SDK over a session of our own."""

    def address(self, model: str) -> Address:
        """Where a model is asked. A full resource name says its project and its location itself."""
        setup = self.setup
        if not uses_vertex(setup, model):
            return Address(vertex=False, key=setup.value(*GOOGLE_KEYS))
        if named := _IN_PROJECT.match(model):
            return Address(vertex=True, project=named[1], location=named[2])
        project = setup.value("GOOGLE_CLOUD_PROJECT")
        # As google-genai: a project wins over a key, and a key alone is Vertex's express mode, which has neither.
        if not project and not setup.value(CREDENTIALS_FILE) and (key := setup.value(*GOOGLE_KEYS)):
            return Address(vertex=True, key=key)
        return Address(vertex=True, project=project, location=setup.value("GOOGLE_CLOUD_LOCATION") or "global")

    @abc.abstractmethod
    def make_client(self, where: Address, session: aiohttp.ClientSession) -> C:
        """Make the client; blocks."""

    async def open(self, address: Address) -> tuple[C, aiohttp.ClientSession]:
        aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")
        # Connections without a bound (the limiter's is the bound), made in the running loop. aiohttp and not httpx:
        # with hundreds of connections httpx takes ten times the processor time per call. Proxies are the process's own.
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), trust_env=True, raise_for_status=_raise_for_status
        )
        try:
            return await asyncio.to_thread(self.make_client, address, session), session
        except BaseException:
            await session.close()
            raise

    async def close_client(self, client: tuple[C, aiohttp.ClientSession]) -> None:
        sdk: Any = client[0]
        with contextlib.suppress(Exception):
            sdk._api_client.close()  # noqa: SLF001 - Vertex's client has no close()
        await client[1].close()

    def http_options(self, where: Address, session: aiohttp.ClientSession) -> HttpOptions:
        """One try, no redirect, our own connections, and an address: the SDK would look for one in os.environ."""
        from google.genai.types import HttpOptions, HttpRetryOptions  # noqa: PLC0415 - see GoogleProvider.make_client

        if not where.vertex:
            url = self.setup.value("GOOGLE_GEMINI_BASE_URL") or _GEMINI_URL
        elif where.location in ("", "global"):
            url = "https://aiplatform.googleapis.com/"
        elif where.location in _MULTI_REGIONS:
            url = f"https://aiplatform.{where.location}.rep.googleapis.com/"
        else:
            url = f"https://{where.location}-aiplatform.googleapis.com/"
        return HttpOptions(
            base_url=(self.setup.value("GOOGLE_VERTEX_BASE_URL") or url) if where.vertex else url,
            timeout=round(self.setup.timeout * 1000),  # sent along too, so that a server stops when we have
            retry_options=HttpRetryOptions(attempts=1),  # without it, it sleeps up to 10 s and asks again on its own
            # The client would follow a redirect with the key in a header of its own, to whatever host it names.
            async_client_args={"allow_redirects": False},
            aiohttp_client=session,
        )

    def identity(self) -> tuple[Any, str]:
        """Application default credentials and the project they belong to; GoogleAuthError where there are none."""
        import google.auth  # noqa: PLC0415 - see GoogleProvider.make_client

        quota_project = self.setup.value("GOOGLE_CLOUD_QUOTA_PROJECT") or None
        load: Any = google.auth.default
        if file := self.setup.value(CREDENTIALS_FILE):
            load = google.auth.load_credentials_from_file
        with warnings.catch_warnings():
            # It warns of files from strangers; this one is named by whoever runs us (never by an agent's .env).
            warnings.simplefilter("ignore", DeprecationWarning)
            credentials, project = load(*([file] if file else []), scopes=[_SCOPE], quota_project_id=quota_project)
        return credentials, project or ""

    def describe(self, error: Exception, model: str) -> LlmError:
        import aiohttp  # noqa: PLC0415 - loaded by now: a call was made
        from google.auth import exceptions as auth  # noqa: PLC0415 - see above
        from google.genai.errors import UnknownApiResponseError  # noqa: PLC0415 - see above
        from pydantic import ValidationError  # noqa: PLC0415 - see above

        where = self.address(model)
        name = "Vertex AI" if where.vertex else "the Gemini API"
        text = quoted(str(error), [where.key]) or type(error).__name__
        if isinstance(error, HttpFailure):
            return _response_error(error, name, where)
        if isinstance(error, auth.GoogleAuthError):
            if isinstance(error, auth.TransportError) or getattr(error, "retryable", False):
                return LlmError(LlmErrorKind.UNAVAILABLE, f"Google's credentials could not be renewed: {text}")
            message = f"Google refuses the credentials: {text} — sign in again or renew them"
            if isinstance(error, auth.DefaultCredentialsError):
                hint = "set GOOGLE_APPLICATION_CREDENTIALS, or sign in with `gcloud auth application-default login`"
                message = f"no usable credentials for Vertex AI: {text} — {hint}"
            return LlmError(LlmErrorKind.REFUSED, message)
        if isinstance(error, aiohttp.ClientSSLError | aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
            message = f"{name} cannot be reached: {text} — check the base URL and SSL_CERT_FILE"
            return LlmError(LlmErrorKind.REFUSED, message)
        if isinstance(error, aiohttp.ClientError | OSError) and not isinstance(error, TimeoutError):
            return LlmError(LlmErrorKind.UNAVAILABLE, f"the connection to {name} failed: {text}")
        return exception_error(name, error, [where.key], UnknownApiResponseError, ValidationError)


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Take an error before the client reads it: it would read all of it, and lose the status if it is broken JSON."""
    if response.status == HTTPStatus.OK:  # what the client takes for an answer
        return
    body = bytearray()
    with contextlib.suppress(Exception):  # a body that ends early says less; the status stands
        while len(body) < _LONGEST_ERROR and (chunk := await response.content.read(_LONGEST_ERROR - len(body))):
            body += chunk
    response.close()
    raise HttpFailure(response.status, dict(response.headers), bytes(body))


def _response_error(failure: HttpFailure, name: str, where: Address) -> LlmError:
    """A response that is not 200; Google's envelope is read where there is one."""
    envelope = _envelope(failure.body)
    plain = failure.body.decode("utf-8", "replace")
    page = plain.lstrip().startswith("<")  # a proxy's error page says nothing in one line
    text = quoted(envelope.get("message") if envelope else "" if page else plain, [where.key])
    advice = _VERTEX_ADVICE if where.vertex else _GEMINI_ADVICE
    if failure.status == HTTPStatus.BAD_REQUEST and _BAD_KEY.search(failure.body):
        advice = {HTTPStatus.BAD_REQUEST: f"{_KEY_ADVICE}: the key is not valid"}
    waits, quota = [retry_after(failure.headers)], ""
    for detail in envelope.get("details") or ():
        kind = str(detail.get("@type")).rpartition(".")[2] if isinstance(detail, dict) else ""
        if kind == "RetryInfo":
            waits.append(duration(detail.get("retryDelay")))
        violations = (detail.get("violations") or ()) if kind == "QuotaFailure" else ()
        ids = (str(violation.get("quotaId", "")) for violation in violations if isinstance(violation, dict))
        quota = quota or next((name for name in ids if "PerDay" in name), "")
    if failure.status == HTTPStatus.TOO_MANY_REQUESTS and quota:
        # Its RetryInfo says seconds all the same; no wait of ours reaches the next day.
        sentence = f"the quota of the day is used up ({quoted(quota, [where.key], 120)}): {text}"
        return LlmError(LlmErrorKind.REFUSED, sentence, status=failure.status)
    wait = max((wait for wait in waits if wait is not None), default=None)
    return status_error(name, failure.status, text, advice, wait=wait)


def _envelope(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and len(value) == 1:  # how a stream's error comes
        value = value[0]
    found = value.get("error") if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def duration(text: object) -> float | None:
    """google.protobuf.Duration as JSON has it, ``"1.5s"``, in seconds."""
    return seconds_of(text[:-1]) if isinstance(text, str) and re.fullmatch(r"\d+(\.\d+)?s", text) else None


class GoogleProvider(GoogleService["Client"]):
    """Google's models, each request one call."""

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> str:
        """What is wrong with these fields of GenerateContentConfig, in one sentence; "" if nothing."""
        if not options:
            return ""
        from google.genai.types import GenerateContentConfig  # noqa: PLC0415 - most of a second
        from pydantic import ValidationError  # noqa: PLC0415 - see above

        for name in options:
            if why := RESERVED_OPTIONS.get(snake_case(name)):
                return f"`{name}` cannot be set for a judge: {why}"
            if snake_case(name) not in GenerateContentConfig.model_fields:
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
        """Blocks for a tenth of a second, longer where Vertex's credentials are looked up."""
        from google import genai  # noqa: PLC0415 - most of a second, which only a run with a model needs

        # It says on stderr that two keys are set, and the like: we say what we think about variables ourselves.
        logging.getLogger("google_genai").addHandler(logging.NullHandler())
        options = self.http_options(where, session)
        if where.key or not where.vertex:
            return genai.Client(vertexai=where.vertex, api_key=where.key, http_options=options)
        credentials, project = self.identity()
        project = where.project or project
        if not project:
            raise LookupError("no project for Vertex AI: set GOOGLE_CLOUD_PROJECT")
        location = where.location
        return genai.Client(
            vertexai=True, credentials=credentials, project=project, location=location, http_options=options
        )

    async def ask(self, client: tuple[Client, aiohttp.ClientSession], request: LlmRequest) -> LlmReply | LlmError:
        from google.genai import types  # noqa: PLC0415 - loaded by now

        asked: dict[str, Any] = sendable_json(dict(request.options))
        if request.system:
            asked["system_instruction"] = sendable(request.system)
        if request.schema is not None:
            asked["response_mime_type"] = "application/json"
            asked["response_json_schema"] = sendable_json(request.schema)
        if request.candidates > 1:
            asked["candidate_count"] = request.candidates
        no_calls = types.AutomaticFunctionCallingConfig(disable=True)
        response = await client[0].aio.models.generate_content(
            model=request.model,
            contents=[types.Content(role=m.role, parts=[types.Part(text=sendable(m.text))]) for m in request.messages],
            config=types.GenerateContentConfig(**asked, automatic_function_calling=no_calls),
        )
        return _read(response)


def _read(response: GenerateContentResponse) -> LlmReply | LlmError:
    """The texts of the candidates that are whole, without their thoughts, which are paid for as output."""
    reported, usage = response.usage_metadata, LlmUsage()
    if reported is not None:
        answer, thoughts = reported.candidates_token_count, reported.thoughts_token_count
        output = None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0)
        usage = LlmUsage(reported.prompt_token_count, output, reported.cached_content_token_count)
    block = getattr(response.prompt_feedback, "block_reason", None)
    blocked = str(getattr(block, "value", "") or "")
    texts, problem = [], no_answer("", blocked, usage)
    for candidate in response.candidates or ():
        finish = str(getattr(candidate.finish_reason, "value", "") or "")
        parts = (candidate.content.parts if candidate.content else None) or []
        text = "".join(part.text for part in parts if part.text and not part.thought)
        if text and finish in ("", "STOP", "FINISH_REASON_UNSPECIFIED"):
            texts.append(sendable(text))
        else:
            problem = no_answer(finish, blocked, usage)
    return LlmReply(texts[0], usage, more=tuple(texts[1:])) if texts else problem


def no_answer(finish: str, block_reason: str, usage: LlmUsage) -> LlmError:
    """A response without a usable answer, by the reasons it gives."""
    if block_reason:
        message = f"the prompt was blocked ({quoted(block_reason, limit=60)})"
        return LlmError(LlmErrorKind.BLOCKED, message, usage=usage)
    longest = "raise max_output_tokens, or lower thinking_config" if finish == "MAX_TOKENS" else ""
    return unusable_answer(finish, usage, blocked=bool(_BLOCKED.fullmatch(finish)), longest=longest)
