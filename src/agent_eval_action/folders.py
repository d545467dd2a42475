"""Folders that we write to, safe against symbolic links below the workspace.

A pull request supplies the workspace, and an agent may change it while we write. So every file of ours is opened
relative to an open directory, one path component at a time, and none of them may be a link. Standard library only:
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
    """The path without links. Circular links are kept as they are; ``Path.resolve`` raises RuntimeError for them."""
    return Path(os.path.realpath(path))


def beginning(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, b"" if it cannot be read. Does not block on a named pipe."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - opens a descriptor
            return file.read(size) or b""
    except OSError:
        return b""


def relative(path: Path, workspace: Path) -> str:
    """Return a path for display: relative to the workspace if it lies inside, with forward slashes."""
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else path.as_posix()


def file_name(name: str) -> str:
    """A safe file name for any text. Different texts have different names."""
    safe = _UNSAFE.sub("_", name).lstrip(".")[:_NAME_LENGTH]
    if safe and safe == name:
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe or 'unnamed'}-{digest[:8]}"


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """A folder we write to. Its files are named by paths relative to it, like ``logs/agent.log``.

    ``trusted`` is the user's or the machine's own choice of folder: links in its path are followed, links below it are
    not. ``private``: other users cannot read the files made here. The folder need not exist; writing creates it.
    Every method raises OSError.
    """

    path: Path
    trusted: Path
    private: bool = False

    @classmethod
    def at(cls, path: Path, workspace: Path | None = None, *, private: bool = False) -> OutputFolder:
        """The folder at ``path``. Nothing inside the workspace is trusted; a path elsewhere is the user's choice."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the links that must be found
        if workspace is not None:
            inside = below(path, workspace)
            if inside is not None:
                return cls(inside, workspace, private)
        return cls(path, path, private)

    def __truediv__(self, name: str) -> OutputFolder:
        return replace(self, path=self.path.joinpath(*_parts(name)))

    @contextlib.contextmanager
    def handle(self, folders: Iterable[str], *, make: bool = False) -> Iterator[int]:
        """A folder below this one as a descriptor, opened without following links."""
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
                    raise self._explain_link(error, passed, here, self.trusted) from None
                os.close(here)
                here = inner
            yield here
        finally:
            os.close(here)

    def make(self) -> None:
        """Create the folder if it does not exist."""
        with self.handle((), make=True):
            pass

    def read(self, name: str, *, buffering: int = -1) -> BinaryIO:
        """Open a regular file for reading."""
        return open(self._open(name, os.O_RDONLY), "rb", buffering)  # noqa: PTH123 - opens a descriptor

    def append(self, name: str) -> BinaryIO:
        """Open a file for unbuffered writing at its end; create it if needed."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        return open(self._open(name, flags), "ab", buffering=0)  # noqa: PTH123 - opens a descriptor

    def create(self, name: str) -> BinaryIO:
        """Open a new file for writing, in place of whatever had its name."""
        self.remove(name)
        return open(self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")  # noqa: PTH123 - as above

    @contextlib.contextmanager
    def replacing(self, name: str, *, sync: bool = True) -> Iterator[BinaryIO]:
        """Open a draft that replaces ``name`` if the block succeeds, and is removed if it fails.

        Neither a reader nor a crash ever sees a partial file. A link of that name is replaced, its target left alone. A
        regular file passes on its mode. ``sync``: flush the data to disk before renaming.
        """
        *folders, last = _parts(name)
        draft = f".{secrets.token_hex(8)}.tmp"
        with self.handle(folders, make=True) as here:
            before = _stat_regular_file(last, here)
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
        """Replace the whole content of a file, see :meth:`replacing`."""
        with self.replacing(name, sync=sync) as file:
            file.writelines(chunks)

    def rename(self, old: str, new: str) -> None:
        """Rename a file within this folder, replacing whatever had the new name."""
        (old,), (new,) = _parts(old), _parts(new)
        with self.handle(()) as here:
            os.replace(old, new, src_dir_fd=here, dst_dir_fd=here)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself, if it exists."""
        *folders, last = _parts(name)
        with contextlib.suppress(FileNotFoundError), self.handle(folders) as here:
            os.unlink(last, dir_fd=here)

    def holds(self, name: str) -> bool:
        """Whether a regular file of this name exists."""
        *folders, last = _parts(name)
        with contextlib.suppress(OSError), self.handle(folders) as here:
            return _stat_regular_file(last, here) is not None
        return False

    def entries(self) -> list[tuple[str, os.stat_result]]:
        """The folder's direct entries, sorted by name, links as links; none if the folder does not exist."""
        found: list[tuple[str, os.stat_result]] = []
        with contextlib.suppress(FileNotFoundError), self.handle(()) as here:
            for name in sorted(os.listdir(here)):  # noqa: PTH208 - pathlib cannot list a descriptor
                with contextlib.suppress(FileNotFoundError):  # another process may have removed it
                    found.append((name, os.stat(name, dir_fd=here, follow_symlinks=False)))
        return found

    def files(self) -> list[tuple[str, os.stat_result]]:
        """The folder's regular files, sorted by name; none if the folder does not exist."""
        return [(name, found) for name, found in self.entries() if stat.S_ISREG(found.st_mode)]

    def folders(self) -> list[str]:
        """The names of the direct subfolders; none if the folder does not exist."""
        return [name for name, found in self.entries() if stat.S_ISDIR(found.st_mode)]

    def first_link(self) -> Path | None:
        """The first link on the path from the trusted folder to this one; None if there is none."""
        place = self.trusted
        for part in self.path.relative_to(self.trusted).parts:
            place /= part
            if place.is_symlink():
                return place
        return None

    def links(self) -> Iterator[str]:
        """Every link in this folder and below, as relative paths. Limited in depth, not in number."""
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
        """Open a regular file. A file to write must have no hard link, whose other name could lie anywhere."""
        *folders, last = _parts(name)
        writing = bool(flags & os.O_WRONLY)
        with self.handle(folders, make=writing) as here:
            try:
                descriptor = os.open(last, flags | _FILE, self._mode(0o666), dir_fd=here)
            except OSError as error:
                raise self._explain_link(error, (*folders, last), here) from None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or (writing and found.st_nlink > 1):
            os.close(descriptor)
            what = "has another name (a hard link)" if stat.S_ISREG(found.st_mode) else "is not a regular file"
            raise OSError(errno.EINVAL, f"{self.path / name} {what}")
        return descriptor

    def _explain_link(self, error: OSError, parts: Iterable[str], here: int, start: Path | None = None) -> OSError:
        """The same error, or one that names the link. Linux returns ENOTDIR for a link opened as a folder."""
        path = (start or self.path).joinpath(*parts)
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            with contextlib.suppress(OSError):
                if stat.S_ISLNK(os.stat(path.name, dir_fd=here, follow_symlinks=False).st_mode):
                    return OSError(errno.ELOOP, f"{path} is a symbolic link, and links are not followed here")
        return error

    def _mode(self, mode: int) -> int:
        return mode & 0o700 if self.private else mode


def folders_upwards(folder: Path, last: Path) -> list[Path]:
    """The folder and its parents up to ``last``; only the folder if it lies outside ``last``."""
    folders = [folder, *folder.parents]
    return folders[: folders.index(last) + 1] if last in folders else [folder]


def below(path: Path, workspace: Path) -> Path | None:
    """The path inside the workspace, if it lies there by name or through links; else None."""
    if path.is_relative_to(workspace):
        return path
    there = real_path(workspace)
    for parent in reversed((path, *path.parents)):
        real = real_path(parent)
        if real.is_relative_to(there):
            return workspace / real.relative_to(there) / path.relative_to(parent)
    return None


def open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading. Neither follows a link nor blocks on a named pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | _FILE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return os.fdopen(descriptor, "rb")


def _stat_regular_file(name: str, here: int) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
        return found if stat.S_ISREG(found.st_mode) else None
    return None


def _parts(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("/"))
    if {"", ".", ".."} & {*parts} or "\0" in name:
        raise OSError(errno.EINVAL, f"{name!r} is not the name of a file here")
    return parts
