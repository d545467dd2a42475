"""What goes wrong at a server that speaks OpenAI's wire, as kinds and sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from agent_eval_action.llm import http_errors
from agent_eval_action.llm.base import LlmError, LlmErrorKind, LlmUsage
from agent_eval_action.llm.credentials import EXTRA_MISSING
from agent_eval_action.llm.text import quoted

_KEY: Final = "check OPENAI_API_KEY, and OPENAI_BASE_URL: the key has to be of the server it names"
_REDIRECT: Final = "it sends us to another address, which a key does not follow: check OPENAI_BASE_URL"
_ADVICE: Final = {
    **dict.fromkeys((301, 302, 303, 307, 308), _REDIRECT),
    400: "check the model's name and the options in judge_model_config",
    401: _KEY,
    403: _KEY,
    404: "check the model's name, and OPENAI_BASE_URL: it mostly ends with /v1",
}
_TOO_MANY: Final = 429


def from_exception(error: Exception, *, where: str, secrets: Iterable[str]) -> LlmError:
    """What the SDK raised."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "openai":
        return LlmError(LlmErrorKind.REFUSED, EXTRA_MISSING)
    import openai  # noqa: PLC0415 - loaded by now

    name = server_name(where, secrets)
    if isinstance(error, openai.APIStatusError):
        return from_status(error, name, secrets)
    if _timed_out(error):
        return LlmError(LlmErrorKind.TIMEOUT, f"{name} did not answer in time")
    if isinstance(error, openai.APIConnectionError):
        cause = list(_causes(error))[-1]
        said = quoted(str(cause), secrets) or type(cause).__name__
        if isinstance(cause, ValueError):  # a URL with credentials in it, for one: asking again gives the same
            return LlmError(LlmErrorKind.REFUSED, f"{name} cannot be asked so: {said} — check OPENAI_BASE_URL")
        return LlmError(LlmErrorKind.UNAVAILABLE, f"the connection to {name} failed: {said}")
    return _from_reading(error, name, secrets)


def server_name(where: str, secrets: Iterable[str] = ()) -> str:
    """A base URL as a sentence may show it: it may carry a name and a password."""
    return urlsplit(where).netloc.rpartition("@")[2] or quoted(where, secrets, 100)


def from_status(error: Any, name: str, secrets: Iterable[str]) -> LlmError:
    """A response that is an error; ``error`` is the SDK's APIStatusError."""
    body = error.body if isinstance(error.body, dict) else {}
    message = body.get("message") or (body.get("error") if isinstance(body.get("error"), str) else None)
    plain = error.body if isinstance(error.body, str) and error.body.lstrip()[:1] != "<" else ""
    said = quoted(message or plain, secrets)
    code = str(body.get("code") or body.get("type") or "")
    if code == "content_filter":  # Azure's way to say that the prompt was blocked
        return LlmError(LlmErrorKind.BLOCKED, "the prompt was blocked (content_filter)", status=error.status_code)
    if error.status_code == _TOO_MANY and code == "insufficient_quota":
        sentence = f"the account at {name} has no quota left: {said} — add credit, or use another key"
        return LlmError(LlmErrorKind.REFUSED, sentence, status=_TOO_MANY)
    return http_errors.Answered(
        name,
        error.status_code,
        said,
        retry_after=http_errors.retry_after(error.response.headers),
        advice=_ADVICE,
    ).error()


def no_answer(finish: str, refusal: object, usage: LlmUsage) -> LlmError:
    """A completion without a usable answer, by the reasons it gives."""
    if refusal:
        return LlmError(LlmErrorKind.BLOCKED, f"the model declined to answer: {quoted(refusal)}", usage=usage)
    if finish == "content_filter":
        return LlmError(LlmErrorKind.BLOCKED, "the answer was blocked (content_filter)", usage=usage)
    if finish == "length":
        message = "the answer was cut at its largest length: raise max_output_tokens"
        return LlmError(LlmErrorKind.EMPTY, message, usage=usage)
    reason = f" ({quoted(finish, limit=60)})" if finish not in ("", "stop") else ""
    return LlmError(LlmErrorKind.EMPTY, f"the model answered without a text{reason}", usage=usage)


def _timed_out(error: Exception) -> bool:
    """httpx-aiohttp calls a reset connection a timeout too; what aiohttp raised itself is among the causes."""
    return any(isinstance(cause, TimeoutError) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _from_reading(error: Exception, name: str, secrets: Iterable[str]) -> LlmError:
    from openai import OpenAIError  # noqa: PLC0415 - loaded by now

    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return LlmError(LlmErrorKind.EMPTY, f"{name} answered what is no answer of a model, or a part of one")
    if isinstance(error, ValueError | OpenAIError):
        said = quoted(str(error), secrets) or type(error).__name__
        return LlmError(LlmErrorKind.REFUSED, f"{name} cannot be asked so: {said}")
    return LlmError(LlmErrorKind.EMPTY, f"the answer of {name} could not be read: {type(error).__name__}")
