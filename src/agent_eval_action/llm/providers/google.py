"""Google's models through the Gemini API and Vertex AI: address and credentials, answers, errors."""

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

_BAD_KEY: Final = re.compile(rb"API_KEY_INVALID|API key not valid")  # Gemini answers 400 to an invalid key
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


class HttpFailure(Exception):  # noqa: N818 - carries a response past the client's own parsing
    """A response other than 200, with the beginning of its body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status, self.headers, self.body = status, headers, body


@dataclass(frozen=True)
class Address:
    """A service and the identity to call it with. ``project`` "" on Vertex: the credentials' project."""

    vertex: bool
    key: str = field(default="", repr=False)
    project: str = ""
    location: str = ""


class GoogleService(ModelProvider[Address, tuple[C, "aiohttp.ClientSession"]]):
    """A Google service: a client of its SDK on our own aiohttp session."""

    def address(self, model: str) -> Address:
        """The address of a model; a full resource name contains project and location."""
        setup = self.setup
        if not uses_vertex(setup, model):
            return Address(vertex=False, key=setup.value(*GOOGLE_KEYS))
        if named := _IN_PROJECT.match(model):
            return Address(vertex=True, project=named[1], location=named[2])
        project = setup.value("GOOGLE_CLOUD_PROJECT")
        # Like google-genai: a project wins over a key; a key alone means express mode, without project and location.
        if not project and not setup.value(CREDENTIALS_FILE) and (key := setup.value(*GOOGLE_KEYS)):
            return Address(vertex=True, key=key)
        return Address(vertex=True, project=project, location=setup.value("GOOGLE_CLOUD_LOCATION") or "global")

    @abc.abstractmethod
    def make_client(self, where: Address, session: aiohttp.ClientSession) -> C:
        """Make the client; blocks."""

    async def open(self, address: Address) -> tuple[C, aiohttp.ClientSession]:
        aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")
        # No limit on connections, since the rate limiter bounds them. With hundreds of connections, httpx takes ten
        # times as much CPU time per call as aiohttp. Proxies come from the process's environment.
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
        """One try, no redirects, our session, and an explicit address (the SDK would read it from os.environ)."""
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
            timeout=round(self.setup.timeout * 1000),  # also sent to the server, so that it stops when we do
            retry_options=HttpRetryOptions(attempts=1),  # by default the SDK sleeps up to 10 s and retries
            # the client would send the key to whatever host a redirect names
            async_client_args={"allow_redirects": False},
            aiohttp_client=session,
        )

    def identity(self) -> tuple[Any, str]:
        """Application default credentials and their project. Raises GoogleAuthError if there are none."""
        import google.auth  # noqa: PLC0415 - see GoogleProvider.make_client

        quota_project = self.setup.value("GOOGLE_CLOUD_QUOTA_PROJECT") or None
        load: Any = google.auth.default
        if file := self.setup.value(CREDENTIALS_FILE):
            load = google.auth.load_credentials_from_file
        with warnings.catch_warnings():
            # It warns about untrusted files. This one is named by the job's environment, never by an agent's .env.
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
    """Raise HttpFailure before the client reads an error: it has no size limit and loses the status of broken JSON."""
    if response.status == HTTPStatus.OK:  # the only status that the client parses as an answer
        return
    body = bytearray()
    with contextlib.suppress(Exception):  # a truncated body still leaves the status
        while len(body) < _LONGEST_ERROR and (chunk := await response.content.read(_LONGEST_ERROR - len(body))):
            body += chunk
    response.close()
    raise HttpFailure(response.status, dict(response.headers), bytes(body))


def _response_error(failure: HttpFailure, name: str, where: Address) -> LlmError:
    envelope = _envelope(failure.body)
    plain = failure.body.decode("utf-8", "replace")
    page = plain.lstrip().startswith("<")  # a proxy's HTML page has no useful line
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
        # its RetryInfo still asks for seconds, but the quota returns only the next day
        sentence = f"the quota of the day is used up ({quoted(quota, [where.key], 120)}): {text}"
        return LlmError(LlmErrorKind.REFUSED, sentence, status=failure.status)
    wait = max((wait for wait in waits if wait is not None), default=None)
    return status_error(name, failure.status, text, advice, wait=wait)


def _envelope(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and len(value) == 1:  # errors of streams come as a list
        value = value[0]
    found = value.get("error") if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def duration(text: object) -> float | None:
    """Parse a google.protobuf.Duration in JSON, like ``"1.5s"``, into seconds."""
    return seconds_of(text[:-1]) if isinstance(text, str) and re.fullmatch(r"\d+(\.\d+)?s", text) else None


class GoogleProvider(GoogleService["Client"]):
    """Google's models; one call per request."""

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> str:
        """A sentence about what is wrong with these fields of GenerateContentConfig; "" if nothing."""
        if not options:
            return ""
        from google.genai.types import GenerateContentConfig  # noqa: PLC0415 - takes most of a second
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
        """Make the client; blocks for a tenth of a second, longer to look up Vertex's credentials."""
        from google import genai  # noqa: PLC0415 - takes most of a second, and only runs with a model need it

        # silence its warnings about variables on stderr; we report such problems ourselves
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
    """The texts of complete candidates. Thoughts are left out of the text, but count as output tokens."""
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
    """The error of a response without a usable answer."""
    if block_reason:
        message = f"the prompt was blocked ({quoted(block_reason, limit=60)})"
        return LlmError(LlmErrorKind.BLOCKED, message, usage=usage)
    longest = "raise max_output_tokens, or lower thinking_config" if finish == "MAX_TOKENS" else ""
    return unusable_answer(finish, usage, blocked=bool(_BLOCKED.fullmatch(finish)), longest=longest)
