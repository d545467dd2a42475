"""Read JSON and YAML files from a workspace, with the line of every value.

Files may be anything (fifos, bombs, links out of the workspace, broken encodings); each results in a problem.
"""

from __future__ import annotations

import bisect
import codecs
import errno
import json
import os
import re
import stat
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from agent_eval_action.diagnostics.suggestions import JsonPath, clip, did_you_mean, json_path_text, plural, shorten
from agent_eval_action.errors import AgentEvalError, Problem, Unreadable

__all__ = ["JsonPath", "Source", "did_you_mean", "plural", "shorten"]

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
            value, warnings = _parse_json(path, text)
        except Unreadable as unreadable:
            raise refusal(path, unreadable, error) from None
        return cls(path, text, value, _JsonLines(text).line, tuple(warnings))

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


# --- JSON: syntax errors explained, repeated keys, lines of values found when they are asked for --------

MAX_DUPLICATES_SHOWN = 20

_SPACE = re.compile(r"[ \t\n\r]*")
_AT = re.compile(r" at line (\d+) column \d+$")


def _parse_json(path: Path, text: str) -> tuple[Any, list[Problem]]:
    """The value, and warnings about repeated keys (the last one counts, as in ADK). Raises Unreadable."""
    unusable = _unusable(path, text)
    twice = False

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        value = dict(pairs)
        twice = twice or len(value) != len(pairs)
        return value

    try:
        value = json.loads(text, object_pairs_hook=build)
    except json.JSONDecodeError as error:
        raise _explained(path, error) from None
    except ValueError:  # Python, and therefore ADK, converts no integers of more than 4300 digits
        digits = re.search(r"\d{4301,}", text)
        line = text.count("\n", 0, digits.start()) + 1 if digits else None
        raise Unreadable(path, "holds an integer of more than 4300 digits", line) from None
    except RecursionError:
        raise unusable or Unreadable(path, "is nested too deeply") from None
    if unusable:
        raise unusable
    return value, _repeated_keys(path, text) if twice else []


def _unusable(path: Path, text: str) -> Unreadable | None:
    """Why this value could not be written again, although json.loads accepts it; None if it could.

    pydantic's parser refuses more than 200 levels, like ADK (google-adk 2.13, ``model_validate_json``), and half
    surrogate pairs. Its value is discarded; it finds these several times faster than Python code would.
    """
    try:
        from_json(text)
    except ValueError as error:
        found = _AT.search(str(error))
        line = int(found[1]) if found else None
        if "recursion" in str(error):
            return Unreadable(path, "is nested more than 200 levels deep", line)
        if "surrogate" in str(error) or "hex escape" in str(error):
            hint = "write the character itself, or both halves of the pair"
            return Unreadable(path, "holds half a surrogate pair (\\ud800 to \\udfff)", line, hint=hint)
    return None


def _repeated_keys(path: Path, text: str) -> list[Problem]:
    lines = _JsonLines(text)
    found = islice(lines.repeated_keys(lines.start), MAX_DUPLICATES_SHOWN)
    message = "this key is written twice; the last one counts"
    return [
        Problem(path, message, lines.line_at(offset), json_path_text(at), shorten(at[-1]), severity="warning")
        for at, offset in found
    ]


class Member(NamedTuple):
    """A member of a container: key or index, and the offsets of its start (in an object, the key's), value and end."""

    key: str | int
    start: int
    value: int
    end: int


_decode = json.JSONDecoder().raw_decode


def members(text: str, offset: int) -> Iterator[Member]:
    """The members of the container at ``offset`` of a JSON text; nothing for other values."""
    opening = text[offset]
    if opening not in "{[":
        return
    offset = skip_space(text, offset + 1)
    for index in count():
        if text[offset] in "}]":
            return
        key: str | int = index
        start = offset
        if opening == "{":
            key, offset = _decode(text, offset)
            offset = skip_space(text, skip_space(text, offset) + 1)
        value, end = offset, _decode(text, offset)[1]
        yield Member(key, start, value, end)
        offset = skip_space(text, end)
        if text[offset] == ",":
            offset = skip_space(text, offset + 1)


