"""The part of GitHub's API that comments need, and the run whose results are posted, from its trusted event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import AliasPath, BaseModel, Field

from agent_eval_action.ci.base import ChangeRequest, FindTargets, Job, number_of, sha_of, text_of
from agent_eval_action.ci.github.event import read_job, value_at
from agent_eval_action.ci.host import Account, ApiError, ApiErrorKind, Clock, CommentHost
from agent_eval_action.errors import UsageError
from agent_eval_action.git.base_commit import Event

_PUBLIC: Final = "https://api.github.com"
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


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
        if not _REPOSITORY.fullmatch(repository):
            raise ApiError(ApiErrorKind.INVALID, f"{repository!r} is no repository: it is written owner/name")
        return f"{self.url}/repos/{repository}"


def read_posted_run(environ: Mapping[str, str], payload: Any) -> tuple[Job, FindTargets]:
    """Return the run whose results are posted: on workflow_run the triggering run, on a pull request this one.

    Raises UsageError for any other event, or if the event does not name its run.
    """
    event_name = environ.get("GITHUB_EVENT_NAME", "")
    own = read_job(environ, payload)
    if event_name == "pull_request" and own.change_request is not None:
        targets = [own.change_request]
        return own, lambda _: (targets, "")
    if event_name != "workflow_run":
        where = f"on pull_request or workflow_run, not on {event_name or 'a terminal'}"
        text = f"agent-eval post posts the results of a run: it belongs {where}"
        raise UsageError(text, hint="docs/forks.md has both workflows")
    run = value_at(payload, "workflow_run")
    repository = text_of(value_at(payload, "repository", "full_name"))
    repository_id = number_of(value_at(payload, "repository", "id"))
    head_sha = sha_of(value_at(run, "head_sha"))
    head_id = number_of(value_at(run, "head_repository", "id"))
    if not repository or not repository_id or not head_sha:
        raise UsageError("the event does not say which run it is of", hint="GITHUB_EVENT_PATH names its payload")

    def find_targets(host: GitHubClient) -> tuple[list[ChangeRequest], str]:
        # GitHub's search by commit does not find pull requests of forks. The search by owner and branch does, but may
        # find too many: the branch may have moved on, or another repository of the owner may have one of that name.
        event, branch = text_of(value_at(run, "event")), text_of(value_at(run, "head_branch"))
        owner = text_of(value_at(run, "head_repository", "owner", "login"))
        if event != "pull_request":
            return [], f"the run before was made on {event or 'an unknown event'}, not on a pull request"
        if not head_id or not owner or not branch:
            return [], "the repository the run's commits were in is gone"
        wanted = ("open", head_sha, head_id, repository_id)
        pulls = host.pulls_of_head(repository, owner, branch)
        found = [p.number for p in pulls if (p.state, p.head_sha, p.head_repository, p.base_repository) == wanted]
        why = "" if found else f"no open pull request has {head_sha[:10]} as its head any more"
        return [ChangeRequest(repository, number) for number in found], why

    job = Job(
        event=Event(fork=head_id != repository_id),
        commit=head_sha,
        key=text_of(value_at(run, "name")) or "agent-eval",
        run_id=number_of(value_at(run, "id")),
        run_number=number_of(value_at(run, "run_number")),
        run_attempt=number_of(value_at(run, "run_attempt")) or 1,
    )
    return job, find_targets
