"""Untrusted text on a terminal or in a CI log: the one escape function of this format."""

from __future__ import annotations

import re

from agent_eval_action.reports.cleaning import clean

# The runner obeys `::name::` after blanks at the start of a line, and `##[name]` anywhere in one.
_COMMAND = re.compile(r"(?m)^\s*:(?=:)|#(?=#\[)")
_ZERO_WIDTH = "\N{ZERO WIDTH SPACE}"


def terminal(text: str, limit: int = 2_000, *, lines: bool = False) -> str:
    """``text`` without control characters, on one line unless ``lines``, at most ``limit`` characters.

    Workflow commands are broken by a zero-width space, which shows nothing.
    """
    return _COMMAND.sub(lambda found: f"{found.group(0)}{_ZERO_WIDTH}", clean(text, limit, lines=lines))
