"""What an HTTP status of a model's server means, in our kinds and in a sentence that says what to do."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from agent_eval_action.llm.client import LlmError, LlmErrorKind

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)s")
_TOO_MANY: Final = 429
# 409 and 425 are "not now" wherever a model's server uses them, 499 is Google's word for a call it cancelled.
_NOT_NOW: Final = frozenset({409, 425, 499})
_TIMEOUTS: Final = frozenset({408, 504})


@dataclass(frozen=True)
class HttpError:
    """A response that is no answer. ``said`` is what may be shown of its body; ``advice`` what to do by status."""

    who: str
    status: int
    said: str
    retry_after: float | None = None
    advice: Mapping[int, str] | None = None

    def error(self) -> LlmError:
        """The response as an error."""
        words = f": {self.said}" if self.said else ""
        advice = (self.advice or {}).get(self.status, "")
        return LlmError(
            kind_of(self.status),
            f"{self.who} answered {self.status} ({_phrase(self.status)}){words}{f' — {advice}' if advice else ''}",
            retry_after=self.retry_after,
            status=self.status,
        )


def kind_of(status: int) -> LlmErrorKind:
    """The kind of error a status is."""
    if status == _TOO_MANY:
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


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.lower()
    except ValueError:
        return "an unknown status"
