"""Text on a terminal: nothing is folded inside a name, and what does not fit stands on lines of its own.

In a log and in a file every line stays whole. Whoever calls cleans untrusted text (``cli.log.terminal``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from agent_eval_action.ci.log import neutralize
from agent_eval_action.cli.log import terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from agent_eval_action.reports.prose import Prose

_GAP: Final = 2
_NARROW: Final = 20
"""Columns below which a last column is no column any more: its texts get lines of their own."""
_DEEPER: Final = 4


def console() -> Console:
    """Human text goes to stderr; data to stdout."""
    from rich.console import Console

    # in a CI log there is no width to ask for, and 80 columns would fold every table
    width = None if sys.stderr.isatty() or os.environ.get("COLUMNS") else 140
    return Console(stderr=True, highlight=False, width=width, soft_wrap=False)


def data_console() -> Console:
    """Tables that are data go to stdout."""
    from rich.console import Console

    return Console(highlight=False)


def print_line(
    text: str, style: str | None = None, *, lines: bool = False, indent: int = 0, limit: int = 2_000
) -> None:
    """Print untrusted text on stderr, on one line or on several with ``lines``."""
    from rich.text import Text

    for line in terminal(text, limit, lines=lines).split("\n"):
        own = len(line) - len(line.lstrip(" "))  # what is folded begins below its line
        print_wrapped(console(), Text(line.lstrip(" "), style=style or ""), indent + own)


def print_text(out: Console, text: str, style: str | None = None, *, indent: int = 0) -> None:
    """Print untrusted text as one paragraph, or as several where it has empty lines."""
    from rich.text import Text

    for line in terminal(text, lines=True).split("\n"):
        print_wrapped(out, Text(line, style=style or ""), indent)


def prose_text(out: Console, prose: Prose, limit: int) -> Text:
    """A sentence of at most ``limit`` characters in which names are bold, or in backticks where nothing is bold."""
    from rich.text import Text

    from agent_eval_action.reports.prose import Name

    if out.color_system is None:
        return Text(terminal(str(prose), limit))
    parts = prose.cleaned(limit).parts
    return Text.assemble(*((part, "bold") if isinstance(part, Name) else neutralize(part) for part in parts))


def print_wrapped(out: Console, text: Text, indent: int = 0) -> None:
    """Print a paragraph: on a terminal its lines break between words alone, each begins after ``indent`` blanks."""
    from rich.text import Text

    lines = _wrap(text, out.width - indent) if out.is_terminal else [text]
    for line in lines:
        out.print(Text(" " * indent) + line, soft_wrap=True, markup=False)


def print_columns(
    out: Console, rows: Iterable[Sequence[Text | str]], heading: Sequence[str] = (), indent: int = 2
) -> None:
    """Print rows in columns that begin below each other.

    On a terminal a last column that is too wide is folded in its place; where it has none, its text goes to lines
    below the row. A row that is too wide all the same is left to the terminal, so that names are copied whole.
    """
    from rich.text import Text

    lines = [[Text(cell, style="dim") for cell in heading]] if heading else []
    lines += [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    if not lines:
        return
    widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]
    if out.is_terminal:  # one long name must not push what stands behind the others off the screen
        before = sum(widths[:-1]) + _GAP * (len(widths) - 1)
        widest = widths.index(max(widths[:-1], default=widths[-1]))
        widths[widest] -= max(0, min(indent + before - out.width, widths[widest] - _NARROW))
    place = indent + sum(widths[:-1]) + _GAP * (len(widths) - 1)
    left = out.width - place
    needed = min(widths[-1], max(_NARROW, *(_longest_word(line[-1]) for line in lines)))
    fits = not out.is_terminal or left >= needed or place <= indent + _DEEPER  # lines of their own would win nothing
    for line in lines:
        before = Text().join(_padded(cell, width + _GAP) for cell, width in zip(line[:-1], widths, strict=False))
        if fits:
            first, *rest = _wrap(line[-1], left) if out.is_terminal else [line[-1]]
            head = before + first
            below = [Text(" " * (place - indent)) + more for more in rest]
        else:
            head, below = before, []
            if line is not lines[0] or not heading:
                below = [Text(" " * _DEEPER) + more for more in _wrap(line[-1], out.width - indent - _DEEPER)]
        for text in (head, *(more for more in below if more.plain.strip())):
            text.rstrip()
            out.print(Text(" " * indent) + text, soft_wrap=True, markup=False)


def _padded(cell: Text, width: int) -> Text:
    return cell + " " * max(_GAP, width - cell.cell_len)


def _longest_word(text: Text) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.plain.split(" ")))


def _wrap(text: Text, width: int) -> list[Text]:
    """Lines of at most ``width`` columns, broken between words; a longer word has a line of its own."""
    from rich.cells import cell_len

    breaks, at, used = [], 0, 0
    for word in text.plain.split(" "):
        size = cell_len(word)
        if used and used + size > width:
            breaks.append(at)
            used = 0
        used += size + 1
        at += len(word) + 1
    lines = list(text.divide(breaks))
    for line in lines:
        line.rstrip()
    return lines
