"""A metric function that writes down what it is given; run as a program, google-adk 2.13 calls it itself.

``python adk_custom_metric.py``: a JSON of ``{"config", "actual", "expected", "scenario"}`` in on stdin, the score out.
"""

# ruff: noqa: PLC0415, T201
# Imported by a process that must not need google-adk before it is asked; printing is its answer.

import asyncio
import json
import os
import sys
from pathlib import Path


def telling(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    from google.adk.evaluation.evaluator import EvaluationResult

    given = {
        "metric": eval_metric.model_dump(mode="json"),
        "metric_class": type(eval_metric.criterion).__name__,
        "actual": [one.model_dump(mode="json") for one in actual_invocations],
        "expected": expected_invocations and [one.model_dump(mode="json") for one in expected_invocations],
        "scenario": conversation_scenario and conversation_scenario.model_dump(mode="json"),
    }
    Path(os.environ["GOOGLE_TOLD_FILE"]).write_text(json.dumps(given, sort_keys=True))
    return EvaluationResult(overall_score=0.1 + 0.2)


async def main():
    from google.adk.evaluation.conversation_scenarios import ConversationScenario
    from google.adk.evaluation.eval_case import Invocation
    from google.adk.evaluation.eval_config import EvalConfig, get_eval_metrics_from_config
    from google.adk.evaluation.metric_evaluator_registry import register_custom_metrics_from_config

    asked = json.load(sys.stdin)
    config = EvalConfig.model_validate(asked["config"])
    (metric,) = [one for one in get_eval_metrics_from_config(config) if one.metric_name in config.criteria]
    evaluator = register_custom_metrics_from_config(config).get_evaluator(metric)
    turns = {
        key: [Invocation.model_validate(one) for one in asked[key] or ()] or None for key in ("actual", "expected")
    }
    scenario = ConversationScenario.model_validate(asked["scenario"]) if asked["scenario"] else None
    result = await evaluator.evaluate_invocations(turns["actual"], turns["expected"], scenario)
    print(json.dumps({"score": result.overall_score}))


if __name__ == "__main__":
    asyncio.run(main())
