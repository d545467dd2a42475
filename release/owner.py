"""Renames the owner of the repository everywhere it stands: actions, recipes, image, schema's address, reviewers.

    python release/owner.py NAME

The one place it is read from is `Repository` of `[project.urls]` in pyproject.toml; a contract test holds all other
mentions to it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = "agent-eval-action"


def owner(root: Path = ROOT) -> str:
    """The owner that pyproject.toml names."""
    address = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    found = re.fullmatch(rf"https://github\.com/([a-z0-9-]+)/{PROJECT}", address)
    if found is None:
        raise ValueError(f"{address!r} is no address of a repository named {PROJECT}")
    return found.group(1)


def rename(root: Path, new: str) -> list[str]:
    """Rewrite every tracked text file. Returns the paths that changed."""
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", new):
        raise ValueError(f"{new!r} is no owner: lower case, digits and single hyphens")
    old = re.escape(owner(root))
    mention = re.compile(rf"(?<![\w.-]){old}(?=/{PROJECT}\b)|(?<=@){old}(?=/(?:maintainers|release-managers)\b)")
    tracked = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout  # noqa: S603, S607 - git, in the checkout
    changed = []
    for name in filter(None, tracked.split("\0")):
        path = root / name
        try:
            text = path.read_bytes().decode()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        renamed = mention.sub(new, text)
        if renamed != text:
            path.write_bytes(renamed.encode())
            changed.append(name)
    return changed


if __name__ == "__main__":
    print("\n".join(rename(ROOT, sys.argv[1])))
