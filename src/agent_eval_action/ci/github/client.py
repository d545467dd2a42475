"""What GitHub refuses, as one exception the callers of ``rest`` turn into a sentence."""

from __future__ import annotations

import enum
import random
import re
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


MAX_SAID = 300


class ErrorKind(enum.StrEnum):
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
class ApiError(Exception):
    """A call that failed. ``message`` is one sentence; ``status`` 0 without an answer.

    ``wait``: seconds GitHub asks to wait, where it does.
    """

    kind: ErrorKind
    message: str
    status: int = 0
    wait: float | None = None

    def __str__(self) -> str:
        return self.message


_KINDS: Final = {
    HTTPStatus.UNAUTHORIZED: ErrorKind.TOKEN,
    HTTPStatus.FORBIDDEN: ErrorKind.PERMISSION,
    HTTPStatus.NOT_FOUND: ErrorKind.MISSING,
    HTTPStatus.GONE: ErrorKind.MISSING,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorKind.LIMITED,
}


def error_from_response(what: str, status: int, headers: Mapping[str, str], body: Any) -> ApiError:
    """The error an answer is. ``what`` is the call in words: "list the comments of org/repo#7"."""
    said = error_message(body)
    kind = _KINDS.get(HTTPStatus(status)) if status in set(HTTPStatus) else None
    if kind is None:
        kind = ErrorKind.UNAVAILABLE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ErrorKind.INVALID
    if kind is ErrorKind.PERMISSION and "lock" in said.lower():
        kind = ErrorKind.LOCKED
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and "too long" in said.lower():
        kind = ErrorKind.TOO_LONG
    wanted = headers.get("x-accepted-github-permissions", "") if kind is ErrorKind.PERMISSION else ""
    needs = f" (it needs {wanted[:MAX_SAID]})" if wanted else ""
    return ApiError(kind, f"GitHub refused to {what}: {status}{f' {said}' if said else ''}{needs}", status)


def error_message(body: Any) -> str:
    """What the body says, on one line: its message and those of its errors."""
    if not isinstance(body, dict):
        return ""
    parts = [body.get("message", "")]
    errors = body.get("errors")
    listed = errors if isinstance(errors, list) else []
    parts += [error.get("message", "") if isinstance(error, dict) else error for error in listed]
    return " ".join(" ".join(part for part in parts if isinstance(part, str) and part).split())[:MAX_SAID]


PUBLIC: Final = "https://api.github.com"
WRITE_GAP: Final = 1.0
"""Seconds between two writes: GitHub asks for no less, or its secondary limits strike."""
DEADLINE: Final = 90.0
_SECONDARY: Final = 60.0  # what GitHub asks to wait when it does not say
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 16.0
_TIMEOUT: Final = 20.0
_PASSING: Final = frozenset({ErrorKind.UNAVAILABLE, ErrorKind.LIMITED})
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
            if not isinstance(answer, ApiError):
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

    def _send(self, verb: str, url: str, what: str, content: dict[str, Any]) -> httpx.Response | ApiError:
        import httpx

        try:
            response = self._open().request(verb, url, **content)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            return ApiError(ErrorKind.UNAVAILABLE, f"GitHub could not be asked to {what}: {reason}")
        if response.is_success:
            return response
        body = _json(response)
        failed = error_from_response(what, response.status_code, response.headers, body)
        failed.wait = _limit(response, body, self.clock.wall())
        if failed.wait is not None:
            failed.kind = ErrorKind.LIMITED
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
        raise ApiError(ErrorKind.INVALID, f"the CA bundle {bundle} cannot be used: {error}") from error


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
    said = error_message(body).lower()
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS or "rate limit" in said or "abuse" in said:
        return _SECONDARY
    return None


def _given_up(failed: ApiError, what: str, pause: float, tries: int) -> ApiError:
    if failed.kind is ErrorKind.LIMITED:
        message = f"GitHub limits requests and asks to wait {pause:.0f} s before it is asked again to {what}"
        return ApiError(ErrorKind.LIMITED, message, failed.status)
    return ApiError(failed.kind, f"{failed.message} ({tries} tries)", failed.status)


PAGE: Final = 100
_MOST_PAGES: Final = 300
"""30,000 comments: GitHub shows no conversation that long, and a server that links in circles ends somewhere."""
_BOT: Final = "[bot]"
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
T = TypeVar("T", bound=BaseModel)


class _Answer(BaseModel):
    """What GitHub says, as far as we read it."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class User(_Answer):
    """An account. GraphQL may leave the ``[bot]`` of an app's login away, REST never does."""

    login: str
    id: int | None = None
    type: str = ""


class Comment(_Answer):
    """A comment of an issue or pull request; ``user`` is None when the account is gone."""

    id: int
    body: str | None = None
    html_url: str = ""
    user: User | None = None


class Repository(_Answer):
    """A repository."""

    id: int
    full_name: str = ""


class Side(_Answer):
    """One side of a pull request; ``repo`` is None when a fork was deleted."""

    sha: str
    ref: str = ""
    repo: Repository | None = None


