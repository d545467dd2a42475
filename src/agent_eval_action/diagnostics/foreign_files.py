"""Recognise files of other tools and fragments of ADK's files, so that error messages can name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A kind of file that is not supported: its name, what to do instead, the keys that it has, and one it lacks."""

    name: str
    hint: str
    keys: frozenset[str] = frozenset()
    lacks: str = ""


def is_trpc_metrics(value: Any) -> bool:
    """Whether any metric of a list, or of one under ``metrics``, has trpc-agent's key for its name."""
    entries = value.get("metrics") if isinstance(value, Mapping) and "criteria" not in value else value
    return isinstance(entries, list) and any(
        isinstance(item, Mapping) and ("metricName" in item or "metric_name" in item) for item in entries
    )


def recognise_eval_file(value: Any) -> ForeignFile | None:
    """The unsupported kind of a supposed eval file, or None. Never matches files that google-adk loads."""
    if is_trpc_metrics(value):
        return TRPC_METRICS
    if not isinstance(value, dict) or value.get("eval_cases", value.get("evalCases")) is not None:
        return None
    return next((kind for kind in EVAL_FILES if kind.keys <= value.keys() and not value.get(kind.lacks)), None)


_AS_CASE: Final = "write it as a case of an ADK eval set"
_AS_SET: Final = "write it as an ADK eval set"
_WRAP: Final = 'wrap it: `{"eval_set_id": "...", "eval_cases": [ ... ]}`'
_NO_SET: Final = "one eval case without its set"
_CRITERIA: Final = "a criteria file, not an eval file"
_SESSION: Final = "an initial session, not an eval file"

TRPC_METRICS: Final = ForeignFile(
    "a metrics file of trpc-agent, not an eval file", "name the eval file that it lies beside"
)

EVAL_FILES: Final = (
    ForeignFile("one case of an agents-cli dataset", _AS_CASE, frozenset({"eval_case_id"})),
    ForeignFile(_NO_SET, _WRAP, frozenset({"eval_id"})),
    ForeignFile(_NO_SET, _WRAP, frozenset({"evalId"})),
    ForeignFile(
        "a conversation without its case and set",
        f"{_WRAP}, and give the case an `eval_id`",
        frozenset({"conversation"}),
    ),
    ForeignFile("one turn of the older list schema", "put it into a list: `[ ... ]`", frozenset({"query"})),
    ForeignFile("an adk-rust prompt-optimizer case", _AS_CASE, frozenset({"input", "expected"})),
    ForeignFile("a list of test cases in no schema of ADK", _AS_SET, frozenset({"test_cases"})),
    ForeignFile(_CRITERIA, "name it test_config.json, beside the eval files", frozenset({"criteria"})),
    ForeignFile("a metrics file, not an eval file", "criteria are written in test_config.json", frozenset({"metrics"})),
    # a session with events is read as a recording
    ForeignFile(_SESSION, "it goes with a list of turns, as its session file", frozenset({"state"}), lacks="events"),
)
"""Checked in this order. To support such a format, delete its entry."""
