"""A client for the REST API of a code host: retries, rate limits, pages; what is refused is one exception."""

from __future__ import annotations

import enum
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agent_eval_action import __version__

if TYPE_CHECKING:
    import httpx

WRITE_GAP: Final = 1.0
"""Seconds between two writes: GitHub asks for no less, or its secondary limits strike."""
DEADLINE: Final = 90.0
_SECONDARY: Final = 60.0  # what GitHub asks to wait when it does not say
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 16.0
_TIMEOUT: Final = 20.0
_PAGE: Final = 100
_MOST_PAGES: Final = 300
"""30,000 comments: no host shows a conversation that long, and a server that links in circles ends somewhere."""
_MESSAGE_LIMIT: Final = 300

T = TypeVar("T", bound=BaseModel)


class ApiErrorKind(enum.StrEnum):
    """Why a call failed."""

    TOKEN = "token"  # noqa: S105 - a kind: 401, the token is none
    PERMISSION = "permission"  # 403 that no waiting changes
    LOCKED = "locked"  # 403: the conversation takes no comments
    LIMITED = "limited"  # 403 or 429 for too many requests, for longer than we may wait
    MISSING = "missing"  # 404, 410: not there, or hidden from this token
    TOO_LONG = "too_long"  # 422: the body is over the limit
    INVALID = "invalid"  # any other answer of 4xx
    UNAVAILABLE = "unavailable"  # 5xx, or no connection
    ANSWER = "answer"  # an answer that is not what was asked for


_KINDS: Final = {
    HTTPStatus.UNAUTHORIZED: ApiErrorKind.TOKEN,
    HTTPStatus.FORBIDDEN: ApiErrorKind.PERMISSION,
    HTTPStatus.NOT_FOUND: ApiErrorKind.MISSING,
    HTTPStatus.GONE: ApiErrorKind.MISSING,
    HTTPStatus.TOO_MANY_REQUESTS: ApiErrorKind.LIMITED,
}
_TEMPORARY: Final = frozenset({ApiErrorKind.UNAVAILABLE, ApiErrorKind.LIMITED})


@dataclass
class ApiError(Exception):
    """A call that failed. ``message`` is one sentence; ``status`` is 0 without an answer.

    ``wait``: seconds that the host asks to wait, where it does.
    """

    kind: ApiErrorKind
    message: str
    status: int = 0
    wait: float | None = None

    def __str__(self) -> str:
        return self.message


class ApiModel(BaseModel):
    """A host's JSON object, as far as we read it."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as the caller has it: ``now`` only ever grows, ``wall`` is the date in seconds."""

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


