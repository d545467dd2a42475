"""Google's models through the Gemini API and Vertex AI, and Vertex AI's evaluation service.

The service is called through google-cloud-aiplatform, one instance per call.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import importlib
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import ModuleType
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
    reported_usage,
    sendable,
    sendable_json,
)
from agent_eval_action.llm.credentials import CREDENTIALS_FILE, GOOGLE_KEYS, missing, uses_vertex
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
    reported = response.usage_metadata
    usage = reported_usage(reported.model_dump()) if reported else LlmUsage()
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


PREFIX: Final = "vertex_eval/"
COHERENCE: Final = "coherence"
METRICS: Final = (
    "safety_v1",
    "multi_turn_task_success_v1",
    "multi_turn_trajectory_quality_v1",
    "multi_turn_tool_use_quality_v1",
    COHERENCE,
)
"""Metrics that may follow ``vertex_eval/`` besides ``PREDEFINED``."""

PREDEFINED: Final[Mapping[str, tuple[int, ...]]] = {
    "final_response_match": (2, 3),
    "final_response_quality": (1, 2),
    "final_response_reference_free": (1, 2),
    "general_quality": (1, 2),
    "grounding": (1, 2),
    "hallucination": (1, 2),
    "instruction_following": (1, 2),
    "multi_turn_general_quality": (1, 2),
    "multi_turn_task_success": (1,),
    "multi_turn_text_quality": (1, 2),
    "multi_turn_tool_use_quality": (1,),
    "multi_turn_trajectory_quality": (1,),
    "safety": (1, 3),
    "text_quality": (1, 2),
    "tool_use_quality": (1, 2),
}
"""The service's predefined text metrics, with their versions; a test compares them with the SDK's."""


def predefined_metric(name: str) -> str | None:
    """The metric's name with its version, the newest if ``name`` has none; None for an unknown metric."""
    if name in PREDEFINED:
        return f"{name}_v{PREDEFINED[name][-1]}"
    base, _, version = name.rpartition("_v")
    return name if version.isdecimal() and int(version) in PREDEFINED.get(base, ()) else None


_RPC_KINDS: Final = {
    4: LlmErrorKind.TIMEOUT,
    8: LlmErrorKind.RATE_LIMITED,
    10: LlmErrorKind.UNAVAILABLE,
    13: LlmErrorKind.UNAVAILABLE,
    14: LlmErrorKind.UNAVAILABLE,
}
"""Kinds by the google.rpc.Code of a result's error; for all other codes retrying is pointless."""

_DOWNLOAD_SWITCH: Final = "LITELLM_LOCAL_MODEL_COST_MAP"


class VertexEval(GoogleService[Any]):
    """Vertex AI's evaluation service. ``request.options`` is the instance to score.

    For a turn: ``prompt``, ``response`` and optionally ``reference`` (texts). For a conversation: ``agent_data``
    (agents by name; turns with their events, contents as google-genai writes them). For a case of agents-cli:
    ``eval_case`` with these fields, ``rubric_groups`` and ``context``, and the metric's ``parameters``. The text of the
    reply is ``{"score": number, "explanation": text, "rubrics": [{"text", "met", "reason"}]}``.
    ``GOOGLE_VERTEX_BASE_URL`` replaces the regional endpoint if set.
    """

    def make_client(self, where: Address, session: aiohttp.ClientSession) -> Any:
        """Make the client; its imports block for seconds. Raises ImportError if the extra is missing."""
        sdk, options = _import_sdk(), self.http_options(where, session)
        if where.key:
            return sdk.Client(api_key=where.key, http_options=options)
        credentials, _ = self.identity()
        return sdk.Client(project=where.project, location=where.location, credentials=credentials, http_options=options)

    async def warm_up(self, model: str) -> str:
        return missing(model, self.setup.environ) or await super().warm_up(model)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        metric = request.model.removeprefix(PREFIX)
        if metric not in METRICS and predefined_metric(metric) != metric:
            return LlmError(LlmErrorKind.REFUSED, f"`{metric}` is not among the metrics of Vertex AI that are asked")
        if wrong := missing(request.model, self.setup.environ):
            return LlmError(LlmErrorKind.REFUSED, wrong)
        try:
            await self.client(request.model)  # importing the SDK takes seconds, which must not count as the try
        except Exception as error:  # noqa: BLE001 - errors of a part are values
            return self.describe(error, request.model)
        return await super().generate(request)

    async def ask(self, client: tuple[Any, aiohttp.ClientSession], request: LlmRequest) -> LlmReply | LlmError:
        sdk, types = client[0], importlib.import_module("agentplatform").types  # imported with the client
        try:
            instance = types.EvaluationInstance.model_validate(_instance(sendable_json(dict(request.options))))
        except ValueError as error:  # pydantic's too
            message = f"the conversation cannot be put into a request to Vertex AI: {quoted(str(error))}"
            return LlmError(LlmErrorKind.REFUSED, message)
        name = request.model.removeprefix(PREFIX)
        if name == COHERENCE:
            # the service has no such metric: the SDK reads its prompt from a bucket, once
            resolve = types.PrebuiltMetric.COHERENCE.resolve
            metric = await asyncio.to_thread(resolve, sdk._api_client)  # noqa: SLF001 - resolve() takes no other
        else:
            metric = types.Metric(name=name, metric_spec_parameters=request.options.get("parameters") or None)
        answer = await sdk.aio.evals.evaluate_instances(metric_config={"metrics": [metric], "instance": instance})
        results = answer.metric_results or ()
        return _reply(results[0].model_dump(mode="json", exclude_none=True) if results else {})

    def address(self, model: str) -> Address:
        """Like google-adk, prefer the key. Coherence needs an identity, since its prompt lies in a bucket."""
        key = self.setup.value("GOOGLE_API_KEY")
        if key and model != PREFIX + COHERENCE:
            return Address(vertex=True, key=key)
        project, location = self.setup.value("GOOGLE_CLOUD_PROJECT"), self.setup.value("GOOGLE_CLOUD_LOCATION")
        return Address(vertex=True, project=project, location=location)

    def describe(self, error: Exception, model: str) -> LlmError:
        if isinstance(error, ImportError):
            lacks = f" ({error.name})" if error.name else ""
            hint = "pip install 'agent-eval-action[vertex]'"
            message = f"Vertex AI's evaluation service needs packages that are not here{lacks}: {hint}"
            return LlmError(LlmErrorKind.REFUSED, message)
        return super().describe(error, model)


