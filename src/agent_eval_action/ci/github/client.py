"""The calls to GitHub's API that a comment needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.ci.api_client import ApiClient, ApiError, ApiErrorKind, ApiModel, Clock
from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.comment import Account, Comment

PUBLIC: Final = "https://api.github.com"
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


class RepositoryId(ApiModel):
    """A repository."""

    id: int
    full_name: str = ""


class Side(ApiModel):
    """One side of a pull request; ``repo`` is None when a fork was deleted."""

    sha: str
    ref: str = ""
    repo: RepositoryId | None = None


class Pull(ApiModel):
    """A pull request."""

    number: int
    state: str = ""
    head: Side
    base: Side


@dataclass(frozen=True)
class GitHubClient:
    """GitHub's API with one token. Every method raises ApiError and nothing else."""

    api: ApiClient

    @classmethod
    def connect(
        cls, environ: Mapping[str, str], token: str, ca_bundle: Path | None = None, clock: Clock | None = None
    ) -> GitHubClient:
        """The GitHub this job runs on (GITHUB_API_URL, GITHUB_GRAPHQL_URL)."""
        url = environ.get("GITHUB_API_URL", "").rstrip("/") or PUBLIC
        # an Enterprise Server has its REST at /api/v3 and GraphQL beside it
        graphql = environ.get("GITHUB_GRAPHQL_URL", "").rstrip("/") or f"{url.removesuffix('/v3')}/graphql"
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        return cls(ApiClient("GitHub", url, headers, ca_bundle, clock or Clock(), unpaced=graphql))

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    @property
    def clock(self) -> Clock:
        """The time it runs by."""
        return self.api.clock

    def viewer(self) -> Account:
        """Whose token this is: REST's ``/user`` is closed to the tokens of jobs and apps, GraphQL's viewer is not.

        Where GraphQL does not say, it is taken for a job's own.
        """
        what = "say whose token this is"
        query = {"query": "query { viewer { login databaseId } }"}
        try:
            body = self.api.json(self.api.request("POST", self.api.unpaced, what, json=query), what)
            viewer = (body.get("data") or {}).get("viewer") if isinstance(body, dict) else None
            if not isinstance(viewer, dict):
                errors = body.get("errors") if isinstance(body, dict) else None
                raise self.api.unexpected(what, str(errors)[:200])
            return self.api.parse(Account, {"login": viewer.get("login"), "id": viewer.get("databaseId")}, what)
        except ApiError as error:
            if error.kind not in {ApiErrorKind.ANSWER, ApiErrorKind.PERMISSION, ApiErrorKind.MISSING}:
                raise
            return Account(login="github-actions")

    def comments(self, target: ChangeRequest) -> list[Comment]:
        """All of them, over all pages, oldest first."""
        return list(self.api.pages(Comment, self._comments_url(target), f"list the comments of {target}"))

    def comment(self, target: ChangeRequest, number: int) -> Comment:
        """One, as it is now."""
        return self.api.read(Comment, "GET", self._comment_url(target, number), f"read comment {number}")

    def create_comment(self, target: ChangeRequest, body: str) -> Comment:
        """Write a comment: `pull-requests: write`. Never tried again: it may have been written, so look first."""
        url, what = self._comments_url(target), f"comment on {target}"
        return self.api.read(Comment, "POST", url, what, once=True, json={"body": body})

    def update_comment(self, target: ChangeRequest, number: int, body: str) -> Comment:
        """Replace a comment's text. Never tried again: another job may have written meanwhile, so read first."""
        url, what = self._comment_url(target, number), f"edit comment {number} on {target}"
        return self.api.read(Comment, "PATCH", url, what, once=True, json={"body": body})

    def delete_comment(self, target: ChangeRequest, number: int) -> None:
        """Remove a comment; one that is not there any more is no error."""
        self.api.delete(self._comment_url(target, number), f"delete comment {number} on {target}")

    def pulls_of_head(self, repository: str, owner: str, branch: str) -> list[Pull]:
        """Open pull requests from ``owner``'s branch, forks included."""
        params = {"state": "open", "head": f"{owner}:{branch}"}
        url = f"{self._repository_url(repository)}/pulls"
        return list(self.api.pages(Pull, url, f"list the pull requests of {repository}", params))

    def advice(self, error: ApiError) -> str:
        """What to do about a comment that was refused."""
        match error.kind:
            case ApiErrorKind.PERMISSION:
                return (
                    "The job needs `permissions: pull-requests: write`; "
                    "a pull request from a fork or of Dependabot has a token that may only read"
                )
            case ApiErrorKind.TOKEN:
                return "The input github-token is not a token of this GitHub, or it has expired"
            case ApiErrorKind.MISSING:
                return "There is no such pull request, or the token may not see the repository"
            case _:
                return ""

    def _comments_url(self, target: ChangeRequest) -> str:
        return f"{self._repository_url(target.repository)}/issues/{target.number}/comments"

    def _comment_url(self, target: ChangeRequest, number: int) -> str:
        return f"{self._repository_url(target.repository)}/issues/comments/{number}"

    def _repository_url(self, repository: str) -> str:
        if not _REPOSITORY.fullmatch(repository):
            raise ApiError(ApiErrorKind.INVALID, f"{repository!r} is no repository: it is written owner/name")
        return f"{self.api.url}/repos/{repository}"
