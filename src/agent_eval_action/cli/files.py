"""The files of a finished run: results.json, then the reports made of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from agent_eval_action.baseline.file import FOLDER, keep_out_of_git
from agent_eval_action.cli.text import terminal
from agent_eval_action.config.settings import Settings
from agent_eval_action.errors import OutputError
from agent_eval_action.model.result import RunResult
from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports.detail import scores_only
from agent_eval_action.reports.output import write_text
from agent_eval_action.run.load import relative

FILES = {"junit": "junit.xml", "markdown": "comment.md", "html": "report.html"}
RESULTS = "results.json"
_IMAGE = "ghcr.io/org/agent-eval-action:v0"


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


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the files: (label, path as shown) of those that are there, and why others are not.

    ``lost`` is set where results.json itself could not be written: what was measured is then nowhere.
    """

    shown: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    lost: OutputError | None = None

    def path(self, label: str) -> str:
        """As shown; "" of what is not there."""
        return dict(self.shown).get(label, "")


def write(result: RunResult, settings: Settings) -> Written:
    """Write results.json, then every report, each for itself: a report that fails takes no other with it."""
    shown: list[tuple[str, str]] = []
    problems: list[str] = []
    lost: OutputError | None = None
    out = settings.out
    try:
        results_json.write(out / RESULTS, result)
        shown.append(("results", relative(out / RESULTS, settings.workspace)))
    except OutputError as error:
        lost = error
    for name, file in FILES.items():
        try:
            write_text(out / file, [REPORTS[name](in_detail(name, report_input(result), settings), None)])
        except Exception as error:  # noqa: BLE001 - the verdict stands, whatever is wrong with the telling of it
            problems.append(f"there is no {file}: {_short(error)}")
        else:
            shown.append((name, relative(out / file, settings.workspace)))
    return Written(tuple(shown), tuple(problems), lost)


def in_detail(name: str, report: ReportInput, settings: Settings) -> ReportInput:
    """What a report may show: the comment, posted or as a file, perhaps no word of anybody."""
    return scores_only(report) if name == "markdown" and settings.comment_detail == "scores" else report


def _short(error: Exception) -> str:
    return error.message if isinstance(error, OutputError) else f"{type(error).__name__}: {error}"


def report_input(result: RunResult) -> ReportInput:
    """What a report needs besides the result: how to repeat the run."""
    words = " ".join(shlex.quote(terminal(word, 300)) for word in result.conditions.arguments)
    return ReportInput(
        result=result,
        reproduce=f'docker run --rm -v "$PWD:/github/workspace" {_IMAGE} run {words}'.rstrip(),
    )
