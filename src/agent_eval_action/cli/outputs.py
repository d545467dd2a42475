"""What a run leaves: files, step outputs, the end of the log; and what the next run reads of the files."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import dropwhile
from pathlib import Path
from typing import Final

from agent_eval_action.ci import detect
from agent_eval_action.ci.log import GuardedStream
from agent_eval_action.cli import log, summary
from agent_eval_action.cli.log import console, print_line, terminal
from agent_eval_action.cli.progress import Verbosity
from agent_eval_action.cli.session import EXIT, REPORT_FILES, cases_in_files, exit_code
from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.errors import ExitCode, OutputError, ResultsError
from agent_eval_action.folders import relative
from agent_eval_action.reports import REPORTS, ReportInput, results_json
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.annotations import remarks, shown_in_step
from agent_eval_action.reports.base import scores_only, write_text
from agent_eval_action.reports.messages import OUTCOME_LABELS
from agent_eval_action.reports.verdict import quoted_case, rerun_commands
from agent_eval_action.reports.view import NOT_GREEN, WORSE, Group, with_threshold
from agent_eval_action.results.run_result import ErrorKind, RunResult, RunStatus, ScoreStatus
from agent_eval_action.results.transcripts import ATTEMPTS, Recordings

_OUT: Final = Settings.model_fields["out"].default
_NAMES_SHOWN: Final = 20
_ERROR: Final = 300  # characters
_IMAGE: Final = "ghcr.io/org/agent-eval-action:v0"


def write_files(report: ReportInput, settings: Settings) -> tuple[dict[str, str], dict[str, OutputError]]:
    """Write results.json and every report; if one fails, the others are still written.

    Returns, each by label, the paths of the files relative to the workspace, and the errors of those not written.
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
        except Exception as error:  # noqa: BLE001 - a broken report must not change the verdict
            why = error.message if isinstance(error, OutputError) else f"{type(error).__name__}: {error}"
            errors[name] = OutputError(f"there is no {file}: {why}")
    return paths, errors


def write_requested_files(report: ReportInput, settings: Settings) -> dict[str, str]:
    """Write every file and the step outputs. Raises OutputError if a file cannot be written."""
    paths, errors = write_files(report, settings)
    if errors:
        raise errors.get("results") or OutputError("; ".join(map(str, errors.values())))
    if failed := detect(os.environ).write_outputs(outputs(report, paths), os.environ):
        log.warning(failed)
    return paths


def write_data(text: str, output: Path | None) -> None:
    """Write data to a file or to stdout: guarded in a CI log, else as bytes, so that no platform changes line ends."""
    if output is not None:
        write_text(output, [text])
    elif isinstance(sys.stdout, GuardedStream):
        sys.stdout.write(text)
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def print_results(result: RunResult) -> None:
    """Write results.json to stdout."""
    with contextlib.suppress(BrokenPipeError):  # a reader that stops early does not change the verdict
        for piece in results_json.dump(result):
            write_data(piece, None)


def results_file(path: Path) -> Path:
    """Return ``path``, or the results.json in it if it is a folder."""
    return path / results_json.RESULTS if path.is_dir() else path


def in_detail(name: str, report: ReportInput, settings: Settings) -> ReportInput:
    """Reduce the report to what ``comment_detail`` allows in a comment, whether posted or written to a file."""
    return scores_only(report) if name == "markdown" and settings.comment_detail == "scores" else report


