"""Renders a result as text, with a pure function for each format; writes and reads results.json."""

from __future__ import annotations

from typing import Final

from agent_eval_action.registry import Registry
from agent_eval_action.reports.base import MARKER, Link, Report, ReportInput

__all__ = ["MARKER", "REPORTS", "Link", "Report", "ReportInput"]

REPORTS: Final[Registry[Report]] = Registry(
    "agent_eval.reports",
    "report",
    {
        "junit": f"{__name__}.junit:junit",
        "markdown": f"{__name__}.markdown:markdown",
        "summary": f"{__name__}.markdown:summary",
        "html": f"{__name__}.html:html",
        "annotations": f"{__name__}.annotations:as_annotations",
    },
    lambda _, entry: "" if callable(entry) else "it is no function",
)
