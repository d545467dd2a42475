r"""Untrusted text in GitHub's Markdown: the escape functions of this format.

Character references instead of backslashes: they mean the same in a paragraph, a table cell (where ``\|`` behind a
backslash ends the cell after all) and an HTML block such as a summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_eval_action.reports.formatting import Prose, clean

# The underscore inside a word emphasises nothing, and names are full of them
_MARKUP = re.compile(r"[&<>`|\\*~\[\]$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_BLOCK_START = re.compile(r"^(?:[-+=#:]|\d+(?=[.)]))")
# Filters that run after Markdown link mentions, issues and addresses however they were written: only a character
# that shows nothing keeps them apart (renovate and dependabot do the same).
_REFERENCE = re.compile(r"@|#(?=\w)|(?i:\bgh-)(?=\d)|:(?=//)|(?i:www)(?=\.)|(?i:mailto|xmpp)(?=:)")
_APART = "&#8203;"
_BACKTICKS = re.compile(r"`+")
_LINE = 400


def text(value: str, limit: int = 300) -> str:
    """``value`` as one line of text, for a paragraph, a table cell or a summary."""
    return _BLOCK_START.sub(_first, _inline(clean(value, limit)))


def prose(value: Prose, limit: int = 700) -> str:
    """A sentence of ours for the same places, its names in code type."""
    shown = value.cleaned(limit).render(_inline, lambda name: f"<code>{_inline(name) or _APART}</code>")
    return _BLOCK_START.sub(_first, shown)


def code(value: str, limit: int = 120) -> str:
    """``value`` in code type, for the same places: a code span cannot hold every text in a table cell."""
    return f"<code>{_inline(clean(value, limit)) or _APART}</code>"


def name(value: str, limit: int = 120) -> str:
    """As ``code``, and a narrow column may break it after an underscore."""
    return code(value, limit).replace("_", "_<wbr>")


def fence(lines: Iterable[str], language: str = "") -> str:
    """A code block that no text in it can end. Each line is cleaned and bounded, its indentation kept."""
    body = [clean(line, _LINE, lines=True).replace("\n", " ") for line in lines]
    longest = max((len(run) for line in body for run in _BACKTICKS.findall(line)), default=0)
    mark = "`" * max(3, longest + 1)
    return "\n".join([f"{mark}{language}", *body, mark])


def _inline(value: str) -> str:
    value = _REFERENCE.sub(lambda found: f"{found.group()}\N{ZERO WIDTH SPACE}", value)
    value = _MARKUP.sub(lambda found: f"&#{ord(found.group())};", value)
    return value.replace("\N{ZERO WIDTH SPACE}", _APART)


def _first(found: re.Match[str]) -> str:
    start = found.group()
    return f"{start}{_APART}" if start.isdigit() else f"&#{ord(start)};"
