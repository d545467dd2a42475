"""The words of findings: bounded and on one line whatever the names and texts in them. Escaping is the reports'."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.results.base import StoreKind

SENTENCE: Final = 700
_LARGE: Final = 1e7
_TENS: Final = 10
_BREAKS: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")


BEGIN: Final[Mapping[StoreKind, str]] = {
    "file": "to make one, run `agent-eval baseline update` and commit the file it writes",
    "branch": "one begins with the next run on the main branch, which records what it scores",
    "rerun": "it is measured beside a run, on the base commit's agent, which could not be run here",
}
"""How a baseline comes to be, by what keeps it."""


def clip(text: str, limit: int) -> str:
    """One line of at most ``limit`` characters."""
    line = _BREAKS.sub(" ", text[: limit * 4]).strip()
    return line if len(line) <= limit and len(text) <= limit * 4 else f"{line[: limit - 1]}…"


def number(value: float) -> str:
    """A score for reading: two decimals, more where two would hide what there is, none for whole tens and up."""
    if abs(value) >= _LARGE:
        return f"{value:.4g}"
    text = f"{value + 0.0:,.2f}"
    if value and not text.strip("-0."):
        return f"{value:.3g}"
    return text.removesuffix(".00") if abs(value) >= _TENS else text


def numbers(one: float, other: float) -> tuple[str, str]:
    """Two scores so that they look different when they are."""
    short = number(one), number(other)
    if short[0] != short[1] or one == other:
        return short
    for digits in (3, 4, 6, 9, 12, 17):
        long = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if long[0] != long[1]:
            return long
    return repr(one), repr(other)


count = plural


def listed(items: Iterable[str], limit: int) -> str:
    """``a, b, c`` and how many more."""
    all_items = list(items)
    shown = ", ".join(all_items[:limit])
    return shown if len(all_items) <= limit else f"{shown} and {len(all_items) - limit:,} more"