def _import_sdk() -> ModuleType:
    """Import the SDK without its deprecation warnings and without a download by litellm."""
    before = os.environ.get(_DOWNLOAD_SWITCH)
    os.environ[_DOWNLOAD_SWITCH] = "True"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sdk = importlib.import_module("agentplatform")  # untyped
            _ = sdk.types
            importlib.import_module("agentplatform._genai.evals")  # imports pandas here, not in the event loop
    finally:
        if before is None:
            os.environ.pop(_DOWNLOAD_SWITCH, None)
        else:
            os.environ[_DOWNLOAD_SWITCH] = before
    return sdk


def _instance(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Build the instance like ``evals.evaluate`` does from a row or an EvalCase with agent data."""
    if "eval_case" in instance:
        return _case_instance(instance["eval_case"])
    if "agent_data" in instance:
        return {"prompt": {"contents": {"contents": []}}, "agent_data": instance["agent_data"]}
    texts = {name: {"parts": [{"text": text}]} for name, text in instance.items() if text}
    events = [{"author": "user", "content": texts["prompt"]}, {"author": "model", "content": texts["response"]}]
    return {
        **{name: {"contents": {"contents": [content]}} for name, content in texts.items()},
        "agent_data": {"turns": [{"turn_index": 0, "turn_id": "turn_0", "events": events}]},
    }


def _case_instance(case: Mapping[str, Any]) -> dict[str, Any]:
    """Build the instance like ``_evals_metric_handlers._build_evaluation_instance`` (2.7.0) does from an EvalCase."""
    reference, context = case.get("reference") or {}, case.get("context")
    contents = {"prompt": case.get("prompt"), "response": case.get("response"), "reference": reference.get("response")}
    data: dict[str, Any] = {
        name: {"contents": {"contents": [content]}} for name, content in contents.items() if content
    }
    if context:
        of_context = {"text": context} if isinstance(context, str) else {"contents": {"contents": [context]}}
        data["other_data"] = {"map_instance": {"context": of_context}}
    kept = {name: case[name] for name in ("rubric_groups", "agent_data") if case.get(name)}
    return {**data, **kept}


def _reply(result: Mapping[str, Any]) -> LlmReply | LlmError:
    """Turn the metric's result into a reply; a result without a score is an error, whatever else it has."""
    failure = result.get("error") or {}
    if failure.get("code"):
        kind = _RPC_KINDS.get(int(failure["code"]), LlmErrorKind.REFUSED)
        return LlmError(kind, f"Vertex AI could not score this: {quoted(failure.get('message')) or failure['code']}")
    score = result.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        why = f": {quoted(result['explanation'])}" if result.get("explanation") else ""
        return LlmError(LlmErrorKind.EMPTY, f"Vertex AI answered without a score{why}")
    rubrics = []
    for verdict in result.get("rubric_verdicts") or ():
        rubric = verdict.get("evaluated_rubric") or {}
        text = ((rubric.get("content") or {}).get("property") or {}).get("description")
        # the service omits verdicts that are false
        met, reason = bool(verdict.get("verdict")), verdict.get("reasoning") or ""
        rubrics.append({"text": text or rubric.get("rubric_id") or "", "met": met, "reason": reason})
    value = {"score": float(score), "explanation": result.get("explanation") or "", "rubrics": rubrics}
    return LlmReply(json.dumps(value, ensure_ascii=False))
