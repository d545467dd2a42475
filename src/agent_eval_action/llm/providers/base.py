"""What providers share: one client per address, one try per call, and errors as values that say what to do."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import email.utils
import json
import math
import time
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final, Generic, TypeVar

from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage, ProviderConfig, quoted

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")

# By status; others from 500 on are passing too. Model servers use 409 and 425 for "not now"; Google uses 499 for a call
# it cancelled.
_KINDS: Final = {
    **dict.fromkeys((409, 425, 499), LlmErrorKind.UNAVAILABLE),
    **dict.fromkeys((408, 504), LlmErrorKind.TIMEOUT),
    429: LlmErrorKind.RATE_LIMITED,
}
# "Multiple candidates is not enabled for this model" (400, Gemini 3); other servers word it differently.
_MAY_MIND_CANDIDATES: Final = frozenset({400, 422, 500, 501})


class ModelProvider(abc.ABC, Generic[K, C]):
    """An ``Llm`` that calls a server without retries. Belongs to one event loop."""

    def __init__(self, setup: ProviderConfig) -> None:
        self.setup = setup
        self._clients: dict[K, asyncio.Task[C]] = {}

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> str:
        """A sentence about what is wrong with these options (judge_model_config); "" if nothing. No network."""
        del options
        return ""

    @abc.abstractmethod
    def address(self, model: str) -> K:
        """The server and the identity to call a model with; there is one client per address."""

    @abc.abstractmethod
    async def open(self, address: K) -> C:
        """Make the client of an address. Blocking work must run in a thread, or it delays all other calls."""

    @abc.abstractmethod
    async def ask(self, client: C, request: LlmRequest) -> LlmReply | LlmError:
        """Make one call. May raise whatever the client raises."""

    @abc.abstractmethod
    def describe(self, error: Exception, model: str) -> LlmError:
        """Turn an exception of ``open`` or ``ask`` into an error."""

    @abc.abstractmethod
    async def close_client(self, client: C) -> None:
        """Close a client's connections. May raise."""

    async def client(self, model: str) -> C:
        """The client of a model. Concurrent first calls share it; if opening it failed, it is opened again."""
        address = self.address(model)
        task = self._clients.get(address)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._clients[address] = asyncio.create_task(self.open(address))
        return await asyncio.shield(task)

    async def warm_up(self, model: str) -> str:
        """Open the client before the first call. Returns a sentence about what failed, or ""."""
        try:
            await self.client(model)
        except Exception as error:  # noqa: BLE001 - whatever the client raises becomes a sentence
            return self.describe(error, model).message
        return ""

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """Make one call, and a second for one candidate if the model rejects several. Raises only CancelledError."""
        answer = await self._call(request)
        if request.candidates > 1 and isinstance(answer, LlmError) and answer.status in _MAY_MIND_CANDIDATES:
            return await self._call(replace(request, candidates=1))
        return answer

    async def _call(self, request: LlmRequest) -> LlmReply | LlmError:
        """Make one call within ``setup.timeout``."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.setup.timeout):  # also covers renewing a token
                client = await self.client(request.model)
                started = time.monotonic()
                answer = await self.ask(client, request)
        except Exception as error:  # noqa: BLE001 - errors of a part are values
            answer = self.describe(error, request.model)
        return replace(answer, seconds=time.monotonic() - started) if isinstance(answer, LlmError) else answer

    async def close(self) -> None:
        """Close all connections; never raises."""
        for task in self._clients.values():
            task.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await self.close_client(await task)
        self._clients.clear()


def status_error(
    server: str, status: int, text: str, advice: Mapping[int, str], *, wait: float | None = None
) -> LlmError:
    """The error of an HTTP status. ``text``: the part of the body to show. ``advice``: what to do, by status."""
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
    passing = LlmErrorKind.UNAVAILABLE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else LlmErrorKind.REFUSED
    return LlmError(_KINDS.get(status, passing), message, retry_after=wait, status=status)


def exception_error(server: str, error: Exception, secrets: Iterable[str], *malformed: type[Exception]) -> LlmError:
    """The error of a client's exception: a timeout, an unreadable answer or an invalid request.

    ``malformed`` are the client's own exceptions for unreadable answers. Their messages are left out, since they
    contain whole answers.
    """
    if isinstance(error, TimeoutError):
        return LlmError(LlmErrorKind.TIMEOUT, f"{server} did not answer in time")
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, *malformed)):
        return LlmError(LlmErrorKind.EMPTY, f"{server} answered what is no answer of a model, or a part of one")
    if isinstance(error, LookupError | ValueError):
        text = quoted(str(error), secrets) or type(error).__name__
        return LlmError(LlmErrorKind.REFUSED, f"{server} cannot be asked so: {text}")
    return LlmError(LlmErrorKind.EMPTY, f"the answer of {server} could not be read: {type(error).__name__}")


def unusable_answer(finish: str, usage: LlmUsage, *, blocked: bool, longest: str) -> LlmError:
    """The error of an answer that has no text or is incomplete. ``finish``: the provider's finish reason.

    ``blocked``: a filter stopped it. ``longest``: what to do if it reached the maximum length, else "".
    """
    if blocked:
        return LlmError(LlmErrorKind.BLOCKED, f"the answer was blocked ({finish})", usage=usage)
    if longest:
        return LlmError(LlmErrorKind.EMPTY, f"the answer was cut at its largest length: {longest}", usage=usage)
    reason = f" ({quoted(finish, limit=60)})" if finish not in ("", "STOP", "stop") else ""
    return LlmError(LlmErrorKind.EMPTY, f"the model answered without a text{reason}", usage=usage)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: ``retry-after-ms`` (OpenAI), or Retry-After in seconds or as a date."""
    named = {name.lower(): value.strip() for name, value in headers.items()}
    milliseconds = seconds_of(named.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = named.get("retry-after", "")
    seconds = seconds_of(value)
    if seconds is not None or not value:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def seconds_of(text: str) -> float | None:
    """Parse a number of seconds; None unless finite and not negative."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