class Pull(_Answer):
    """A pull request."""

    number: int
    state: str = ""
    head: Side
    base: Side


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Where a comment goes: ``repo`` is "owner/name"."""

    repo: str
    number: int

    def __str__(self) -> str:
        return f"{self.repo}#{self.number}"


@dataclass(frozen=True)
class GitHubClient:
    """GitHub's API with one token. Every method raises GitHubError and nothing else."""

    connection: Connection

    @classmethod
    def of(
        cls, environ: Mapping[str, str], token: str, ca_bundle: Path | None = None, clock: Clock | None = None
    ) -> GitHubClient:
        """The GitHub this job runs on (GITHUB_API_URL, GITHUB_GRAPHQL_URL)."""
        return cls(Connection(Server.of(environ, ca_bundle), token, clock or Clock()))

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    @property
    def clock(self) -> Clock:
        """The time it runs by."""
        return self.connection.clock

    def viewer(self) -> User:
        """Whose token this is: REST's ``/user`` is closed to the tokens of jobs and apps, GraphQL's viewer is not."""
        what = "say whose token this is"
        query = {"query": "query { viewer { login databaseId } }"}
        body = self._json(self.connection.request("POST", self.connection.server.graphql, what, json=query), what)
        viewer = (body.get("data") or {}).get("viewer") if isinstance(body, dict) else None
        if not isinstance(viewer, dict):
            said = body.get("errors") if isinstance(body, dict) else None
            raise ApiError(ErrorKind.ANSWER, f"GitHub did not {what}: {str(said)[:200]}")
        return self._read(User, {"login": viewer.get("login"), "id": viewer.get("databaseId")}, what)

    def comments(self, target: ChangeRequest) -> list[Comment]:
        """All of them, over all pages, oldest first."""
        path = f"{_repo(target.repo)}/issues/{target.number}/comments"
        return list(self._pages(Comment, path, f"list the comments of {target}"))

    def comment(self, target: ChangeRequest, number: int) -> Comment:
        """One, as it is now."""
        return self._one(Comment, "GET", f"{_repo(target.repo)}/issues/comments/{number}", f"read comment {number}")

    def create_comment(self, target: ChangeRequest, body: str) -> Comment:
        """Write a comment: `pull-requests: write`. Never tried again: it may have been written, so look first."""
        path = f"{_repo(target.repo)}/issues/{target.number}/comments"
        return self._one(Comment, "POST", path, f"comment on {target}", once=True, json={"body": body})

    def update_comment(self, target: ChangeRequest, number: int, body: str) -> Comment:
        """Replace a comment's text. Never tried again: another job may have written meanwhile, so read first."""
        path = f"{_repo(target.repo)}/issues/comments/{number}"
        what = f"edit comment {number} on {target}"
        return self._one(Comment, "PATCH", path, what, once=True, json={"body": body})

    def delete_comment(self, target: ChangeRequest, number: int) -> None:
        """Remove a comment; one that is not there any more is no error."""
        path = f"{_repo(target.repo)}/issues/comments/{number}"
        try:
            self.connection.request("DELETE", self._url(path), f"delete comment {number} on {target}")
        except ApiError as error:
            if error.kind is not ErrorKind.MISSING:
                raise

    def pulls_of_head(self, repo: str, owner: str, branch: str) -> list[Pull]:
        """Open pull requests from ``owner``'s branch, forks included."""
        params = {"state": "open", "head": f"{owner}:{branch}"}
        what = f"list the pull requests of {repo}"
        return list(self._pages(Pull, f"{_repo(repo)}/pulls", what, params))

    def _url(self, path: str) -> str:
        return f"{self.connection.server.api}/repos/{path}"

    def _one(self, kind: type[T], verb: str, path: str, what: str, **content: Any) -> T:
        response = self.connection.request(verb, self._url(path), what, **content)
        return self._read(kind, self._json(response, what), what)

    def _pages(self, kind: type[T], path: str, what: str, params: Mapping[str, str] | None = None) -> Iterator[T]:
        """Every item of every page, each once: what is deleted meanwhile moves the rest between pages."""
        url, query = self._url(path), {**(params or {}), "per_page": str(PAGE)}
        for _ in range(_MOST_PAGES):
            response = self.connection.request("GET", url, what, params=query or None)
            yield from self._read_list(kind, self._json(response, what), what)
            following = response.links.get("next", {}).get("url", "")
            if not following:
                return
            if not following.startswith(f"{self.connection.server.api}/"):  # the token goes nowhere else
                raise ApiError(ErrorKind.ANSWER, f"GitHub did not {what}: the next page is on another server")
            url, query = following, {}
        raise ApiError(ErrorKind.ANSWER, f"GitHub did not {what}: there are more than {_MOST_PAGES} pages")

    @staticmethod
    def _json(response: Any, what: str) -> Any:
        try:
            return response.json()
        except ValueError as error:
            raise ApiError(ErrorKind.ANSWER, f"GitHub did not {what}: the answer is no JSON") from error

    @staticmethod
    def _read(kind: type[T], value: Any, what: str) -> T:
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            raise _unlike(what, error) from error

    @staticmethod
    def _read_list(kind: type[T], value: Any, what: str) -> list[T]:
        try:
            return TypeAdapter(list[kind]).validate_python(value)  # type: ignore[valid-type] # a class known at run time
        except ValidationError as error:
            raise _unlike(what, error) from error


def is_author(viewer: User, author: User | None) -> bool:
    """Whether a comment is the viewer's: by number where both have one, else by the login without ``[bot]``."""
    if author is None:
        return False
    if viewer.id is not None and author.id is not None:
        return viewer.id == author.id
    return _login(viewer) == _login(author)


def _login(user: User) -> str:
    return user.login.lower().removesuffix(_BOT)


def _repo(repo: str) -> str:
    if not _REPOSITORY.fullmatch(repo):
        raise ApiError(ErrorKind.INVALID, f"{repo!r} is no repository: it is written owner/name")
    return repo


def _unlike(what: str, error: ValidationError) -> ApiError:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return ApiError(ErrorKind.ANSWER, f"GitHub did not {what} as expected: {where} {first['msg']}")