def skip_space(text: str, offset: int) -> int:
    """The offset after the whitespace at ``offset``."""
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


class _JsonLines:
    """Finds the lines of values. Each container on the path is scanned once, with json's own scanner."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._items: dict[int, dict[str | int, int] | array[int]] = {}
        self.start = skip_space(text, 0)

    @cached_property
    def _line_ends(self) -> array[int]:
        return array("Q", (match.start() for match in re.finditer("\n", self._text)))

    def line_at(self, offset: int) -> int:
        """The 1-based line of an offset in the text."""
        return bisect.bisect_left(self._line_ends, offset) + 1

    def line(self, json_path: JsonPath) -> int | None:
        """The 1-based line where the value at this path begins, or None."""
        offset = self.start
        for step in json_path:
            if offset not in self._items:
                items = self._scan(offset)
                is_object = self._text[offset] == "{"
                self._items[offset] = dict(items) if is_object else array("Q", (inner for _, inner in items))
            below = self._items[offset]
            known = below if isinstance(below, dict) else range(len(below))
            if step not in known:
                return None
            offset = below[step]  # type: ignore[index]  # an array's range contains only integers
        return self.line_at(offset)

    def repeated_keys(self, offset: int, json_path: JsonPath = ()) -> Iterator[tuple[JsonPath, int]]:
        """Repeated keys of objects below ``offset``, with the offsets of the later values. Slow but exact."""
        seen: set[str | int] = set()
        for key, inner in self._scan(offset):
            if key in seen:
                yield (*json_path, key), inner
            seen.add(key)
            if self._text[inner] in "{[":
                yield from self.repeated_keys(inner, (*json_path, key))

    def _scan(self, offset: int) -> Iterator[tuple[str | int, int]]:
        """Each key or index of the container at ``offset``, with the offset of its value."""
        return ((member.key, member.value) for member in members(self._text, offset))


_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_FOREIGN = (
    (re.compile(r"//|/\*|#"), "comments are not allowed", "remove the comment"),
    (re.compile(r"\.\.\.|…"), "`...` stands for something left out", "write the value in full"),
    (re.compile(r"<{7}|={7}|>{7}"), "a merge conflict is left in the file", "resolve the conflict"),
    (re.compile(r"'"), "strings are written in double quotes", "replace ' by \""),
    *(
        (re.compile(rf"{name}(?![A-Za-z_])"), f"`{name}` is not JSON", f"write `{json_name}`")
        for name, json_name in _LITERALS.items()
    ),
    (re.compile(r"\s*\Z"), "the file ends in the middle of a value", "is it cut off?"),
)
_BY_MESSAGE = {
    "Unterminated string": ("a string is not closed, or the file ends in the middle of it", None),
    "Invalid control character": ("a line break or control character inside a string", "write \\n, \\t or \\u00XX"),
    "Extra data": ("a second value begins after the end of the first", "one file holds one JSON value"),
}


def _explained(path: Path, error: json.JSONDecodeError) -> Unreadable:
    """A syntax error as a sentence with the line, the text there and a hint."""
    text, position = error.doc, error.pos
    before, rest = text[:position].rstrip(), text[position:]
    if before.endswith(",") and rest[:1] in {"}", "]"}:
        position = len(before) - 1
    message, hint = _diagnose(before, rest, error.msg)
    start, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
    line = text[max(start, position - 40) : len(text) if end < 0 else end].strip()
    number = text.count("\n", 0, position) + 1
    return Unreadable(path, f"is not valid JSON: {message}", number, value=clip(line, 80), hint=hint)


def _diagnose(before: str, rest: str, message: str) -> tuple[str, str | None]:
    if (before.endswith(",") and rest[:1] in {"}", "]"}) or re.match(r",\s*[}\]]", rest):
        return "a comma before a closing bracket (trailing comma)", "remove the comma"
    found = next(((what, hint) for pattern, what, hint in _FOREIGN if pattern.match(rest)), None)
    by_message = next((found for start, found in _BY_MESSAGE.items() if message.startswith(start)), None)
    return found or by_message or (message[:1].lower() + message[1:], None)
