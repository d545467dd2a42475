"""GitHub Actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agent_eval_action.ci.base import Ci, Job
from agent_eval_action.ci.github import event, outputs
from agent_eval_action.ci.github.log import WorkflowCommands

if TYPE_CHECKING:
    from agent_eval_action.ci.base import PostedRun
    from agent_eval_action.ci.comment import CommentHost


class GitHubActions(Ci):
    """A step of a workflow."""

    log_commands = WorkflowCommands()
    token_variable = "GITHUB_TOKEN"  # noqa: S105 - a name
    token_hint = "env: GITHUB_TOKEN: ${{ github.token }}"  # noqa: S105 - no token

    def is_running(self, environ: Mapping[str, str]) -> bool:
        """Whether the runner says so."""
        return event.is_running(environ)

    def job(self, environ: Mapping[str, str]) -> Job:
        """The job, with the event's file read."""
        return event.read_job(environ, event.read_payload(environ))

    def write_outputs(self, values: Mapping[str, str], environ: Mapping[str, str]) -> str:
        """Append to the file GITHUB_OUTPUT names."""
        return outputs.write_outputs(values, environ)

    def append_summary(self, render: Callable[[int], str], environ: Mapping[str, str]) -> str:
        """Append to the file GITHUB_STEP_SUMMARY names."""
        return outputs.append_summary(render, environ)

    def posted_run(self, environ: Mapping[str, str]) -> PostedRun:
        """The run that a workflow_run is of."""
        from agent_eval_action.ci.github.post import TriggeringRun

        return TriggeringRun.read(environ, event.read_payload(environ))

    def connect(self, environ: Mapping[str, str], token: str, ca_bundle: Path | None) -> CommentHost:
        """GitHub's API."""
        from agent_eval_action.ci.github.client import GitHubClient

        return GitHubClient.connect(environ, token, ca_bundle)
