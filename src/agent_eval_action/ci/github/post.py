"""The earlier run that a workflow_run is of, from GitHub's event. The event is trusted, the run's results are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.github.client import GitHubClient, Pull
from agent_eval_action.ci.github.event import sha_of, text_of, value_at
from agent_eval_action.errors import UsageError

_MANY: Final = 10**15


@dataclass(frozen=True, slots=True)
class TriggeringRun:
    """The run this workflow_run is of, as GitHub's event has it.

    ``repository`` is where its pull requests ask to be merged; ``head_owner`` and ``head_id`` name the
    repository its commits are in, ``head_id`` is None when that is gone.
    """

    repository: str
    repository_id: int
    event: str
    head_sha: str
    head_branch: str
    head_owner: str
    head_id: int | None
    name: str = ""
    run_id: int = 0
    run_number: int = 0
    run_attempt: int = 1

    @property
    def fork(self) -> bool:
        """Whether its commits are in another repository."""
        return self.head_id != self.repository_id

    @classmethod
    def read(cls, environ: Mapping[str, str], payload: Any) -> TriggeringRun:
        """From this job's event. Raises UsageError where it is no workflow_run, or does not say what it is of."""
        name = environ.get("GITHUB_EVENT_NAME", "")
        if name != "workflow_run":
            where = f"not on {name}" if name else "not on a terminal"
            text = f"agent-eval post posts the results of an earlier run: it belongs on workflow_run, {where}"
            raise UsageError(text, hint="docs/forks.md has both workflows")
        run = value_at(payload, "workflow_run")
        found = cls(
            repository=text_of(value_at(payload, "repository", "full_name")),
            repository_id=_id(value_at(payload, "repository", "id")),
            event=text_of(value_at(run, "event")),
            head_sha=sha_of(value_at(run, "head_sha")) or "",
            head_branch=text_of(value_at(run, "head_branch")),
            head_owner=text_of(value_at(run, "head_repository", "owner", "login")),
            head_id=_id(value_at(run, "head_repository", "id")) or None,
            name=text_of(value_at(run, "name")),
            run_id=_id(value_at(run, "id")),
            run_number=_id(value_at(run, "run_number")),
            run_attempt=_id(value_at(run, "run_attempt")) or 1,
        )
        if not found.repository or not found.repository_id or not found.head_sha:
            raise UsageError("the event does not say which run it is of", hint="GITHUB_EVENT_PATH names its payload")
        return found

    def targets(self, host: GitHubClient) -> tuple[list[ChangeRequest], str]:
        """The open pull requests the run is of, and where there is none, why. Raises ApiError.

        By commit GitHub finds none for forks; by owner and branch it does, and more than is meant: the same branch
        may have moved on, or a repository of the same owner may have one of that name.
        """
        if self.event != "pull_request":
            return [], f"the run before was made on {self.event or 'an unknown event'}, not on a pull request"
        if self.head_id is None or not self.head_owner or not self.head_branch:
            return [], "the repository the run's commits were in is gone"
        found = host.pulls_of_head(self.repository, self.head_owner, self.head_branch)
        mine = [ChangeRequest(self.repository, pull.number) for pull in found if self._is_head_of(pull)]
        return mine, "" if mine else f"no open pull request has {self.head_sha[:10]} as its head any more"

    def _is_head_of(self, pull: Pull) -> bool:
        return (
            pull.state == "open"
            and pull.head.sha == self.head_sha
            and pull.head.repo is not None
            and pull.head.repo.id == self.head_id
            and pull.base.repo is not None
            and pull.base.repo.id == self.repository_id
        )


def _id(value: Any) -> int:
    """A number GitHub names things with; 0 for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MANY else 0
