"""From a result to text, each format a pure function; and results.json, which is written and read."""

from __future__ import annotations

from typing import Final

from agent_eval_action.reports.base import MARKER, Link, Report, ReportInput
from agent_eval_action.reports.junit import junit
from agent_eval_action.reports.markdown import markdown

__all__ = ["MARKER", "REPORTS", "Link", "Report", "ReportInput"]

REPORTS: Final[dict[str, Report]] = {
    "junit": junit,
    "markdown": markdown,
}
