"""Every git call: read-only plumbing with the repository's own hooks, monitors and filters switched off."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_TIMEOUT_S = 10
# The workspace's .git/config is untrusted: it may name programs to run.
_OFF = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "diff.external=",
    "protocol.ext.allow=never",
)


def head_commit(workspace: Path) -> str | None:
    """The commit that is checked out, 40 hex digits; None outside a repository or without git."""
    out = _git(workspace, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return out if out and len(out) in {40, 64} else None


def _git(workspace: Path, *args: str) -> str | None:
    program = shutil.which("git")
    if program is None:
        return None
    options = [part for setting in _OFF for part in ("-c", setting)]
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        # in a container the repository belongs to another uid
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    try:
        done = subprocess.run(  # noqa: S603 - argv is ours, no shell
            [program, *options, "-C", str(workspace), *args],
            capture_output=True,
            check=False,
            text=True,
            timeout=_TIMEOUT_S,
            env=environ,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
