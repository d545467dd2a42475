"""The CI that a command runs in: ``CIS``, of which the first that is running is taken, otherwise none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent_eval_action.ci.base import Ci, Job
from agent_eval_action.ci.github import GitHubActions
from agent_eval_action.ci.pipelines import AzurePipelines, BitbucketPipelines, GitLab, Jenkins

__all__ = ["CIS", "Ci", "Job", "detect"]

CIS: Final[tuple[Ci, ...]] = (GitHubActions(), GitLab(), AzurePipelines(), BitbucketPipelines(), Jenkins())


def detect(environ: Mapping[str, str]) -> Ci:
    """The CI this process runs in."""
    return next((ci for ci in CIS if ci.is_running(environ)), Ci())
