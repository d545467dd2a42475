"""The files of a commit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from agent_eval_action.git.repository import Repository, TreeEntry

_LINK: Final = "120000"
_PROGRAM: Final = "100755"
_AT_ONCE: Final = 32 << 20  # bytes of files in memory


def export_tree(
    repository: Repository,
    commit: str,
    target: Path,
    cancelled: threading.Event | None = None,
    wanted: Callable[[str, int], bool] | None = None,
) -> None:
    """Write every file of a commit into the folder ``target``, byte for byte as committed.

    Neither index nor worktrees of the repository are touched, and no filter that its configuration names
    is run (files of Git LFS stay pointers); submodules are left out. ``cancelled`` ends it early. With ``wanted``
    (a path in the repository and its size) the files it does not want are left out, their folders made.
    Raises OSError or ValueError saying what could not be written.
    """
    # links last: no file is ever written through one
    files = sorted(repository.all_files(commit), key=lambda file: file.mode == _LINK)
    if wanted is not None:
        for file in files:
            _make_place(target, file.name)
        files = [file for file in files if file.mode == _LINK or wanted(file.name, file.size or 0)]
    for batch in _batches(files):
        contents = repository.blobs(file.oid for file in batch)
        for file in batch:
            if cancelled is not None and cancelled.is_set():
                return
            if file.oid not in contents:
                raise OSError(f"git has no content for {file.name}")
            path = _make_place(target, file.name)
            if file.mode == _LINK:
                path.symlink_to(os.fsdecode(contents[file.oid]))
                continue
            path.write_bytes(contents[file.oid])
            if file.mode == _PROGRAM:
                path.chmod(0o755)


def _batches(files: Sequence[TreeEntry]) -> Iterator[list[TreeEntry]]:
    batch: list[TreeEntry] = []
    size = 0
    for file in files:
        size += file.size or 0
        if batch and size > _AT_ONCE:
            yield batch
            batch, size = [], file.size or 0
        batch.append(file)
    if batch:
        yield batch


def _make_place(target: Path, name: str) -> Path:
    parts = name.split("/")
    if {"", ".", "..", ".git"} & {part.lower() for part in parts}:
        raise ValueError(f"the commit holds a file no checkout would have: {name!r}")
    path = target.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
