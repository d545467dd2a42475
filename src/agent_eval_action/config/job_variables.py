"""Variables of the CI job itself. They carry its tokens and decide what its later steps do, so no agent gets them."""

from __future__ import annotations

import os
import re
from typing import Final

_PREFIXES: Final = ("ACTIONS", "AGENT_EVAL", "GITHUB", "INPUT", "RUNNER")
_NAMES: Final = (
    "GH_ENTERPRISE_TOKEN",  # what GitHub's own command line reads
    "GH_TOKEN",
    "BITBUCKET_STEP_OIDC_TOKEN",
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
JOB_VARIABLE_PATTERN: Final = f"^((?:{'|'.join(_PREFIXES)})_|(?:{'|'.join(_NAMES)})(?:=|$))"
"""A regular expression that JSON Schema understands too. It matches a name, or ``NAME=value``."""

# On Windows the names of variables have no case.
_MATCHES: Final = re.compile(JOB_VARIABLE_PATTERN, re.IGNORECASE if os.name == "nt" else 0)


def is_job_variable(name: str) -> bool:
    """Whether the variable belongs to the CI job, so that nothing a change brings along may see it."""
    return bool(_MATCHES.match(name))
