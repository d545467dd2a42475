"""What a run leaves in folders of its own: its files; the outputs of its step, the end of its log."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import dropwhile, islice
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.accepted import ACCEPT
from agent_eval_action.baseline.file_store import FOLDER, keep_out_of_git
from agent_eval_action.ci import detect
from agent_eval_action.ci.log import GuardedStream
from agent_eval_action.cli import log, summary
from agent_eval_action.cli.console import console
from agent_eval_action.cli.log import terminal
from agent_eval_action.cli.progress import Verbosity
from agent_eval_action.cli.session import EXIT, exit_code
from agent_eval_action.config.models import Settings
from agent_eval_action.errors import ConfigError, ExitCode, OutputError, Problem
from agent_eval_action.folders import OutputFolder, relative
from agent_eval_action.git.repository import Repository
from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.annotations import remarks, shown_in_step
from agent_eval_action.reports.base import write_text
from agent_eval_action.reports.detail import scores_only
from agent_eval_action.reports.messages import Messages
from agent_eval_action.reports.next_steps import rerun_commands
from agent_eval_action.reports.view import WORSE, Group, passes, with_threshold
from agent_eval_action.results.decision import Decision
from agent_eval_action.results.recordings import Recordings
from agent_eval_action.results.run_result import RunResult, RunStatus, ScoreStatus
from agent_eval_action.results.transcripts import ATTEMPTS

_SHOWN: Final = 10
_COMMITTED: Final = frozenset({".gitignore", ".gitkeep", ACCEPT.name})
REPORT_FILES: Final = {"junit": "junit.xml", "markdown": "comment.md", "html": "report.html"}
_OUT: Final = Settings.model_fields["out"].default
_IMAGE: Final = "ghcr.io/org/agent-eval-action:v0"


@contextlib.contextmanager
def output_folder(settings: Settings) -> Iterator[None]:
    """The folder of a run's files: older files are removed at the start, links that an agent left at the end."""
    refuse_unsafe_folders(settings)
    ours, out = settings.workspace / FOLDER, settings.output_folder(settings.out)
    try:
        for name in (results_json.RESULTS, *REPORT_FILES.values()):
            out.remove(name)  # a run that dies must not leave an old verdict
        if out.path.is_relative_to(ours):
            keep_out_of_git(settings.output_folder(ours))
    except OSError as error:
        message = f"{settings.out} cannot be written: {error.strerror or error}"
        raise OutputError(message, hint="choose another folder with --out") from error
    try:
        yield
    finally:
        if out.trusted == settings.workspace:  # else a folder of the user's own
            _remove_links(out, settings)


def _remove_links(out: OutputFolder, settings: Settings) -> None:
    """Remove links from the results, as an agent may have left some: uploading a folder follows them."""
    try:
        for name in list(out.links()):
            out.remove(name)
            log.warning(f"{relative(out.path / name, settings.workspace)} was a symbolic link and is removed")
    except OSError as error:
        log.warning(f"{settings.out} may hold symbolic links: {error.strerror or error}")


def refuse_unsafe_folders(settings: Settings) -> None:
    """Raise ConfigError when what a run writes or keeps would go through a link, or is tracked by git.

    What is tracked came with the change: kept answers of judges, kept attempts and kept environments are measurements
    only where a run made them. Reads the repository, so it is called before agents run.
    """
    paths = {"out": settings.out, "cache_dir": settings.cache_dir, "resume": settings.resume}
    folders = {option: settings.output_folder(path) for option, path in paths.items() if path is not None}
    inside = {option: folder for option, folder in folders.items() if folder.trusted == settings.workspace}
    problems = [problem for option, folder in inside.items() for problem in _link_problems(option, folder)]
    problems = problems or _tracked_files(inside, settings)
    if problems:
        raise ConfigError("the folders that runs write to cannot be used", problems=tuple(problems))


def _link_problems(option: str, folder: OutputFolder) -> Iterator[Problem]:
    path = folder.path
    if ".git" in [part.lower() for part in path.relative_to(folder.trusted).parts]:
        yield Problem(path, f"lies in git's own folder, and {option} is written by runs", hint="name another")
        return
    links: list[Path] = []
    message = f"is a symbolic link, and {option} ({path.name}) is not written through links"
    if (link := folder.first_link()) is not None:
        links = [link]
    elif option == "out":
        message = "is a symbolic link among the results, which uploading them would follow"
        try:
            links = [path / name for name in islice(folder.links(), _SHOWN)]
        except OSError as error:
            why = f"{path} cannot be written: {error.strerror or error}"
            raise OutputError(why, hint="choose another folder with --out") from error
    for link in links:
        yield Problem(link, message, value=str(link.readlink()), hint="remove the link")


