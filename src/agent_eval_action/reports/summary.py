"""The report on the page of a run: as the comment, but every case has its row before any has its details."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.markdown import rendered

BUDGET: Final = 1_000_000
"""GitHub drops a step's summary whole that is larger than 1,048,576 bytes."""


def summary(report: ReportInput, budget: int | None = None) -> str:
    """GitHub's Markdown in at most ``budget`` bytes of UTF-8, without the comment's marker.

    Given up in this order: cases' details from the last, the table of all cases, everything but the table of
    criteria, everything but the headline.
    """
    return rendered(replace(report, marker=""), BUDGET if budget is None else budget, table_first=True)
