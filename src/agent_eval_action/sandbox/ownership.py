"""Give files that root created to the owner of the checkout, so that later steps can delete them."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from agent_eval_action.sandbox.runner import MOUNTED, TEMPORARY, WORKSPACE
from agent_eval_action.sandbox.users import SANDBOX_UIDS

_FIRST: Final = ".agent-eval"
_DEEPEST: Final = 250
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def main() -> None:
    """The action's post-entrypoint: a cancelled container may have been killed before it restored ownership."""
    restore_ownership(owned_folders(os.environ))
    sys.exit(0)


def owned_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the workspace, then the runner's other folders that are mounted into a container action."""
    workspace = Path(environ.get(WORKSPACE, "").strip() or Path.cwd())
    others = (Path(environ[name]) for name in ("HOME", TEMPORARY) if environ.get(name))
    return (workspace, *(folder for folder in others if folder.is_relative_to(MOUNTED)))


def restore_ownership(roots: Iterable[Path], until: float | None = None) -> int:
    """Give all paths under the roots that belong to root or an agent to the first root's owner; return how many.

    Follows no symbolic link, not even one that replaces a folder meanwhile: each folder is opened from its parent. What
    cannot be changed stays. ``until``: when to stop, on the monotonic clock.
    """
    roots = tuple(roots)
    try:
        owner = roots[0].stat()
    except (OSError, IndexError):
        return 0
    if owner.st_uid == 0:  # rootless engines, and machines where root owns everything
        return 0
    return sum(_restore_folder(root, None, owner, until) for root in (roots[0] / _FIRST, *roots))


def _restore_folder(
    path: str | Path, parent: int | None, owner: os.stat_result, until: float | None, depth: int = 0
) -> int:
    """Give a folder and everything below it, down to the depth at which we may write; return how many."""
    given = 0
    with contextlib.suppress(OSError):
        here = os.open(path, _FOLDER, dir_fd=parent)
        try:
            if _must_change_owner(os.fstat(here)):
                os.fchown(here, owner.st_uid, owner.st_gid)
                given += 1
            for name in os.listdir(here) if depth <= _DEEPEST else ():  # noqa: PTH208 - of a descriptor
                if until is not None and time.monotonic() > until:
                    break
                with contextlib.suppress(OSError):  # it is gone, or we may not give it
                    found = os.stat(name, dir_fd=here, follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode) and name != ".git":  # we only read it
                        given += _restore_folder(name, here, owner, until, depth + 1)
                    # we write no sockets and no devices
                    elif (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)) and _must_change_owner(found):
                        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=here, follow_symlinks=False)
                        given += 1
        finally:
            os.close(here)
    return given


def _must_change_owner(found: os.stat_result) -> bool:
    return found.st_uid == 0 or found.st_uid in SANDBOX_UIDS