def _tracked_files(folders: Mapping[str, OutputFolder], settings: Settings) -> list[Problem]:
    workspace, repository = settings.workspace, Repository(settings.workspace, os.environ)
    if not folders or repository.root() is None:
        return []
    paths = {option: folder.path.relative_to(workspace) for option, folder in folders.items()}
    # of a folder's first component: a submodule above it is an entry of its own
    tops = sorted({path.parts[0] if path.parts else "." for path in paths.values()})
    listed = repository.run("ls-files", "-z", "--", *(f":(icase,literal){top}" for top in tops))
    if not listed.ok:
        message = f"git cannot say what is tracked: {listed.err}"
        return [Problem(workspace, message, hint="check the repository with `git ls-files`")]

    def overlaps(name: Path, folder: Path) -> bool:  # one lies in the other; the case of letters does not count
        pairs = zip(name.parts, folder.parts, strict=False)
        return all(part.casefold() == other.casefold() for part, other in pairs)

    tracked = {
        name: option
        for name in map(Path, listed.names)
        for option, path in paths.items()
        if name.name not in _COMMITTED and workspace / name != settings.baseline.path and overlaps(name, path)
    }
    return [
        Problem(
            workspace / name,
            f"is committed, and {option} ({paths[option]}) holds only what runs of this machine made",
            hint=f"git rm -r --cached {paths[option]}, and ignore it",
        )
        for name, option in list(tracked.items())[:_SHOWN]
    ]


def write_files(report: ReportInput, settings: Settings) -> tuple[dict[str, str], dict[str, OutputError]]:
    """Write results.json and every report; a report that fails takes no other with it.

    Returns by label the paths of the files as they are shown, and why others were not written.
    """
    paths: dict[str, str] = {}
    errors: dict[str, OutputError] = {}
    out, workspace = settings.out, settings.workspace
    try:
        results_json.write(out / results_json.RESULTS, report.result, workspace=workspace)
        paths["results"] = relative(out / results_json.RESULTS, workspace)
    except OutputError as error:
        errors["results"] = error
    for name, file in REPORT_FILES.items():
        try:
            write_text(out / file, [REPORTS[name](in_detail(name, report, settings), None)], workspace=workspace)
            paths[name] = relative(out / file, workspace)
        except Exception as error:  # noqa: BLE001 - the verdict stands, whatever is wrong with a report of it
            why = error.message if isinstance(error, OutputError) else f"{type(error).__name__}: {error}"
            errors[name] = OutputError(f"there is no {file}: {why}")
    return paths, errors


def write_requested_files(report: ReportInput, settings: Settings) -> dict[str, str]:
    """Write every file, and outputs for later steps. Raises OutputError for those that cannot be written."""
    paths, errors = write_files(report, settings)
    if errors:
        raise errors.get("results") or OutputError("; ".join(map(str, errors.values())))
    if failed := detect(os.environ).write_outputs(outputs(report, paths), os.environ):
        log.warning(failed)
    return paths


def write_data(text: str, output: Path | None) -> None:
    """Write data to a file, or to stdout: as bytes, so that no platform changes an end of a line; guarded in a log."""
    if output is not None:
        write_text(output, [text])
    elif isinstance(sys.stdout, GuardedStream):
        sys.stdout.write(text)
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def results_file(path: Path) -> Path:
    """results.json itself, or the one in a folder."""
    return path / results_json.RESULTS if path.is_dir() else path


def in_detail(name: str, report: ReportInput, settings: Settings) -> ReportInput:
    """The report with as much as ``comment_detail`` lets a comment show, posted or as a file."""
    return scores_only(report) if name == "markdown" and settings.comment_detail == "scores" else report


def report_input(result: RunResult, folder: Path | None = None, workspace: Path | None = None) -> ReportInput:
    """The result, the command that repeats its run, and the transcripts in the ``folder`` of its files."""
    words = " ".join(shlex.quote(terminal(word, 300)) for word in result.conditions.arguments)
    command = f'docker run --rm -v "$PWD:/github/workspace" {_IMAGE} run {words}'.rstrip()
    recordings = Recordings.find(folder, workspace) if folder else None
    return ReportInput(result=result, reproduce=command, recordings=recordings)


