"""google-adk's results, ``*.evalset_result.json``, which ``adk eval`` writes to ``.adk/eval_history``.

google-adk 2.13 writes an object; 1.10 wrote it as a JSON string (``local_eval_set_results_manager.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from agent_eval_action.diagnostics.reader import Source
from agent_eval_action.diagnostics.validation import validated
from agent_eval_action.errors import ResultsError
from agent_eval_action.results.base import AdkModel, LenientModel
from agent_eval_action.results.evalset import Content, IntermediateData, Invocation

SUFFIX: Final = ".evalset_result.json"

NOT_EVALUATED: Final = 3
STATUS: Final = {1: "PASSED", 2: "FAILED", NOT_EVALUATED: "NOT_EVALUATED", 4: "INFORMATIONAL"}
"""INFORMATIONAL (2.13): a score without a threshold."""

_HINT: Final = "adk eval writes it to .adk/eval_history of the agent's folder"


class AdkMetric(LenientModel):
    """A metric of a case or a turn. Its options are in ``criterion`` (2.13) or ``judge_model_options`` (1.10)."""

    metric_name: str
    threshold: float | None = None
    criterion: dict[str, Any] | None = None
    judge_model_options: dict[str, Any] | None = None
    score: float | None = None
    eval_status: int = NOT_EVALUATED

    @property
    def scored(self) -> bool:
        """Whether there is a score; the number of a metric that was not evaluated does not count."""
        evaluated = self.eval_status in STATUS and self.eval_status != NOT_EVALUATED
        return evaluated and self.score is not None and math.isfinite(self.score)

    @property
    def options(self) -> dict[str, Any]:
        """The metric's configured options."""
        beside = {"judge_model_options": self.judge_model_options, "threshold": self.threshold}
        given = {**beside, **(self.criterion or {})}
        return {name: value for name, value in given.items() if value is not None}


def _known_fields(value: Mapping[str, Any], model: type[AdkModel]) -> dict[str, Any]:
    found = {name: value.get(name, value.get(field.alias or name)) for name, field in model.model_fields.items()}
    return {name: item for name, item in found.items() if item is not None}


def _without_additions(value: Any) -> Any:
    """Remove fields that later versions may add and fields that are not compared."""
    if not isinstance(value, dict):
        return value
    kept = {
        name: item for name, item in _known_fields(value, Invocation).items() if name not in {"app_details", "rubrics"}
    }
    for name in ("user_content", "final_response"):
        if isinstance(kept.get(name), dict):
            kept[name] = _known_fields(kept[name], Content)
    data = kept.get("intermediate_data")
    if isinstance(data, dict) and not {"invocation_events", "invocationEvents"} & data.keys():
        kept["intermediate_data"] = _known_fields(data, IntermediateData)
    return kept


_Invocation = Annotated[Invocation, BeforeValidator(_without_additions)]


class AdkTurn(LenientModel):
    """A turn: what the agent did, what was expected, and metrics."""

    actual_invocation: _Invocation
    expected_invocation: _Invocation | None = None
    eval_metric_results: tuple[AdkMetric, ...] = ()


class _Session(LenientModel):
    app_name: str = ""
    state: dict[str, Any] | None = None


class AdkCase(LenientModel):
    """One run of a case."""

    eval_id: str
    final_eval_status: int = NOT_EVALUATED
    overall_eval_metric_results: tuple[AdkMetric, ...] = ()
    eval_metric_result_per_invocation: tuple[AdkTurn, ...] = ()
    session_details: _Session | None = None


class AdkResults(LenientModel):
    """A results file: one run of an eval set. ``creation_timestamp`` is in seconds since 1970."""

    eval_set_result_id: str = ""
    eval_set_id: str
    eval_case_results: tuple[AdkCase, ...] = ()
    creation_timestamp: float = 0.0

    @property
    def app(self) -> str:
        """The agent's name: from a session, else from the result's id before the set's id."""
        sessions = (case.session_details for case in self.eval_case_results if case.session_details)
        named = next((session.app_name for session in sessions if session.app_name), "")
        return named or self.eval_set_result_id.partition(f"_{self.eval_set_id}_")[0] or "agent"


def read_results(path: Path) -> AdkResults:
    """Read a results file. Raises ResultsError if it is not one or has no cases."""
    source = Source.read(path, workspace=None, error=ResultsError)
    if isinstance(source.value, str) and source.value.lstrip().startswith("{"):  # written by google-adk 1.10
        source = Source.parse(source.value, path=path, error=ResultsError)
    if not isinstance(source.value, dict) or not {"eval_case_results", "evalCaseResults"} & source.value.keys():
        raise ResultsError(f"{path} holds no results of google-adk", hint=_HINT)
    found = validated(source, AdkResults, f"{path} holds no results of google-adk that can be read", _HINT)
    if not found.eval_case_results:
        raise ResultsError(f"{path} holds no case: nothing was measured", hint=_HINT)
    return found
