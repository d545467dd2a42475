"""Bytes of a file that may be anything: only regular files inside the workspace, UTF-8, of bounded size."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from pathlib import Path

from agent_eval_action.errors import Problem

MAX_JSON_BYTES = 64 * 1024 * 1024  # its values take some twelve times as much memory
MAX_YAML_BYTES = 1024 * 1024  # PyYAML reads about 1 MB in several seconds; nobody writes more by hand


class Unreadable(Exception):  # noqa: N818 - internal signal; the caller raises its own error from it
    """Carries the one problem that ends the reading of a file."""

    def __init__(self, path: Path, message: str, line: int | None = None, **fields: str | None) -> None:
        super().__init__(message)
        self.problem = Problem(
            path=path, message=message, line=line, value=fields.get("value"), hint=fields.get("hint")
        )


def read_bytes(path: Path, workspace: Path | None, limit: int) -> bytes:
    """The bytes of a regular file whose real path lies in ``workspace``."""
    try:
        real = os.path.realpath(path, strict=True)
        if workspace is not None:
            _refuse_outside(path, real, os.path.realpath(workspace))
        # Of the real path nothing may be a link any more; a fifo must not block the open.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _explained(path, error) from None
    except ValueError:
        raise Unreadable(path, "the file name holds a NUL character") from None
    try:
        return _read_regular(path, descriptor, limit)
    finally:
        os.close(descriptor)


def _read_regular(path: Path, descriptor: int, limit: int) -> bytes:
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        raise Unreadable(path, f"is not a regular file but {_kind(state.st_mode)}")
    if state.st_size <= limit:
        chunks, size = [], 0
        while size <= limit and (chunk := os.read(descriptor, 1 << 20)):
            chunks.append(chunk)
            size += len(chunk)
        if size <= limit:
            return b"".join(chunks)
    raise Unreadable(
        path,
        f"is larger than {limit // (1024 * 1024)} MB",
        value=f"{state.st_size} bytes",
        hint="split it into several files",
    )


def decode(path: Path, data: bytes) -> str:
    """UTF-8, with or without a byte order mark; every line end becomes a line feed."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Unreadable(path, "is UTF-16 or UTF-32, not UTF-8", 1, hint="save the file as UTF-8")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        shift = len(data) - len(error.object)
        raise Unreadable(
            path,
            "is not UTF-8",
            data.count(b"\n", 0, error.start + shift) + 1,
            value=f"byte 0x{error.object[error.start]:02x}",
            hint="save the file as UTF-8",
        ) from None
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if (nul := text.find("\0")) >= 0:
        hint = "save the file as UTF-8" if text.count("\0") > len(text) // 4 else None
        raise Unreadable(path, "holds a NUL character", text.count("\n", 0, nul) + 1, hint=hint)
    if not text.strip():
        raise Unreadable(path, "is empty")
    return text


def _refuse_outside(path: Path, real: str, workspace: str) -> None:
    if os.path.commonpath([real, workspace]) != workspace:
        how = "is a link that leads" if os.path.realpath(path.parent) + os.sep + path.name != real else "lies"
        raise Unreadable(
            path, f"{how} outside the workspace", value=real, hint=f"only files under {workspace} are read"
        )
    if ".git" in Path(os.path.relpath(real, workspace).lower()).parts:
        raise Unreadable(path, "lies in git's own folder, or is a link that leads there", value=real)


def _explained(path: Path, error: OSError) -> Unreadable:
    known = {
        errno.ENOENT: "does not exist",
        errno.ENOTDIR: "does not exist",
        errno.EACCES: "cannot be read: permission denied",
        errno.EPERM: "cannot be read: permission denied",
        errno.ELOOP: "is a symbolic link that leads to itself",
        errno.ENXIO: "is not a regular file but a socket",
        errno.ENAMETOOLONG: "has a name that is too long",
    }
    return Unreadable(path, known.get(error.errno or 0, f"cannot be read: {error.strerror or error}"))


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