def report_input(result: RunResult, folder: Path | None = None, workspace: Path | None = None) -> ReportInput:
    """Add to a result the command that repeats its run, and the transcripts in ``folder``."""
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
    """Write results and reports, then outputs, summary, annotations and comment; failures do not change the verdict.

    ``publish`` posts the comment and returns what went wrong, or "". An interrupted run posts none: a cancelled job
    has little time left, and a newer run will comment.
    """
    report = report_input(result, settings.out, settings.workspace)
    paths, errors = write_files(report, settings)
    code = exit_code(result.status, report.decision, result.conditions.fail_on or settings.fail_on)
    comment = None if result.status is RunStatus.INTERRUPTED else publish
    is_local = not os.environ.get("CI") and not detect(os.environ).is_running(os.environ)
    again = next(iter(rerun_commands(report)), "")
    if is_local and "results" in paths:
        again = _last_run_command(report, settings)
    commands = {"again": again, "the rest": resume_command(result, settings)}

    def show() -> None:
        summary.show(console(), report, paths, commands=commands, local=is_local, verbosity=verbosity)

    _publish(report, paths, show, comment, red=code is not ExitCode.PASS)
    unwritten = errors.pop("results", None)
    for error in errors.values():
        log.warning(str(error))
    if unwritten is not None:
        if code is ExitCode.PASS:  # a pass without results.json does not count
            raise unwritten
        log.warning(str(unwritten))
    headline, outcome = str(report.view.messages.headline(report.decision)), report.decision.outcome
    if code is not ExitCode.PASS:
        log.error(headline, f"agent-eval: {OUTCOME_LABELS[outcome].lower()}")
    elif EXIT[outcome] is not ExitCode.PASS:  # green only because of `fail_on`
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
    """Write outputs, summary, the verdict in the log, annotations, and last the comment, whose host may be slow."""
    ci = detect(os.environ)

    def annotate() -> None:
        # in a red step one annotation is reserved for the verdict
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
        except Exception as error:  # noqa: BLE001 - the verdict stands, and the next step is tried
            problem = f"{failed}: {error or type(error).__name__}"
        if problem:
            with contextlib.suppress(OSError):  # the log's reader is gone
                log.warning(problem)


def outputs(report: ReportInput, paths: Mapping[str, str]) -> dict[str, str]:
    """Return the step's outputs by name; "" for one without a value."""
    cases, usd = report.view.cases, report.result.totals.usd
    counted = with_threshold(cases)
    return {
        "verdict": report.decision.outcome.value,
        "reason": str(report.view.messages.headline(report.decision)),
        "pass-rate": f"{sum(view.passes for view in counted) / len(counted):.4f}" if counted else "",
        "regressions": str(sum(view.group is Group.REGRESSED for view in cases)),
        "cost": "" if usd is None else f"{usd:.6f}",
        "results": paths.get("results", ""),
        "junit": paths.get("junit", ""),
        "comment": paths.get("markdown", ""),
        "report": paths.get("html", ""),
    }


def _last_run_command(report: ReportInput, settings: Settings) -> str:
    """Return the command that runs only the cases that need attention, or ""."""
    attention = {view.group for view in report.view.cases if view.needs_attention}
    if not attention:
        return ""
    out = settings.out if settings.out != settings.workspace / _OUT else None
    where = ["--out", relative(out, settings.workspace)] if out else []
    flag = "--worse" if attention <= WORSE else "--last-failed"
    flags = dropwhile(lambda word: not word.startswith("--"), report.result.conditions.arguments)
    return shlex.join(["agent-eval", "run", *flags, *where, flag])


def resume_command(result: RunResult, settings: Settings) -> str:
    """Return the command that runs only the missing attempts; "" if none is missing or none was kept."""
    attempts = [attempt for owner in result.sets for case in owner.cases for attempt in case.attempts]
    errors = any(
        attempt.error or any(score.status is ScoreStatus.ERROR for score in attempt.scores) for attempt in attempts
    )
    cut_short = result.status is not RunStatus.COMPLETE
    kept = any(attempt.error is None for attempt in attempts)
    if cut_short and not kept:  # transcripts also hold answers that judges had not scored yet
        with contextlib.suppress(OSError):
            kept = (settings.out / ATTEMPTS).lstat().st_size > 0
    if not kept or not (cut_short or errors):
        return ""
    out = relative(settings.out, settings.workspace)
    return shlex.join(["agent-eval", "run", *result.conditions.arguments, "--resume", out])


