"""The port every report implements: a pure function from what was concluded to text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from agent_eval_action.errors import OutputError, ResultsError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.reports.causes import Cause, find_causes
from agent_eval_action.reports.view import ReportView
from agent_eval_action.results.decision import Decision
from agent_eval_action.results.recordings import Recordings
from agent_eval_action.results.run_result import RunResult

MARKER = "<!-- agent-eval-action:comment -->"
_WRITTEN: Final = 1 << 20  # characters that are encoded at once


@dataclass(frozen=True, slots=True)
class Link:
    """Where something lies: a path relative to the workspace, or an http(s) address."""

    label: str
    target: str


@dataclass(frozen=True)
class ReportInput:
    """Everything a report may show. ``result`` must hold a decision: nothing is rendered before it is made.

    ``reproduce`` is the command line that repeats the run. ``marker`` is the comment's first line, an HTML
    comment that finds it again; ``title`` names the job in its heading where there are several. ``recordings`` are
    the run's transcripts, where they are at hand. ``page``: where report.html is published, "" where it is not.
    """

    result: RunResult
    links: tuple[Link, ...] = ()
    reproduce: str = ""
    marker: str = MARKER
    title: str = ""
    recordings: Recordings | None = None
    page: str = ""

    @property
    def decision(self) -> Decision:
        """What was concluded. Raises ResultsError when nothing was."""
        if self.result.decision is None:
            raise ResultsError(
                "these results hold no decision, so there is nothing to report yet",
                hint="compare them first: agent-eval compare BASELINE RESULTS",
            )
        return self.result.decision

    @cached_property
    def view(self) -> ReportView:
        """What the reports show of the result: computed for the first and shared by the others."""
        return ReportView.build(self.result, self.decision)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """Why the cases that need attention are as they are, the worst first."""
        return find_causes(self.view.worst_first)


Report = Callable[[ReportInput, int | None], str]
"""``budget`` is in bytes of UTF-8; None is the format's own limit."""


def write_text(path: Path, chunks: Iterable[str], *, workspace: Path | None = None) -> None:
    """Write ``chunks`` as UTF-8 to ``path`` by a file beside it and a rename.

    Half-written files are removed and an older file stays as it was; a symlink at ``path`` is replaced, never
    followed, and inside the ``workspace`` none on the way to it. Raises OutputError with what to do.
    """
    try:
        folder = OutputFolder.at(path.parent, workspace)
        parts = (chunk[at : at + _WRITTEN] for chunk in chunks for at in range(0, len(chunk), _WRITTEN))
        folder.replace(path.name, (part.encode("utf-8", "replace") for part in parts))
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="free some disk space or choose another folder with --out; nothing half-written was left behind",
        ) from error
