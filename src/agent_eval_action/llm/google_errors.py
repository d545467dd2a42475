"""What goes wrong at Google's models, as kinds and sentences: statuses, exceptions, answers that are none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from agent_eval_action.llm import http_errors
from agent_eval_action.llm.base import LlmError, LlmErrorKind, LlmUsage
from agent_eval_action.llm.google_client import HttpFailure
from agent_eval_action.llm.text import quoted

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
_REDIRECT_ADVICE: Final = "it sends us to another address, which a key does not follow: check the base URL"
_BLOCKED: Final = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
    }
)


def from_status(failure: HttpFailure, *, vertex: bool, secrets: Iterable[str]) -> LlmError:
    """A response that is not 200; Google's envelope is read where there is one."""
    envelope = _envelope(failure.body)
    plain = failure.body.decode("utf-8", "replace")
    said = quoted(envelope.get("message") if envelope else _unless_html(plain), secrets)
    advice: dict[int, str] = dict(_VERTEX_ADVICE if vertex else _GEMINI_ADVICE)
    if 300 <= failure.status < 400:  # noqa: PLR2004 - redirects
        advice[failure.status] = _REDIRECT_ADVICE
    if failure.status == 400 and _BAD_KEY.search(failure.body):  # noqa: PLR2004 - a bad request
        advice[400] = f"{_KEY_ADVICE}: the key is not valid"
    details = [detail for detail in envelope.get("details") or [] if isinstance(detail, dict)]
    if failure.status == 429 and (quota := _daily_quota(details)):  # noqa: PLR2004 - too many requests
        # Its RetryInfo says seconds all the same; no wait of ours reaches the next day.
        sentence = f"the quota of the day is used up ({quoted(quota, secrets, 120)}): {said}"
        return LlmError(LlmErrorKind.REFUSED, sentence, status=failure.status)
    waits = [http_errors.retry_after(failure.headers), *map(_retry_delay, details)]
    return http_errors.Answered(
        who(vertex=vertex),
        failure.status,
        said,
        retry_after=max((wait for wait in waits if wait is not None), default=None),
        advice=advice,
    ).error()


def from_exception(error: Exception, *, vertex: bool, secrets: Iterable[str]) -> LlmError:
    """What the client raised. Messages of parse errors are left out: they hold whole answers."""
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - loaded by now: a call was made

    name = who(vertex=vertex)
    said = quoted(str(error), secrets) or type(error).__name__
    if isinstance(error, HttpFailure):
        return from_status(error, vertex=vertex, secrets=secrets)
    if isinstance(error, GoogleAuthError):
        return _from_identity(error, said)
    return _from_connection(error, name, said) or _from_reading(error, name, said)


def no_answer(finish_reason: str, block_reason: str, usage: LlmUsage) -> LlmError:
    """A response without a usable answer, by the reasons it gives."""
    if block_reason:
        message = f"the prompt was blocked ({quoted(block_reason, limit=60)})"
        return LlmError(LlmErrorKind.BLOCKED, message, usage=usage)
    if finish_reason in _BLOCKED:
        return LlmError(LlmErrorKind.BLOCKED, f"the answer was blocked ({finish_reason})", usage=usage)
    if finish_reason == "MAX_TOKENS":
        message = "the answer was cut at its largest length: raise max_output_tokens, or lower thinking_config"
        return LlmError(LlmErrorKind.EMPTY, message, usage=usage)
    reason = f" ({quoted(finish_reason, limit=60)})" if finish_reason not in ("", "STOP") else ""
    return LlmError(LlmErrorKind.EMPTY, f"the model answered without a text{reason}", usage=usage)


def who(*, vertex: bool) -> str:
    """The service in a sentence."""
    return "Vertex AI" if vertex else "the Gemini API"


def _from_connection(error: Exception, name: str, said: str) -> LlmError | None:
    import aiohttp  # noqa: PLC0415 - loaded by now

    if isinstance(error, TimeoutError):
        return LlmError(LlmErrorKind.TIMEOUT, f"{name} did not answer in time")
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return LlmError(
            LlmErrorKind.REFUSED, f"{name} cannot be reached: {said} — check the base URL and SSL_CERT_FILE"
        )
    if isinstance(error, aiohttp.ClientError | OSError):
        return LlmError(LlmErrorKind.UNAVAILABLE, f"the connection to {name} failed: {said}")
    return None


def _from_reading(error: Exception, name: str, said: str) -> LlmError:
    from google.genai.errors import UnknownApiResponseError  # noqa: PLC0415 - loaded by now
    from pydantic import ValidationError  # noqa: PLC0415 - loaded by now

    if isinstance(error, UnknownApiResponseError | json.JSONDecodeError | UnicodeDecodeError | ValidationError):
        return LlmError(LlmErrorKind.EMPTY, f"{name} answered what is no answer of a model, or a part of one")
    if isinstance(error, LookupError | ValueError):  # the client refuses an option its service does not have
        return LlmError(LlmErrorKind.REFUSED, f"{name} cannot be asked so: {said}")
    return LlmError(LlmErrorKind.EMPTY, f"the answer of {name} could not be read: {type(error).__name__}")


def _from_identity(error: Any, said: str) -> LlmError:
    from google.auth import exceptions as auth  # noqa: PLC0415 - loaded by now

    if isinstance(error, auth.TransportError) or getattr(error, "retryable", False):
        return LlmError(LlmErrorKind.UNAVAILABLE, f"Google's credentials could not be renewed: {said}")
    if isinstance(error, auth.DefaultCredentialsError):
        hint = "set GOOGLE_APPLICATION_CREDENTIALS, or sign in with `gcloud auth application-default login`"
        return LlmError(LlmErrorKind.REFUSED, f"no usable credentials for Vertex AI: {said} — {hint}")
    return LlmError(LlmErrorKind.REFUSED, f"Google refuses the credentials: {said} — sign in again or renew them")


def _envelope(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and len(value) == 1:  # how a stream's error comes
        value = value[0]
    found = value.get("error") if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _unless_html(text: str) -> str:
    """A proxy's error page says nothing in one line."""
    return "" if text.lstrip()[:1] == "<" else text


def _retry_delay(detail: dict[str, Any]) -> float | None:
    return http_errors.duration(detail.get("retryDelay")) if str(detail.get("@type")).endswith(".RetryInfo") else None


def _daily_quota(details: list[dict[str, Any]]) -> str:
    """The id of a quota counted by the day among google.rpc.QuotaFailure's violations."""
    violations = (
        violation
        for detail in details
        if str(detail.get("@type")).endswith(".QuotaFailure")
        for violation in detail.get("violations") or []
        if isinstance(violation, dict)
    )
    return next((quota for one in violations if "PerDay" in (quota := str(one.get("quotaId", "")))), "")
