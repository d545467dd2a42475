"""Showing a run while it works: a live line on a terminal, plain lines in a CI log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from agent_eval_action.cli.log import terminal
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.results.run_result import Attempt, ErrorKind, Purpose
from agent_eval_action.run.events import (
    AttemptFinished,
    AttemptRetried,
    AttemptStarted,
    Event,
    Notice,
    PhaseStarted,
    RerunsPlanned,
    RunPlanned,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_COUNT_EVERY_S: Final = 15.0
_PROBLEMS_SHOWN: Final = 20
_NOTICE_LIMIT: Final = 4_000
_PHASES: Final[dict[Purpose, str]] = {
    "first": "",
    "rerun": "re-running: ",
    "suite": "the suite again: ",
    "control": "control: ",
}
_STARTUP_ERRORS: Final = frozenset({ErrorKind.ENVIRONMENT, ErrorKind.IMPORT})
"""Errors of an agent that does not start: a warning with its traceback comes before any attempt."""


@dataclass
class Counts:
    """How far a run is, and which errors it met."""

    planned: int = 0
    kept: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    errors: int = 0
    tokens: int = 0
    phase: str = ""
    _started: float = field(default_factory=time.monotonic)
    _messages: set[str] = field(default_factory=set)

    def add(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, RunPlanned):
            self.planned, self.kept = event.attempts, event.kept
        elif isinstance(event, RerunsPlanned):
            self.planned += event.attempts
            self.phase = _PHASES[event.purpose]
        elif isinstance(event, AttemptStarted):
            self.running += 1
        elif isinstance(event, AttemptRetried):
            self.running -= 1
        elif isinstance(event, AttemptFinished):
            attempt = event.attempt
            below = attempt.error is None and any(score.passed is False for score in attempt.scores)
            self.running = max(0, self.running - 1)
            self.done += 1
            self.errors += attempt.error is not None
            self.failed += below and attempt.purpose == "first"
            self.tokens += attempt.usage.total_tokens or 0

    def __str__(self) -> str:
        elapsed = int(time.monotonic() - self._started)
        parts = [
            f"{self.phase}{self.done}/{self.planned} attempts",
            f"{self.running} running",
            f"{self.failed} below threshold",
            plural(self.errors, "error") if self.errors else "",
            f"{self.kept} kept" if self.kept else "",
            plural(self.tokens, "token") if self.tokens else "",
            f"{elapsed // 60}:{elapsed % 60:02d}",
        ]
        return ", ".join(filter(None, parts))

    def problem(self, attempt: Attempt) -> str | None:
        """The line of what is wrong with an attempt. An error is shown once for all attempts with the same message."""
        name = terminal(f"{attempt.eval_set} › {attempt.case}", 120)
        if (error := attempt.error) is not None:
            message = f"{error.kind}: {error.message}"
            if error.kind in _STARTUP_ERRORS or message in self._messages:
                return None
            self._messages.add(message)
            return f"error  {name}: {error.kind}: {terminal(error.message, 200)}"
        for score in attempt.scores:
            if score.status == "error":
                return f"error  {name} › {score.criterion}: {terminal(score.reason, 200)}"
            # re-runs are expected to be below the threshold; the verdict covers them
            if score.passed is False and attempt.purpose == "first":
                return f"below  {name} › {score.criterion} = {score.score:.2f}: {terminal(score.reason, 200)}"
        return None


@dataclass
class PlainDisplay:
    """Lines for a log: phases, the first problems as they appear, and a count every 15 seconds.

    ``group`` begins a phase that can be folded, ``end_group`` ends it; without them a phase is a line.
    ``excerpt`` is how lines of somebody's traceback are shown.
    """

    print: Callable[[str], None]
    group: Callable[[str], None] | None = None
    end_group: Callable[[], None] = lambda: None
    excerpt: Callable[[str], str] = lambda text: text
    _counts: Counts = field(default_factory=Counts)
    _counted_at: float = field(default_factory=time.monotonic)
    _problems: int = 0
    _in_group: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        """End the last group: what is printed afterwards must not be folded away."""
        self._end_phase()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        self._counts.add(event)
        if isinstance(event, PhaseStarted):
            self._start_phase(f"{event.name}: {terminal(event.detail)}")
        elif isinstance(event, Notice):
            first, _, rest = terminal(event.text, _NOTICE_LIMIT, lines=True).partition("\n")
            self.print(f"warning: {first}" if event.level == "warning" else first)
            if rest:
                self.print(self.excerpt(rest))
        elif isinstance(event, AttemptRetried):
            name = terminal(str(event.key.case_key), 160)
            self._print_problem(f"again  {name}: {terminal(event.error.message, 160)}")
        elif isinstance(event, AttemptFinished):
            if problem := self._counts.problem(event.attempt):
                self._print_problem(problem)
            now = time.monotonic()
            if self._counts.done == self._counts.planned or now - self._counted_at >= _COUNT_EVERY_S:
                self._counted_at = now
                self.print(f"  {self._counts}")

    def _start_phase(self, title: str) -> None:
        self._end_phase()
        (self.group or self.print)(title)
        self._in_group = self.group is not None

    def _end_phase(self) -> None:
        if self._in_group:
            self.end_group()
            self._in_group = False

    def _print_problem(self, problem: str) -> None:
        self._problems += 1
        if self._problems <= _PROBLEMS_SHOWN:
            self.print(f"  {problem}")
        elif self._problems == _PROBLEMS_SHOWN + 1:
            self.print("  … further problems are in the reports")


@dataclass
class LiveDisplay:
    """A bar on a terminal; problems scroll above it."""

    console: Console
    _counts: Counts = field(default_factory=Counts)
    _bar: Progress | None = None
    _task: TaskID | None = None

    def __enter__(self) -> Self:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        columns = (SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
        self._bar = Progress(*columns, console=self.console, transient=True)
        self._task = self._bar.add_task("starting the agent", total=None)
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        counts, out = self._counts, self.console
        counts.add(event)
        if isinstance(event, Notice):
            style = "yellow" if event.level == "warning" else None
            out.print(terminal(event.text, _NOTICE_LIMIT, lines=True), markup=False, style=style)
        elif isinstance(event, PhaseStarted) and counts.planned:  # why more is run than was planned
            out.print(f"{event.name}: {terminal(event.detail)}", markup=False, style="cyan")
        elif isinstance(event, AttemptFinished) and (problem := counts.problem(event.attempt)):
            out.print(problem, markup=False, highlight=False, style="red", no_wrap=True, overflow="ellipsis")
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=counts.planned or None, completed=counts.done, description=str(counts))


Display = PlainDisplay | LiveDisplay
"""Takes the events of a run."""
