"""Guard a step on the runner itself, where agents run as our user and could write what the runner reads next.

Before any agent runs, the command's first process saves the content of the runner's files and the state of the tool's.
When everything else has ended, it gives the runner exactly what the command itself wrote. Standard library only, all
imported before there is an agent.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.sandbox import NEVER_WRITTEN, OUTPUT, TEMPORARY, WRITTEN

_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRECOMPILED: Final = "__pycache__"
_PACKAGES: Final = frozenset({"site-packages", "dist-packages"})
_COMPILED_BY_AGENTS: Final = ("agent_eval_action", "worker", _PRECOMPILED)
"""The bytecode of ours that agents' interpreters compile, and only they run."""

FileState = tuple[int, int, int]
"""Inode, size and ctime of a file. The ctime cannot be set, except by changing root's clock."""


@dataclass(slots=True)
class _GuardedFile:
    """An open file of the runner, with its content before, and what the command wrote in its place."""

    name: str
    descriptor: int
    before: bytes
    written: int | None = None

    def restore(self) -> bool:
        """Leave the earlier content and what the command wrote; False if others wrote too. Raises OSError."""
        untouched = _read_all(self.descriptor) == self.before
        added = _read_all(self.written) if self.written is not None else b""
        if not untouched:
            os.ftruncate(self.descriptor, 0)
            _append(self.descriptor, self.before)
        _append(self.descriptor, added)
        return untouched


class StepGuard:
    """Watches files while a command runs: the runner's, and the tool's if nobody else uses them.

    It sets variables in ``environ`` to files for the command to write that no other process can open.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._roots = tool_folders(environ)
        if self._roots:
            sys.dont_write_bytecode = True  # so that new files in the tool's folders are an agent's
        self._tool = dict(_file_states(self._roots))
        self._files: list[_GuardedFile] = []
        for name in (*WRITTEN, *NEVER_WRITTEN):
            if path := environ.get(name):
                with contextlib.suppress(OSError):
                    self._keep(name, path, environ)

    def finish(self) -> list[str]:
        """Give the runner what the command wrote. Returns sentences about what others did."""
        found = []
        for file in self._files:
            try:
                if not file.restore():
                    found.append(f"something that ran in this step wrote to {file.name}, and that was taken out again")
            except OSError as error:
                found.append(f"{file.name} could not be written: {error.strerror or error}")
        if changed := self._first_changed():
            found.append(f"files of agent-eval itself were changed while it ran, {changed} for example")
            withdrawal = b"verdict=inconclusive\nreason=files of agent-eval itself were changed\n"
            for file in self._files:
                if file.name == OUTPUT:
                    with contextlib.suppress(OSError):
                        _append(file.descriptor, withdrawal)
        return found

    def _keep(self, name: str, path: str, environ: MutableMapping[str, str]) -> None:
        descriptor = os.open(path, _APPEND)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return
        kept = _GuardedFile(name, descriptor, _read_all(descriptor))
        if name in WRITTEN:
            kept.written = os.memfd_create(f"agent-eval-{name.lower()}")
            environ[name] = f"/proc/self/fd/{kept.written}"
        self._files.append(kept)

    def _first_changed(self) -> str:
        """Return a file of the tool that has changed; "" if none has."""
        now = dict(_file_states(self._roots))
        for path, state in self._tool.items():
            if now.get(path) != state:
                return path
        for path in now.keys() - self._tool.keys():
            # an agent on the same Python may compile its standard library for all
            if _PRECOMPILED not in Path(path).parts or Path(path).is_relative_to(sys.prefix):
                return path
        return ""


def tool_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders that the tool imports from and this user can write to, if host/install.sh made them.

    Elsewhere the tool may share a Python with the agent, which may install packages there.
    """
    temporary = environ.get(TEMPORARY, "")
    prefix = Path(sys.prefix)
    if not temporary or not prefix.resolve().is_relative_to(Path(temporary).resolve()):
        return ()
    places = [prefix, *(Path(entry) for entry in sys.path if Path(entry).is_dir() and os.access(entry, os.W_OK))]
    return tuple(place for place in dict.fromkeys(places) if place == prefix or not place.is_relative_to(prefix))


def _file_states(roots: tuple[Path, ...]) -> Iterator[tuple[str, FileState]]:
    for root in roots:
        for folder, folders, names in os.walk(root):
            if Path(folder).parts[-len(_COMPILED_BY_AGENTS) :] == _COMPILED_BY_AGENTS:
                folders.clear()
                continue
            if root != Path(sys.prefix):  # an installation of Python, whose packages are not on our path
                folders[:] = [name for name in folders if name not in _PACKAGES]
            for name in names:
                path = f"{folder}/{name}"
                with contextlib.suppress(OSError):
                    found = os.lstat(path)
                    yield path, (found.st_ino, found.st_size, found.st_ctime_ns)


def _read_all(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0) if size else b""


def _append(descriptor: int, data: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_END)
    while data:
        data = data[os.write(descriptor, data) :]
