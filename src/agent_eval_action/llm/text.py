"""Text on its way to a model, and a provider's words on their way to a person."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

# What a server says may repeat what it was sent: keys of Google, of OpenAI and its like, tokens, headers.
_SECRET: Final = re.compile(
    r"AIza[\w-]{20,}|AQ\.[\w-]{20,}|ya29\.[\w.-]+|\bsk-[\w*.-]{8,}|\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}|\bgh[opsu]_\w{20,}"
    r"|(?i:bearer\s+)\S+|(?i:(?:x-goog-)?api[-_ ]?key\b[\"']?\s*[:=]\s*[\"']?)[^\s\"',;}]{6,}"
    r"|(?<=[?&])(?i:key|access_token)=[^\s&\"']+"
)
_ESCAPES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_SHORTEST_SECRET: Final = 6
_READ: Final = 4000


def sendable(text: str) -> str:
    """The text with surrogate pairs joined and lone ones as U+FFFD: half a pair is no UTF-8, and clients fail on it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def sendable_json(value: Any) -> Any:
    """A JSON value whose strings are all ``sendable``."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, dict):
        return {sendable(str(key)): sendable_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sendable_json(item) for item in value]
    return value


def quoted(text: object, secrets: Iterable[str] = (), limit: int = 300) -> str:
    """What somebody else said as one printable line: no secret, no escape sequence, at most ``limit`` characters."""
    said = text if isinstance(text, str) else ""
    # Bounded before anything else: a body may have megabytes. A secret cut by the bound is past ``limit`` anyway.
    said = sendable(said[:_READ])
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            said = said.replace(secret, "***")
    said = "".join(letter if letter.isprintable() else " " for letter in _ESCAPES.sub("", said))
    said = " ".join(_SECRET.sub("***", said).split())
    return said if len(said) <= limit else said[: limit - 1] + "…"