@dataclass
class ApiClient:
    """One authenticated client of ``host`` (its name in messages) at ``url``.

    ``deadline``: the longest all tries of one call may take together, in seconds. ``unpaced``: an address that takes
    reads by POST. Proxies are httpx's business: HTTPS_PROXY, NO_PROXY.
    """

    host: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    ca_bundle: Path | None = None
    clock: Clock = field(default_factory=Clock)
    deadline: float = DEADLINE
    unpaced: str = ""
    _client: httpx.Client | None = field(default=None, init=False, repr=False)
    _written: float | None = field(default=None, init=False)

    def request(self, verb: str, url: str, what: str, *, once: bool = False, **content: Any) -> httpx.Response:
        """Send, and return the response of status 2xx.

        ``what`` is the call in words: "list the comments of org/repo#7". 5xx, lost connections and rate limits are
        tried again as long as the waits end before the deadline; with ``once`` nothing is, for a call that must be
        reconsidered before it is made again. Raises ApiError.
        """
        began, tries = self.clock.now(), 0
        while True:
            tries += 1
            if verb != "GET" and url != self.unpaced:
                self._wait_to_write()
                self._written = self.clock.now()
            answer = self._send(verb, url, what, content)
            if not isinstance(answer, ApiError):
                return answer
            if once or answer.kind not in _TEMPORARY:
                raise answer
            pause = pause_before(tries) if answer.wait is None else answer.wait
            if self.clock.now() - began + pause > self.deadline:
                raise self._given_up(answer, what, pause, tries)
            self.clock.sleep(pause)

    def read(self, kind: type[T], verb: str, url: str, what: str, **content: Any) -> T:
        """Send, and return the object that is answered."""
        return self.parse(kind, self.json(self.request(verb, url, what, **content), what), what)

    def pages(self, kind: type[T], url: str, what: str, params: Mapping[str, str] | None = None) -> Iterator[T]:
        """Every item of every page."""
        query = {**(params or {}), "per_page": str(_PAGE)}
        for _ in range(_MOST_PAGES):
            response = self.request("GET", url, what, params=query or None)
            yield from self._parse(TypeAdapter(list[kind]).validate_python, self.json(response, what), what)  # type: ignore[valid-type] # a class known at run time
            following = response.links.get("next", {}).get("url", "")
            if not following:
                return
            if not following.startswith(f"{self.url}/"):  # the token goes nowhere else
                raise self.unexpected(what, "the next page is on another server")
            url, query = following, {}
        raise self.unexpected(what, f"there are more than {_MOST_PAGES} pages")

    def delete(self, url: str, what: str) -> None:
        """Remove something; what is not there any more is no error."""
        try:
            self.request("DELETE", url, what)
        except ApiError as error:
            if error.kind is not ApiErrorKind.MISSING:
                raise

    def json(self, response: httpx.Response, what: str) -> Any:
        """The body of an answer."""
        try:
            return response.json()
        except ValueError as error:
            raise self.unexpected(what, "the answer is no JSON") from error

    def parse(self, kind: type[T], value: Any, what: str) -> T:
        """An object of an answer."""
        found: T = self._parse(kind.model_validate, value, what)
        return found

    def unexpected(self, what: str, why: str) -> ApiError:
        """The error for an answer that makes no sense."""
        return ApiError(ApiErrorKind.ANSWER, f"{self.host} did not {what}: {why}")

    def close(self) -> None:
        """Close what is open."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _parse(self, validate: Callable[[Any], Any], value: Any, what: str) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            message = f"{self.host} did not {what} as expected: {where} {first['msg']}"
            raise ApiError(ApiErrorKind.ANSWER, message) from error

    def _wait_to_write(self) -> None:
        if self._written is not None:
            left = self._written + WRITE_GAP - self.clock.now()
            if left > 0:
                self.clock.sleep(left)

    def _send(self, verb: str, url: str, what: str, content: dict[str, Any]) -> httpx.Response | ApiError:
        import httpx

        try:
            response = self._open().request(verb, url, **content)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            return ApiError(ApiErrorKind.UNAVAILABLE, f"{self.host} could not be asked to {what}: {reason}")
        return response if response.is_success else self._refused(response, what)

    def _open(self) -> httpx.Client:
        import httpx

        if self._client is None:
            trust = httpx.create_ssl_context()
            if self.ca_bundle is not None:
                try:
                    trust.load_verify_locations(cafile=self.ca_bundle)
                except (OSError, ssl.SSLError) as error:
                    message = f"the CA bundle {self.ca_bundle} cannot be used: {error}"
                    raise ApiError(ApiErrorKind.INVALID, message) from error
            headers = {**self.headers, "User-Agent": f"agent-eval-action/{__version__}"}
            self._client = httpx.Client(verify=trust, timeout=_TIMEOUT, headers=headers)
        return self._client

    def _refused(self, response: httpx.Response, what: str) -> ApiError:
        try:
            body = response.json()
        except ValueError:
            body = None
        status, message = response.status_code, error_message(body)
        kind = _KINDS.get(HTTPStatus(status)) if status in set(HTTPStatus) else None
        if kind is None:
            kind = ApiErrorKind.UNAVAILABLE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ApiErrorKind.INVALID
        if kind is ApiErrorKind.PERMISSION and "lock" in message.lower():
            kind = ApiErrorKind.LOCKED
        if status in {HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.BAD_REQUEST} and "too long" in message.lower():
            kind = ApiErrorKind.TOO_LONG
        wanted = response.headers.get("x-accepted-github-permissions", "") if kind is ApiErrorKind.PERMISSION else ""
        needs = f" (it needs {wanted[:_MESSAGE_LIMIT]})" if wanted else ""
        text = f"{self.host} refused to {what}: {status}{f' {message}' if message else ''}{needs}"
        wait = _wait_asked_for(response, message, self.clock.wall())
        return ApiError(kind if wait is None else ApiErrorKind.LIMITED, text, status, wait)

    def _given_up(self, failed: ApiError, what: str, pause: float, tries: int) -> ApiError:
        if failed.kind is ApiErrorKind.LIMITED:
            message = f"{self.host} limits requests and asks to wait {pause:.0f} s before it is asked again to {what}"
            return ApiError(ApiErrorKind.LIMITED, message, failed.status)
        return ApiError(failed.kind, f"{failed.message} ({tries} tries)", failed.status)


def pause_before(tries: int) -> float:
    """Seconds before the next try, after so many that failed."""
    return float(min(_FIRST_PAUSE * 2 ** (tries - 1), _LONGEST_PAUSE) * random.uniform(0.8, 1.2))  # noqa: S311 - jitter


def error_message(body: Any) -> str:
    """What the body of an error says, on one line: its message and those of its errors."""
    if not isinstance(body, dict):
        return ""
    errors = body.get("errors")
    listed = errors if isinstance(errors, list) else []
    parts = [body.get("message"), body.get("error"), body.get("error_description")]
    parts += [error.get("message") if isinstance(error, dict) else error for error in listed]
    texts = [str(part) if isinstance(part, dict) else part for part in parts]
    return " ".join(" ".join(text for text in texts if isinstance(text, str) and text).split())[:_MESSAGE_LIMIT]


def _wait_asked_for(response: httpx.Response, message: str, wall: float) -> float | None:
    """Seconds the host asks to wait; None when it refused for another reason.

    Source: docs.github.com, "Best practices for using the REST API", handling rate limit errors; GitLab answers 429
    with Retry-After (docs.gitlab.com, "Rate limits").
    """
    if response.status_code not in {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}:
        return None
    headers = response.headers
    after = headers.get("retry-after", "")
    if after.isascii() and after.isdigit():
        return float(after)
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        return max(float(reset) - wall, 0.0) + 1.0
    limited = response.status_code == HTTPStatus.TOO_MANY_REQUESTS
    return _SECONDARY if limited or "rate limit" in message.lower() or "abuse" in message.lower() else None
