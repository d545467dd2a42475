"""GITHUB_OUTPUT: values for later steps, each between random delimiters so that no value can forge another."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from pathlib import Path

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
