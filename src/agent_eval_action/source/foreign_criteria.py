"""Criteria files of other tools: told apart by their shape, so that they are refused by name. And what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_ADK: Final = 'write ADK\'s: {"criteria": {"tool_trajectory_avg_score": 1.0}}'
_FOREIGN: Final = (
    ("metrics_to_run", "an agents-cli evaluation config"),
    ("metricName", "a trpc-agent-go metrics list"),
    ("metric_name", "a trpc-agent-python metrics file"),
)


def recognise_foreign_criteria(value: Any) -> tuple[str, str] | None:
    """What the value is and what to do, or None where it may be ADK's."""
    if isinstance(value, Mapping) and "criteria" in value:
        return None
    keys = {str(key) for item in _mappings(value) for key in item}
    return next(((name, _ADK) for key, name in _FOREIGN if key in keys), None)


def _mappings(value: Any) -> list[Mapping[Any, Any]]:
    """The value and the entries of its list of metrics, as far as they are mappings."""
    entries = value.get("metrics") if isinstance(value, Mapping) else value
    found = [value, *(entries if isinstance(entries, list) else ())]
    return [item for item in found if isinstance(item, Mapping)]
