"""Requests to GitHub's API: who we are, what is tried again and for how long, and how fast we may write."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action import __version__
from agent_eval_action.github.refusals import GitHubError, Refusal, refused, said_in

if TYPE_CHECKING:
    import httpx

PUBLIC: Final = "https://api.github.com"
WRITE_GAP: Final = 1.0
"""Seconds between two writes: GitHub asks for no less, or its secondary limits strike."""
DEADLINE: Final = 90.0
_SECONDARY: Final = 60.0  # what GitHub asks to wait when it does not say
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 16.0
_TIMEOUT: Final = 20.0
_PASSING: Final = frozenset({Refusal.UNAVAILABLE, Refusal.LIMITED})
_LIMITED: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as the caller has it: ``now`` only ever grows, ``wall`` is the date in seconds."""

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Server:
    """Which GitHub, and how to reach it. Proxies are httpx's business: HTTPS_PROXY, NO_PROXY."""

    api: str = PUBLIC
    graphql: str = f"{PUBLIC}/graphql"
    ca_bundle: Path | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str], ca_bundle: Path | None = None) -> Server:
        """github.com, or the Enterprise Server this job runs on."""
        api = environ.get("GITHUB_API_URL", "").rstrip("/") or PUBLIC
        # an Enterprise Server has its REST at /api/v3 and GraphQL beside it
        beside = f"{api.removesuffix('/v3')}/graphql"
        return cls(api, environ.get("GITHUB_GRAPHQL_URL", "").rstrip("/") or beside, ca_bundle)


@dataclass
class Connection:
    """One authenticated client. ``deadline``: the longest all tries of one call may take together, in seconds."""

    server: Server
    token: str = field(repr=False)
    clock: Clock = field(default_factory=Clock)
    deadline: float = DEADLINE
    _client: httpx.Client | None = field(default=None, init=False, repr=False)
    _written: float | None = field(default=None, init=False)

    def request(self, verb: str, url: str, what: str, *, once: bool = False, **content: Any) -> httpx.Response:
        """Send, and return the response of status 2xx.

        ``what`` says the call in words. 5xx, lost connections and "too much" are tried again as long as the waits end
        before the deadline; with ``once`` nothing is, for a call that must be thought over before it is made again.
        Raises GitHubError.
        """
        began, tries = self.clock.now(), 0
        while True:
            tries += 1
            if verb != "GET" and url != self.server.graphql:
                self.wait_to_write()
                self._written = self.clock.now()
            answer = self._send(verb, url, what, content)
            if not isinstance(answer, GitHubError):
                return answer
            if once or answer.kind not in _PASSING:
                raise answer
            pause = pause_before(tries) if answer.wait is None else answer.wait
            if self.clock.now() - began + pause > self.deadline:
                raise _given_up(answer, what, pause, tries)
            self.clock.sleep(pause)

    def wait_to_write(self) -> None:
        """Wait until GitHub takes another write."""
        if self._written is not None:
            left = self._written + WRITE_GAP - self.clock.now()
            if left > 0:
                self.clock.sleep(left)

    def close(self) -> None:
        """Close what is open."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, verb: str, url: str, what: str, content: dict[str, Any]) -> httpx.Response | GitHubError:
        import httpx

        try:
            response = self._open().request(verb, url, **content)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            return GitHubError(Refusal.UNAVAILABLE, f"GitHub could not be asked to {what}: {reason}")
        if response.is_success:
            return response
        body = _json(response)
        failed = refused(what, response.status_code, response.headers, body)
        failed.wait = _limit(response, body, self.clock.wall())
        if failed.wait is not None:
            failed.kind = Refusal.LIMITED
        return failed

    def _open(self) -> httpx.Client:
        import httpx

        if self._client is None:
            trust = httpx.create_ssl_context()
            if self.server.ca_bundle is not None:
                _load(trust, self.server.ca_bundle)
            self._client = httpx.Client(
                verify=trust,
                timeout=_TIMEOUT,
                headers={
                    "Authorization": f"Bearer {self.token}",
                    "Accept": "application/vnd.github+json",
                    "X-GitHub-Api-Version": "2022-11-28",
                    "User-Agent": f"agent-eval-action/{__version__}",
                },
            )
        return self._client


def pause_before(tries: int) -> float:
    """Seconds before the next try, after so many that failed."""
    return float(min(_FIRST_PAUSE * 2 ** (tries - 1), _LONGEST_PAUSE) * random.uniform(0.8, 1.2))  # noqa: S311 - jitter


def _load(trust: ssl.SSLContext, bundle: Path) -> None:
    try:
        trust.load_verify_locations(cafile=bundle)
    except (OSError, ssl.SSLError) as error:
        raise GitHubError(Refusal.INVALID, f"the CA bundle {bundle} cannot be used: {error}") from error


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _limit(response: httpx.Response, body: Any, wall: float) -> float | None:
    """Seconds GitHub asks to wait; None when it refused for another reason.

    Source: docs.github.com, "Best practices for using the REST API", handling rate limit errors.
    """
    if response.status_code not in _LIMITED:
        return None
    headers = response.headers
    after = headers.get("retry-after", "")
    if after.isascii() and after.isdigit():
        return float(after)
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        return max(float(reset) - wall, 0.0) + 1.0
    said = said_in(body).lower()
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS or "rate limit" in said or "abuse" in said:
        return _SECONDARY
    return None


def _given_up(failed: GitHubError, what: str, pause: float, tries: int) -> GitHubError:
    if failed.kind is Refusal.LIMITED:
        message = f"GitHub limits requests and asks to wait {pause:.0f} s before it is asked again to {what}"
        return GitHubError(Refusal.LIMITED, message, failed.status)
    return GitHubError(failed.kind, f"{failed.message} ({tries} tries)", failed.status)
