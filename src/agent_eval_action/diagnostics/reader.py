"""Read JSON and YAML files from a workspace, with the line of every value.

Files may be anything (fifos, bombs, links out of the workspace, broken encodings); each results in a problem.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_eval_action.diagnostics.json_positions import JsonLines, parse_json
from agent_eval_action.diagnostics.suggestions import JsonPath, closest, did_you_mean, json_path_text, plural, shorten
from agent_eval_action.errors import AgentEvalError, Problem, Unreadable

__all__ = ["JsonPath", "Source", "closest", "did_you_mean", "json_path_text", "plural", "shorten"]

YAML_SUFFIXES: Final = (".yaml", ".yml")
MAX_JSON_BYTES: Final = 64 * 1024 * 1024  # its values take about twelve times as much memory
MAX_YAML_BYTES: Final = 1024 * 1024  # PyYAML takes several seconds for 1 MB; nobody writes more by hand


@dataclass(frozen=True, eq=False)
class Source:
    """A file's text and value. ``warnings``: what is legal but looks wrong, such as repeated keys.

    ``line`` returns the 1-based line where the value at a JSON path begins, or None. The first call scans the text;
    then the lines of all items of a list are cheap.
    """

    path: Path
    text: str = field(repr=False)
    value: Any = field(repr=False)
    line: Callable[[JsonPath], int | None] = field(repr=False)
    warnings: tuple[Problem, ...] = ()

    @classmethod
    def read(cls, path: Path, *, workspace: Path | None, error: type[AgentEvalError]) -> Source:
        """Read a file; ``.yaml`` and ``.yml`` are YAML, all others JSON.

        ``workspace``: the folder that must contain the file's real path (None: anywhere).
        Raises ``error`` with problems.
        """
        return cls.parse(read_text(path, workspace=workspace, error=error), path=path, error=error)

    @classmethod
    def parse(cls, text: str, *, path: Path, error: type[AgentEvalError]) -> Source:
        """Parse text. ``path`` names it in messages, and its suffix decides between JSON and YAML."""
        try:
            if _is_yaml(path):
                from agent_eval_action.diagnostics.yaml_loader import parse_yaml  # noqa: PLC0415 - PyYAML is slow to load

                return cls(path, text, *parse_yaml(path, text))
            value, warnings = parse_json(path, text)
        except Unreadable as unreadable:
            raise refusal(path, unreadable, error) from None
        return cls(path, text, value, JsonLines(text).line, tuple(warnings))

    @property
    def json(self) -> str | None:
        """The text if it is JSON, so that validating it as JSON needs no serialization; else None."""
        return None if _is_yaml(self.path) else self.text

    def nearest_line(self, json_path: JsonPath) -> int | None:
        """The line of the value, or of the nearest container if the value is missing."""
        for length in range(len(json_path), -1, -1):
            if (found := self.line(json_path[:length])) is not None:
                return found
        return None

    def problem(self, json_path: JsonPath, message: str, **fields: Any) -> Problem:
        """A problem at a path of this file, with the line."""
        return Problem(
            path=self.path,
            message=message,
            line=self.nearest_line(json_path),
            json_path=json_path_text(json_path) if json_path else None,
            **fields,
        )


_ERRORS: Final = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "does not exist",
    errno.EACCES: "cannot be read: permission denied",
    errno.EPERM: "cannot be read: permission denied",
    errno.ELOOP: "is a symbolic link that leads to itself",
    errno.ENXIO: "is not a regular file but a socket",
    errno.ENAMETOOLONG: "has a name that is too long",
}
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in YAML_SUFFIXES


def read_text(path: Path, *, workspace: Path | None, error: type[AgentEvalError]) -> str:
    """Read a file's text with the limits of ``Source.read``. Raises ``error`` with problems."""
    try:
        text = decode(path, read_bytes(path, workspace, MAX_YAML_BYTES if _is_yaml(path) else MAX_JSON_BYTES))
    except Unreadable as unreadable:
        raise refusal(path, unreadable, error) from None
    if not text.strip():
        raise refusal(path, Unreadable(path, "is empty"), error)
    return text


def refusal(path: Path, unreadable: Unreadable, error: type[AgentEvalError]) -> AgentEvalError:
    """The error for a file that cannot be read, with its problem."""
    return error(f"{Problem(path, '').where} cannot be read", problems=(unreadable.problem,))


def read_bytes(path: Path, workspace: Path | None, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes whose real path is in ``workspace``. Raises Unreadable."""
    descriptor = open_regular(path, workspace, limit)
    chunks, size = [], 0
    try:
        while size <= limit and (chunk := os.read(descriptor, 1 << 20)):
            chunks.append(chunk)
            size += len(chunk)
    finally:
        os.close(descriptor)
    if size > limit:
        raise _too_large(path, size, limit)
    return b"".join(chunks)


def open_regular(path: Path, workspace: Path | None, limit: int) -> int:
    """Open a regular file of at most ``limit`` bytes whose real path is in ``workspace``. Raises Unreadable."""
    try:
        real = os.path.realpath(path, strict=True)
        if workspace is not None:
            _refuse_outside(path, real, os.path.realpath(workspace))
        # the last part of the real path must not be a link by now, and a fifo must not block
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        message = _ERRORS.get(error.errno or 0, f"cannot be read: {error.strerror or error}")
        raise Unreadable(path, message) from None
    except ValueError:
        raise Unreadable(path, "the file name holds a NUL character") from None
    state = os.fstat(descriptor)
    if stat.S_ISREG(state.st_mode) and state.st_size <= limit:
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(state.st_mode):
        raise _too_large(path, state.st_size, limit)
    kind = _KINDS.get(stat.S_IFMT(state.st_mode), "something else")
    raise Unreadable(path, f"is not a regular file but {kind}")


def _too_large(path: Path, size: int, limit: int) -> Unreadable:
    message = f"is larger than {limit // (1024 * 1024)} MB"
    hint = "split it into several files"
    if path.suffix.lower() == ".json":
        hint += f", or a list of rows into lines: `jq -c '.[]' {path.name} > {path.stem}.jsonl`"
    return Unreadable(path, message, value=f"{size} bytes", hint=hint)


def decode(path: Path, data: bytes, line: int = 1) -> str:
    """Decode UTF-8 and turn all line ends into line feeds. Raises Unreadable.

    ``line``: the line of the file where ``data`` begins; a byte order mark is allowed only in line 1.
    """
    hint = "save the file as UTF-8"
    if line == 1:
        if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise Unreadable(path, "is UTF-16 or UTF-32, not UTF-8", 1, hint=hint)
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{data[error.start]:02x}"
        raise Unreadable(
            path, "is not UTF-8", line + data.count(b"\n", 0, error.start), value=byte, hint=hint
        ) from None
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if (nul := text.find("\0")) >= 0:
        is_utf_16 = text.count("\0") > len(text) // 4
        place = line + text.count("\n", 0, nul)
        raise Unreadable(path, "holds a NUL character", place, hint=hint if is_utf_16 else None)
    return text


def _refuse_outside(path: Path, real: str, workspace: str) -> None:
    if os.path.commonpath([real, workspace]) != workspace:
        how = "is a link that leads" if os.path.realpath(path.parent) + os.sep + path.name != real else "lies"
        raise Unreadable(
            path, f"{how} outside the workspace", value=real, hint=f"only files under {workspace} are read"
        )
    if ".git" in Path(os.path.relpath(real, workspace).lower()).parts:
        raise Unreadable(path, "lies in git's own folder, or is a link that leads there", value=real)
