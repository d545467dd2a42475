"""CI that is used through files and the exit code: its variables say what a run is of, and nothing is published.

The base of a change is never taken from what a variable says of it, nor from a parent of a merge whose order is not
known: Jenkins and Bitbucket merge the base into the change. It is the merge base with the branch the change is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent_eval_action.ci.base import ChangeRequest, Ci, Job
from agent_eval_action.git.base_commit import Event, EventKind
from agent_eval_action.git.repository import is_sha

_HEADS: Final = "refs/heads/"
_NAME_LIMIT: Final = 200
_MOST: Final = 10**18


class AzurePipelines(Ci):
    """Azure Pipelines. It tests a merge of the change into its base, refs/pull/N/merge."""

    def is_running(self, environ: Mapping[str, str]) -> bool:
        """Whether the agent says so."""
        return environ.get("TF_BUILD", "").lower() == "true"

    def job(self, environ: Mapping[str, str]) -> Job:
        """The job: learn.microsoft.com, "Use predefined variables"."""
        number = number_in(environ, "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER", "SYSTEM_PULLREQUEST_PULLREQUESTID")
        reason = environ.get("BUILD_REASON", "")
        head, sha = sha_in(environ, "SYSTEM_PULLREQUEST_SOURCECOMMITID"), sha_in(environ, "BUILD_SOURCEVERSION")
        repository, build = environ.get("BUILD_REPOSITORY_NAME", ""), number_in(environ, "BUILD_BUILDID")
        is_change = bool(number) or reason == "PullRequest"
        event = Event(
            kind=EventKind.CHANGE if is_change else EventKind.OTHER,
            name=reason,
            ref=environ.get("BUILD_SOURCEBRANCH", ""),
            base_ref=environ.get("SYSTEM_PULLREQUEST_TARGETBRANCH", "").removeprefix(_HEADS),
            head_sha=head if is_change else None,
            sha=sha,
            fork=environ.get("SYSTEM_PULLREQUEST_ISFORK", "").lower() == "true",
            base_is_first_parent=head is not None,
        )
        project = environ.get("SYSTEM_COLLECTIONURI", "") + environ.get("SYSTEM_TEAMPROJECT", "")
        return Job(
            event=event,
            repository=repository,
            change_request=ChangeRequest(repository, number) if number else None,
            commit=event.head_sha or sha,
            workflow=line_in(environ, "BUILD_DEFINITIONNAME"),
            name=line_in(environ, "SYSTEM_JOBDISPLAYNAME"),
            url=f"{project}/_build/results?buildId={build}" if project and build else "",
            run_id=build,
            run_number=build,
        )


class BitbucketPipelines(Ci):
    """Bitbucket Pipelines. For a pull request it merges the destination into the change before the first step."""

    def is_running(self, environ: Mapping[str, str]) -> bool:
        """Whether there is a build of it."""
        return bool(environ.get("BITBUCKET_BUILD_NUMBER"))

    def job(self, environ: Mapping[str, str]) -> Job:
        """The job: support.atlassian.com, "Variables and secrets"."""
        number, build = number_in(environ, "BITBUCKET_PR_ID"), number_in(environ, "BITBUCKET_BUILD_NUMBER")
        repository, sha = environ.get("BITBUCKET_REPO_FULL_NAME", ""), sha_in(environ, "BITBUCKET_COMMIT")
        target, branch = environ.get("BITBUCKET_PR_DESTINATION_BRANCH", ""), environ.get("BITBUCKET_BRANCH", "")
        is_change = bool(number or target)
        event = Event(
            kind=EventKind.CHANGE if is_change else EventKind.OTHER,
            name="pull request" if is_change else "branch",
            ref=f"{_HEADS}{branch}" if branch else "",
            base_ref=target,
            head_sha=sha if is_change else None,
            sha=None if is_change else sha,
            base_is_first_parent=False,
        )
        origin = environ.get("BITBUCKET_GIT_HTTP_ORIGIN", "")
        return Job(
            event=event,
            repository=repository,
            change_request=ChangeRequest(repository, number) if number else None,
            commit=sha,
            url=f"{origin}/pipelines/results/{build}" if origin and build else "",
            run_id=build,
            run_number=build,
        )


class Jenkins(Ci):
    """A multibranch job of Jenkins. For a change it tests the head, or a merge of the target into it."""

    def is_running(self, environ: Mapping[str, str]) -> bool:
        """Whether there is a server and a job of it."""
        return bool(environ.get("JENKINS_URL") and environ.get("JOB_NAME"))

    def job(self, environ: Mapping[str, str]) -> Job:
        """The job: ``env-vars.html`` of any Jenkins with the plugin Branch API."""
        number, build = number_in(environ, "CHANGE_ID"), number_in(environ, "BUILD_NUMBER")
        branch, target = environ.get("BRANCH_NAME", ""), environ.get("CHANGE_TARGET", "")
        is_change = bool(environ.get("CHANGE_ID") or target)
        is_primary = not is_change and environ.get("BRANCH_IS_PRIMARY", "") == "true"
        sha = sha_in(environ, "GIT_COMMIT")
        event = Event(
            kind=EventKind.CHANGE if is_change else EventKind.PUSH if is_primary else EventKind.OTHER,
            name="change request" if is_change else "branch",
            ref=f"{_HEADS}{branch}" if branch and not is_change else "",
            default_branch=branch if is_primary else "",
            base_ref=target,
            sha=None if is_change else sha,
            fork=bool(environ.get("CHANGE_FORK")),
            base_is_first_parent=False,
        )
        name = environ.get("JOB_NAME", "").partition("/")[0]
        return Job(
            event=event,
            repository=name,
            change_request=ChangeRequest(name, number) if number else None,
            commit=sha,
            workflow=line_in(environ, "JOB_NAME"),
            url=environ.get("BUILD_URL", ""),
            run_id=build,
            run_number=build,
        )


def number_in(environ: Mapping[str, str], *names: str) -> int:
    """The first of these variables that is a number from 1; 0 where none is."""
    for name in names:
        text = environ.get(name, "")
        if text.isascii() and text.isdigit() and 0 < int(text[:20]) < _MOST:
            return int(text[:20])
    return 0


def sha_in(environ: Mapping[str, str], name: str) -> str | None:
    """The variable if it is a whole object name: a text that is put into a command line must be nothing else."""
    text = environ.get(name)
    return text if is_sha(text) else None


def line_in(environ: Mapping[str, str], name: str) -> str:
    """The variable on one line, of bounded length."""
    return " ".join(environ.get(name, "").split())[:_NAME_LIMIT]
