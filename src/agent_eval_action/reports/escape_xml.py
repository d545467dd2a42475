"""Untrusted text in XML: the one escape function of this format. Markup characters are the serialiser's part."""

from __future__ import annotations

from agent_eval_action.reports.cleaning import clean


def xml(text: str, limit: int, *, lines: bool = False) -> str:
    """``text`` as XML 1.0 can carry it and every reader shows it; on one line unless ``lines``."""
    return clean(text, limit, lines=lines)
