"""Says what a release still has to do, from the version in pyproject.toml and the tags there are.

    python release/state.py >> "$GITHUB_OUTPUT"

Prints `version`, `major` (the tag that users name and that moves), and `digest`: the image's, read from the release's
own tag where an earlier run of the workflow has made it, else empty. A version that was released from another commit is
refused, and so is one without a section in CHANGELOG.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def git(*argv: str) -> str:
    """What git prints; empty where it fails."""
    return subprocess.run(["git", "-C", ROOT, *argv], capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603, S607 - git, in a job of our own


def state() -> dict[str, str]:
    """The outputs. Raises ValueError where this commit cannot be released under its version."""
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    if not re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE):
        raise ValueError(f"CHANGELOG.md has no section {version}")
    digest, tag = "", f"v{version}"
    if git("rev-parse", "--verify", "--quiet", f"refs/tags/{tag}"):
        if git("rev-parse", f"{tag}^") != git("rev-parse", "HEAD"):
            raise ValueError(f"{tag} was released from another commit: raise the version in pyproject.toml")
        image = re.search(
            r"^  image: docker://\S+@(sha256:[0-9a-f]{64})$", git("show", f"{tag}:action.yml"), re.MULTILINE
        )
        if image is None:
            raise ValueError(f"the tag {tag} pins no image: it was not made by this workflow")
        digest = image.group(1)
    return {"version": version, "major": f"v{version.partition('.')[0]}", "digest": digest}


if __name__ == "__main__":
    try:
        for name, value in state().items():
            print(f"{name}={value}")
    except ValueError as error:
        sys.exit(f"::error::{error}")
