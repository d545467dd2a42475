"""GITHUB_OUTPUT: values for later steps, each between random delimiters so that no value can forge another."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

_VALUE_LIMIT = 50_000  # all outputs of a job share about 500,000 characters


def write_outputs(values: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Append ``values`` to the file GITHUB_OUTPUT names. False when there is no such file or it cannot be written."""
    target = environ.get("GITHUB_OUTPUT")
    if not target:
        return False
    lines: list[str] = []
    for name, value in values.items():
        delimiter = f"agent-eval-{secrets.token_hex(16)}"
        text = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")[:_VALUE_LIMIT]
        lines.append(f"{name}<<{delimiter}\n{text}\n{delimiter}\n")
    try:
        with Path(target).open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write("".join(lines))
    except OSError:
        return False
    return True
