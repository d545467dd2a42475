"""The log of this process: streams that untrusted text cannot command, our own commands, and the secrets of both."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable
from typing import Final

from agent_eval_action.ci import detect
from agent_eval_action.ci.base import LogCommands
from agent_eval_action.ci.log import GuardedStream, is_log
from agent_eval_action.results.evalset import Annotation
from agent_eval_action.results.redaction import Redaction, secrets_around

TITLE: Final = "agent-eval"
_MESSAGE: Final = 4_000
_LINES: Final = 100

redaction: Final = Redaction()
"""What is in no log and no file of this process: there is one environment, so there is one of these."""


def begin() -> None:
    """Guard both streams in a job of CI, and hide what the environment holds, before anything is printed."""
    if detect(os.environ).is_running(os.environ):
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, GuardedStream) and is_log(stream):
                setattr(sys, name, GuardedStream(stream, redaction.text))
        atexit.register(end)
    hide(secrets_around(os.environ))


def hide(secrets: Iterable[str]) -> None:
    """Hide these from now on, here and in the runner's log."""
    commands = _commands()
    for piece in redaction.hide(secrets):
        if commands is not None:
            say(commands.mask(piece))


def _commands() -> LogCommands | None:
    """The commands of this log, where there is somebody that reads them."""
    return detect(os.environ).log_commands if isinstance(sys.stderr, GuardedStream) else None


def _clean(message: str, *, lines: bool) -> str:
    from agent_eval_action.cli.text import terminal  # it brings every report with it, which --help does not need

    return terminal(redaction.text(message), _MESSAGE, lines=lines)


def say(command: str) -> None:
    """Write a command of ours, where there is a runner that reads it."""
    if isinstance(sys.stderr, GuardedStream):
        sys.stderr.command(command)


def error(message: str, title: str = TITLE, path: str = "", line: int | None = None) -> None:
    """Why the step is red. A container's exit code alone shows nothing on the page of the run."""
    shown = _clean(message, lines=True)
    if (commands := _commands()) is not None:
        say(commands.annotation(Annotation(level="error", title=title, message=shown, path=path, line=line)))


def could_not_run(message: str) -> None:
    """The same of a run that ended before there was a verdict, which the page of the run has to say too."""
    error(message, f"{TITLE}: nothing was decided")
    ci = detect(os.environ)
    if ci.log_commands is None:
        return
    from agent_eval_action.reports.escaping import fence

    lines = fence(redaction.text(message).splitlines()[:_LINES], "text")
    text = f"> [!CAUTION]\n> **Nothing was decided:** agent-eval ended before it had a verdict.\n\n{lines}\n"
    if failed := ci.append_summary(lambda room: text if len(text.encode()) <= room else "", os.environ):
        warning(failed)


def warning(message: str) -> None:
    """What went wrong beside the verdict: an annotation in a step, else a line."""
    shown = _clean(message, lines=False)
    if (commands := _commands()) is not None:
        say(commands.annotation(Annotation(level="warning", title=TITLE, message=shown)))
    else:
        print(f"warning: {shown}", file=sys.stderr)


def takes_commands() -> bool:
    """Whether the log can fold lines and show annotations."""
    return _commands() is not None


def group(title: str) -> None:
    """Begin lines that can be folded."""
    if (commands := _commands()) is not None:
        say(commands.group(title))


def end_group() -> None:
    """End them."""
    if (commands := _commands()) is not None:
        say(commands.end_group())


def excerpt(text: str) -> str:
    """Lines of somebody's traceback as a log may have them.

    Matchers that earlier steps left (setup-python's) turn the lines of a traceback into annotations; behind a bar
    they match none. Removing the matcher would take it from the steps that come after.
    """
    if not takes_commands():
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
