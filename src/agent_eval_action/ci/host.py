"""Clients for the REST APIs of GitHub and GitLab, as far as comments need them: retries, rate limits, pagination."""

from __future__ import annotations

import enum
import random
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import quote

import httpx
from pydantic import AliasChoices, AliasPath, BaseModel, Field, TypeAdapter, ValidationError

from agent_eval_action import __version__
from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.github_actions import REPOSITORY

WRITE_GAP: Final = 1.0
"""Seconds between two writes; faster writes hit GitHub's secondary rate limits."""
_DEADLINE: Final = 90.0
_SECONDARY: Final = 60.0  # GitHub's advice for answers without a wait of their own
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 16.0
_TIMEOUT: Final = 20.0
_MOST_PAGES: Final = 300
"""30,000 comments, more than any conversation has; ends the loop if a server's page links form a circle."""
_MESSAGE_LIMIT: Final = 300
_BOT: Final = "[bot]"

T = TypeVar("T")


class ApiErrorKind(enum.StrEnum):
    """Why a call failed."""

    TOKEN = "token"  # noqa: S105 - a kind: 401, the token is invalid
    PERMISSION = "permission"  # 403 for a lack of rights
    LOCKED = "locked"  # 403: the conversation is locked
    LIMITED = "limited"  # 403 or 429: rate limited for longer than we may wait
    MISSING = "missing"  # 404, 410: not there, or hidden from this token
    TOO_LONG = "too_long"  # 422: the body is over the limit
    INVALID = "invalid"  # any other 4xx
    UNAVAILABLE = "unavailable"  # 5xx, or no connection
    ANSWER = "answer"  # an unexpected answer


_KINDS: Final[Mapping[int, ApiErrorKind]] = {
    HTTPStatus.UNAUTHORIZED: ApiErrorKind.TOKEN,
    HTTPStatus.FORBIDDEN: ApiErrorKind.PERMISSION,
    HTTPStatus.NOT_FOUND: ApiErrorKind.MISSING,
    HTTPStatus.GONE: ApiErrorKind.MISSING,
}
TEMPORARY: Final = frozenset({ApiErrorKind.UNAVAILABLE, ApiErrorKind.LIMITED})


@dataclass
class ApiError(Exception):
    """A failed call. ``message`` is one sentence; ``wait``: seconds that the host asks to wait, or None."""

    kind: ApiErrorKind
    message: str
    wait: float | None = None

    def __str__(self) -> str:
        return self.message


class Account(BaseModel):
    """The author of a comment, or the user of a token."""

    login: str = Field(validation_alias=AliasChoices("login", "username", AliasPath("data", "viewer", "login")))
    id: int | None = Field(None, validation_alias=AliasChoices("id", AliasPath("data", "viewer", "databaseId")))

    def is_same(self, other: Account | None) -> bool:
        """Compare ids if both have one, else logins. GraphQL may omit the ``[bot]`` of an app's login, REST never."""
        if other is None:
            return False
        if self.id is not None and other.id is not None:
            return self.id == other.id
        return self.login.lower().removesuffix(_BOT) == other.login.lower().removesuffix(_BOT)


class Comment(BaseModel):
    """A comment on a change request; ``author`` is None if the account was deleted."""

    id: int
    body: str | None = None
    url: str = Field("", validation_alias="html_url")
    author: Account | None = Field(None, validation_alias=AliasChoices("author", "user"))


@dataclass(frozen=True, slots=True)
class Clock:
    """A replaceable clock: ``now`` is monotonic, ``wall`` is the time since the epoch, both in seconds."""

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


