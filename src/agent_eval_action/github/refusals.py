"""What GitHub refuses, as one exception the callers of ``rest`` turn into a sentence."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

MAX_SAID = 300


class Refusal(enum.StrEnum):
    """Why a call brought nothing."""

    TOKEN = "token"  # noqa: S105 - a kind: 401, the token is none
    PERMISSION = "permission"  # 403 that no waiting changes
    LOCKED = "locked"  # 403: the conversation takes no comments
    LIMITED = "limited"  # 403 or 429 for too many requests, for longer than we may wait
    MISSING = "missing"  # 404, 410: not there, or hidden from this token
    TOO_LONG = "too_long"  # 422: the body is over the limit
    INVALID = "invalid"  # any other answer of 4xx
    UNAVAILABLE = "unavailable"  # 5xx, or no connection
    ANSWER = "answer"  # an answer that is not what was asked for


@dataclass
class GitHubError(Exception):
    """A call that failed. ``message`` is one sentence; ``status`` 0 without an answer.

    ``wait``: seconds GitHub asks to wait, where it does.
    """

    kind: Refusal
    message: str
    status: int = 0
    wait: float | None = None

    def __str__(self) -> str:
        return self.message


_KINDS: Final = {
    HTTPStatus.UNAUTHORIZED: Refusal.TOKEN,
    HTTPStatus.FORBIDDEN: Refusal.PERMISSION,
    HTTPStatus.NOT_FOUND: Refusal.MISSING,
    HTTPStatus.GONE: Refusal.MISSING,
    HTTPStatus.TOO_MANY_REQUESTS: Refusal.LIMITED,
}


def refused(what: str, status: int, headers: Mapping[str, str], body: Any) -> GitHubError:
    """The error an answer is. ``what`` is the call in words: "list the comments of org/repo#7"."""
    said = said_in(body)
    kind = _KINDS.get(HTTPStatus(status)) if status in set(HTTPStatus) else None
    if kind is None:
        kind = Refusal.UNAVAILABLE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Refusal.INVALID
    if kind is Refusal.PERMISSION and "lock" in said.lower():
        kind = Refusal.LOCKED
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and "too long" in said.lower():
        kind = Refusal.TOO_LONG
    wanted = headers.get("x-accepted-github-permissions", "") if kind is Refusal.PERMISSION else ""
    needs = f" (it needs {wanted[:MAX_SAID]})" if wanted else ""
    return GitHubError(kind, f"GitHub refused to {what}: {status}{f' {said}' if said else ''}{needs}", status)


def said_in(body: Any) -> str:
    """What the body says, on one line: its message and those of its errors."""
    if not isinstance(body, dict):
        return ""
    parts = [body.get("message", "")]
    errors = body.get("errors")
    listed = errors if isinstance(errors, list) else []
    parts += [error.get("message", "") if isinstance(error, dict) else error for error in listed]
    return " ".join(" ".join(part for part in parts if isinstance(part, str) and part).split())[:MAX_SAID]
