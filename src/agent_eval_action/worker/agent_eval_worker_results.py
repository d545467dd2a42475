"""Arguments of a metric function out of JSON, and scores out of what it returns, by the google-adk that is here."""

from __future__ import annotations

import math
from typing import Any

from agent_eval_worker_errors import describe as describe_error
from agent_eval_worker_json import whole_text

TEXT = 2_000
MOST_TURNS = 10_000


class BadResultError(Exception):
    """What a function gave back is no EvaluationResult."""


def describe(error: BaseException) -> dict[str, str]:
    """An exception as ``{kind, message, traceback}``; our own complaint needs no name and no stack."""
    if isinstance(error, BadResultError):
        return {"kind": "exception", "message": str(error), "traceback": ""}
    return describe_error(error)


class Adk:
    """The classes of google-adk, whichever version the user has."""

    def __init__(self) -> None:
        import google.adk
        from google.adk.evaluation import eval_case, eval_metrics, evaluator

        self.version = str(getattr(google.adk, "__version__", ""))
        self._case = eval_case
        self._metrics = eval_metrics
        self._result = evaluator.EvaluationResult
        self.describe = describe

    def arguments(self, said: dict[str, Any]) -> list[Any]:
        """``[eval_metric, actual_invocations, expected_invocations, conversation_scenario]``."""
        expected = said.get("expected")
        return [
            self._metric(said["metric"]),
            [self._invocation(turn) for turn in said["actual"]],
            None if expected is None else [self._invocation(turn) for turn in expected],
            self._scenario(said.get("scenario")),
        ]

    def scores(self, result: Any) -> dict[str, Any]:
        """Score and status, over all and turn by turn; the invocations in it are ours, and are not sent back."""
        if not isinstance(result, self._result):
            raise BadResultError(f"it returned {_named(result)}, not an EvaluationResult of google.adk.evaluation")
        turns = list(result.per_invocation_results or ())
        if len(turns) > MOST_TURNS:
            raise BadResultError(f"it returned the scores of {len(turns)} turns")
        return {
            "score": _number(result.overall_score),
            "status": _status(result.overall_eval_status),
            "turns": [{"score": _number(turn.score), "status": _status(turn.eval_status)} for turn in turns],
        }

    def _metric(self, said: dict[str, Any]) -> Any:
        criterion = getattr(self._metrics, "BaseCriterion", None)
        if criterion is None:  # google-adk 1.10: a threshold and nothing more
            return self._metrics.EvalMetric(metric_name=said["name"], threshold=said["criterion"]["threshold"])
        made = self._metrics.EvalMetric(metric_name=said["name"], criterion=criterion.model_validate(said["criterion"]))
        made.threshold = None
        if "custom_function_path" in type(made).model_fields:
            made.custom_function_path = said.get("function")
        return made

    def _invocation(self, turn: dict[str, Any]) -> Any:
        kind = self._case.Invocation
        if not hasattr(self._case, "InvocationEvents"):
            turn = _without_events(turn)
        return kind.model_validate({key: value for key, value in turn.items() if key in kind.model_fields})

    def _scenario(self, said: dict[str, Any] | None) -> Any:
        if said is None:
            return None
        try:
            from google.adk.evaluation.conversation_scenarios import ConversationScenario
        except ImportError:
            raise BadResultError(f"google-adk {self.version} has no conversation_scenario to pass") from None
        return ConversationScenario.model_validate(said)


def _without_events(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn for a google-adk that knows no events: its calls, and the texts said on the way."""
    data = turn.get("intermediate_data") or {}
    if "invocation_events" not in data:
        return turn
    calls, texts = [], []
    for event in data["invocation_events"]:
        parts = (event.get("content") or {}).get("parts") or ()
        calls += [part["function_call"] for part in parts if part.get("function_call")]
        said = [part for part in parts if part.get("text") and not part.get("thought")]
        if said:
            texts.append([event["author"], said])
    return {**turn, "intermediate_data": {"tool_uses": calls, "intermediate_responses": texts}}


def _number(value: Any) -> Any:
    """A finite float, None, or a text that says what it is instead."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return _named(value)


def _status(value: Any) -> str:
    return whole_text(str(getattr(value, "name", value)))[:TEXT]


def _named(value: Any) -> str:
    if isinstance(value, float):
        return str(value)
    return "None" if value is None else f"a {type(value).__name__}"
