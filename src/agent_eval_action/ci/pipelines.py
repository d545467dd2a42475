"""GitLab, Azure Pipelines, Bitbucket Pipelines and Jenkins: reads from their variables what a run is of.

Runs publish only files and an exit code; ``agent-eval post`` comments on GitLab.

The base of a change is the merge base with its target branch. Variables are not trusted for it, nor are the parents
of a merge commit, whose order varies: Jenkins and Bitbucket merge the base into the change.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent_eval_action.ci.base import ChangeRequest, Ci, FindTargets, Job, number_of, sha_of
from agent_eval_action.ci.log import neutralize
from agent_eval_action.errors import UsageError
from agent_eval_action.git.base_commit import Event, EventKind

if TYPE_CHECKING:
    from agent_eval_action.ci.host import GitLabNotes

_HEADS: Final = "refs/heads/"
_KINDS: Final = {
    "push": EventKind.PUSH,
    "schedule": EventKind.SCHEDULE,
    "web": EventKind.MANUAL,
    "api": EventKind.MANUAL,
    "trigger": EventKind.MANUAL,
}


class GitLabSections:
    """Initially folded sections of a job's log: docs.gitlab.com, "Job logs", "Custom collapsible sections"."""

    def __init__(self) -> None:
        self._number = 0

    def group(self, title: str) -> str:
        self._number += 1
        return self._marker("start", "[collapsed=true]") + " ".join(neutralize(title).split())

    def end_group(self) -> str:
        return self._marker("end")

    def _marker(self, edge: str, options: str = "") -> str:
        return f"\x1b[0Ksection_{edge}:{int(time.time())}:agent_eval_{self._number}{options}\r\x1b[0K"


class GitLab(Ci):
    """A job of GitLab CI/CD. For a merge request it tests the head, or a merge into the target branch."""

    log_groups = GitLabSections()
    token_variable = "GITLAB_TOKEN"  # noqa: S105 - a name
    token_hint = "GITLAB_TOKEN: a masked variable with a project access token of scope api (docs/ci.md)"  # noqa: S105 - no token

    def is_running(self, environ: Mapping[str, str]) -> bool:
        return environ.get("GITLAB_CI") == "true"

    def job(self, environ: Mapping[str, str]) -> Job:
        """Return the job. Source: docs.gitlab.com, "Predefined CI/CD variables".

        Ignores CI_MERGE_REQUEST_DIFF_BASE_SHA: it is not updated when the target branch of a merge request changes
        (gitlab-org/gitlab#442031), so a change could choose the commit it is compared with.
        """
        iid = number_of(environ.get("CI_MERGE_REQUEST_IID"))
        target = environ.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "")
        source, sha = environ.get("CI_PIPELINE_SOURCE", ""), sha_of(environ.get("CI_COMMIT_SHA"))
        is_change = bool(iid or target) or source == "merge_request_event"
        default_branch, branch = environ.get("CI_DEFAULT_BRANCH", ""), environ.get("CI_COMMIT_BRANCH", "")
        project = environ.get("CI_MERGE_REQUEST_PROJECT_PATH") or environ.get("CI_PROJECT_PATH", "")
        other = _KINDS.get(source, EventKind.OTHER) if default_branch else EventKind.OTHER
        head = sha_of(environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA")) or sha
        event = Event(
            kind=EventKind.CHANGE if is_change else other,
            name=source,
            ref=f"{_HEADS}{branch}" if branch else environ.get("CI_MERGE_REQUEST_REF_PATH", ""),
            default_branch=default_branch,
            base_ref=target,
            head_sha=head if is_change else None,
            sha=sha,
            clone_hint='GIT_DEPTH: "0"',
            fork=environ.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID") != environ.get("CI_MERGE_REQUEST_PROJECT_ID"),
        )
        return Job(
            event=event,
            change_request=ChangeRequest(project, iid, "!") if project and iid else None,
            commit=event.head_sha or sha,
            definition=environ.get("CI_CONFIG_PATH", "").partition("@")[0],
            run_id=number_of(environ.get("CI_PIPELINE_ID")),
            run_number=number_of(environ.get("CI_PIPELINE_IID")),
            run_attempt=1,
        )

    def posted_run(self, environ: Mapping[str, str]) -> tuple[Job, FindTargets]:
        """Return this job's pipeline, an earlier job of which made the results."""
        job = self.job(environ)
        target, head_sha = job.change_request, job.commit
        if target is None or not head_sha:
            raise UsageError(
                "agent-eval post writes on a merge request, and this pipeline is of none",
                hint="rules: - if: $CI_PIPELINE_SOURCE == 'merge_request_event' (docs/ci.md)",
            )

        def find_targets(host: GitLabNotes) -> tuple[list[ChangeRequest], str]:
            if host.is_open_at(target, head_sha):
                return [target], ""
            return [], f"{target} is not open with {head_sha[:10]} as its head any more"

        return job, find_targets

    def connect(self, environ: Mapping[str, str], token: str, ca_bundle: Path | None) -> GitLabNotes:
        from agent_eval_action.ci.host import GitLabNotes

        url = environ.get("CI_API_V4_URL", "").rstrip("/")
        if not url:
            raise UsageError("CI_API_V4_URL does not say where GitLab's API is")
        return GitLabNotes(url, token, ca_bundle)


class AzurePipelines(Ci):
    """Azure Pipelines. It tests a merge of the change into its base, refs/pull/N/merge."""

    def is_running(self, environ: Mapping[str, str]) -> bool:
        return environ.get("TF_BUILD", "").lower() == "true"

    def job(self, environ: Mapping[str, str]) -> Job:
        """Return the job. Source: learn.microsoft.com, "Use predefined variables"."""
        names = ("SYSTEM_PULLREQUEST_PULLREQUESTNUMBER", "SYSTEM_PULLREQUEST_PULLREQUESTID")
        number = next(filter(None, (number_of(environ.get(name)) for name in names)), 0)
        reason, repository = environ.get("BUILD_REASON", ""), environ.get("BUILD_REPOSITORY_NAME", "")
        head, sha = sha_of(environ.get("SYSTEM_PULLREQUEST_SOURCECOMMITID")), sha_of(environ.get("BUILD_SOURCEVERSION"))
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
            clone_hint='fetchDepth: "0"',
        )
        return Job(event, ChangeRequest(repository, number) if number else None, event.head_sha or sha)


