"""GitLab: what a pipeline is of, and whose merge request its results are posted on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent_eval_action.ci.base import ChangeRequest, Ci, Job, PostedRun, number_of, sha_of
from agent_eval_action.errors import UsageError
from agent_eval_action.git.base_commit import Event, EventKind

if TYPE_CHECKING:
    from agent_eval_action.ci.gitlab_notes import GitLabNotes

_KINDS: Final = {
    "push": EventKind.PUSH,
    "schedule": EventKind.SCHEDULE,
    "web": EventKind.MANUAL,
    "api": EventKind.MANUAL,
    "trigger": EventKind.MANUAL,
}


class GitLab(Ci):
    """A job of GitLab CI/CD. A merge request's is of its head, or of a merge into the target branch."""

    token_variable = "GITLAB_TOKEN"  # noqa: S105 - a name
    token_hint = "GITLAB_TOKEN: a masked variable with a project access token of scope api (docs/ci.md)"  # noqa: S105 - no token

    def is_running(self, environ: Mapping[str, str]) -> bool:
        return environ.get("GITLAB_CI") == "true"

    def job(self, environ: Mapping[str, str]) -> Job:
        """The job: docs.gitlab.com, "Predefined CI/CD variables".

        CI_MERGE_REQUEST_DIFF_BASE_SHA is not used: it stays as it was when the target branch of a merge request is
        changed (gitlab-org/gitlab#442031), so that a change could choose the commit it is compared with.
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
            ref=f"refs/heads/{branch}" if branch else environ.get("CI_MERGE_REQUEST_REF_PATH", ""),
            default_branch=default_branch,
            base_ref=target,
            head_sha=head if is_change else None,
            sha=sha,
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

    def posted_run(self, environ: Mapping[str, str]) -> PostedRun:
        """The pipeline this job is in: an earlier job of it made the results."""
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

        return PostedRun(job, find_targets)

    def connect(self, environ: Mapping[str, str], token: str, ca_bundle: Path | None) -> GitLabNotes:
        from agent_eval_action.ci.gitlab_notes import GitLabNotes

        url = environ.get("CI_API_V4_URL", "").rstrip("/")
        if not url:
            raise UsageError("CI_API_V4_URL does not say where GitLab's API is")
        return GitLabNotes(url, token, ca_bundle)
