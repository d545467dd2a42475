"""GITHUB_STEP_SUMMARY: the report on the page of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from agent_eval_action.github.outputs import append

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
