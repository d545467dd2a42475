"""What goes wrong at a model's server, as kinds and as sentences that say what to do."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmUsage, quoted

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)s")
TOO_MANY: Final = 429
# 409 and 425 are "not now" wherever a model's server uses them, 499 is Google's word for a call it cancelled.
_NOT_NOW: Final = frozenset({409, 425, 499})
_TIMEOUTS: Final = frozenset({408, 504})


def from_status(
    server: str, status: int, text: str, advice: Mapping[int, str], *, retry_after: float | None = None
) -> LlmError:
    """A response that is no answer. ``text`` is what may be shown of its body; ``advice`` says what to do by status."""
    try:
        phrase = HTTPStatus(status).phrase.lower()
    except ValueError:
        phrase = "an unknown status"
    message = f"{server} answered {status} ({phrase})" + (f": {text}" if text else "")
    if 300 <= status < 400:  # noqa: PLR2004 - redirects
        where = advice.get(HTTPStatus.MULTIPLE_CHOICES, "check the base URL")
        message += f" — it sends us to another address, which a key does not follow: {where}"
    elif status in advice:
        message += f" — {advice[status]}"
    return LlmError(kind_of(status), message, retry_after=retry_after, status=status)


def from_unreadable(server: str, error: Exception, secrets: Iterable[str], *malformed: type[Exception]) -> LlmError:
    """What a client raised over an answer (``malformed``: types of its own) or over what it was to ask.

    Messages of parse errors are left out: they hold whole answers.
    """
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, *malformed)):
        return LlmError(LlmErrorKind.EMPTY, f"{server} answered what is no answer of a model, or a part of one")
    if isinstance(error, LookupError | ValueError):
        text = quoted(str(error), secrets) or type(error).__name__
        return LlmError(LlmErrorKind.REFUSED, f"{server} cannot be asked so: {text}")
    return LlmError(LlmErrorKind.EMPTY, f"the answer of {server} could not be read: {type(error).__name__}")


def from_timeout(server: str) -> LlmError:
    """No answer in time."""
    return LlmError(LlmErrorKind.TIMEOUT, f"{server} did not answer in time")


def from_connection(server: str, text: str) -> LlmError:
    """The connection failed."""
    return LlmError(LlmErrorKind.UNAVAILABLE, f"the connection to {server} failed: {text}")


def without_text(finish: str, usage: LlmUsage) -> LlmError:
    """A whole answer that has no text. ``finish`` is the reason it gives, in the provider's words."""
    reason = f" ({quoted(finish, limit=60)})" if finish not in ("", "STOP", "stop") else ""
    return LlmError(LlmErrorKind.EMPTY, f"the model answered without a text{reason}", usage=usage)


def cut_short(usage: LlmUsage, advice: str) -> LlmError:
    """An answer that ended at its largest length."""
    return LlmError(LlmErrorKind.EMPTY, f"the answer was cut at its largest length: {advice}", usage=usage)


def kind_of(status: int) -> LlmErrorKind:
    """The kind of error a status is."""
    if status == TOO_MANY:
        return LlmErrorKind.RATE_LIMITED
    if status in _TIMEOUTS:
        return LlmErrorKind.TIMEOUT
    if status in _NOT_NOW or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return LlmErrorKind.UNAVAILABLE
    return LlmErrorKind.REFUSED


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds a server asks to wait: ``retry-after-ms`` (OpenAI), or Retry-After as seconds or as a date."""
    named = {name.lower(): value.strip() for name, value in headers.items()}
    milliseconds = _number(named.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = named.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def duration(text: object) -> float | None:
    """google.protobuf.Duration as JSON has it, ``"1.5s"``, in seconds."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    return _number(found[1]) if found else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
