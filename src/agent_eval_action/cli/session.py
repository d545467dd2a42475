"""What commands share: settings, the folder of a run, a run under signal handlers, the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_eval_action.api.evaluation import Evaluation, RunContext
from agent_eval_action.baseline.accepted import ACCEPT
from agent_eval_action.baseline.history_session import HistorySession, open_history_session
from agent_eval_action.baseline.stores import FOLDER, keep_out_of_git
from agent_eval_action.ci import detect
from agent_eval_action.cli import log
from agent_eval_action.cli.log import console
from agent_eval_action.cli.progress import PlainDisplay, Verbosity, live_display, working
from agent_eval_action.config.loader import Resolved, resolve
from agent_eval_action.config.models import Settings
from agent_eval_action.criteria import CRITERIA
from agent_eval_action.errors import ConfigError, ExitCode, Problem, UsageError, writing
from agent_eval_action.folders import OutputFolder, relative
from agent_eval_action.formats import select_cases
from agent_eval_action.git.repository import Repository
from agent_eval_action.reports.results_json import RESULTS
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.results.run_result import RunResult, RunStatus
from agent_eval_action.run.events import Event
from agent_eval_action.run.loader import Loader, discover_eval_files
from agent_eval_action.run.orchestrator import StopRequest
from agent_eval_action.run.plan import Plan

if TYPE_CHECKING:
    from agent_eval_action.capture import EvalFile

_SHOWN: Final = 10
_COMMITTED: Final = frozenset({".gitignore", ".gitkeep", ACCEPT.name})
REPORT_FILES: Final = {"junit": "junit.xml", "markdown": "comment.md", "html": "report.html"}

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


def cases_in_files(
    settings: Settings, wanted: Collection[CaseKey], selectors: Sequence[str] = ()
) -> Iterator[tuple[EvalFile, CaseKey, EvalCase]]:
    """Yield the ``wanted`` cases that the eval files, or those that ``selectors`` name, have now; in file order."""
    from agent_eval_action.capture import EvalFile  # few runs need it

    sets = {(key.agent, key.eval_set) for key in wanted}
    for found in discover_eval_files(settings, selectors, may_lack=not selectors).sets:
        if (found.agent.name, found.key) in sets:
            file = EvalFile.of_set(found, settings.workspace)
            for case in select_cases(file.load().eval_set, found.case_ids, found.path).eval_cases:
                key = CaseKey(found.agent.name, found.key, case.eval_id)
                if key in wanted:
                    yield file, key, case


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
            result = runner.run(_interruptible(evaluation, stop))
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


async def _interruptible(evaluation: Evaluation, stop: StopRequest) -> RunResult:
    def interrupt() -> None:
        if stop.interrupted.is_set():
            _leave_at_once()
        stop.request(RunStatus.INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    return await evaluation.result()


def _leave_at_once(*_: object) -> None:
    """Exit without writing anything, on the second signal."""
    os._exit(ExitCode.INTERRUPTED)


def _import_reports() -> None:
    """Import what shows and writes the result while the agents start, when it delays nobody."""
    for name in ("agent_eval_action.cli.outputs", "jinja2", "rich.console", "rich.table"):
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


# --- the folder that a run writes to ---------------------------------------------------------------


@contextlib.contextmanager
def output_folder(settings: Settings) -> Iterator[None]:
    """Prepare the folder of a run's files: remove older files at the start, and links left by agents at the end."""
    refuse_unsafe_folders(settings)
    ours, out = settings.workspace / FOLDER, settings.output_folder(settings.out)
    with writing(settings.out, "choose another folder with --out"):
        for name in (RESULTS, *REPORT_FILES.values()):
            out.remove(name)  # if this run dies, no old verdict may be left
        if out.path.is_relative_to(ours):
            keep_out_of_git(settings.output_folder(ours))
    try:
        yield
    finally:
        if out.trusted == settings.workspace:  # otherwise it is a folder outside the workspace
            try:
                for name in list(out.links()):  # an upload of the folder would follow them
                    out.remove(name)
                    log.warning(f"{relative(out.path / name, settings.workspace)} was a symbolic link and is removed")
            except OSError as error:
                log.warning(f"{settings.out} may hold symbolic links: {error.strerror or error}")


def refuse_unsafe_folders(settings: Settings) -> None:
    """Raise ConfigError if a folder that runs write to is reached through a link, or has files tracked by git.

    Tracked files come with the change, so they could forge cached judge answers, kept attempts and environments.
    Reads the repository: call it before agents run.
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
        with writing(path, "choose another folder with --out"):
            links = [path / name for name in islice(folder.links(), _SHOWN)]
    for link in links:
        yield Problem(link, message, value=str(link.readlink()), hint="remove the link")


def _tracked_files(folders: Mapping[str, OutputFolder], settings: Settings) -> list[Problem]:
    workspace, repository = settings.workspace, Repository(settings.workspace, os.environ)
    if not folders or repository.root() is None:
        return []
    paths = {option: folder.path.relative_to(workspace) for option, folder in folders.items()}
    # list each folder's first component: a submodule above the folder is a single entry
    tops = sorted({path.parts[0] if path.parts else "." for path in paths.values()})
    listed = repository.run("ls-files", "-z", "--", *(f":(icase,literal){top}" for top in tops))
    if not listed.ok:
        message = f"git cannot say what is tracked: {listed.err}"
        return [Problem(workspace, message, hint="check the repository with `git ls-files`")]

    def overlaps(name: Path, folder: Path) -> bool:  # one contains the other; letter case is ignored
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
