"""Gives what root wrote into the runner's folders to the checkout's owner, whom it would otherwise be in the way of."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_OURS: Final = range(60_580, 61_181)  # the uids that agents and builds run as; see interpreter.isolation_user
_FIRST: Final = ".agent-eval"
_GITHUB: Final = Path("/github")
_DEEPEST: Final = 250


def main() -> None:
    """The action's post-entrypoint: after a cancel the container may have been killed before it came to this."""
    restore_ownership(owned_folders(os.environ))
    sys.exit(0)


def owned_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The workspace, then the runner's other folders that are mounted into a container action."""
    workspace = Path(environ.get("GITHUB_WORKSPACE", "").strip() or Path.cwd())
    others = (Path(environ[name]) for name in ("HOME", "RUNNER_TEMP") if environ.get(name))
    return (workspace, *(place for place in others if place.is_relative_to(_GITHUB)))


def restore_ownership(roots: Iterable[Path], until: float | None = None) -> int:
    """Give every path under the roots that is root's or an agent's to the first root's owner; returns how many.

    No symbolic link is followed, not even one that takes a folder's place while we look: each folder is entered
    from the one above it. What cannot be changed stays. ``until``: when to stop, on the monotonic clock.
    """
    roots = tuple(roots)
    try:
        owner = roots[0].stat()
    except (OSError, IndexError):
        return 0
    if owner.st_uid == 0:  # rootless engines, and machines where all is root's
        return 0
    given = _OwnerChange(owner.st_uid, owner.st_gid, until)
    for root in (roots[0] / _FIRST, *roots):
        with contextlib.suppress(OSError):
            top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                given.one(root.name, os.fstat(top), fd=top)
                given.folder(top)
            finally:
                os.close(top)
    return given.count


class _OwnerChange:
    """One walk: whom to give to, until when, and how many were given."""

    def __init__(self, uid: int, gid: int, until: float | None) -> None:
        self.count = 0
        self._uid, self._gid, self._until = uid, gid, until

    def folder(self, here: int, depth: int = 0) -> None:
        """Everything below an open folder, but for what lies deeper than anything that we write."""
        if depth > _DEEPEST:
            return
        with contextlib.suppress(OSError):
            for name in os.listdir(here):
                if self._until is not None and time.monotonic() > self._until:
                    return
                self._entry(name, here, depth)

    def one(self, name: str, found: os.stat_result, *, here: int | None = None, fd: int | None = None) -> None:
        """One path, unless it belongs to somebody already."""
        if found.st_uid != 0 and found.st_uid not in _OURS:
            return
        if fd is not None:
            os.fchown(fd, self._uid, self._gid)
        else:
            os.chown(name, self._uid, self._gid, dir_fd=here, follow_symlinks=False)
        self.count += 1

    def _entry(self, name: str, here: int, depth: int) -> None:
        with contextlib.suppress(OSError):  # it went, or it is not ours to give
            found = os.stat(name, dir_fd=here, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                # sockets and devices are nothing we write
                if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
                    self.one(name, found, here=here)
                return
            if name == ".git":  # only ever read
                return
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            try:
                self.one(name, os.fstat(inner), fd=inner)
                self.folder(inner, depth + 1)
            finally:
                os.close(inner)
