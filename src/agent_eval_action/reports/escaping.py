r"""Escapes untrusted text for GitHub's Markdown.

Uses character references, not backslashes: they work alike in a paragraph, a table cell (where ``\|`` after a
backslash still ends the cell) and an HTML block such as a summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_eval_action.reports.formatting import Prose, clean

# Underscores inside words are not emphasis, and names are full of them
_MARKUP = re.compile(r"[&<>`|\\*~\[\]$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_BLOCK_START = re.compile(r"^(?:[-+=#:]|\d+(?=[.)]))")
# GitHub's filters after Markdown link mentions, issues and addresses even if they are escaped: only an invisible
# character prevents it (renovate and dependabot do the same).
_REFERENCE = re.compile(r"@|#(?=\w)|(?i:\bgh-)(?=\d)|:(?=//)|(?i:www)(?=\.)|(?i:mailto|xmpp)(?=:)")
_APART = "&#8203;"
_BACKTICKS = re.compile(r"`+")
_LINE = 400


def text(value: str, limit: int = 300) -> str:
    """Escape ``value`` as one line of text for a paragraph, a table cell or a summary."""
    return _BLOCK_START.sub(_escape_block_start, _inline(clean(value, limit)))


def prose(value: Prose, limit: int = 700) -> str:
    """Escape one of our sentences for the same places, with names in code type."""
    shown = value.cleaned(limit).render(_inline, lambda name: f"<code>{_inline(name) or _APART}</code>")
    return _BLOCK_START.sub(_escape_block_start, shown)


def code(value: str, limit: int = 120) -> str:
    """Escape ``value`` in code type, for the same places; in a table cell a code span cannot hold every text."""
    return f"<code>{_inline(clean(value, limit)) or _APART}</code>"


def name(value: str, limit: int = 120) -> str:
    """Like ``code``, but a narrow column may break it after underscores."""
    return code(value, limit).replace("_", "_<wbr>")


def fence(lines: Iterable[str], language: str = "") -> str:
    """Return a code block that no text in it can end. Lines are cleaned and bounded; indentation stays."""
    body = [clean(line, _LINE, lines=True).replace("\n", " ") for line in lines]
    longest = max((len(run) for line in body for run in _BACKTICKS.findall(line)), default=0)
    mark = "`" * max(3, longest + 1)
    return "\n".join([f"{mark}{language}", *body, mark])


def _inline(value: str) -> str:
    value = _REFERENCE.sub(lambda found: f"{found.group()}\N{ZERO WIDTH SPACE}", value)
    value = _MARKUP.sub(lambda found: f"&#{ord(found.group())};", value)
    return value.replace("\N{ZERO WIDTH SPACE}", _APART)


def _escape_block_start(found: re.Match[str]) -> str:
    start = found.group()
    return f"{start}{_APART}" if start.isdigit() else f"&#{ord(start)};"
