"""The log of this process: streams that untrusted text cannot command, our own commands, and the secrets of both."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from agent_eval_action.ci import detect
from agent_eval_action.ci.log import GuardedStream, is_log, neutralize
from agent_eval_action.results.redaction import Redaction, secrets_around

if TYPE_CHECKING:
    from agent_eval_action.ci.base import LogGroups
    from agent_eval_action.ci.github import WorkflowCommands
    from agent_eval_action.results.evalset import Annotation, AnnotationLevel

TITLE: Final = "agent-eval"
_MESSAGE_LIMIT: Final = 4_000
_LINES: Final = 100

redaction: Final = Redaction()
"""What no log and no file of this process shows: there is one environment, so there is one redaction."""


def guard_streams() -> None:
    """Guard both streams in a job of CI, and hide what the environment holds, before anything is printed."""
    if detect(os.environ).is_running(os.environ):
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, GuardedStream) and is_log(stream):
                setattr(sys, name, GuardedStream(stream, redaction.text))
        atexit.register(end_lines)
    hide(secrets_around(os.environ))


def end_lines() -> None:
    """Write the lines that were held back because they had no end yet."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, GuardedStream):
            stream.end_line()
            stream.flush()


def hide(secrets: Iterable[str]) -> None:
    """Hide these from now on, here and in the runner's log."""
    commands = log_commands()
    for piece in redaction.hide(secrets):
        if commands is not None:
            write_command(commands.mask(piece))


def log_commands() -> WorkflowCommands | None:
    """The commands that fold lines and show annotations in this log; None where nothing reads any."""
    return detect(os.environ).log_commands if isinstance(sys.stderr, GuardedStream) else None


def log_groups() -> LogGroups | None:
    """How lines of this log are folded; None where nothing folds them."""
    return detect(os.environ).log_groups if isinstance(sys.stderr, GuardedStream) else None


def write_command(command: str) -> None:
    """Write a command of ours, where there is a runner that reads it."""
    if isinstance(sys.stderr, GuardedStream):
        sys.stderr.command(command)


def error(message: str, title: str = TITLE) -> None:
    """Annotate why the step is red: a container's exit code alone shows nothing on the page of the run."""
    _annotate("error", title, _clean(message, lines=True))


def warning(message: str) -> None:
    """Report what went wrong beside the verdict: by an annotation in a step, else by a line."""
    text = _clean(message, lines=False)
    if not _annotate("warning", TITLE, text):
        print(f"warning: {text}", file=sys.stderr)


def annotate(remark: Annotation) -> bool:
    """Show a remark at its place; False where the log takes no commands."""
    commands = log_commands()
    if commands is not None:
        write_command(commands.annotation(remark))
    return commands is not None


def _annotate(level: AnnotationLevel, title: str, message: str) -> bool:
    from agent_eval_action.results.evalset import Annotation  # its models would slow --help

    return annotate(Annotation(level=level, title=title, message=message))


def _clean(message: str, *, lines: bool) -> str:
    return terminal(redaction.text(message), _MESSAGE_LIMIT, lines=lines)


def terminal(text: str, limit: int = 2_000, *, lines: bool = False) -> str:
    """Untrusted text for a terminal or a log: no control characters, one line unless ``lines``, no command.

    A command of CI is broken by a zero-width space, which shows nothing.
    """
    from agent_eval_action.reports.formatting import clean  # it imports every report, which --help does not need

    return neutralize(clean(text, limit, lines=lines))


def no_verdict(message: str) -> None:
    """Annotate the error of a run that ended before its verdict, and show it on the page of the run too."""
    error(message, f"{TITLE}: nothing was decided")
    from agent_eval_action.reports.escaping import fence

    lines = fence(redaction.text(message).splitlines()[:_LINES], "text")
    text = f"> [!CAUTION]\n> **Nothing was decided:** agent-eval ended before it had a verdict.\n\n{lines}\n"
    if failed := detect(os.environ).append_summary(lambda room: text if len(text.encode()) <= room else "", os.environ):
        warning(failed)


def traceback_lines(text: str) -> str:
    """Lines of somebody's traceback as a log may have them.

    Matchers that earlier steps left (setup-python's) turn the lines of a traceback into annotations; behind a bar
    they match none. Removing the matcher would take it from the steps that come after.
    """
    if log_commands() is None:
        return text
    return "\n".join(f"| {line}" for line in text.splitlines())
