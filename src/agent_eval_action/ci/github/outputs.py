"""GITHUB_OUTPUT: values for later steps, each between random delimiters so that no value can forge another."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_VALUE_LIMIT = 50_000  # all outputs of a job share about 500,000 characters


def write_outputs(values: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Append ``values`` to the file GITHUB_OUTPUT names. Returns what went wrong, "" when nothing did."""
    target = environ.get("GITHUB_OUTPUT")
    if not target:
        return ""
    lines: list[str] = []
    for name, value in values.items():
        delimiter = f"agent-eval-{secrets.token_hex(16)}"
        text = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")[:_VALUE_LIMIT]
        lines.append(f"{name}<<{delimiter}\n{text}\n{delimiter}\n")
    try:
        append(Path(target), "".join(lines))
    except OSError as error:
        return f"the step's outputs could not be written: {error.strerror or error}"
    return ""


def append(path: Path, text: str) -> None:
    """Append to one of the runner's files: whole, or as it was. Half an entry would fail the step. Raises OSError."""
    data = text.encode("utf-8", "backslashreplace")
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        written = 0
        try:
            while written < len(data):
                written += file.write(data[written:]) or 0
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise


LIMIT: Final = 1_048_576
"""Bytes of a step's file; what is larger by one is dropped whole by the runner."""

_SPARE: Final = 32_768
"""Left for what else of the same step writes to the file after us."""

_LEAST: Final = 2_000


def append_summary(render: Callable[[int], str], environ: Mapping[str, str]) -> str:
    """Append what ``render`` makes of the bytes that are left. Returns what went wrong, "" when nothing did."""
    target = environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return ""
    path = Path(target)
    try:
        there = path.stat().st_size if path.exists() else 0
        room = LIMIT - _SPARE - there
        if room < _LEAST:
            return f"the step's summary has no room left: {there:,} of {LIMIT:,} bytes were there already"
        append(path, f"\n{render(room - 2)}\n" if there else render(room))
    except OSError as error:
        return f"the step's summary could not be written: {error.strerror or error}"
    return ""
