"""The log of this process, and text on its terminal.

Guards stdout and stderr against CI commands in untrusted text, writes our own commands, and redacts secrets. On a
terminal names are never broken, and text that does not fit gets lines of its own; elsewhere lines are not wrapped.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from agent_eval_action.ci import detect
from agent_eval_action.ci.log import GuardedStream, is_log, neutralize
from agent_eval_action.results.redaction import Redaction, secrets_around

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from agent_eval_action.ci.base import LogGroups
    from agent_eval_action.ci.github_actions import WorkflowCommands
    from agent_eval_action.reports.formatting import Prose
    from agent_eval_action.results.evalset import Annotation, AnnotationLevel

TITLE: Final = "agent-eval"
_MESSAGE_LIMIT: Final = 4_000
_LINES: Final = 100

redaction: Final = Redaction()
"""Secrets that no log and no file of this process may show; one for the process, as its environment is."""


def guard_streams() -> None:
    """In CI, guard both streams and hide the environment's secrets. Call before anything is printed."""
    if detect(os.environ).is_running(os.environ):
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, GuardedStream) and is_log(stream):
                setattr(sys, name, GuardedStream(stream, redaction.text))
        atexit.register(end_lines)
    hide(secrets_around(os.environ))


def end_lines() -> None:
    """Write buffered incomplete lines."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, GuardedStream):
            stream.end_line()
            stream.flush()


def hide(secrets: Iterable[str]) -> None:
    """Redact these from now on, here and in the runner's log."""
    commands = log_commands()
    for piece in redaction.hide(secrets):
        if commands is not None:
            write_command(commands.mask(piece))


def log_commands() -> WorkflowCommands | None:
    """Return the CI's commands for annotations and masks; None if nothing reads them."""
    return detect(os.environ).log_commands if isinstance(sys.stderr, GuardedStream) else None


def log_groups() -> LogGroups | None:
    """Return how this log folds lines; None if it does not."""
    return detect(os.environ).log_groups if isinstance(sys.stderr, GuardedStream) else None


def write_command(command: str) -> None:
    """Write one of our own commands, if a runner reads the log."""
    if isinstance(sys.stderr, GuardedStream):
        sys.stderr.command(command)


def error(message: str, title: str = TITLE) -> None:
    """Annotate why the step failed: a container's exit code alone explains nothing on the run's page."""
    _annotate("error", title, terminal(redaction.text(message), _MESSAGE_LIMIT, lines=True))


def warning(message: str) -> None:
    """Report a problem that does not change the verdict: as an annotation in CI, else as a line on stderr."""
    text = terminal(redaction.text(message), _MESSAGE_LIMIT)
    if not _annotate("warning", TITLE, text):
        print(f"warning: {text}", file=sys.stderr)


def annotate(remark: Annotation) -> bool:
    """Write an annotation. Returns False if the log takes no commands."""
    commands = log_commands()
    if commands is not None:
        write_command(commands.annotation(remark))
    return commands is not None


def _annotate(level: AnnotationLevel, title: str, message: str) -> bool:
    from agent_eval_action.results.evalset import Annotation  # its models would slow --help

    return annotate(Annotation(level=level, title=title, message=message))


def terminal(text: str, limit: int = 2_000, *, lines: bool = False) -> str:
    """Clean untrusted text for a terminal or a log: no control characters; one line unless ``lines``.

    An invisible zero-width space disarms CI commands.
    """
    from agent_eval_action.reports.formatting import clean  # it imports every report, which --help does not need

    return neutralize(clean(text, limit, lines=lines))


def no_verdict(message: str) -> None:
    """Report the error of a run that ended before its verdict, as an annotation and in the run's summary."""
    error(message, f"{TITLE}: nothing was decided")
    from agent_eval_action.reports.markdown import fence

    lines = fence(redaction.text(message).splitlines()[:_LINES], "text")
    text = f"> [!CAUTION]\n> **Nothing was decided:** agent-eval ended before it had a verdict.\n\n{lines}\n"
    if failed := detect(os.environ).append_summary(lambda room: text if len(text.encode()) <= room else "", os.environ):
        warning(failed)


def traceback_lines(text: str) -> str:
    """Prefix a traceback's lines with ``|`` in a CI log, so that problem matchers do not match them.

    Matchers of earlier steps (setup-python's) would turn the lines into annotations. Removing such a matcher would
    disable it for later steps too.
    """
    if log_commands() is None:
        return text
    return "\n".join(f"| {line}" for line in text.splitlines())


