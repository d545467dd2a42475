"""The files of a finished run: results.json, then the reports, then outputs for later steps."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from agent_eval_action.baseline.file import FOLDER, keep_out_of_git
from agent_eval_action.cli.text import terminal
from agent_eval_action.config.settings import Settings
from agent_eval_action.errors import OutputError
from agent_eval_action.github.outputs import write_outputs
from agent_eval_action.model.decision import Decision
from agent_eval_action.model.result import RunResult
from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports.output import write_text
from agent_eval_action.run.load import relative

FILES = {"junit": "junit.xml", "markdown": "comment.md"}
RESULTS = "results.json"
_ACCEPTED = 3
_IMAGE = "ghcr.io/org/agent-eval-action:v1"


def begin(settings: Settings) -> None:
    """Remove the files of an earlier run, for a run that dies must not leave an old verdict standing; ignore ours."""
    ours = settings.workspace / FOLDER
    try:
        for name in (RESULTS, *FILES.values()):
            (settings.out / name).unlink(missing_ok=True)
        if settings.out.is_relative_to(ours):
            ours.mkdir(parents=True, exist_ok=True)
            keep_out_of_git(ours)
    except OSError as error:
        raise OutputError(
            f"{settings.out} cannot be written: {error.strerror or error}", hint="choose another folder with --out"
        ) from error


def write(result: RunResult, settings: Settings) -> list[tuple[str, str]]:
    """Write every file; returns (label, path as shown) of what was written."""
    out = settings.out
    results_json.write(out / RESULTS, result)
    written = [("results", out / RESULTS)]
    given = report_input(result)
    for name, file in FILES.items():
        write_text(out / file, [REPORTS[name](given, None)])
        written.append((name, out / file))
    shown = [(label, relative(path, settings.workspace)) for label, path in written]
    _outputs(result, dict(shown))
    return shown


def report_input(result: RunResult) -> ReportInput:
    """What a report needs besides the result: how to repeat the run, how to accept it."""
    words = " ".join(shlex.quote(terminal(word, 300)) for word in result.conditions.arguments)
    return ReportInput(
        result=result,
        reproduce=f'docker run --rm -v "$PWD:/github/workspace" {_IMAGE} run {words}'.rstrip(),
        accept_hint="\n".join(_accepting(result.decision, f"agent-eval baseline update {words}".rstrip())),
    )


def _accepting(decision: Decision | None, update: str) -> Iterator[str]:
    """What begins a baseline, or accepts what this run found; nothing where no command does."""
    if decision is None:
        return
    worse = dict.fromkeys(pair.case for pair in decision.pairs if pair.confirmed)
    for case in list(worse)[:_ACCEPTED]:
        yield f'agent-eval baseline accept {shlex.quote(terminal(case, 300))} --reason "why it is meant"'
    if decision.store == "file":
        yield update


def _outputs(result: RunResult, paths: dict[str, str]) -> None:
    decision = result.decision
    if decision is None:
        return
    values = {
        "verdict": decision.outcome.value,
        "reason": decision.reason,
        "results": paths["results"],
        "junit": paths["junit"],
        "comment": paths["markdown"],
    }
    write_outputs(values, os.environ)
