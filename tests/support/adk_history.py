"""Run by google-adk 1.10: result files by its own manager. argv: a folder, and JSON of agents folders to scores."""

# mypy: ignore-errors
import json
import sys

from google.adk.evaluation.eval_case import IntermediateData, Invocation
from google.adk.evaluation.eval_metrics import EvalMetricResult, EvalMetricResultPerInvocation
from google.adk.evaluation.eval_result import EvalCaseResult
from google.adk.evaluation.evaluator import EvalStatus
from google.adk.evaluation.local_eval_set_results_manager import LocalEvalSetResultsManager
from google.genai import types

METRIC = "tool_trajectory_avg_score"


def turn(tool):
    """A turn in which one tool was called."""
    return Invocation(
        user_content=types.Content(parts=[types.Part(text="roll")], role="user"),
        final_response=types.Content(parts=[types.Part(text="six")], role="model"),
        intermediate_data=IntermediateData(tool_uses=[types.FunctionCall(name=tool, args={"sides": 6})]),
    )


def case(name, score):
    """A case with this score; None: google-adk could not evaluate the metric, "raised": not run it at all."""
    if score == "raised":
        results, turns, status = [], [], EvalStatus.FAILED
    else:
        status = EvalStatus.NOT_EVALUATED if score is None else EvalStatus.PASSED if score else EvalStatus.FAILED
        results = [EvalMetricResult(metric_name=METRIC, threshold=0.5, score=score, eval_status=status)]
        turns = [
            EvalMetricResultPerInvocation(
                actual_invocation=turn("roll_die" if score else "flip_coin"),
                expected_invocation=turn("roll_die"),
                eval_metric_results=results,
            )
        ]
    return EvalCaseResult(
        eval_set_id="dice",
        eval_id=name,
        final_eval_status=status,
        overall_eval_metric_results=results,
        eval_metric_result_per_invocation=turns,
        session_id="s",
    )


for folder, runs in json.loads(sys.argv[2]).items():
    for scores in runs:
        cases = [case(name, score) for name, score in scores.items()]
        LocalEvalSetResultsManager(agents_dir=f"{sys.argv[1]}/{folder}").save_eval_set_result("bot", "dice", cases)
