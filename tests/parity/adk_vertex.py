"""google-adk's evaluators of Vertex AI, against a server of ours. Runs in the google-adk 2.13 environment.

One JSON list of ``{"metric", "actual", "expected"}`` in on stdin, one JSON list of ``{"score"}`` or ``{"error"}``
out. ADK's client takes no address from the environment: it is given one where ADK makes it.
"""

import json
import os
import sys

import adk_pipe

# isort: split
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
from google.adk.dependencies._agentplatform import agentplatform
from google.adk.evaluation.eval_case import Invocation
from google.adk.evaluation.eval_metrics import EvalMetric
from google.adk.evaluation.metric_evaluator_registry import DEFAULT_METRIC_EVALUATOR_REGISTRY

_Client = agentplatform.Client
agentplatform.Client = lambda **given: _Client(**given, http_options={"base_url": os.environ["VERTEX_SERVER"] + "/"})


def evaluate(asked):
    evaluator = DEFAULT_METRIC_EVALUATOR_REGISTRY.get_evaluator(EvalMetric(metric_name=asked["metric"], threshold=0.5))
    actual = [Invocation.model_validate(turn) for turn in asked["actual"]]
    expected = asked["expected"]
    expected = None if expected is None else [Invocation.model_validate(turn) for turn in expected]
    return evaluator.evaluate_invocations(actual, expected).overall_score


answers = []
for one in json.load(sys.stdin):
    try:
        answers.append({"score": evaluate(one)})
    except Exception as error:  # noqa: BLE001 - what ADK raises is an answer
        answers.append({"error": f"{type(error).__name__}: {error}"})
adk_pipe.say(answers)