class CommentHost:
    """The API of one host with one token. Every method raises ApiError and nothing else.

    ``deadline``: seconds that all tries of one call may take together. httpx handles proxies (HTTPS_PROXY, NO_PROXY).
    """

    name: ClassVar[str]
    edit_verb: ClassVar[str]
    order: ClassVar[Mapping[str, str]] = {}
    """Query parameters that list comments oldest first."""
    advice: ClassVar[Mapping[ApiErrorKind, str]]
    """What the user can do about a refused comment, by kind of error."""

    def __init__(self, url: str, headers: Mapping[str, str], ca_bundle: Path | None, clock: Clock | None) -> None:
        self.url = url
        self.clock = clock or Clock()
        self.deadline = _DEADLINE
        self._headers = {**headers, "User-Agent": f"agent-eval-action/{__version__}"}
        self._ca_bundle = ca_bundle
        self._client: httpx.Client | None = None
        self._written: float | None = None

    def viewer(self) -> Account:
        """Return the token's user."""
        raise NotImplementedError

    def comments_url(self, target: ChangeRequest) -> str:
        raise NotImplementedError

    def comment_url(self, target: ChangeRequest, number: int) -> str:
        return f"{self.comments_url(target)}/{number}"

    def escape(self, text: str) -> str:
        """Disarm what the host would execute in a comment's text."""
        return text

    def comments(self, target: ChangeRequest) -> list[Comment]:
        """Return the comments of all pages, oldest first."""
        return self.read_pages(Comment, self.comments_url(target), f"list the comments of {target}", self.order)

    def comment(self, target: ChangeRequest, number: int) -> Comment:
        return self.read(Comment, "GET", self.comment_url(target, number), f"read comment {number} of {target}")

    def create_comment(self, target: ChangeRequest, body: str) -> Comment:
        """Write a comment. Never retries: the comment may exist already, so the caller looks first."""
        url, what = self.comments_url(target), f"comment on {target}"
        return self.read(Comment, "POST", url, what, once=True, json={"body": self.escape(body)})

    def update_comment(self, target: ChangeRequest, number: int, body: str) -> Comment:
        """Replace a comment's text. Never retries: another job may have written in the meantime."""
        url, what = self.comment_url(target, number), f"edit comment {number} on {target}"
        return self.read(Comment, self.edit_verb, url, what, once=True, json={"body": self.escape(body)})

    def delete_comment(self, target: ChangeRequest, number: int) -> None:
        """Delete a comment; it may be gone already."""
        try:
            self.request("DELETE", self.comment_url(target, number), f"delete comment {number} on {target}")
        except ApiError as error:
            if error.kind is not ApiErrorKind.MISSING:
                raise

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def read(self, kind: type[T], verb: str, url: str, what: str, **content: Any) -> T:
        """Send a request and return the answer as ``kind``; for the other arguments see ``request``."""
        return self._validate(kind, self.request(verb, url, what, **content), what)

    def read_pages(self, kind: type[T], url: str, what: str, params: Mapping[str, str]) -> list[T]:
        query: dict[str, str] | None = {**params, "per_page": "100"}
        items: list[T] = []
        for _ in range(_MOST_PAGES):
            response = self.request("GET", url, what, params=query)
            items += self._validate(list[kind], response, what)  # type: ignore[valid-type] # a class known at run time
            url, query = response.links.get("next", {}).get("url", ""), None
            if not url:
                return items
            if not url.startswith(f"{self.url}/"):  # never send the token to another server
                raise self._unexpected(what, "the next page is on another server")
        raise self._unexpected(what, f"there are more than {_MOST_PAGES} pages")

    def request(
        self, verb: str, url: str, what: str, *, once: bool = False, paced: bool = True, **content: Any
    ) -> httpx.Response:
        """Send a request and return its 2xx response. Raises ApiError.

        ``what`` describes the call: "list the comments of org/repo#7". Retries 5xx, lost connections and rate limits
        while the waits end before the deadline. ``once``: never retry, because the caller must look first. ``paced``:
        False for a POST that only reads.
        """
        began, tries = self.clock.now(), 0
        while True:
            tries += 1
            if paced and verb != "GET":
                if self._written is not None and (left := self._written + WRITE_GAP - self.clock.now()) > 0:
                    self.clock.sleep(left)
                self._written = self.clock.now()
            try:
                response = self._open().request(verb, url, **content)
                if response.is_success:
                    return response
                error = self._api_error(response, what)
            except httpx.TransportError as lost:
                message = f"{self.name} could not be asked to {what}: {lost or type(lost).__name__}"
                error = ApiError(ApiErrorKind.UNAVAILABLE, message)
            if once or error.kind not in TEMPORARY:
                raise error
            pause = pause_before(tries) if error.wait is None else error.wait
            if self.clock.now() - began + pause > self.deadline:
                message = f"{error.message} ({tries} tries)"
                if error.kind is ApiErrorKind.LIMITED:
                    message = f"{self.name} limits requests and asks to wait {pause:.0f} s to {what}"
                raise ApiError(error.kind, message)
            self.clock.sleep(pause)

    def _open(self) -> httpx.Client:
        if self._client is not None:
            return self._client
        trust = httpx.create_ssl_context()
        if self._ca_bundle is not None:
            try:
                trust.load_verify_locations(cafile=self._ca_bundle)
            except (OSError, ssl.SSLError) as error:
                message = f"the CA bundle {self._ca_bundle} cannot be used: {error}"
                raise ApiError(ApiErrorKind.INVALID, message) from error
        self._client = httpx.Client(verify=trust, timeout=_TIMEOUT, headers=self._headers)
        return self._client

    def _validate(self, kind: type[T], response: httpx.Response, what: str) -> T:
        try:
            return TypeAdapter(kind).validate_python(response.json())
        except ValidationError as error:
            first = error.errors()[0]
            raise self._unexpected(what, f"{'.'.join(map(str, first['loc']))} {first['msg']}") from error
        except ValueError as error:
            raise self._unexpected(what, "the answer is no JSON") from error

    def _unexpected(self, what: str, why: str) -> ApiError:
        return ApiError(ApiErrorKind.ANSWER, f"{self.name} did not {what}: {why}")

    def _api_error(self, response: httpx.Response, what: str) -> ApiError:
        status, message = response.status_code, _error_message(response)
        other = ApiErrorKind.UNAVAILABLE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ApiErrorKind.INVALID
        kind = _KINDS.get(status, other)
        if kind is ApiErrorKind.PERMISSION and "lock" in message.lower():
            kind = ApiErrorKind.LOCKED
        if status in {HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.BAD_REQUEST} and "too long" in message.lower():
            kind = ApiErrorKind.TOO_LONG
        wanted = response.headers.get("x-accepted-github-permissions", "") if kind is ApiErrorKind.PERMISSION else ""
        needs = f" (it needs {wanted[:_MESSAGE_LIMIT]})" if wanted else ""
        text = f"{self.name} refused to {what}: {status}{f' {message}' if message else ''}{needs}"
        wait = _wait_asked_for(response, message, self.clock.wall())
        return ApiError(kind if wait is None else ApiErrorKind.LIMITED, text, wait)


