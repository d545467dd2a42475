"""google-adk's own evaluators behind a pipe. Runs in the google-adk 2.13 environment.

One JSON line in: ``{"metric", "criterion", "actual": [...], "expected": [...]}``; one out: the overall
score and status, and those of each invocation; or ``{"error": ...}`` with what ADK raised.
"""

import json
import logging
import os
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
sys.stdout = sys.stderr  # whatever ADK prints is not an answer

from google.adk.evaluation.eval_case import Invocation  # noqa: E402 - warnings are off first
from google.adk.evaluation.eval_config import (  # noqa: E402 - warnings are off first
    EvalConfig,
    get_eval_metrics_from_config,
)
from google.adk.evaluation.eval_metrics import EvalMetric  # noqa: E402 - warnings are off first
from google.adk.evaluation.metric_evaluator_registry import (  # noqa: E402 - warnings are off first
    DEFAULT_METRIC_EVALUATOR_REGISTRY,
)


def metric(name, criterion):
    if criterion is None:
        return EvalMetric(metric_name=name)
    config = EvalConfig.model_validate_json(json.dumps({"criteria": {name: criterion}}))
    return get_eval_metrics_from_config(config)[0]


def details(result):
    found = getattr(result, "overall_token_usage_details", None) or getattr(result, "overall_duration_details", None)
    return found.model_dump() if found else None


def evaluate(request):
    evaluator = DEFAULT_METRIC_EVALUATOR_REGISTRY.get_evaluator(metric(request["metric"], request["criterion"]))
    actual = [Invocation.model_validate(turn) for turn in request["actual"]]
    expected = [Invocation.model_validate(turn) for turn in request["expected"]]
    result = evaluator.evaluate_invocations(actual, expected)
    return {
        "score": result.overall_score,
        "status": result.overall_eval_status.name,
        "turns": [{"score": one.score, "status": one.eval_status.name} for one in result.per_invocation_results],
        "details": details(result),
    }


for line in sys.stdin:
    try:
        answer = evaluate(json.loads(line))
    except Exception as error:  # noqa: BLE001 - what ADK raises is an answer
        answer = {"error": f"{type(error).__name__}: {error}"}
    ANSWERS.write(json.dumps(answer) + "\n")
    ANSWERS.flush()
