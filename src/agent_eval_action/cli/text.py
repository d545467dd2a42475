"""Untrusted text on a terminal or in a CI log: cleaned, on its line, and no command."""

from __future__ import annotations

from agent_eval_action.ci.log import neutralize
from agent_eval_action.reports.formatting import clean


def terminal(text: str, limit: int = 2_000, *, lines: bool = False) -> str:
    """``text`` without control characters, on one line unless ``lines``, at most ``limit`` characters.

    Workflow commands are broken by a zero-width space, which shows nothing.
    """
    return neutralize(clean(text, limit, lines=lines))
