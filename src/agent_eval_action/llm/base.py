"""The port to every model that judges or plays a user: one request, one reply, errors as values.

A provider is an ``Llm``; so is every policy that wraps one (retries, rates, cache, budget).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation with the model."""

    role: Literal["user", "model"]
    text: str


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """What a model is asked, and everything that tells this asking from another.

    ``model`` is as configured (``gemini-2.5-flash``, ``openai/gpt-4.1-mini``). ``schema``: a JSON Schema the
    answer must have; the answer then is JSON text. ``options`` are the user's (``judge_model_config``), in the
    names of google-genai's GenerateContentConfig, snake_case. ``purpose`` is the criterion, or
    ``user_simulator``: what use and cost are reported under. ``sample`` and ``repeat`` are what tells equal
    questions apart: a vote of the same judge on the same text is another vote.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    purpose: str = ""
    prompt_version: str = ""
    sample: int = 0
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class LlmUsage:
    """Tokens of one call as reported; None: not reported, which is not zero. ``cached_input`` is inside ``input``."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class LlmReply:
    """What the model answered. ``model_version`` is what it called itself; ``cached``: nobody was asked.

    ``tries`` were made for it; ``usage`` is of all of them.
    """

    text: str
    usage: LlmUsage = LlmUsage()
    model_version: str = ""
    cached: bool = False
    tries: int = 1


class LlmErrorKind(enum.StrEnum):
    """Why there is no reply."""

    RATE_LIMITED = "rate_limited"  # 429, and the deadline passed
    UNAVAILABLE = "unavailable"  # 5xx, or the connection failed
    TIMEOUT = "timeout"  # no answer in time
    EMPTY = "empty"  # an answer without text, or one that was cut
    BLOCKED = "blocked"  # the provider's safety filter
    REFUSED = "refused"  # 4xx: the request, the model's name or the credentials are wrong
    BUDGET = "budget"  # the run may not spend more


@dataclass(frozen=True, slots=True)
class LlmError:
    """Why there is no reply, in one sentence without secrets. ``retry_after`` in seconds, where the server said it.

    ``seconds`` the try took on the wire, without waiting for its turn. ``usage``: tokens it cost all the same (an
    answer that was cut). ``tries`` were made; ``seconds`` and ``usage`` are of all of them, waits included.
    """

    kind: LlmErrorKind
    message: str
    retry_after: float | None = None
    status: int | None = None
    seconds: float = 0.0
    usage: LlmUsage | None = None
    tries: int = 1


class Llm(Protocol):
    """A model that can be asked. Any number of requests at once."""

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """One reply. Raises nothing of its own but CancelledError."""
        ...


class Provider(Llm, Protocol):
    """An ``Llm`` at the end of the line: it speaks a wire."""

    async def close(self) -> None:
        """Give back connections; never raises."""
        ...
