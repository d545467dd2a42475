"""The end of a run: its files, what is left with GitHub, the verdict on the log, and the exit code."""

from __future__ import annotations

import os
from collections.abc import Callable

from agent_eval_action.cli import files, log, summary
from agent_eval_action.cli.missing import rest_command
from agent_eval_action.cli.session import EXIT, console, exit_code
from agent_eval_action.config.settings import Settings
from agent_eval_action.errors import ExitCode
from agent_eval_action.github.step import Leaving, leave
from agent_eval_action.model.annotation import Annotation
from agent_eval_action.model.result import RunResult, RunStatus
from agent_eval_action.reports import REPORTS
from agent_eval_action.reports import format as fmt
from agent_eval_action.reports.annotations import remarks, shown_in_step
from agent_eval_action.reports.cases import Group, passes, views, with_threshold

Publish = Callable[[], str]
"""Posts the comment. Returns what went wrong in one sentence, "" when nothing did."""


def finish(result: RunResult, settings: Settings, publish: Publish | None = None) -> ExitCode:
    """Results and reports, outputs, summary, annotations, comment: in this order, and nothing changes the verdict.

    A run that was interrupted posts no comment: whoever cancels is not waited for, and a newer run will say more.
    """
    written = files.write(result, settings)
    code = exit_code(result, result.conditions.fail_on or settings.fail_on)
    interrupted = result.status is RunStatus.INTERRUPTED
    leaving = Leaving(
        outputs=lambda: outputs(result, written),
        summary=lambda room: REPORTS["summary"](files.report_input(result), room),
        show=lambda: summary.show(console(), result, written.shown, rest=rest_command(result, settings)),
        annotations=lambda: remarked(result, red=code is not ExitCode.PASS),
        publish=None if interrupted else publish,
    )
    leave(leaving, os.environ, log.warning, log.say)
    for problem in written.problems:
        log.warning(problem)
    if written.lost is not None and code is ExitCode.PASS:  # a pass that is written down nowhere is none
        raise written.lost
    if written.lost is not None:
        log.warning(str(written.lost))
    if code is ExitCode.PASS and result.decision is not None and EXIT[result.decision.outcome] is not ExitCode.PASS:
        log.warning(result.decision.reason)  # green because of `fail_on`, not of the verdict
    if code is not ExitCode.PASS and result.decision is not None:
        log.error(result.decision.reason, f"agent-eval: {fmt.OUTCOME_LABELS[result.decision.outcome].lower()}")
    return code


def outputs(result: RunResult, written: files.Written) -> dict[str, str]:
    """The step's outputs, each a text; "" for what there is none of."""
    decision = result.decision
    if decision is None:
        return {}
    cases = views(result, decision)
    held = with_threshold(cases)
    return {
        "verdict": decision.outcome.value,
        "reason": decision.reason,
        "pass-rate": f"{sum(map(passes, held)) / len(held):.4f}" if held else "",
        "regressions": str(sum(view.group is Group.REGRESSED for view in cases)),
        "cost": "" if result.totals.usd is None else f"{result.totals.usd:.6f}",
        "results": written.path("results"),
        "junit": written.path("junit"),
        "comment": written.path("markdown"),
        "report": written.path("html"),
    }


def remarked(result: RunResult, *, red: bool) -> list[Annotation]:
    """What is shown at the lines of cases; a red step keeps one place for the verdict itself."""
    return shown_in_step(list(remarks(files.report_input(result))), kept=1 if red else 0)
