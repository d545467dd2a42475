"""Recognise files of other tools and fragments of ADK's files, so that error messages can name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A kind of file that is not supported: its name, what to do instead, and how to recognise its value."""

    name: str
    hint: str
    recognises: Callable[[Any], bool]


def recognise_eval_file(value: Any) -> ForeignFile | None:
    """The unsupported kind of a supposed eval file, or None. Never matches files that google-adk loads."""
    if TRPC_METRICS.recognises(value):
        return TRPC_METRICS
    return next((kind for kind in EVAL_FILES if kind.recognises(value)), None) if isinstance(value, dict) else None


def _cases(value: Mapping[str, Any]) -> Any:
    return value.get("eval_cases", value.get("evalCases"))


def _without_cases(*keys: str) -> Callable[[Any], bool]:
    return lambda value: _cases(value) is None and set(keys) <= value.keys()


def _is_initial_session(value: Any) -> bool:
    """A session without events; a session with events is read as a recording."""
    return _without_cases("state")(value) and not value.get("events")


def _is_trpc_metrics(value: Any) -> bool:
    """A list of metrics, or one under ``metrics``, in which any metric has trpc-agent's key for its name."""
    entries = value.get("metrics") if isinstance(value, Mapping) and "criteria" not in value else value
    return isinstance(entries, list) and any(
        isinstance(item, Mapping) and ("metricName" in item or "metric_name" in item) for item in entries
    )


_AS_CASE: Final = "write it as a case of an ADK eval set"
_WRAP: Final = 'wrap it: `{"eval_set_id": "...", "eval_cases": [ ... ]}`'
_IN_CRITERIA: Final = "criteria are written in test_config.json"

TRPC_METRICS: Final = ForeignFile(
    "a metrics file of trpc-agent, not an eval file", "name the eval file that it lies beside", _is_trpc_metrics
)

EVAL_FILES: Final = (
    ForeignFile("one case of an agents-cli dataset", _AS_CASE, _without_cases("eval_case_id")),
    ForeignFile("one eval case without its set", _WRAP, _without_cases("eval_id")),
    ForeignFile("one eval case without its set", _WRAP, _without_cases("evalId")),
    ForeignFile(
        "a conversation without its case and set",
        f"{_WRAP}, and give the case an `eval_id`",
        _without_cases("conversation"),
    ),
    ForeignFile("one turn of the older list schema", "put it into a list: `[ ... ]`", _without_cases("query")),
    ForeignFile("an adk-rust prompt-optimizer case", _AS_CASE, _without_cases("input", "expected")),
    ForeignFile(
        "a list of test cases in no schema of ADK", "write it as an ADK eval set", _without_cases("test_cases")
    ),
    ForeignFile(
        "a criteria file, not an eval file",
        "name it test_config.json, beside the eval files",
        _without_cases("criteria"),
    ),
    ForeignFile("a metrics file, not an eval file", _IN_CRITERIA, _without_cases("metrics")),
    ForeignFile(
        "an initial session, not an eval file",
        "it goes with a list of turns, as its session file",
        _is_initial_session,
    ),
)
"""Checked in this order. To support such a format, delete its entry."""