class BitbucketPipelines(Ci):
    """Bitbucket Pipelines. For a pull request it merges the destination into the change before the first step."""

    def is_running(self, environ: Mapping[str, str]) -> bool:
        return bool(environ.get("BITBUCKET_BUILD_NUMBER"))

    def job(self, environ: Mapping[str, str]) -> Job:
        """Return the job. Source: support.atlassian.com, "Variables and secrets"."""
        number, sha = number_of(environ.get("BITBUCKET_PR_ID")), sha_of(environ.get("BITBUCKET_COMMIT"))
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
            clone_hint="clone: depth: full",
        )
        repository = environ.get("BITBUCKET_REPO_FULL_NAME", "")
        return Job(event, ChangeRequest(repository, number) if number else None, sha)


class Jenkins(Ci):
    """A multibranch job of Jenkins. For a change it tests the head, or a merge of the target into the head."""

    def is_running(self, environ: Mapping[str, str]) -> bool:
        return bool(environ.get("JENKINS_URL") and environ.get("JOB_NAME"))

    def job(self, environ: Mapping[str, str]) -> Job:
        """Return the job. Source: ``env-vars.html`` of any Jenkins with the Branch API plugin."""
        number, sha = number_of(environ.get("CHANGE_ID")), sha_of(environ.get("GIT_COMMIT"))
        branch, target = environ.get("BRANCH_NAME", ""), environ.get("CHANGE_TARGET", "")
        is_change = bool(environ.get("CHANGE_ID") or target)
        is_primary = not is_change and environ.get("BRANCH_IS_PRIMARY", "") == "true"
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
        repository = environ.get("JOB_NAME", "").partition("/")[0]
        return Job(event, ChangeRequest(repository, number) if number else None, sha)
