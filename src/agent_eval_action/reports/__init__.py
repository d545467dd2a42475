"""From a result to text, each format a pure function; and results.json, which is written and read."""

from __future__ import annotations

from typing import Final

from agent_eval_action.registry import Registry
from agent_eval_action.reports.annotations import as_annotations
from agent_eval_action.reports.base import MARKER, Link, Report, ReportInput
from agent_eval_action.reports.html import html
from agent_eval_action.reports.junit import junit
from agent_eval_action.reports.markdown import markdown, summary

__all__ = ["MARKER", "REPORTS", "Link", "Report", "ReportInput"]

_BUILT_IN: Final[dict[str, Report]] = {
    "junit": junit,
    "markdown": markdown,
    "summary": summary,
    "html": html,
    "annotations": as_annotations,
}

REPORTS: Final = Registry(
    "agent_eval.reports", "report", _BUILT_IN, lambda _, entry: "" if callable(entry) else "it is no function"
)
