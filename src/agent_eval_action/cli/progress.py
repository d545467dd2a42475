"""Progress of a run: a live line on a terminal, plain lines in a log, which CI may fold."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Self

from agent_eval_action.cli.log import console, print_columns, print_line, print_wrapped, terminal
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.results.run_result import Attempt, AttemptKey, ErrorKind, Purpose
from agent_eval_action.run.events import (
    AgentStarted,
    AgentStarting,
    AttemptFinished,
    AttemptRetried,
    AttemptStarted,
    Event,
    Notice,
    RerunsPlanned,
    RunPlanned,
    SuiteRead,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

Verbosity = Literal["quiet", "cases", "normal", "verbose"]
"""*quiet*: only the verdict; *cases*: progress, then the verdict and the cases that need attention; *verbose*: also
how the run is set up."""

_COUNT_EVERY_S: Final = 15.0
_PROBLEMS_SHOWN: Final = 20
_NOTICE_LIMIT: Final = 4_000
_BAR: Final = 16
_MARGIN: Final = 6
_FRAMES_PER_S: Final = 8
_SET_UP: Final = "set-up"
_PURPOSES: Final[dict[Purpose, tuple[str, str]]] = {
    "first": ("run", "running the suite"),
    "rerun": ("re-running", "running cases again to rule out chance"),
    "suite": ("the suite again", "running the suite again to tell a drop from chance"),
    "control": ("control", "running cases on main's agent, in turn with this one"),
}
"""Purposes of attempts: the label in a log and the label on a terminal."""
_SIGNS: Final = {"below": ("✗", "red"), "error": ("!", "yellow"), "again": ("↻", "yellow"), "more": ("…", "dim")}
_STARTUP_ERRORS: Final = frozenset({ErrorKind.ENVIRONMENT, ErrorKind.IMPORT})
"""Errors of an agent that does not start: a warning with the traceback is shown before any attempt."""


@dataclass
class Progress:
    """Counts what a run has done, what it waits for and what failed."""

    planned: int = 0
    kept: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    errors: int = 0
    tokens: int = 0
    purpose: Purpose = "first"
    suite: SuiteRead | None = None
    adk: str = ""
    starting: dict[str, str] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)
    _messages: set[str] = field(default_factory=set)
    _problems: int = 0

    def add(self, event: Event) -> None:
        """Count one event."""
        match event:
            case AttemptStarted():
                self.running += 1
            case AttemptRetried():
                self.running -= 1
            case AttemptFinished(attempt):
                self.running = max(0, self.running - 1)
                self.done += 1
                self.errors += attempt.error is not None
                below = attempt.error is None and any(score.passed is False for score in attempt.scores)
                self.failed += below and attempt.purpose == "first"
                self.tokens += attempt.usage.total_tokens or 0
                self.starting.pop(attempt.agent, None)  # it has started, or failed to
            case AgentStarting(agent, step):
                self.starting[agent] = step
            case AgentStarted(agent, adk_version):
                self.starting.pop(agent, None)
                self.adk = self.adk or adk_version
            case SuiteRead():
                self.suite = event
            case RunPlanned(attempts, _, kept):
                self.planned, self.kept = attempts, kept
            case RerunsPlanned(attempts, purpose):
                self.planned += attempts
                self.purpose = purpose
            case Notice():
                pass

    @property
    def log_line(self) -> str:
        """Like ``re-running: 10/18 attempts, 8 running, 5 below threshold, 5,015 tokens, 0:06``."""
        name = "" if self.purpose == "first" else f"{_PURPOSES[self.purpose][0]}: "
        return ", ".join([f"{name}{self.done}/{self.planned} attempts", *self._counts(), _clock(self._started)])

    @property
    def live_line(self) -> str:
        """Return what is starting while no attempt runs, else the counts of attempts."""
        clock = _clock(self._started)
        if self.planned and (self.running or not self.starting):
            name = "" if self.purpose == "first" else f"{_PURPOSES[self.purpose][0]} "
            return f"{clock}  {' · '.join([f'{name}{self.done}/{self.planned}', *self._counts()])}"
        if not self.starting:
            return f"{clock}  reading the checkout"
        agent, step = next(iter(list(self.starting.items())))  # a copy: another thread draws
        others = len(self.starting) - 1
        more = f" (and {plural(others, 'more agent')})" if others else ""
        return f"{clock}  {terminal(agent, 60)} {terminal(step).partition(';')[0]}{more}"

    def _counts(self) -> list[str]:
        found = [
            f"{self.running} running",
            f"{self.failed} below threshold",
            plural(self.errors, "error") if self.errors else "",
            f"{self.kept} kept" if self.kept else "",
            plural(self.tokens, "token") if self.tokens else "",
        ]
        return list(filter(None, found))

    @property
    def title(self) -> str:
        """Like ``dice_agent  13 cases, 2 criteria  google-adk 2.13.0  compared with main 2c2a3a7``."""
        if self.suite is None:
            return ""
        agents = self.suite.agents
        criteria = plural(self.suite.criteria, "criterion", "criteria")
        found = [
            terminal(agents[0], 80) if len(agents) == 1 else plural(len(agents), "agent"),
            f"{plural(self.suite.cases, 'case')}, {criteria}",
            f"google-adk {terminal(self.adk, 30)}" if self.adk else "",
            f"compared with main {self.suite.reference[:7]}" if self.suite.reference else "",
        ]
        return "  ".join(filter(None, found))

    def problem(self, event: Event) -> _Problem | None:
        """Return the problem of an attempt; None if it has none or it was already shown."""
        found = self._problem(event)
        self._problems += found is not None
        if found is not None and self._problems == _PROBLEMS_SHOWN + 1:
            return _Problem("more", None, "further problems are in the reports")
        return found if self._problems <= _PROBLEMS_SHOWN else None

    def _problem(self, event: Event) -> _Problem | None:
        if isinstance(event, AttemptRetried):
            return _Problem("again", event.key, terminal(event.error.message, 160))
        if not isinstance(event, AttemptFinished):
            return None
        attempt = event.attempt
        if (error := attempt.error) is not None:
            message = f"{error.kind}: {terminal(error.message, 200)}"
            known = error.kind in _STARTUP_ERRORS or message in self._messages
            self._messages.add(message)
            return None if known else _Problem("error", attempt, message)
        for score in attempt.scores:
            if score.status == "error":
                return _Problem("error", attempt, terminal(score.reason, 200), f" › {score.criterion}")
            # re-runs are expected to be below the threshold; the verdict covers them
            if score.passed is False and attempt.purpose == "first":
                what = f" › {score.criterion} = {score.score:.2f}"
                return _Problem("below", attempt, terminal(score.reason, 200), what)
        return None


@dataclass(frozen=True, slots=True)
class _Problem:
    """``case``: None if the problem concerns no case. ``criterion``: separator, name and score."""

    kind: Literal["again", "error", "below", "more"]
    case: Attempt | AttemptKey | None
    text: str
    criterion: str = ""

    @property
    def log_line(self) -> str:
        if self.case is None:
            return f"  … {self.text}"
        name = terminal(f"{self.case.eval_set} › {self.case.case}{self.criterion}", 200)
        return f"  {self.kind:<5}  {name}: {self.text}"

    @property
    def live_row(self) -> list[Text]:
        """Return sign, case, and the text, or the score if there is no text."""
        from rich.text import Text

        sign, style = _SIGNS[self.kind]
        name = "" if self.case is None else terminal(self.case.case, 120)
        return [Text(sign, style=style), Text(name), Text(self.text or self.criterion.removeprefix(" › "))]


def setup_line(event: Event) -> str:
    """Return a line on the set-up of the run; "" for other events."""
    if isinstance(event, AgentStarting):
        return f"{event.agent}: {event.step}"
    if isinstance(event, AgentStarted) and event.adk_version:
        return f"{event.agent}: google-adk {event.adk_version}, Python {event.python} ({event.environment})"
    return event.text if isinstance(event, Notice) and event.level == "setup" else ""


@dataclass
class PlainDisplay:
    """Lines for a log: phases, the first problems as they appear, and a count every 15 seconds.

    ``group`` and ``end_group`` begin and end a foldable phase; without them a phase begins with a plain line.
    ``details``: show how the run is set up. ``problems``: show failed attempts. ``excerpt`` formats traceback lines.
    """

    print: Callable[[str], None]
    group: Callable[[str], None] | None = None
    end_group: Callable[[], None] = lambda: None
    details: bool = False
    problems: bool = True
    excerpt: Callable[[str], str] = lambda text: text
    _progress: Progress = field(default_factory=Progress)
    _counted_at: float = field(default_factory=time.monotonic)
    _pending_title: str = ""
    _is_folded: bool = False
    _is_set_up: bool = False
    _delayed: list[Notice] = field(default_factory=list)

    def __enter__(self) -> Self:
        if self.details and self.group is not None:
            self._pending_title = _SET_UP
        return self

    def __exit__(self, *_: object) -> None:
        """End the last phase, so that later output is not folded."""
        self._end_phase()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        progress = self._progress
        progress.add(event)
        if isinstance(event, AttemptStarted | AttemptFinished):
            self._begin_run()
        elif detail := setup_line(event):
            if self.details:
                self._line(terminal(detail, _NOTICE_LIMIT))
        elif isinstance(event, Notice):
            self._show_notice(event)
        elif isinstance(event, RerunsPlanned):
            self._start_phase(f"{_PURPOSES[event.purpose][0]}: {terminal(event.why)}")
        if self.problems and (problem := progress.problem(event)):
            self._line(problem.log_line)
        if isinstance(event, AttemptFinished):
            now = time.monotonic()
            if progress.done == progress.planned or now - self._counted_at >= _COUNT_EVERY_S:
                self._counted_at = now
                self._line(f"  {progress.log_line}")

    def _begin_run(self) -> None:
        if self._is_set_up:
            return
        self._is_set_up = True
        self._end_phase()
        if self._progress.title:
            self.print(self._progress.title)
        cases = self._progress.suite.cases if self._progress.suite else 0
        self._start_phase(f"run: {plural(cases, 'case')}, {plural(self._progress.planned, 'attempt')}")

    def _show_notice(self, notice: Notice) -> None:
        if self._is_folded and not self._is_set_up:
            self._delayed.append(notice)  # shown after the set-up group, which nobody unfolds
            return
        first, _, rest = terminal(notice.text, _NOTICE_LIMIT, lines=True).partition("\n")
        self.print(f"warning: {first}" if notice.level == "warning" else first)
        if rest:
            self.print(self.excerpt(rest))

    def _start_phase(self, title: str) -> None:
        self._end_phase()
        if self.group is None:
            self.print(title)
        else:
            self._pending_title = title

    def _end_phase(self) -> None:
        if self._is_folded:
            self.end_group()
        elif self._pending_title and self._pending_title != _SET_UP:
            self.print(self._pending_title)  # an empty phase is not worth a group
        self._pending_title, self._is_folded = "", False
        delayed, self._delayed = self._delayed, []
        for notice in delayed:
            self._show_notice(notice)

    def _line(self, text: str) -> None:
        if self.group is not None and self._pending_title:
            self.group(self._pending_title)
            self._pending_title, self._is_folded = "", True
        self.print(text)


@contextlib.contextmanager
def live_display(out: Console, *, details: bool, problems: bool) -> Iterator[Callable[[Event], None]]:
    """Redraw a line on the terminal during the run; set-up lines, problems and notices scroll above it.

    ``details``: show how the run is set up. ``problems``: show failed attempts.
    """
    from rich.text import Text

    progress, has_title = Progress(), False

    def show(event: Event) -> None:
        nonlocal has_title
        progress.add(event)
        if isinstance(event, AttemptStarted | AttemptFinished) and not has_title:
            has_title = True
            print_wrapped(out, Text(progress.title, style="dim"))
        if detail := setup_line(event):
            if details:
                print_line(detail, "dim", out=out, limit=_NOTICE_LIMIT)
        elif isinstance(event, Notice):
            style = "yellow" if event.level == "warning" else ""
            print_line(event.text, style, out=out, lines=True, limit=_NOTICE_LIMIT)
        elif isinstance(event, RerunsPlanned):
            print_line(_PURPOSES[event.purpose][1], "cyan", out=out)
            if details:
                print_line(event.why, "dim", out=out, indent=2)
        if problems and (problem := progress.problem(event)):
            print_columns(out, [problem.live_row], indent=0)

    with _live(out, lambda: _bar_line(out, progress.live_line, progress.planned, progress.done)):
        yield show


@contextlib.contextmanager
def working(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show a slow operation with a clock on a terminal. Yields a callback that takes the done and total amounts."""
    out, began, share = console(), time.monotonic(), [0, 0]

    def report(done: int, of: int) -> None:
        share[:] = done, of

    if not out.is_terminal:
        yield report
        return
    with _live(out, lambda: _bar_line(out, f"{_clock(began)}  {text}", share[1], share[0])):
        yield report


def _clock(began: float) -> str:
    elapsed = int(time.monotonic() - began)
    return f"{elapsed // 60}:{elapsed % 60:02d}"


def _live(out: Console, draw: Callable[[], RenderableType]) -> Live:
    from rich.live import Live

    return Live(console=out, get_renderable=draw, transient=True, refresh_per_second=_FRAMES_PER_S)


def _bar_line(out: Console, text: str, of: int, done: int) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=_BAR)
    # leave room for the echo of Ctrl-C: a wrapped line would not be erased
    line.add_column(no_wrap=True, overflow="ellipsis", max_width=max(1, out.width - _BAR - _MARGIN))
    line.add_row(ProgressBar(total=of or None, completed=done, width=_BAR, pulse=not of), Text(text))
    return line
