"""Folders that we write to: no link below the workspace is followed, whoever puts it there and whenever.

A pull request brings the workspace along, and an agent may change it while we write. So every file of ours is
opened from an open directory, one component after the other and none of them a link. Standard library only:
the container's first process imports this.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a named pipe must not block the open
_BUFFER: Final = 1 << 20
_MAX_DEPTH: Final = 64
_NAME_LENGTH: Final = 100
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


def real_path(path: Path) -> Path:
    """The path without links. Where links form a circle it stays as it is; ``Path.resolve`` raises RuntimeError."""
    return Path(os.path.realpath(path))


def beginning(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, none of one that cannot be read. A fifo of this name does not block."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - opens a descriptor
            return file.read(size) or b""
    except OSError:
        return b""


def relative(path: Path, workspace: Path) -> str:
    """Return a path as outputs show it: from the workspace where it lies in there, with forward slashes."""
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else path.as_posix()


def file_name(name: str) -> str:
    """The name of a file for a name that may hold anything. Different names have different files."""
    safe = _UNSAFE.sub("_", name).lstrip(".")[:_NAME_LENGTH]
    if safe and safe == name:
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe or 'unnamed'}-{digest[:8]}"


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """A folder we write to. Its files are named by paths relative to it, like ``logs/agent.log``.

    ``trusted`` is where the way to the folder begins: this folder is the user's or the machine's own choice, so
    links in its path are followed, and none below it. ``private``: nobody else may read what is made here.
    The folder need not exist: writing makes it. Everything raises OSError.
    """

    path: Path
    trusted: Path
    private: bool = False

    @classmethod
    def at(cls, path: Path, workspace: Path | None = None, *, private: bool = False) -> OutputFolder:
        """The folder at ``path``. Inside the workspace nothing is trusted; elsewhere the path is the user's."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() follows the very links that are asked about
        if workspace is not None:
            inside = below(path, workspace)
            if inside is not None:
                return cls(inside, workspace, private)
        return cls(path, path, private)

    def __truediv__(self, name: str) -> OutputFolder:
        return replace(self, path=self.path.joinpath(*_parts(name)))

    @contextlib.contextmanager
    def handle(self, folders: Iterable[str], *, make: bool = False) -> Iterator[int]:
        """A folder below this one as a descriptor, reached without following a link."""
        if make and not self.trusted.is_dir():
            self.trusted.mkdir(mode=self._mode(0o777), parents=True, exist_ok=True)
        here = os.open(self.trusted, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        passed: tuple[str, ...] = ()
        try:
            for part in (*self.path.relative_to(self.trusted).parts, *folders):
                passed = (*passed, part)
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, self._mode(0o777), dir_fd=here)
                try:
                    inner = os.open(part, _FOLDER, dir_fd=here)
                except OSError as error:
                    raise self._explained(error, passed, here, self.trusted) from None
                os.close(here)
                here = inner
            yield here
        finally:
            os.close(here)

    def make(self) -> None:
        """Make the folder, where it is not there."""
        with self.handle((), make=True):
            pass

    def read(self, name: str, *, buffering: int = -1) -> BinaryIO:
        """A regular file, open for reading."""
        return open(self._open(name, os.O_RDONLY), "rb", buffering)  # noqa: PTH123 - opens a descriptor

    def append(self, name: str) -> BinaryIO:
        """A file open for writing at its end, unbuffered; made where it is not there."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        return open(self._open(name, flags), "ab", buffering=0)  # noqa: PTH123 - opens a descriptor

    def create(self, name: str) -> BinaryIO:
        """A new file in place of whatever had its name, open for writing."""
        self.remove(name)
        return open(self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")  # noqa: PTH123 - as above

    def add(self, name: str, data: bytes) -> bool:
        """Write a file unless something has its name already; whether it was written."""
        try:
            with open(self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:  # noqa: PTH123 - as above
                file.write(data)
        except FileExistsError:
            return False
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(name)  # half a file is none
            raise
        return True

    @contextlib.contextmanager
    def replacing(self, name: str, *, sync: bool = True) -> Iterator[BinaryIO]:
        """A file that takes the place of ``name`` when the block ends well, and is removed when it does not.

        A reader or a crash never sees half a file. A link of that name is replaced, and what it points to is left
        alone. A regular file hands its mode on. ``sync``: the data is on the disk before it has the name.
        """
        *folders, last = _parts(name)
        draft = f".{secrets.token_hex(8)}.tmp"
        with self.handle(folders, make=True) as here:
            before = _regular(last, here)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
            descriptor = os.open(draft, flags, self._mode(0o666), dir_fd=here)
            try:
                with open(descriptor, "wb", buffering=_BUFFER) as file:  # noqa: PTH123 - opens a descriptor
                    if before is not None:
                        os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode) & 0o777)
                    yield file
                    file.flush()
                    if sync:
                        os.fsync(file.fileno())
                os.replace(draft, last, src_dir_fd=here, dst_dir_fd=here)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=here)
                raise

    def replace(self, name: str, chunks: Iterable[bytes], *, sync: bool = True) -> None:
        """Write ``chunks`` as the whole of a file, see :meth:`replacing`."""
        with self.replacing(name, sync=sync) as file:
            file.writelines(chunks)

    def rename(self, old: str, new: str) -> None:
        """Give a file of this folder another name in this folder, in place of whatever had it."""
        (old,), (new,) = _parts(old), _parts(new)
        with self.handle(()) as here:
            os.replace(old, new, src_dir_fd=here, dst_dir_fd=here)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself; nothing where there is none."""
        *folders, last = _parts(name)
        with contextlib.suppress(FileNotFoundError), self.handle(folders) as here:
            os.unlink(last, dir_fd=here)

    def holds(self, name: str) -> bool:
        """Whether there is a regular file of this name."""
        *folders, last = _parts(name)
        with contextlib.suppress(OSError), self.handle(folders) as here:
            return _regular(last, here) is not None
        return False

    def entries(self) -> list[tuple[str, os.stat_result]]:
        """What is right here, sorted by name, links as links; nothing where there is no folder."""
        found: list[tuple[str, os.stat_result]] = []
        with contextlib.suppress(FileNotFoundError), self.handle(()) as here:
            for name in sorted(os.listdir(here)):  # noqa: PTH208 - of a descriptor
                with contextlib.suppress(FileNotFoundError):  # another process may have been faster
                    found.append((name, os.stat(name, dir_fd=here, follow_symlinks=False)))
        return found

    def files(self) -> list[tuple[str, os.stat_result]]:
        """The regular files right here, sorted by name; none where there is no folder."""
        return [(name, found) for name, found in self.entries() if stat.S_ISREG(found.st_mode)]

    def folders(self) -> list[str]:
        """The names of the folders right here; none where there is no folder."""
        return [name for name, found in self.entries() if stat.S_ISDIR(found.st_mode)]

    def first_link(self) -> Path | None:
        """The first link on the way to this folder from the trusted one, None where there is none."""
        place = self.trusted
        for part in self.path.relative_to(self.trusted).parts:
            place /= part
            if place.is_symlink():
                return place
        return None

    def links(self) -> Iterator[str]:
        """Every link in this folder and those below it, as paths relative to it. Bounded in depth, not in number."""
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            place = waiting.pop()
            folder = self / "/".join(place) if place else self
            for name, found in folder.entries():
                if stat.S_ISLNK(found.st_mode):
                    yield "/".join((*place, name))
                elif stat.S_ISDIR(found.st_mode) and len(place) < _MAX_DEPTH:
                    waiting.append((*place, name))

    def _open(self, name: str, flags: int) -> int:
        """A descriptor of a regular file. One that is written has no other name: that could lie anywhere."""
        *folders, last = _parts(name)
        writing = bool(flags & os.O_WRONLY)
        with self.handle(folders, make=writing) as here:
            try:
                descriptor = os.open(last, flags | _FILE, self._mode(0o666), dir_fd=here)
            except OSError as error:
                raise self._explained(error, (*folders, last), here) from None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or (writing and found.st_nlink > 1):
            os.close(descriptor)
            what = "has another name (a hard link)" if stat.S_ISREG(found.st_mode) else "is not a regular file"
            raise OSError(errno.EINVAL, f"{self.path / name} {what}")
        return descriptor

    def _explained(self, error: OSError, parts: Iterable[str], here: int, start: Path | None = None) -> OSError:
        """The same error, or one that says what is a link. Linux says ENOTDIR of a link that is opened as a folder."""
        path = (start or self.path).joinpath(*parts)
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            with contextlib.suppress(OSError):
                if stat.S_ISLNK(os.stat(path.name, dir_fd=here, follow_symlinks=False).st_mode):
                    return OSError(errno.ELOOP, f"{path} is a symbolic link, and links are not followed here")
        return error

    def _mode(self, mode: int) -> int:
        return mode & 0o700 if self.private else mode


def folders_upwards(folder: Path, last: Path) -> list[Path]:
    """The folder and those above it up to ``last``; the folder alone when it does not lie in ``last``."""
    folders = [folder, *folder.parents]
    return folders[: folders.index(last) + 1] if last in folders else [folder]


def below(path: Path, workspace: Path) -> Path | None:
    """The path as one of the workspace, where it lies in there by its name or by links that lead there."""
    if path.is_relative_to(workspace):
        return path
    there = real_path(workspace)
    for parent in reversed((path, *path.parents)):
        real = real_path(parent)
        if real.is_relative_to(there):
            return workspace / real.relative_to(there) / path.relative_to(parent)
    return None


def open_file(path: Path) -> BufferedReader:
    """A regular file to read. A link in its place is not followed, and a pipe there does not block. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | _FILE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return os.fdopen(descriptor, "rb")


def _regular(name: str, here: int) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
        return found if stat.S_ISREG(found.st_mode) else None
    return None


def _parts(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("/"))
    if {"", ".", ".."} & {*parts} or "\0" in name:
        raise OSError(errno.EINVAL, f"{name!r} is not the name of a file here")
    return parts
