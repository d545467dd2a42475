"""Every call this project makes to GitHub, typed: comments, pull requests, contents, runs, and who we are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agent_eval_action.github.connection import Clock, Connection, Server
from agent_eval_action.github.refusals import GitHubError as GitHubError  # noqa: PLC0414 - re-exported for callers
from agent_eval_action.github.refusals import Refusal as Refusal  # noqa: PLC0414 - re-exported for callers

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
class PullRequest:
    """Where a comment goes: ``repo`` is "owner/name"."""

    repo: str
    number: int

    def __str__(self) -> str:
        return f"{self.repo}#{self.number}"


@dataclass(frozen=True)
class GitHub:
    """GitHub's API with one token. Every method raises GitHubError and nothing else."""

    connection: Connection

    @classmethod
    def of(
        cls, environ: Mapping[str, str], token: str, ca_bundle: Path | None = None, clock: Clock | None = None
    ) -> GitHub:
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
            raise GitHubError(Refusal.ANSWER, f"GitHub did not {what}: {str(said)[:200]}")
        return self._read(User, {"login": viewer.get("login"), "id": viewer.get("databaseId")}, what)

    def comments(self, target: PullRequest) -> list[Comment]:
        """All of them, over all pages, oldest first."""
        path = f"{_repo(target.repo)}/issues/{target.number}/comments"
        return list(self._pages(Comment, path, f"list the comments of {target}"))

    def comment(self, target: PullRequest, number: int) -> Comment:
        """One, as it is now."""
        return self._one(Comment, "GET", f"{_repo(target.repo)}/issues/comments/{number}", f"read comment {number}")

    def create_comment(self, target: PullRequest, body: str) -> Comment:
        """Write a comment: `pull-requests: write`. Never tried again: it may have been written, so look first."""
        path = f"{_repo(target.repo)}/issues/{target.number}/comments"
        return self._one(Comment, "POST", path, f"comment on {target}", once=True, json={"body": body})

    def update_comment(self, target: PullRequest, number: int, body: str) -> Comment:
        """Replace a comment's text. Never tried again: another job may have written meanwhile, so read first."""
        path = f"{_repo(target.repo)}/issues/comments/{number}"
        what = f"edit comment {number} on {target}"
        return self._one(Comment, "PATCH", path, what, once=True, json={"body": body})

    def delete_comment(self, target: PullRequest, number: int) -> None:
        """Remove a comment; one that is not there any more is no error."""
        path = f"{_repo(target.repo)}/issues/comments/{number}"
        try:
            self.connection.request("DELETE", self._url(path), f"delete comment {number} on {target}")
        except GitHubError as error:
            if error.kind is not Refusal.MISSING:
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
                raise GitHubError(Refusal.ANSWER, f"GitHub did not {what}: the next page is on another server")
            url, query = following, {}
        raise GitHubError(Refusal.ANSWER, f"GitHub did not {what}: there are more than {_MOST_PAGES} pages")

    @staticmethod
    def _json(response: Any, what: str) -> Any:
        try:
            return response.json()
        except ValueError as error:
            raise GitHubError(Refusal.ANSWER, f"GitHub did not {what}: the answer is no JSON") from error

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
        raise GitHubError(Refusal.INVALID, f"{repo!r} is no repository: it is written owner/name")
    return repo


def _unlike(what: str, error: ValidationError) -> GitHubError:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return GitHubError(Refusal.ANSWER, f"GitHub did not {what} as expected: {where} {first['msg']}")
