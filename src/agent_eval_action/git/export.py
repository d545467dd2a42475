"""The files of a commit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.git.command import Git
from agent_eval_action.git.repository import Repository
from agent_eval_action.git.scratch import blobs

_LINK: Final = "120000"
_PROGRAM: Final = "100755"
_LIST_S: Final = 60.0
_AT_ONCE: Final = 32 << 20  # bytes of files in memory


def folder_in_repository(repository: Repository) -> str:
    """Where the folder lies in its repository: "" at the top, else like ``examples/dice``."""
    return repository.git("rev-parse", "--show-prefix").text.rstrip("/")


def export_tree(
    git: Git,
    commit: str,
    target: Path,
    given_up: threading.Event | None = None,
    wanted: Callable[[str, int], bool] | None = None,
) -> None:
    """Write every file of a commit into the folder ``target``, byte for byte as committed.

    Neither index nor worktrees of the repository are touched, and no filter that its configuration names
    is run (files of Git LFS stay pointers); submodules are left out. ``given_up`` ends it early. With ``wanted``
    (a path in the repository and its size) the files it does not want are left out, their folders made.
    Raises OSError or ValueError saying what could not be written.
    """
    # links last: no file is ever written through one
    files = sorted(_files(git, commit), key=lambda file: file.mode == _LINK)
    if wanted is not None:
        for file in files:
            _place(target, file.path)
        files = [file for file in files if file.mode == _LINK or wanted(file.path, file.size)]
    for some in _in_lots(files):
        contents = blobs(git, [file.oid for file in some])
        for file in some:
            if given_up is not None and given_up.is_set():
                return
            if file.oid not in contents:
                raise OSError(f"git has no content for {file.path}")
            _write(target, file, contents[file.oid])


@dataclass(frozen=True, slots=True)
class _File:
    mode: str
    oid: str
    size: int
    path: str


def _files(git: Git, commit: str) -> Iterator[_File]:
    done = git("ls-tree", "-r", "-z", "-l", "--full-tree", commit, timeout=_LIST_S)
    if not done.ok:
        raise OSError(done.err or f"git cannot list the files of {commit[:10]}")
    for line in done.out.split(b"\0"):
        about, _, path = line.partition(b"\t")
        fields = about.split()
        if len(fields) == 4 and fields[1] == b"blob":  # noqa: PLR2004 - mode, type, object, size
            yield _File(fields[0].decode(), fields[2].decode(), int(fields[3]), os.fsdecode(path))


def _in_lots(files: Sequence[_File]) -> Iterator[list[_File]]:
    lot: list[_File] = []
    size = 0
    for file in files:
        if lot and size + file.size > _AT_ONCE:
            yield lot
            lot, size = [], 0
        lot.append(file)
        size += file.size
    if lot:
        yield lot


def _place(target: Path, name: str) -> Path:
    """Where a file goes, its folder made."""
    parts = name.split("/")
    if {"", ".", "..", ".git"} & {part.lower() for part in parts}:
        raise ValueError(f"the commit holds a file no checkout would have: {name!r}")
    path = target.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write(target: Path, file: _File, data: bytes) -> None:
    path = _place(target, file.path)
    if file.mode == _LINK:
        path.symlink_to(os.fsdecode(data))
        return
    path.write_bytes(data)
    if file.mode == _PROGRAM:
        path.chmod(0o755)
