"""Metric functions: honest ones, and such as no run may suffer from."""

# ruff: noqa: ARG001, ASYNC220, T201, PTH109
# ADK gives the arguments, and users print: these are functions as they come.

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

from google.adk.evaluation.eval_metrics import EvalMetric
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult, PerInvocationResult

NO_FUNCTION = 7


def _result(score, actual, expected, status=EvalStatus.PASSED):
    turns = [
        PerInvocationResult(actual_invocation=one, expected_invocation=two, score=score, eval_status=status)
        for one, two in zip(actual, expected or actual, strict=True)
    ]
    return EvaluationResult(overall_score=score, overall_eval_status=status, per_invocation_results=turns)


def calls_counted(eval_metric, actual_invocations, expected_invocations, conversation_scenario=None):
    assert isinstance(eval_metric, EvalMetric)
    calls = sum(
        bool(part.function_call)
        for one in actual_invocations
        for event in getattr(one.intermediate_data, "invocation_events", None) or ()
        for part in event.content.parts or ()
    )
    if not hasattr(actual_invocations[0].intermediate_data, "invocation_events"):
        calls = sum(len(one.intermediate_data.tool_uses) for one in actual_invocations)
    print("counted", calls)
    return _result(float(calls), actual_invocations, expected_invocations)


def what_it_gets(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    assert eval_metric.metric_name == "mine"
    assert eval_metric.threshold is None
    assert eval_metric.criterion.threshold == 0.5
    assert eval_metric.criterion.model_extra == {"tone": {"of": ["voice"]}}
    assert [one.final_response.parts[0].text for one in actual_invocations] == ["hello", "bye"]
    assert (expected_invocations is None) is (conversation_scenario is not None)
    if conversation_scenario is not None:
        assert conversation_scenario.conversation_plan == "talk"
        assert conversation_scenario.user_persona.id == "EXPERT"
    return _result(1.0, actual_invocations, expected_invocations)


async def asynchronous(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    await asyncio.sleep(0.01)
    return _result(0.25, actual_invocations, expected_invocations, EvalStatus.FAILED)


def three_arguments(eval_metric, actual_invocations, expected_invocations):
    return _result(0.75, actual_invocations, expected_invocations)


def no_arguments():
    return None


def where(*_):
    print(os.getcwd(), sys.argv, [place for place in sys.path if "agent_eval" in place])
    seen = {name for name in os.environ if name in ("GITHUB_TOKEN", "GOOGLE_API_KEY", "FROM_DOTENV")}
    return EvaluationResult(overall_score=float(len(seen)))


def process_id(*_):
    return EvaluationResult(overall_score=float(os.getpid()))


def printing(*_):
    print("x" * 5_000_000)
    sys.stderr.write("AEF1\x00\x00\x00\x02{}")
    os.write(1, b"AEF1")
    return EvaluationResult(overall_score=1.0)


def raising(*_):
    raise ValueError("the metric is wrong: ya \U0001f600")


def leaving(*_):
    sys.exit(0)


def vanishing(*_):
    os._exit(3)


def hanging(*_):
    while True:
        time.sleep(1)


async def hanging_asynchronously(*_):
    child = subprocess.Popen(["sleep", "600"])
    Path(os.environ["CHILD_FILE"]).write_text(str(child.pid))
    await asyncio.Event().wait()


def enormous(*_):
    return {"score": "x" * 10_000_000}


def many_turns(eval_metric, actual_invocations, *_):
    return EvaluationResult(
        overall_score=1.0,
        per_invocation_results=[
            PerInvocationResult(actual_invocation=actual_invocations[0], expected_invocation=actual_invocations[0])
        ]
        * 200_000,
    )


def a_number(*_):
    return 0.9


def nothing_measured(*_):
    return EvaluationResult()


def not_a_number(*_):
    return EvaluationResult(overall_score=float("nan"))


def a_flag(*_):
    return EvaluationResult.model_construct(overall_score=True, per_invocation_results=[])


def forgetting(*_):
    for name in list(sys.modules):
        if name.startswith(("json", "agent_eval", "google", "encodings", "os")):
            del sys.modules[name]
    return EvaluationResult(overall_score=1.0)


def moving(*_):
    os.chdir("/")
    return EvaluationResult(overall_score=1.0)


def closing(*_):
    os.closerange(3, 4096)
    return EvaluationResult(overall_score=1.0)


def with_children(*_):
    with multiprocessing.Pool(1) as pool:
        return EvaluationResult(overall_score=float(sum(pool.map(abs, [-1, 2]))))


def telling_its_own_number(*_):
    Path(os.environ["CHILD_FILE"]).write_text(str(os.getpid()))
    time.sleep(600)