def finish(
    result: RunResult,
    settings: Settings,
    publish: Callable[[], str] | None = None,
    verbosity: Verbosity = "normal",
) -> ExitCode:
    """Results and reports, outputs, summary, annotations, comment: in this order, and nothing changes the verdict.

    ``publish`` posts the comment and returns what went wrong, or "". A run that was interrupted posts none: whoever
    cancels is not waited for, and a newer run will say more.
    """
    report = report_input(result, settings.out, settings.workspace)
    paths, errors = write_files(report, settings)
    code = exit_code(result.status, report.decision, result.conditions.fail_on or settings.fail_on)
    interrupted = result.status is RunStatus.INTERRUPTED
    comment = None if interrupted else publish
    is_local = not os.environ.get("CI") and not detect(os.environ).is_running(os.environ)
    again = (
        _last_run_command(report, settings)
        if is_local and "results" in paths
        else next(iter(rerun_commands(report)), "")
    )
    commands = {"again": again, "the rest": resume_command(result, settings)}

    def show() -> None:
        summary.show(console(), report, paths, commands=commands, local=is_local, verbosity=verbosity)

    _publish(report, paths, show, comment, red=code is not ExitCode.PASS)
    unwritten = errors.pop("results", None)
    for error in errors.values():
        log.warning(str(error))
    if unwritten is not None:
        if code is ExitCode.PASS:  # a pass that is written down nowhere is none
            raise unwritten
        log.warning(str(unwritten))
    headline, outcome = _headline(report.decision), report.decision.outcome
    if code is not ExitCode.PASS:
        log.error(headline, f"agent-eval: {fmt.OUTCOME_LABELS[outcome].lower()}")
    elif EXIT[outcome] is not ExitCode.PASS:  # green because of `fail_on`, not of the verdict
        log.warning(headline)
    return code


def _publish(
    report: ReportInput,
    paths: Mapping[str, str],
    show: Callable[[], None],
    comment: Callable[[], str] | None,
    *,
    red: bool,
) -> None:
    """Outputs, summary, the verdict on the log, annotations, comment. Never raises.

    The log comes before the comment, which may have to wait for its host.
    """
    ci = detect(os.environ)

    def annotate() -> None:
        # a red step keeps one place for the verdict itself
        for remark in shown_in_step(list(remarks(report)), kept=int(red)):
            log.annotate(remark)

    steps: list[tuple[str, Callable[[], str | None]]] = [("the verdict could not be shown", show)]
    if ci.log_commands is not None:
        render = partial(REPORTS["summary"], report)
        steps = [
            ("the step's outputs could not be written", lambda: ci.write_outputs(outputs(report, paths), os.environ)),
            ("the step's summary could not be written", lambda: ci.append_summary(render, os.environ)),
            *steps,
            ("the annotations could not be made", annotate),
            ("the comment could not be posted", comment or (lambda: "")),
        ]
    for failed, step in steps:
        try:
            problem = step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the verdict stands and the next step is tried
            problem = f"{failed}: {error or type(error).__name__}"
        if problem:
            with contextlib.suppress(OSError):  # nobody reads the log any more
                log.warning(problem)


def _headline(decision: Decision) -> str:
    return str(Messages.for_decision(decision).headline(decision))


def outputs(report: ReportInput, paths: Mapping[str, str]) -> dict[str, str]:
    """The step's outputs as texts; "" for one that has no value."""
    cases, usd = report.view.cases, report.result.totals.usd
    held = with_threshold(cases)
    return {
        "verdict": report.decision.outcome.value,
        "reason": _headline(report.decision),
        "pass-rate": f"{sum(map(passes, held)) / len(held):.4f}" if held else "",
        "regressions": str(sum(view.group is Group.REGRESSED for view in cases)),
        "cost": "" if usd is None else f"{usd:.6f}",
        "results": paths.get("results", ""),
        "junit": paths.get("junit", ""),
        "comment": paths.get("markdown", ""),
        "report": paths.get("html", ""),
    }


def _last_run_command(report: ReportInput, settings: Settings) -> str:
    """The command that runs just the cases of this run that need attention; "" where none does."""
    attention = {view.group for view in report.view.cases if view.needs_attention}
    if not attention:
        return ""
    out = settings.out if settings.out != settings.workspace / _OUT else None
    where = ["--out", relative(out, settings.workspace)] if out else []
    flag = "--worse" if attention <= WORSE else "--last-failed"
    flags = dropwhile(lambda word: not word.startswith("--"), report.result.conditions.arguments)
    return shlex.join(["agent-eval", "run", *flags, *where, flag])


def resume_command(result: RunResult, settings: Settings) -> str:
    """The command that makes only what is missing; "" where nothing is, or nothing was kept."""
    attempts = [attempt for owner in result.sets for case in owner.cases for attempt in case.attempts]
    errors = any(
        attempt.error or any(score.status is ScoreStatus.ERROR for score in attempt.scores) for attempt in attempts
    )
    cut_short = result.status is not RunStatus.COMPLETE
    kept = any(attempt.error is None for attempt in attempts)
    if cut_short and not kept:  # answers that were cut off before their judges had scored them are in the transcripts
        with contextlib.suppress(OSError):
            kept = (settings.out / ATTEMPTS).lstat().st_size > 0
    if not kept or not (cut_short or errors):
        return ""
    out = relative(settings.out, settings.workspace)
    return shlex.join(["agent-eval", "run", *result.conditions.arguments, "--resume", out])
