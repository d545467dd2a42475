"""Detects the CI that a command runs in: the first of ``CIS`` that is running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent_eval_action.ci.base import Ci, Job
from agent_eval_action.ci.github_actions import GitHubActions
from agent_eval_action.ci.pipelines import AzurePipelines, BitbucketPipelines, GitLab, Jenkins

__all__ = ["CIS", "Ci", "Job", "detect"]

CIS: Final[tuple[Ci, ...]] = (GitHubActions(), GitLab(), AzurePipelines(), BitbucketPipelines(), Jenkins())


def detect(environ: Mapping[str, str]) -> Ci:
    """Return the CI this process runs in; the base class ``Ci`` for a local run."""
    return next((ci for ci in CIS if ci.is_running(environ)), Ci())
