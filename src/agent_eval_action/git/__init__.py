"""Every git call: plumbing only, with a repository's own hooks, monitors, filters and programs switched off.

The user's repository is only ever read; what has to be fetched or written is fetched into and pushed from
a private one (``Scratch``).
"""

from __future__ import annotations

import os
from pathlib import Path

from agent_eval_action.git.command import Done, Git, agents_begin, agents_end
from agent_eval_action.git.remote import Remote, remote_of
from agent_eval_action.git.repository import Commit, Repository, TreeEntry
from agent_eval_action.git.scratch import Pushed, Scratch

__all__ = [
    "Commit",
    "Done",
    "Git",
    "Pushed",
    "Remote",
    "Repository",
    "Scratch",
    "TreeEntry",
    "agents_begin",
    "agents_end",
    "head_commit",
    "remote_of",
]


def head_commit(workspace: Path) -> str | None:
    """The commit that is checked out, 40 hex digits; None outside a repository or without git."""
    return Repository(workspace, os.environ).resolve("HEAD")