def pause_before(tries: int) -> float:
    """Return the seconds to wait after ``tries`` failures."""
    return float(min(_FIRST_PAUSE * 2 ** (tries - 1), _LONGEST_PAUSE) * random.uniform(0.8, 1.2))  # noqa: S311 - jitter


def _error_message(response: httpx.Response) -> str:
    """Return the messages of an error response on one line."""
    try:
        body = response.json()
    except ValueError:
        return ""
    if not isinstance(body, dict):
        return ""
    errors = body.get("errors")
    parts = [body.get("message"), body.get("error"), body.get("error_description")]
    listed = errors if isinstance(errors, list) else []
    parts += [error.get("message") if isinstance(error, dict) else error for error in listed]
    texts = [str(part) for part in parts if part and isinstance(part, str | dict)]
    return " ".join(" ".join(texts).split())[:_MESSAGE_LIMIT]


def _wait_asked_for(response: httpx.Response, message: str, wall: float) -> float | None:
    """Return the seconds that the host asks to wait; None if the response is not about a rate limit.

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


# --- GitHub ---------------------------------------------------------------------------------------

_PUBLIC: Final = "https://api.github.com"


class Pull(BaseModel):
    """A pull request; ``head_repository`` is None if the fork was deleted."""

    number: int
    state: str = ""
    head_sha: str = Field(validation_alias=AliasPath("head", "sha"))
    head_repository: int | None = Field(None, validation_alias=AliasPath("head", "repo", "id"))
    base_repository: int | None = Field(None, validation_alias=AliasPath("base", "repo", "id"))


class GitHubClient(CommentHost):
    """The GitHub this job runs on (GITHUB_API_URL, GITHUB_GRAPHQL_URL)."""

    name = "GitHub"
    edit_verb = "PATCH"
    advice: ClassVar = {
        ApiErrorKind.PERMISSION: (
            "The job needs `permissions: pull-requests: write`; "
            "a pull request from a fork or of Dependabot has a token that may only read"
        ),
        ApiErrorKind.TOKEN: "The input github-token is not a token of this GitHub, or it has expired",
        ApiErrorKind.MISSING: "There is no such pull request, or the token may not see the repository",
    }

    def __init__(
        self, environ: Mapping[str, str], token: str, ca_bundle: Path | None = None, clock: Clock | None = None
    ) -> None:
        url = environ.get("GITHUB_API_URL", "").rstrip("/") or _PUBLIC
        # an Enterprise Server has REST at /api/v3 and GraphQL at /api/graphql
        self.graphql = environ.get("GITHUB_GRAPHQL_URL", "").rstrip("/") or f"{url.removesuffix('/v3')}/graphql"
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        super().__init__(url, headers, ca_bundle, clock)

    def viewer(self) -> Account:
        """Return the token's user, from GraphQL: REST refuses ``/user`` to the tokens of jobs and apps.

        If GraphQL does not answer, assumes a job's own token.
        """
        query = {"query": "query { viewer { login databaseId } }"}
        try:
            return self.read(Account, "POST", self.graphql, "say whose token this is", paced=False, json=query)
        except ApiError as error:
            if error.kind not in {ApiErrorKind.ANSWER, ApiErrorKind.PERMISSION, ApiErrorKind.MISSING}:
                raise
            return Account(login="github-actions")

    def pulls_of_head(self, repository: str, owner: str, branch: str) -> list[Pull]:
        """Open pull requests from ``owner``'s branch, forks included."""
        params = {"state": "open", "head": f"{owner}:{branch}"}
        url = f"{self._repository_url(repository)}/pulls"
        return self.read_pages(Pull, url, f"list the pull requests of {repository}", params)

    def comments_url(self, target: ChangeRequest) -> str:
        return f"{self._repository_url(target.repository)}/issues/{target.number}/comments"

    def comment_url(self, target: ChangeRequest, number: int) -> str:
        return f"{self._repository_url(target.repository)}/issues/comments/{number}"

    def _repository_url(self, repository: str) -> str:
        if not REPOSITORY.fullmatch(repository):
            raise ApiError(ApiErrorKind.INVALID, f"{repository!r} is no repository: it is written owner/name")
        return f"{self.url}/repos/{repository}"


