"""What commands need around their work: settings, the console, a run under signals, the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_eval_action.api.evaluation import Evaluation, RunContext
from agent_eval_action.ci import Job, detect
from agent_eval_action.cli import log
from agent_eval_action.cli.progress import Display, LiveDisplay, PlainDisplay
from agent_eval_action.config.loader import Resolved, resolve
from agent_eval_action.criteria import CRITERIA
from agent_eval_action.errors import ExitCode
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.run_result import RunResult, RunStatus
from agent_eval_action.run.orchestrator import StopRequest

if TYPE_CHECKING:
    from rich.console import Console

EXIT = {
    Verdict.PASS: ExitCode.PASS,
    Verdict.COLLECTING: ExitCode.PASS,
    Verdict.FAIL: ExitCode.FAIL,
    Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


def console() -> Console:
    """Human text goes to stderr; data to stdout."""
    from rich.console import Console

    # in a CI log there is no width to ask for, and 80 columns would fold every table
    width = None if sys.stderr.isatty() or os.environ.get("COLUMNS") else 140
    return Console(stderr=True, highlight=False, width=width, soft_wrap=False)


def print_line(text: str, style: str | None = None, *, lines: bool = False) -> None:
    """Print untrusted text on one line, or on several with ``lines``; the terminal may fold them."""
    console().print(log.terminal(text, lines=lines), markup=False, style=style, soft_wrap=True)


def data_console() -> Console:
    """Tables that are data go to stdout, in a width that folds no row of a file."""
    from rich.console import Console

    return Console(width=None if Console().is_terminal else 200)


def print_table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of untrusted text."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(log.terminal(cell, 120)) for cell in row))
    out.print(table)


def settings_for(flags: Mapping[str, Any]) -> Resolved:
    """The settings of this invocation; a flag that is None was not given."""
    resolved = resolve(flags=flags, environ=os.environ, cwd=Path.cwd())
    resolved.refuse_unknown_rules(CRITERIA)
    return resolved


@contextlib.contextmanager
def evaluated(
    resolved: Resolved,
    selectors: Sequence[str],
    repeats: int | None = None,
    flags: Mapping[str, Any] | None = None,
    job: Job | None = None,
) -> Iterator[RunResult]:
    """Run under signals and a progress display; the result is there also when a signal cut the run short.

    The body writes the result; what an interrupted run left at work is ended after it.
    """
    stop, runner = StopRequest(), asyncio.Runner()
    with _display() as display:
        context = RunContext(
            environ=os.environ,
            emit=display,
            stop=stop,
            notes=resolved.notes,
            warnings=resolved.warnings,
            selectors=tuple(selectors),
            repeats=repeats,
            flags=flags or {},
            cwd=Path.cwd(),
            job=job or detect(os.environ).job(os.environ),
            while_agents_start=_import_drawing,
            redaction=log.redaction,
            hide_secrets=log.hide,
        )
        evaluation = Evaluation(resolved.settings, context)
        try:
            result = runner.run(_result(evaluation, stop))
        except KeyboardInterrupt:  # a signal before the loop listened to it
            result = evaluation.interrupted()
        finally:
            if stop.interrupted.is_set():
                # threads and processes may still be at work: what there is is written before they are waited for
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, _leave_at_once)
            else:
                runner.close()
    yield result
    if stop.interrupted.is_set():
        runner.run(evaluation.end())


def _display() -> Display:
    if sys.stderr.isatty() and not os.environ.get("CI"):
        return LiveDisplay(console())
    commands = log.log_commands()
    return PlainDisplay(
        lambda line: print(log.redaction.text(line), file=sys.stderr, flush=True),
        (lambda title: log.write_command(commands.group(title))) if commands is not None else None,
        (lambda: log.write_command(commands.end_group())) if commands is not None else lambda: None,
        log.traceback_lines,
    )


async def _result(evaluation: Evaluation, stop: StopRequest) -> RunResult:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _interrupt, stop)
    return await evaluation.result()


def _interrupt(stop: StopRequest) -> None:
    if stop.interrupted.is_set():
        _leave_at_once()
    stop.request(RunStatus.INTERRUPTED)


def _leave_at_once(*_: object) -> None:
    """Asked twice: leave without writing."""
    os._exit(ExitCode.INTERRUPTED)


def _import_drawing() -> None:
    """What the summary needs, while the agents start: nobody waits for it then."""
    for name in ("rich.console", "rich.table"):
        importlib.import_module(name)


def exit_code(status: RunStatus, decision: Decision, fail_on: str) -> ExitCode:
    """The exit code of a run. ``fail_on`` fail lets an inconclusive run pass, never lets every verdict pass.

    A run that is inconclusive only because CI gave it no secrets passes whatever ``fail_on`` says: nobody who can see
    the red check could do anything about it.
    """
    if status is RunStatus.INTERRUPTED:
        return ExitCode.INTERRUPTED
    inconclusive = decision.outcome is Verdict.INCONCLUSIVE
    if fail_on == "never" or (inconclusive and (fail_on == "fail" or decision.excused)):
        return ExitCode.PASS
    return EXIT[decision.outcome]
