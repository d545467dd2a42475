"""attempts.jsonl and blobs/: attempts are appended when they finish, and read line by line.

They contain what results.json lacks: times of calls, results of tools, media.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Final, Literal, Self, TypeVar

from pydantic import ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError, from_json

from agent_eval_action.errors import OutputError, ResultsError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.base import Frozen
from agent_eval_action.results.evalset import Content, FunctionResponse, Invocation
from agent_eval_action.results.run_result import Attempt, AttemptKey

ATTEMPTS = "attempts.jsonl"
_LINE_LIMIT = 512 * 1024 * 1024
_BUFFER = 256 * 1024

_Model = TypeVar("_Model", bound=Frozen)

_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# A line begins with these fields, as TranscriptWriter writes them.
_BEGINNING: Final = re.compile(
    rb'\{"agent":(%s),"eval_set":(%s),"case":(%s),"repeat":(\d{1,9})(?:,"arm":"(head|base)")?' % (_TEXT, _TEXT, _TEXT)
)


def read_lines(path: Path, workspace: Path | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number (from 1), byte offset and bytes of each line; an incomplete last line is left out.

    Links to the file, or inside the ``workspace`` to a folder above it, are not followed. Raises ResultsError.
    """
    try:
        with open_lines(path, workspace) as file:
            yield from lines_of(file)
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror or error}") from error


def open_lines(path: Path, workspace: Path | None = None) -> BinaryIO:
    """Open the file with a large buffer, for reading most lines in order. Raises OSError."""
    return OutputFolder.at(path.parent, workspace).read(path.name, buffering=_BUFFER)


