"""The log of this process: streams that untrusted text cannot command, our own commands, and the secrets of both."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable
from typing import Final

from agent_eval_action.ci import log
from agent_eval_action.ci.github.outputs import append_summary
from agent_eval_action.ci.github.publish import on_github
from agent_eval_action.ci.log import GuardedStream, is_log
from agent_eval_action.config.secrets import secrets_around
from agent_eval_action.results.evalset import Annotation
from agent_eval_action.results.redaction import Redaction

TITLE: Final = "agent-eval"
_MESSAGE: Final = 4_000
_LINES: Final = 100

redaction: Final = Redaction()
"""What is in no log and no file of this process: there is one environment, so there is one of these."""


def begin() -> None:
    """Guard both streams in a step of a workflow, and hide what the environment holds, before anything is printed."""
    if on_github(os.environ):
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, GuardedStream) and is_log(stream):
                setattr(sys, name, GuardedStream(stream, redaction.text))
        atexit.register(end)
    hide(secrets_around(os.environ))


def hide(secrets: Iterable[str]) -> None:
    """Hide these from now on, here and in the runner's log."""
    for piece in redaction.hide(secrets):
        say(log.command("add-mask", piece))


def _clean(message: str, *, lines: bool) -> str:
    from agent_eval_action.cli.text import terminal  # it brings every report with it, which --help does not need

    return terminal(redaction.text(message), _MESSAGE, lines=lines)


def say(command: str) -> None:
    """Give the runner a command, where there is one that listens."""
    if isinstance(sys.stderr, GuardedStream):
        sys.stderr.command(command)


def error(message: str, title: str = TITLE, path: str = "", line: int | None = None) -> None:
    """Why the step is red. A container's exit code alone shows nothing on the page of the run."""
    shown = _clean(message, lines=True)
    say(log.annotation(Annotation(level="error", title=title, message=shown, path=path, line=line)))


def could_not_run(message: str) -> None:
    """The same of a run that ended before there was a verdict, which the page of the run has to say too."""
    error(message, f"{TITLE}: nothing was decided")
    if not on_github(os.environ):
        return
    from agent_eval_action.reports.escaping import fence

    lines = fence(redaction.text(message).splitlines()[:_LINES], "text")
    text = f"> [!CAUTION]\n> **Nothing was decided:** agent-eval ended before it had a verdict.\n\n{lines}\n"
    if failed := append_summary(lambda room: text if len(text.encode()) <= room else "", os.environ):
        warning(failed)


def warning(message: str) -> None:
    """What went wrong beside the verdict: an annotation in a step, else a line."""
    shown = _clean(message, lines=False)
    if folds():
        say(log.annotation(Annotation(level="warning", title=TITLE, message=shown)))
    else:
        print(f"warning: {shown}", file=sys.stderr)


def folds() -> bool:
    """Whether the log can fold lines."""
    return isinstance(sys.stderr, GuardedStream)


def group(title: str) -> None:
    """Begin lines that can be folded."""
    say(log.command("group", title))


def end_group() -> None:
    """End them."""
    say(log.command("endgroup"))


def excerpt(text: str) -> str:
    """Lines of somebody's traceback as a log may have them.

    Matchers that earlier steps left (setup-python's) turn the lines of a traceback into annotations; behind a bar
    they match none. Removing the matcher would take it from the steps that come after.
    """
    if not folds():
        return text
    return "\n".join(f"| {line}" for line in text.splitlines())


def data(text: str) -> None:
    """Data on stdout: as bytes, so that no platform changes an end of a line; into a log through what guards it."""
    if isinstance(sys.stdout, GuardedStream):
        sys.stdout.write(text)
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def end() -> None:
    """Write what was held back."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, GuardedStream):
            stream.end_line()
            stream.flush()
