"""Limits what a change's code may see and reach: its users, its copy of the tree, closed folders.

The variables and folders below are all that this package knows of GitHub Actions.
"""

from pathlib import Path
from typing import Final

ON_A_RUNNER: Final = "GITHUB_ACTIONS"
WORKSPACE: Final = "GITHUB_WORKSPACE"
TEMPORARY: Final = "RUNNER_TEMP"
EVENT: Final = "GITHUB_EVENT_PATH"
OUTPUT: Final = "GITHUB_OUTPUT"
WRITTEN: Final = (OUTPUT, "GITHUB_STEP_SUMMARY")
"""Variables of files that the command itself writes to."""

NEVER_WRITTEN: Final = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE")
MOUNTED: Final = Path("/github")
"""Where a container action finds the runner's folders."""

MOUNTED_FOLDERS: Final = tuple(str(MOUNTED / name) for name in ("file_commands", "home", "workflow", "runner_temp"))
CREDENTIAL_FILES: Final = "gha-creds-*.json"
"""Files that google-github-actions/auth leaves in the workspace."""
