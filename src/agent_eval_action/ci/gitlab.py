"""The part of GitLab's API that comments (notes of a merge request) need, and the pipeline whose results are posted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote

from agent_eval_action.ci.base import ChangeRequest, FindTargets, Job
from agent_eval_action.ci.host import Account, ApiErrorKind, Clock, CommentHost
from agent_eval_action.errors import UsageError

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
        """Return whether the merge request is open with this head."""
        found = self.read(dict[str, Any], "GET", self._url(target), f"read the merge request {target}")
        return (found.get("state"), found.get("sha")) == ("opened", head_sha)

    def comments_url(self, target: ChangeRequest) -> str:
        return f"{self._url(target)}/notes"

    def escape(self, text: str) -> str:
        """Disarm quick actions in ``text`` with an invisible character."""
        return _QUICK_ACTION.sub("\\1\N{ZERO WIDTH SPACE}", text)

    def _url(self, target: ChangeRequest) -> str:
        return f"{self.url}/projects/{quote(target.repository, safe='')}/merge_requests/{target.number}"


def read_posted_run(job: Job) -> tuple[Job, FindTargets]:
    """Return this job's pipeline, an earlier job of which made the results. Raises UsageError without a target."""
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
