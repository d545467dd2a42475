"""attempts.jsonl and blobs/: attempts are appended as they finish and read back line by line."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Self

import pydantic
from pydantic_core import PydanticSerializationError

from agent_eval_action.errors import OutputError, ResultsError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.run_result import Attempt

ATTEMPTS = "attempts.jsonl"
_LINE_LIMIT = 512 * 1024 * 1024


def read_lines(path: Path, workspace: Path | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Each complete line: line number from 1, byte offset, bytes. A torn last line is left out.

    The file is no link, and inside the ``workspace`` none leads to it. Raises ResultsError.
    """
    try:
        with OutputFolder.at(path.parent, workspace).read(path.name) as file:
            yield from lines_of(file)
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror or error}") from error


def lines_of(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """The lines of an open file, as ``read_lines`` gives them. Raises OSError."""
    offset = 0
    for number, line in enumerate(iter(lambda: file.readline(_LINE_LIMIT), b""), 1):
        if line.endswith(b"\n"):
            yield number, offset, line
        offset += len(line)


def line_at(file: BinaryIO, offset: int) -> bytes:
    """The line of an open file that begins at an offset. Raises OSError."""
    file.seek(offset)
    return file.readline()


def read_line(path: Path, offset: int, workspace: Path | None = None) -> bytes:
    """The line that begins at an offset. Raises OSError."""
    with OutputFolder.at(path.parent, workspace).read(path.name) as file:
        return line_at(file, offset)


def parse_attempt(path: Path, number: int, line: bytes) -> Attempt:
    """One line as an Attempt. Raises ResultsError naming the line."""
    with suppress(pydantic.ValidationError):
        return Attempt.model_validate_json(line)
    try:  # pydantic's parser takes no lone surrogates, and its messages are others
        return Attempt.model_validate(json.loads(line))
    except (ValueError, RecursionError, pydantic.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ResultsError(f"{path}:{number}: not an attempt of this version: {reason}") from error


BLOBS = "blobs"
BLOB_BYTES = 64 * 1024
BLOB_PREFIX = "blob:sha256:"
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass
class TranscriptWriter:
    """Appends attempts, one line each, flushed: a crash loses nothing that was finished."""

    folder: OutputFolder
    _file: IO[bytes] | None = None
    _kept: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        """Open ``attempts.jsonl`` empty; attempts kept from an earlier run are appended like new ones."""
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
            if value is None:  # else what is being raised already says it
                raise self._unwritable(error) from error

    def append(self, attempt: Attempt) -> None:
        """Write one attempt. Raises OutputError when the disk is full."""
        if self._file is None:
            raise ValueError("the writer is not open")
        try:
            line = _line(attempt)
            if '"inline_data":{' in line:
                line = _dumped(json.loads(line, object_hook=self._with_stored_media))
            self._file.write(line.encode("ascii") + b"\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def copy(self, source: Path) -> None:
        """Append the attempts of another run's folder, with their media. Raises OutputError when the disk is full."""
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
        if digest not in self._kept:
            # also where there is one: what an earlier run left may be half a file, or somebody else's
            self.folder.replace(f"{BLOBS}/{digest}", [raw], sync=False)
            self._kept.add(digest)
        inline["data"] = BLOB_PREFIX + digest
        return value

    def _unwritable(self, error: OSError) -> OutputError:
        message = f"{self.folder.path / ATTEMPTS} cannot be written: {error.strerror or error}"
        return OutputError(message, hint="free disk space or choose --out")


def decode_media(data: str) -> bytes:
    """The bytes of base64 in either alphabet; what is no base64 is taken as it is."""
    try:
        alphabet = b"-_" if {"-", "_"} & set(data) else None
        return base64.b64decode(data + "=" * (-len(data) % 4), altchars=alphabet)
    except ValueError:
        return data.encode("utf-8", "surrogatepass")


def _line(attempt: Attempt) -> str:
    try:
        return attempt.model_dump_json(exclude_defaults=True, ensure_ascii=True)
    except PydanticSerializationError:  # a lone surrogate
        return _dumped(attempt.model_dump(mode="json", exclude_defaults=True))


def _dumped(record: dict[str, Any]) -> str:
    """One line. ASCII escapes carry lone surrogates, which UTF-8 cannot."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True)