def finish_shard(result: RunResult, settings: Settings) -> ExitCode:
    """Write what one shard measured; the merge decides."""
    interrupted = result.status is RunStatus.INTERRUPTED
    if result.shard is None:  # the run ended before anything was planned; the merge reports why
        print_line("this shard was interrupted" if interrupted else "nothing was measured: the merge says why")
        return ExitCode.INTERRUPTED if interrupted else ExitCode.PASS
    path = settings.out / results_json.RESULTS
    results_json.write(path, result, workspace=settings.workspace)
    shown = relative(path, settings.workspace)
    shard, totals = result.shard, result.totals
    of_wave = f" of wave {shard.wave}" if shard.wave > 1 else ""
    what = f"{fmt.plural(totals.cases, 'case')}, {fmt.plural(totals.attempts + totals.control, 'attempt')}"
    print_line(f"shard {shard.number} of {shard.count}{of_wave}: {what}, {fmt.duration(totals.seconds)}; {shown}")
    errors = [
        (case.case, made.error)
        for owner in result.sets
        for case in owner.cases
        for made in case.attempts
        if made.error is not None and made.error.kind is not ErrorKind.STOPPED
    ]
    for name, error in errors:
        print_line(f"  {name}: {error.kind}: {error.message}"[:_ERROR], style="yellow")
    if failure := detect(os.environ).write_outputs({"results": shown}, os.environ):
        log.warning(failure)
    if interrupted:
        return ExitCode.INTERRUPTED
    if result.status is not RunStatus.COMPLETE:
        log.error(f"this shard did not measure all of its cases: {result.cut_short or result.status}")
        return ExitCode.INCONCLUSIVE
    return ExitCode.PASS


# --- what the next run reads of the last one ------------------------------------------------------


def read_last_run(settings: Settings, results: Path | None = None) -> RunResult:
    """Return the result of the last run, or of ``results``. Raises ResultsError if there is none or it is undecided."""
    path = results_file(results) if results is not None else settings.out / results_json.RESULTS
    shown, hint = relative(path, settings.workspace), results_json.RUN_FIRST
    if not path.exists():
        raise ResultsError(f"there are no results at {shown}, so it is not known what got worse", hint=hint)
    result = results_json.read(path)
    if result.decision is None:
        raise ResultsError(f"{shown} holds no decision, so it is not known what got worse", hint=hint)
    return result


def cases_of_last_run(settings: Settings, selectors: Sequence[str], *, worse: bool) -> tuple[tuple[str, ...], str]:
    """Return EVALSET arguments for the cases of the last run that got ``worse``, else were not green; and a sentence.

    ``selectors`` and the agents of ``settings`` narrow them down. Raises ResultsError if no case is left to run.
    """
    result, groups = read_last_run(settings), WORSE if worse else NOT_GREEN
    report = ReportInput(result)
    views = report.view.cases
    wanted = {view.key for view in views if view.group in groups and view.owner is not None}
    what = "got worse" if worse else "were not green"
    if not wanted:
        hint = "`agent-eval run` runs every case"
        if worse and any(view.group in NOT_GREEN for view in views):
            hint = "`agent-eval run --last-failed` runs the cases that were not green for another reason"
        none = "no case got worse" if worse else "every case was green"
        raise ResultsError(f"{none} in the last run ({report.decision.outcome})", hint=hint)
    chosen: dict[str, dict[str, None]] = {}
    for file, key, _ in cases_in_files(settings, wanted, selectors):
        chosen.setdefault(os.path.relpath(file.path), {})[key.case] = None
    cases = [case for ids in chosen.values() for case in ids]
    gone = len(wanted) - len(cases)
    are = "is" if gone == 1 else "are"
    left_out = f"{plural(gone, 'more case')} that {what} {are} not in the eval files of this run"
    if not cases:
        raise ResultsError(left_out.replace("more ", ""), hint="`agent-eval run` runs every case")
    sentence = f"running {plural(len(cases), 'case')} that {what} in the last run: "
    words = tuple(f"{path}:{','.join(map(quoted_case, ids))}" for path, ids in chosen.items())
    return words, sentence + shortlist(cases, _NAMES_SHOWN) + (f"; {left_out}" if gone else "")
