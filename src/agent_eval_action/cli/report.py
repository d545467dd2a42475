"""``agent-eval report``."""

from __future__ import annotations

from pathlib import Path

from agent_eval_action.cli import log
from agent_eval_action.cli.outputs import report_input, results_file
from agent_eval_action.diagnostics.reader import did_you_mean
from agent_eval_action.errors import ExitCode, UsageError
from agent_eval_action.reports import REPORTS, results_json
from agent_eval_action.reports.base import write_text


def report_command(results: Path, to: str, output: Path | None) -> ExitCode:
    """Render ``results`` as ``to``, to a file or to stdout."""
    report = REPORTS.get(to)
    if report is None:
        names = ", ".join(sorted(REPORTS))
        raise UsageError(f"there is no report {to!r}: choose from {names}", hint=did_you_mean(to, REPORTS))
    text = report(report_input(results_json.read(results_file(results))), None)
    if output is not None:
        write_text(output, [text])
    else:
        log.write_data(text)
    return ExitCode.PASS