# --- GitLab ---------------------------------------------------------------------------------------

# A line that begins with a slash is a quick action, done with the rights of the token's owner: /merge, /close, …
_QUICK_ACTION: Final = re.compile(r"(?m)^([^\S\n]*)(?=/[A-Za-z])")


class GitLabNotes(CommentHost):
    """The API at ``url`` (CI_API_V4_URL), with a project, group or personal access token."""

    name = "GitLab"
    edit_verb = "PUT"
    order: ClassVar = {"sort": "asc", "order_by": "created_at"}
    _token = "GITLAB_TOKEN has to be an access token with the scope api and the role Reporter or higher"  # noqa: S105 - advice
    advice: ClassVar = {
        ApiErrorKind.TOKEN: _token,
        ApiErrorKind.PERMISSION: _token,
        ApiErrorKind.MISSING: "There is no such merge request, or GITLAB_TOKEN may not see the project",
    }

    def __init__(self, url: str, token: str, ca_bundle: Path | None = None, clock: Clock | None = None) -> None:
        super().__init__(url, {"PRIVATE-TOKEN": token}, ca_bundle, clock)

    def viewer(self) -> Account:
        """Return the token's user; a project token has a user of its own."""
        return self.read(Account, "GET", f"{self.url}/user", "say whose token this is")

    def is_open_at(self, target: ChangeRequest, head_sha: str) -> bool:
        found = self.read(dict[str, Any], "GET", self._url(target), f"read the merge request {target}")
        return (found.get("state"), found.get("sha")) == ("opened", head_sha)

    def comments_url(self, target: ChangeRequest) -> str:
        return f"{self._url(target)}/notes"

    def escape(self, text: str) -> str:
        """Disarm quick actions in ``text`` with an invisible character."""
        return _QUICK_ACTION.sub("\\1\N{ZERO WIDTH SPACE}", text)

    def _url(self, target: ChangeRequest) -> str:
        return f"{self.url}/projects/{quote(target.repository, safe='')}/merge_requests/{target.number}"
