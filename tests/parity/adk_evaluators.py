"""google-adk's own evaluators behind a pipe. Runs in the google-adk 2.13 environment.

One JSON line in: ``{"metric", "criterion", "actual": [...], "expected": [...]}``; one out: the overall
score and status, and those of each invocation; or ``{"error": ...}`` with what ADK raised.
For a metric with a judge the request has ``judge`` too: what the model ``scripted-judge`` answers, call by
call in ADK's order (turn by turn, sample by sample), None for a call that fails; and ``scenario``, if any.
"""

import asyncio
import inspect
import json

import adk_pipe

# isort: split
from google.adk.evaluation.conversation_scenarios import ConversationScenario
from google.adk.evaluation.eval_case import Invocation
from google.adk.evaluation.eval_config import (
    EvalConfig,
    get_eval_metrics_from_config,
)
from google.adk.evaluation.eval_metrics import EvalMetric
from google.adk.evaluation.metric_evaluator_registry import (
    DEFAULT_METRIC_EVALUATOR_REGISTRY,
)
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.models.registry import LLMRegistry
from google.genai import types

JUDGE = {"says": iter(()), "asked": []}


class ScriptedJudge(BaseLlm):
    """The judge of whatever metric is asked next."""

    @classmethod
    def supported_models(cls):
        return ["scripted-judge"]

    async def generate_content_async(self, llm_request, stream=False):  # noqa: ARG002 - ADK's signature
        JUDGE["asked"].append("".join(part.text or "" for one in llm_request.contents for part in one.parts))
        said = next(JUDGE["says"])
        if said is None:
            raise ConnectionError("the judge is away")
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]))


LLMRegistry.register(ScriptedJudge)


def metric(name, criterion):
    if criterion is None:
        return EvalMetric(metric_name=name)
    config = EvalConfig.model_validate_json(json.dumps({"criteria": {name: criterion}}))
    return get_eval_metrics_from_config(config)[0]


def details(result):
    found = getattr(result, "overall_token_usage_details", None) or getattr(result, "overall_duration_details", None)
    return found.model_dump() if found else None


def rubrics(scores):
    return {one.rubric_id: one.score for one in scores or ()}


async def finished(result):
    return await result


def evaluate(request):
    evaluator = DEFAULT_METRIC_EVALUATOR_REGISTRY.get_evaluator(metric(request["metric"], request["criterion"]))
    actual = [Invocation.model_validate(turn) for turn in request["actual"]]
    expected = request["expected"]
    expected = None if expected is None else [Invocation.model_validate(turn) for turn in expected]
    JUDGE.update(says=iter(request.get("judge", ())), asked=[])
    scenario = ConversationScenario.model_validate(request["scenario"]) if request.get("scenario") else None
    result = evaluator.evaluate_invocations(actual, expected, *([scenario] if scenario else []))
    if inspect.isawaitable(result):
        result = asyncio.run(finished(result))
    return {
        "score": result.overall_score,
        "status": result.overall_eval_status.name,
        "turns": [
            {"score": one.score, "status": one.eval_status.name, "rubrics": rubrics(one.rubric_scores)}
            for one in result.per_invocation_results
        ],
        "rubrics": rubrics(getattr(result, "overall_rubric_scores", None)),
        "asked": JUDGE["asked"],
        "details": details(result),
    }


adk_pipe.serve(evaluate)