def lines_of(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Yield the lines of an open file like ``read_lines``. Raises OSError."""
    offset = 0
    for number, line in enumerate(iter(lambda: file.readline(_LINE_LIMIT), b""), 1):
        if line.endswith(b"\n"):
            yield number, offset, line
        offset += len(line)


def line_at(file: BinaryIO, offset: int) -> bytes:
    """Return the line that begins at a byte offset of an open file. Raises OSError."""
    file.seek(offset)
    return file.readline()


def read_line(path: Path, offset: int, workspace: Path | None = None) -> bytes:
    """Return the line that begins at a byte offset. Raises OSError."""
    with OutputFolder.at(path.parent, workspace).read(path.name) as file:
        return line_at(file, offset)


def key_of_line(line: bytes) -> AttemptKey | None:
    """Return the attempt's key from the beginning of its line; None if another program wrote the line."""
    found = _BEGINNING.match(line)
    if found is None:
        return None
    try:
        agent, eval_set, case = from_json(b"[%s,%s,%s]" % found.group(1, 2, 3))
    except ValueError:
        return None
    return AttemptKey(agent, eval_set, case, int(found[4]), "base" if found[5] == b"base" else "head")


def parse_attempt(path: Path, number: int, line: bytes) -> Attempt:
    """Parse the line with this number. Raises ResultsError, which names file and line."""
    try:
        return _parse(Attempt, line)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise ResultsError(f"{path}:{number}: not an attempt of this version: {reason}") from error


def _parse(model: type[_Model], line: bytes) -> _Model:
    with contextlib.suppress(ValidationError):
        return model.model_validate_json(line)
    return model.model_validate(
        json.loads(line)
    )  # pydantic's parser refuses lone surrogates, and words errors otherwise


BLOBS = "blobs"
BLOB_BYTES = 64 * 1024
BLOB_PREFIX = "blob:sha256:"
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass
class TranscriptWriter:
    """Writes each finished attempt at once as a line, so that a crash loses none. Large media go to blobs/."""

    folder: OutputFolder
    _file: IO[bytes] | None = None
    _stored: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        """Create ``attempts.jsonl``, or empty it: attempts kept from an earlier run are appended like new ones."""
        try:
            self._file = self.folder.create(ATTEMPTS)
        except OSError as error:
            raise self._unwritable(error) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError as error:
            if value is None:  # otherwise the exception being raised matters more
                raise self._unwritable(error) from error

    def append(self, attempt: Attempt) -> None:
        """Write one attempt. Raises OutputError, for example if the disk is full."""
        if self._file is None:
            raise ValueError("the writer is not open")
        try:
            line = _line(attempt)
            if b'"inline_data":{' in line:
                line = _json_line(json.loads(line, object_hook=self._with_stored_media))
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def copy(self, source: Path) -> None:
        """Append the attempts in another run's folder, with their media. Raises OutputError or ResultsError."""
        if self._file is None:
            raise ValueError("the writer is not open")
        folder = OutputFolder.at(source)
        try:
            if folder.holds(ATTEMPTS):
                self._file.writelines(line for _, _, line in read_lines(source / ATTEMPTS))
                self._file.flush()
            for name in (name for name, _ in (folder / BLOBS).files() if _DIGEST.fullmatch(name)):
                with folder.read(f"{BLOBS}/{name}") as file:
                    self.folder.replace(f"{BLOBS}/{name}", [file.read()], sync=False)
        except OSError as error:
            raise self._unwritable(error) from error

    def _with_stored_media(self, value: dict[str, Any]) -> dict[str, Any]:
        inline = value.get("inline_data")
        if not isinstance(inline, dict):
            return value
        data = inline.get("data")
        if not isinstance(data, str) or len(data) * 3 // 4 <= BLOB_BYTES or data.startswith(BLOB_PREFIX):
            return value
        raw = decode_media(data)
        digest = hashlib.sha256(raw).hexdigest()
        if digest not in self._stored:
            # replace an existing file: it may be incomplete or another program's
            self.folder.replace(f"{BLOBS}/{digest}", [raw], sync=False)
            self._stored.add(digest)
        inline["data"] = BLOB_PREFIX + digest
        return value

    def _unwritable(self, error: OSError) -> OutputError:
        message = f"{self.folder.path / ATTEMPTS} cannot be written: {error.strerror or error}"
        return OutputError(message, hint="free disk space or choose --out")


def decode_media(data: str) -> bytes:
    """Decode base64 in either alphabet; return any other text as its bytes."""
    try:
        alphabet = b"-_" if {"-", "_"} & set(data) else None
        return base64.b64decode(data + "=" * (-len(data) % 4), altchars=alphabet)
    except ValueError:
        return data.encode("utf-8", "surrogatepass")


def _line(attempt: Attempt) -> bytes:
    try:
        return attempt.__pydantic_serializer__.to_json(attempt, exclude_defaults=True, ensure_ascii=True)
    except PydanticSerializationError:  # a lone surrogate
        return _json_line(attempt.model_dump(mode="json", exclude_defaults=True))


def _json_line(record: dict[str, Any]) -> bytes:
    """Return one line. ASCII escapes can represent lone surrogates, which UTF-8 cannot."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode("ascii")


class _Turns(Frozen):
    """The fields of an attempt that reports read."""

    model_config = ConfigDict(extra="ignore")

    turns: tuple[Invocation, ...] = ()


Place = Literal["user", "tool", "answer"]


@dataclass(frozen=True, slots=True)
class Medium:
    """A file that the user, a tool or the agent sent in a turn. ``digest`` and ``size`` (in bytes): of its content.

    ``data``: the content in base64, "" if it is in blobs/. ``uri``: set instead if there is no content at all.
    """

    place: Place
    mime_type: str
    name: str = ""
    digest: str = ""
    size: int | None = None
    data: str = field(default="", repr=False)
    uri: str = ""


@dataclass(frozen=True, slots=True)
class Recordings:
    """The transcripts in the output folder of a run, each read on demand. ``offsets``: of their lines."""

    folder: Path
    workspace: Path | None
    offsets: dict[AttemptKey, int]

    @classmethod
    def find(cls, folder: Path, workspace: Path | None = None) -> Recordings | None:
        """Return the transcripts in ``folder``; None if there are none that can be read."""
        offsets: dict[AttemptKey, int] = {}
        try:
            for _, offset, line in read_lines(folder / ATTEMPTS, workspace):
                if key := key_of_line(line):
                    offsets[key] = offset
        except ResultsError:
            return None
        return cls(folder, workspace, offsets)

    def open(self) -> BinaryIO:
        """Open the file from which ``turns`` reads. Raises OSError."""
        return open_lines(self.folder / ATTEMPTS, self.workspace)

    def turns(self, file: BinaryIO, key: AttemptKey) -> tuple[Invocation, ...]:
        """Return the recorded turns of an attempt; () if they cannot be read."""
        if (offset := self.offsets.get(key)) is None:
            return ()
        try:
            return _parse(_Turns, line_at(file, offset)).turns
        except (OSError, ValueError, RecursionError):
            return ()

    def encoded(self, medium: Medium) -> str | None:
        """Return the content of a medium in base64; None if its file is missing or was changed."""
        if medium.data:
            return medium.data
        with contextlib.suppress(OSError), self._open(medium.digest) as file:
            raw = file.read()
            if hashlib.sha256(raw).hexdigest() == medium.digest:
                return base64.b64encode(raw).decode()
        return None

    def media(self, turn: Invocation) -> Iterator[Medium]:
        """Yield the media of a turn: the user's, those that tools returned, the agent's."""
        places: list[tuple[Content | None, Place]] = [(turn.user_content, "user")]
        places += [(content, "answer") for content in (*(event.content for event in turn.events), turn.final_response)]
        for content, place in places:
            for part in (content.parts if content else None) or ():
                if part.function_response is not None:
                    for inner in (part.function_response.model_extra or {}).get("parts") or ():
                        if isinstance(inner, dict):
                            yield from self._media_of(inner.get("inline_data"), inner.get("file_data"), "tool")
                yield from self._media_of(part.inline_data, part.file_data, place)

    def _media_of(self, inline: Any, file: Any, place: Place) -> Iterator[Medium]:
        if isinstance(inline, dict) and isinstance(data := inline.get("data"), str) and data:
            kind, name = _type_and_name(inline)
            if data.startswith(BLOB_PREFIX):
                digest = data.removeprefix(BLOB_PREFIX)
                yield Medium(place, kind, name, digest, self._size(digest))
            else:
                raw = decode_media(data)
                digest = hashlib.sha256(raw).hexdigest()
                yield Medium(place, kind, name, digest, len(raw), base64.b64encode(raw).decode())
        if isinstance(file, dict) and file.get("file_uri"):
            kind, name = _type_and_name(file)
            yield Medium(place, kind, name, uri=str(file["file_uri"]))

    def _size(self, digest: str) -> int | None:
        with contextlib.suppress(OSError), self._open(digest) as file:
            return file.seek(0, 2)
        return None

    def _open(self, digest: str) -> BinaryIO:
        if not _DIGEST.fullmatch(digest):
            raise FileNotFoundError(digest)
        return OutputFolder.at(self.folder, self.workspace).read(f"{BLOBS}/{digest}")


def _type_and_name(wire: dict[str, Any]) -> tuple[str, str]:
    return str(wire.get("mime_type") or ""), str(wire.get("display_name") or "")


def tool_results(turn: Invocation) -> list[str]:
    """Return the result of each tool call of the turn as text; "" for a call without a result."""
    waiting = list(turn.tool_responses())
    texts = []
    for call in turn.tool_calls():
        alike = [answer for answer in waiting if answer.name == call.name]
        found = next((answer for answer in alike if call.id and answer.id == call.id), next(iter(alike), None))
        if found is not None:
            waiting.remove(found)
        texts.append(_result_text(found) if found else "")
    return texts


def _result_text(answer: FunctionResponse) -> str:
    value: Any = answer.response
    if isinstance(value, dict) and value.keys() == {"result"}:
        value = value["result"]  # ADK wraps results that are no dict
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
