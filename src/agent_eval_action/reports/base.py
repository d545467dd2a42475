"""The port every report implements: a pure function from what was concluded to text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent_eval_action.errors import ResultsError
from agent_eval_action.model.decision import Decision
from agent_eval_action.model.result import RunResult

MARKER = "<!-- agent-eval-action:comment -->"


@dataclass(frozen=True, slots=True)
class Link:
    """Where something lies: a path relative to the workspace, or an http(s) address."""

    label: str
    target: str


@dataclass(frozen=True, slots=True)
class ReportInput:
    """Everything a report may show. ``result`` must hold a decision: nothing is rendered before it is made.

    ``reproduce`` is the command line that repeats the run. ``marker`` is the comment's first line, an HTML
    comment that finds it again.
    """

    result: RunResult
    links: tuple[Link, ...] = ()
    reproduce: str = ""
    marker: str = MARKER

    @property
    def decision(self) -> Decision:
        """What was concluded. Raises ResultsError when nothing was."""
        if self.result.decision is None:
            raise ResultsError(
                "these results hold no decision, so there is nothing to report yet",
                hint="compare them first: agent-eval compare BASELINE RESULTS",
            )
        return self.result.decision


Report = Callable[[ReportInput, int | None], str]
"""``budget`` is in bytes of UTF-8; None is the format's own limit."""
