"""Variables of the CI job. Code of a change must never see them, whatever the configuration allows."""

from __future__ import annotations

import os
import re
from typing import Final

JOB_VARIABLE_PREFIXES: Final = ("ACTIONS", "AGENT_EVAL", "BITBUCKET", "GITHUB", "GITLAB", "INPUT", "RUNNER")
"""Name prefixes, before an underscore."""

JOB_VARIABLE_NAMES: Final = (
    "GH_ENTERPRISE_TOKEN",  # GitHub's CLI reads it
    "GH_TOKEN",
    "BUILDKITE_AGENT_ACCESS_TOKEN",
    "CIRCLE_OIDC_TOKEN",
    "CIRCLE_OIDC_TOKEN_V2",
    "CI_DEPENDENCY_PROXY_PASSWORD",  # GitLab's
    "CI_DEPLOY_PASSWORD",
    "CI_JOB_JWT",
    "CI_JOB_JWT_V2",
    "CI_JOB_TOKEN",
    "CI_REGISTRY_PASSWORD",
    "SYSTEM_ACCESSTOKEN",  # Azure Pipelines'
)
JOB_VARIABLE_PATTERN: Final = f"^((?:{'|'.join(JOB_VARIABLE_PREFIXES)})_|(?:{'|'.join(JOB_VARIABLE_NAMES)})(?:=|$))"
"""A pattern that also works in JSON Schema. It matches a name or ``NAME=value``."""

# On Windows variable names are case-insensitive.
_JOB_VARIABLE: Final = re.compile(JOB_VARIABLE_PATTERN, re.IGNORECASE if os.name == "nt" else 0)


def is_job_variable(name: str) -> bool:
    """Whether the variable belongs to the CI job: it contains the job's tokens or controls its later steps."""
    return bool(_JOB_VARIABLE.match(name))