# --- a terminal ------------------------------------------------------------------------------------

_GAP: Final = 2
_NARROW: Final = 20
"""If the last column would be narrower than this, its texts get lines of their own."""
_DEEPER: Final = 4


def console() -> Console:
    """Human text goes to stderr; data to stdout."""
    from rich.console import Console

    # a CI log has no width, and rich's default of 80 columns would fold every table
    width = None if sys.stderr.isatty() or os.environ.get("COLUMNS") else 140
    return Console(stderr=True, highlight=False, width=width, soft_wrap=False)


def data_console() -> Console:
    """Tables that are data go to stdout."""
    from rich.console import Console

    return Console(highlight=False)


def print_line(
    text: str,
    style: str | None = None,
    *,
    out: Console | None = None,
    lines: bool = False,
    indent: int = 0,
    limit: int = 2_000,
) -> None:
    """Print untrusted text on ``out``, by default stderr; on one line unless ``lines``."""
    from rich.text import Text

    for line in terminal(text, limit, lines=lines).split("\n"):
        words = line.lstrip(" ")
        # continuation lines keep the indentation
        print_wrapped(out or console(), Text(words, style=style or ""), indent + len(line) - len(words))


def prose_text(out: Console, prose: Prose, limit: int) -> Text:
    """Return a sentence of at most ``limit`` characters; names are bold, or in backticks if ``out`` has no colours."""
    from rich.text import Text

    from agent_eval_action.reports.formatting import Name

    if out.color_system is None:
        return Text(terminal(str(prose), limit))
    parts = prose.cleaned(limit).parts
    return Text.assemble(*((part, "bold") if isinstance(part, Name) else neutralize(part) for part in parts))


def print_wrapped(out: Console, text: Text, indent: int = 0) -> None:
    """Print a paragraph indented by ``indent`` spaces; on a terminal, wrap it between words."""
    from rich.text import Text

    for line in _wrap(out, text, out.width - indent):
        out.print(Text(" " * indent) + line, soft_wrap=True, markup=False)


def print_columns(
    out: Console, rows: Iterable[Sequence[Text | str]], heading: Sequence[str] = (), indent: int = 2
) -> None:
    """Print rows in aligned columns; cells that are plain ``str`` are untrusted.

    On a terminal a last column that is too wide is wrapped in its column, or below the row if the column is too
    narrow. Rows that are still too wide are left to the terminal to wrap, so that names can be copied whole.
    """
    from rich.cells import cell_len
    from rich.text import Text

    lines = [[Text(cell, style="dim") for cell in heading]] if heading else []
    lines += [[Text(terminal(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows]
    if not lines:
        return
    widths = [max(cell.cell_len for cell in column) for column in zip(*lines, strict=True)]
    if out.is_terminal:  # one long name must not push the columns of all rows off the screen
        before = sum(widths[:-1]) + _GAP * (len(widths) - 1)
        widest = widths.index(max(widths[:-1], default=widths[-1]))
        widths[widest] -= max(0, min(indent + before - out.width, widths[widest] - _NARROW))
    place = indent + sum(widths[:-1]) + _GAP * (len(widths) - 1)
    left = out.width - place
    words = [word for line in lines for word in line[-1].plain.split(" ")]
    needed = min(widths[-1], max(_NARROW, *map(cell_len, words)))
    fits = not out.is_terminal or left >= needed or place <= indent + _DEEPER  # separate lines would gain nothing
    for line in lines:
        cells = zip(line[:-1], widths, strict=False)
        before = Text().join(cell + " " * max(_GAP, width + _GAP - cell.cell_len) for cell, width in cells)
        if fits:
            first, *rest = _wrap(out, line[-1], left)
            head, below = before + first, [Text(" " * (place - indent)) + more for more in rest]
        else:
            head, below = before, []
            if line is not lines[0] or not heading:
                below = [Text(" " * _DEEPER) + more for more in _wrap(out, line[-1], out.width - indent - _DEEPER)]
        for text in (head, *(more for more in below if more.plain.strip())):
            text.rstrip()
            out.print(Text(" " * indent) + text, soft_wrap=True, markup=False)


def _wrap(out: Console, text: Text, width: int) -> list[Text]:
    """On a terminal, wrap between words to at most ``width`` columns; a longer word gets a line of its own."""
    from rich.cells import cell_len

    if not out.is_terminal:
        return [text]
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
