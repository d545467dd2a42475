"""attempts.jsonl as a file: its name, its lines, and one line as an Attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pydantic

from agent_eval_action.errors import ResultsError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.run_result import Attempt

ATTEMPTS = "attempts.jsonl"
_LINE_LIMIT = 512 * 1024 * 1024


def lines(path: Path, workspace: Path | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Each complete line: line number from 1, byte offset, bytes. A torn last line is left out.

    The file is no link, and inside the ``workspace`` none leads to it.
    """
    try:
        with OutputFolder.at(path.parent, workspace).read(path.name) as file:
            offset = 0
            for number, line in enumerate(iter(lambda: file.readline(_LINE_LIMIT), b""), 1):
                if line.endswith(b"\n"):
                    yield number, offset, line
                offset += len(line)
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror or error}") from error


def line_at(path: Path, offset: int, workspace: Path | None = None) -> bytes:
    """The line that begins at an offset. Raises OSError."""
    with OutputFolder.at(path.parent, workspace).read(path.name) as file:
        file.seek(offset)
        return file.readline()


def parse(path: Path, number: int, line: bytes) -> Attempt:
    """One line as an Attempt. Raises ResultsError naming the line."""
    try:
        return Attempt.model_validate(json.loads(line))
    except (ValueError, RecursionError, pydantic.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ResultsError(f"{path}:{number}: not an attempt of this version: {reason}") from error
