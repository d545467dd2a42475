"""Refuses folders of ours that the workspace leads elsewhere, or that bring content along: links, tracked files."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.accepted import ACCEPT
from agent_eval_action.baseline.file_store import FOLDER, keep_out_of_git
from agent_eval_action.ci import detect
from agent_eval_action.ci.base import StepReports, publish_step
from agent_eval_action.cli import log, summary
from agent_eval_action.cli.missing import rest_command
from agent_eval_action.cli.session import EXIT, console, exit_code
from agent_eval_action.cli.text import terminal
from agent_eval_action.config.models import Settings
from agent_eval_action.errors import ConfigError, ExitCode, OutputError, Problem
from agent_eval_action.folders import OutputFolder
from agent_eval_action.git import Repository
from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.annotations import remarks, shown_in_step
from agent_eval_action.reports.base import write_text
from agent_eval_action.reports.detail import scores_only
from agent_eval_action.reports.view import Group, passes, views, with_threshold
from agent_eval_action.results.evalset import Annotation
from agent_eval_action.results.run_result import RunResult, RunStatus
from agent_eval_action.run.loader import relative

_SHOWN: Final = 10
_COMMITTED: Final = frozenset({".gitignore", ".gitkeep", ACCEPT.name})


def refuse_unsafe_folders(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise ConfigError when what a run writes or keeps would go through a link, or is tracked by git.

    A link leads to files that are not ours. What is tracked came with the change: kept answers of judges, kept
    attempts and kept environments are measurements only where a run made them. Reads the repository, so it is
    called before agents run.
    """
    named = {"out": settings.out, "cache_dir": settings.cache_dir, "resume": settings.resume}
    ours = [_Ours(option, settings.output_folder(path)) for option, path in named.items() if path is not None]
    inside = [one for one in ours if one.folder.trusted == settings.workspace]
    problems = [problem for ours_inside in inside for problem in _misplaced(ours_inside)]
    problems = problems or _tracked(inside, settings, environ)
    if problems:
        raise ConfigError("the folders that runs write to cannot be used", problems=tuple(problems))


@dataclass(frozen=True, slots=True)
class _Ours:
    """A folder and the option that names it."""

    option: str
    folder: OutputFolder


def _misplaced(ours: _Ours) -> Iterator[Problem]:
    folder, place = ours.folder, ours.folder.path
    if ".git" in [part.lower() for part in place.relative_to(folder.trusted).parts]:
        yield Problem(place, f"lies in git's own folder, and {ours.option} is written by runs", hint="name another")
        return
    link = folder.first_link()
    if link is not None:
        message = f"is a symbolic link, and {ours.option} ({place.name}) is not written through links"
        yield Problem(link, message, value=_target(link), hint="remove the link")
    elif ours.option == "out":
        try:
            links = [place / name for name in islice(folder.links(), _SHOWN)]
        except OSError as error:
            said = f"{place} cannot be written: {error.strerror or error}"
            raise OutputError(said, hint="choose another folder with --out") from error
        for link in links:
            message = "is a symbolic link among the results, which uploading them would follow"
            yield Problem(link, message, value=_target(link), hint="remove the link")


def _target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:
        return None


def _tracked(ours: list[_Ours], settings: Settings, environ: Mapping[str, str]) -> list[Problem]:
    workspace, repository = settings.workspace, Repository(settings.workspace, environ)
    if not ours or repository.root() is None:
        return []
    places = {one.option: one.folder.path.relative_to(workspace) for one in ours}
    # of a folder's first component: a submodule above it is an entry of its own
    tops = sorted({place.parts[0] if place.parts else "." for place in places.values()})
    done = repository.git("ls-files", "-z", "--", *(f":(icase,literal){top}" for top in tops))
    if not done.ok:
        message = f"git cannot say what is tracked: {done.err}"
        return [Problem(workspace, message, hint="check the repository with `git ls-files`")]
    names = [Path(name.decode("utf-8", "surrogateescape")) for name in done.out.split(b"\0") if name]
    found = {
        name: option
        for name in names
        for option, place in places.items()
        if _is_ours(workspace / name, place, settings)
    }
    return [
        Problem(
            workspace / name,
            f"is committed, and {option} ({places[option]}) holds only what runs of this machine made",
            hint=f"git rm -r --cached {places[option]}, and ignore it",
        )
        for name, option in list(found.items())[:_SHOWN]
    ]


def _is_ours(path: Path, place: Path, settings: Settings) -> bool:
    """Whether a tracked path lies in the folder, or the folder in it; names differ in no more than their case."""
    if path.name in _COMMITTED or path == settings.baseline.path:
        return False
    own = _folded(path.relative_to(settings.workspace))
    folder = _folded(place)
    return own[: len(folder)] == folder or folder[: len(own)] == own


def _folded(path: Path) -> tuple[str, ...]:
    return tuple(part.casefold() for part in path.parts)


FILES = {"junit": "junit.xml", "markdown": "comment.md", "html": "report.html"}
RESULTS = results_json.RESULTS
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


Publish = Callable[[], str]
"""Posts the comment. Returns what went wrong in one sentence, "" when nothing did."""


def finish(result: RunResult, settings: Settings, publish: Publish | None = None) -> ExitCode:
    """Results and reports, outputs, summary, annotations, comment: in this order, and nothing changes the verdict.

    A run that was interrupted posts no comment: whoever cancels is not waited for, and a newer run will say more.
    """
    written = write(result, settings)
    code = exit_code(result, result.conditions.fail_on or settings.fail_on)
    interrupted = result.status is RunStatus.INTERRUPTED
    reports = StepReports(
        outputs=lambda: outputs(result, written),
        summary=lambda room: REPORTS["summary"](report_input(result), room),
        show=lambda: summary.show(console(), result, written.shown, rest=rest_command(result, settings)),
        annotations=lambda: remarked(result, red=code is not ExitCode.PASS),
        publish=None if interrupted else publish,
    )
    publish_step(reports, detect(os.environ), os.environ, log.warning, log.say)
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


def outputs(result: RunResult, written: Written) -> dict[str, str]:
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
    return shown_in_step(list(remarks(report_input(result))), kept=1 if red else 0)
