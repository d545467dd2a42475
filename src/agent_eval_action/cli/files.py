"""The files of a finished run: results.json, then the reports made of it."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from agent_eval_action.baseline.file import FOLDER, keep_out_of_git
from agent_eval_action.cli import log
from agent_eval_action.cli.own_folders import refuse_unsafe_folders
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


@contextlib.contextmanager
def written_by_a_run(settings: Settings) -> Iterator[None]:
    """The files of a run, from the removal of older ones to the end, when none of them is a link, however it ends."""
    begin(settings)
    try:
        yield
    finally:
        for problem in _remove_links(settings):
            log.warning(problem)


def begin(settings: Settings) -> None:
    """Remove the files of an earlier run, for a run that dies must not leave an old verdict standing; ignore ours."""
    refuse_unsafe_folders(settings, os.environ)
    ours, out = settings.workspace / FOLDER, settings.output_folder(settings.out)
    try:
        for name in (RESULTS, *FILES.values()):
            out.remove(name)
        if out.path.is_relative_to(ours):
            keep_out_of_git(settings.output_folder(ours))
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
        results_json.write(out / RESULTS, result, workspace=settings.workspace)
        shown.append(("results", relative(out / RESULTS, settings.workspace)))
    except OutputError as error:
        lost = error
    for name, file in FILES.items():
        try:
            text = REPORTS[name](in_detail(name, report_input(result), settings), None)
            write_text(out / file, [text], workspace=settings.workspace)
        except Exception as error:  # noqa: BLE001 - the verdict stands, whatever is wrong with the telling of it
            problems.append(f"there is no {file}: {_short(error)}")
        else:
            shown.append((name, relative(out / file, settings.workspace)))
    return Written(tuple(shown), tuple(problems), lost)


def _remove_links(settings: Settings) -> Iterator[str]:
    """Remove links from the results, as an agent may have left some: uploading a folder follows them."""
    out = settings.output_folder(settings.out)
    if out.trusted != settings.workspace:  # a place of the user's own
        return
    try:
        for name in list(out.links()):
            out.remove(name)
            yield f"{relative(out.path / name, settings.workspace)} was a symbolic link and is removed"
    except OSError as error:
        yield f"{settings.out} may hold symbolic links: {error.strerror or error}"


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
