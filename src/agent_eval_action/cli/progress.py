"""Showing a run while it works: a live line on a terminal, plain lines in a CI log."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from agent_eval_action.cli.text import terminal
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

_PLAIN_EVERY_S = 15.0
_PROBLEMS_SHOWN = 20
_NOTICE_LIMIT = 4_000
_DOING: Final[dict[Purpose, str]] = {
    "first": "",
    "rerun": "re-running",
    "suite": "the suite again",
    "control": "control",
}


class Display(AbstractContextManager["Display"], Protocol):
    """Takes the events of a run."""

    def __call__(self, event: Event) -> None:
        """Show one event."""
        ...


@dataclass
class Counts:
    """What both displays tell."""

    planned: int = 0
    kept: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    errors: int = 0
    tokens: int = 0
    phase: str = ""
    began: float = field(default_factory=time.monotonic)

    def take(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, RunPlanned):
            self.planned, self.kept = event.attempts, event.kept
        elif isinstance(event, RerunsPlanned):
            self.planned += event.attempts
            self.phase = _DOING[event.purpose]
        elif isinstance(event, AttemptStarted):
            self.running += 1
        elif isinstance(event, AttemptRetried):
            self.running -= 1
        elif isinstance(event, AttemptFinished):
            self.running = max(0, self.running - 1)
            self.done += 1
            self.errors += event.attempt.error is not None
            self.failed += event.attempt.purpose == "first" and bool(_below(event.attempt))
            self.tokens += event.attempt.usage.total_tokens or 0

    def __str__(self) -> str:
        elapsed = int(time.monotonic() - self.began)
        doing = f"{self.phase}: " if self.phase else ""
        parts = [
            f"{doing}{self.done}/{self.planned} attempts",
            f"{self.running} running",
            f"{self.failed} below threshold",
        ]
        if self.errors:
            parts.append(plural(self.errors, "error"))
        if self.kept:
            parts.append(f"{self.kept} kept")
        if self.tokens:
            parts.append(plural(self.tokens, "token"))
        return ", ".join([*parts, f"{elapsed // 60}:{elapsed % 60:02d}"])


def _below(attempt: Attempt) -> list[str]:
    if attempt.error is not None:
        return []
    return [score.criterion for score in attempt.scores if score.passed is False]


_WHEN_STARTING = frozenset({ErrorKind.ENVIRONMENT, ErrorKind.IMPORT})
"""Errors of an agent that does not start: a warning with its traceback comes before any attempt."""


def _new_problem(attempt: Attempt, known: set[str]) -> str | None:
    """The line of a problem, unless it was printed already: in the very same words, or when the agent did not start."""
    if attempt.error is not None:
        if attempt.error.kind in _WHEN_STARTING:
            return None
        words = f"{attempt.error.kind}: {attempt.error.message}"
        if words in known:
            return None
        known.add(words)
    return _problem(attempt)


def _problem(attempt: Attempt) -> str | None:
    name = terminal(f"{attempt.eval_set} › {attempt.case}", 120)
    if attempt.error is not None:
        return f"error  {name}: {attempt.error.kind}: {terminal(attempt.error.message, 200)}"
    for score in attempt.scores:
        if score.status == "error":
            return f"error  {name} › {score.criterion}: {terminal(score.reason, 200)}"
        # what was run again for being below is expected there: the verdict says what came of it
        if score.passed is False and attempt.purpose == "first":
            return f"below  {name} › {score.criterion} = {score.score:.2f}: {terminal(score.reason, 200)}"
    return None


@dataclass
class PlainDisplay:
    """Lines for a log: phases, each problem as it appears (the first ones), and a count now and then.

    ``group`` begins a phase that can be folded, ``end_group`` ends it; without them a phase is a line.
    ``excerpt`` is how lines of somebody's traceback are shown.
    """

    say: Callable[[str], None]
    group: Callable[[str], None] | None = None
    end_group: Callable[[], None] = lambda: None
    excerpt: Callable[[str], str] = lambda text: text
    counts: Counts = field(default_factory=Counts)
    _last: float = field(default_factory=time.monotonic)
    _problems: int = 0
    _known: set[str] = field(default_factory=set)
    _open: bool = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        """End, and with it the last group: what is said afterwards must not be folded away."""
        self._close()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        self.counts.take(event)
        if isinstance(event, PhaseStarted):
            self._phase(f"{event.name}: {terminal(event.detail)}")
        elif isinstance(event, Notice):
            first, *rest = terminal(event.text, _NOTICE_LIMIT, lines=True).split("\n")
            self.say(f"{event.level}: {first}" if event.level == "warning" else first)
            if rest:
                self.say(self.excerpt("\n".join(rest)))
        elif isinstance(event, AttemptRetried):
            self._show(f"again  {terminal(str(event.key.case_key), 160)}: {terminal(event.error.message, 160)}")
        elif isinstance(event, AttemptFinished):
            if problem := _new_problem(event.attempt, self._known):
                self._show(problem)
            self._count()

    def _phase(self, title: str) -> None:
        self._close()
        if self.group is None:
            self.say(title)
            return
        self.group(title)
        self._open = True

    def _close(self) -> None:
        if self._open:
            self.end_group()
            self._open = False

    def _show(self, problem: str) -> None:
        self._problems += 1
        if self._problems <= _PROBLEMS_SHOWN:
            self.say(f"  {problem}")
        elif self._problems == _PROBLEMS_SHOWN + 1:
            self.say("  … further problems are in the reports")

    def _count(self) -> None:
        now = time.monotonic()
        if self.counts.done == self.counts.planned or now - self._last >= _PLAIN_EVERY_S:
            self._last = now
            self.say(f"  {self.counts}")


@dataclass
class LiveDisplay:
    """A bar on a terminal; problems scroll above it."""

    console: Console
    counts: Counts = field(default_factory=Counts)
    _bar: Progress | None = None
    _task: TaskID | None = None
    _known: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        """Draw the bar."""
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
        self.counts.take(event)
        if isinstance(event, Notice):
            self.console.print(
                terminal(event.text, _NOTICE_LIMIT, lines=True),
                markup=False,
                style="yellow" if event.level == "warning" else None,
            )
        elif isinstance(event, PhaseStarted) and self.counts.planned:  # why more is run than was planned
            self.console.print(f"{event.name}: {terminal(event.detail)}", markup=False, style="cyan")
        elif isinstance(event, AttemptFinished) and (problem := _new_problem(event.attempt, self._known)):
            self.console.print(problem, markup=False, highlight=False, style="red", no_wrap=True, overflow="ellipsis")
        if self._bar is not None and self._task is not None:
            total = self.counts.planned or None
            self._bar.update(self._task, total=total, completed=self.counts.done, description=str(self.counts))
