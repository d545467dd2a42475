"""What commands share: settings, a run under signal handlers, the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agent_eval_action.api.evaluation import Evaluation, RunContext, discover_eval_files
from agent_eval_action.baseline.history_session import HistorySession, open_history_session
from agent_eval_action.ci import detect
from agent_eval_action.cli import log
from agent_eval_action.cli.log import console
from agent_eval_action.cli.progress import PlainDisplay, Verbosity, live_display, working
from agent_eval_action.config.loader import Resolved, resolve
from agent_eval_action.config.models import Settings
from agent_eval_action.criteria import CRITERIA
from agent_eval_action.errors import ExitCode, UsageError
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.run_result import RunResult, RunStatus
from agent_eval_action.run.events import Event
from agent_eval_action.run.loader import Loader
from agent_eval_action.run.orchestrator import StopRequest
from agent_eval_action.run.plan import Plan

_Answer = TypeVar("_Answer")

EXIT = {
    Verdict.PASS: ExitCode.PASS,
    Verdict.COLLECTING: ExitCode.PASS,
    Verdict.FAIL: ExitCode.FAIL,
    Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


def verbosity_of(*, verbose: bool, quiet: bool) -> Verbosity:
    """Return how much to show. Raises UsageError if both flags are given."""
    if verbose and quiet:
        raise UsageError("--verbose and --quiet exclude each other")
    return "quiet" if quiet else "verbose" if verbose else "normal"


def settings_for(flags: Mapping[str, Any]) -> Resolved:
    """Return the settings of this invocation; None means that a flag was not given."""
    return checked(resolve(flags=flags, environ=os.environ, cwd=Path.cwd()))


def checked(resolved: Resolved) -> Resolved:
    """Return ``resolved``. Raises ConfigError if its rules name an unknown criterion."""
    resolved.refuse_unknown_rules(CRITERIA)
    return resolved


def plan_of(settings: Settings) -> Plan:
    """Return a plan of every case in this checkout, with one repeat."""
    return Loader(settings.workspace).plan(discover_eval_files(settings), 1)


def read_history(settings: Settings) -> HistorySession:
    """Read the history that a run of this checkout is compared with."""
    with working("reading main's runs"):
        return open_history_session(settings, os.environ, detect(os.environ).job(os.environ).event)


@contextlib.contextmanager
def evaluated(
    resolved: Resolved, selectors: Sequence[str], *, verbosity: Verbosity = "normal", **fields: Any
) -> Iterator[RunResult]:
    """Run with signal handlers and a progress display; yields a result also when a signal cut the run short.

    ``fields``: fields of the ``RunContext`` that depend on the command. The body writes the result; threads and
    processes of an interrupted run are ended after it.
    """
    stop, runner = StopRequest(), asyncio.Runner()
    with _display(verbosity) as display:
        evaluation = _evaluation(resolved, selectors, display, stop, **fields)
        try:
            result = runner.run(_result(evaluation, stop))
        except KeyboardInterrupt:  # a signal before the loop's handlers were installed
            result = evaluation.interrupted()
        finally:
            if stop.interrupted.is_set():
                # results are written before threads and processes are waited for; another signal exits at once
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, _leave_at_once)
            else:
                runner.close()
    end = evaluation.end if stop.interrupted.is_set() else None
    del evaluation  # the cases of a large suite take as much memory as its reports
    yield result
    if end is not None:
        runner.run(end())


def asked(
    resolved: Resolved,
    selectors: Sequence[str],
    flags: Mapping[str, Any],
    question: Callable[[Evaluation], Coroutine[Any, Any, _Answer]],
) -> _Answer:
    """Answer a question about a checkout that needs an evaluation but no agent."""
    with _display("normal") as display:
        return asyncio.run(question(_evaluation(resolved, selectors, display, StopRequest(), flags=flags)))


def _evaluation(
    resolved: Resolved, selectors: Sequence[str], display: Callable[[Event], None], stop: StopRequest, **fields: Any
) -> Evaluation:
    context = RunContext(
        environ=os.environ,
        emit=display,
        stop=stop,
        notes=resolved.notes,
        warnings=resolved.warnings,
        selectors=tuple(selectors),
        cwd=Path.cwd(),
        job=detect(os.environ).job(os.environ),
        while_agents_start=_import_reports,
        redaction=log.redaction,
        hide_secrets=log.hide,
        **fields,
    )
    return Evaluation(resolved.settings, context)


def _display(verbosity: Verbosity) -> contextlib.AbstractContextManager[Callable[[Event], None]]:
    if verbosity == "quiet":
        return contextlib.nullcontext(lambda _: None)
    in_ci = bool(os.environ.get("CI")) or detect(os.environ).is_running(os.environ)
    if sys.stderr.isatty() and not in_ci:
        return live_display(console(), details=verbosity == "verbose", problems=verbosity != "cases")
    groups = log.log_groups()
    return PlainDisplay(
        lambda line: print(log.redaction.text(line), file=sys.stderr, flush=True),
        (lambda title: log.write_command(groups.group(title))) if groups is not None else None,
        (lambda: log.write_command(groups.end_group())) if groups is not None else lambda: None,
        details=in_ci or verbosity == "verbose",
        problems=verbosity != "cases",
        excerpt=log.traceback_lines,
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
    """Exit without writing anything, on the second signal."""
    os._exit(ExitCode.INTERRUPTED)


def _import_reports() -> None:
    """Import what shows and writes the result while the agents start, when it delays nobody."""
    for name in ("agent_eval_action.cli.shards", "jinja2", "rich.console", "rich.table"):
        importlib.import_module(name)


def exit_code(status: RunStatus, decision: Decision, fail_on: str) -> ExitCode:
    """Return the exit code of a run. ``fail_on``: with "fail" an inconclusive run passes, with "never" every verdict.

    A run that is inconclusive only because CI withheld its secrets always passes: nobody who sees the red check could
    do anything about it.
    """
    if status is RunStatus.INTERRUPTED:
        return ExitCode.INTERRUPTED
    inconclusive = decision.outcome is Verdict.INCONCLUSIVE
    if fail_on == "never" or (inconclusive and (fail_on == "fail" or decision.excused)):
        return ExitCode.PASS
    return EXIT[decision.outcome]
