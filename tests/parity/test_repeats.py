"""A case over several runs meets its threshold here exactly when ADK's AgentEvaluator says so."""

from __future__ import annotations

import json
import random
import statistics
import subprocess

from agent_eval_action.gate.pairs import compare
from support.records import stored
from support.results import info, run, simple

ORACLE = """
import json, sys
from google.adk.evaluation.agent_evaluator import AgentEvaluator, _EvalMetricResultWithInvocation as Both
from google.adk.evaluation.eval_case import Invocation
from google.adk.evaluation.eval_metrics import EvalMetricResult
from google.adk.evaluation.evaluator import EvalStatus

turn = Invocation(user_content={"parts": [{"text": "hi"}]})
def failed(runs, threshold):
    results = [
        Both(actual_invocation=turn, eval_metric_result=EvalMetricResult(
            metric_name="m", threshold=threshold, criterion={"threshold": threshold}, score=score,
            eval_status=EvalStatus.PASSED if score >= threshold else EvalStatus.FAILED))
        for scores in runs for score in scores
    ]
    return bool(AgentEvaluator._process_metrics_and_get_failures({"m": results}, False, "agent"))
print(json.dumps([failed(*one) for one in json.load(sys.stdin)]))
"""
SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)


def drawn(seed: int, number: int):
    """Runs of a case: scores per turn. Quarters make means that hit the threshold exactly; the rest is anything."""
    draw = random.Random(seed)  # noqa: S311 - draws test cases
    for _ in range(number):
        exact = draw.random() < 0.5
        turns = draw.choice((1, 2, 4)) if exact else draw.randint(1, 5)
        runs = draw.choice((1, 2, 4)) if exact else draw.randint(1, 5)
        scores = [[draw.choice(SCORES) if exact else draw.random() for _ in range(turns)] for _ in range(runs)]
        yield scores, draw.choice(SCORES) if exact else draw.random()


def below(runs, threshold):
    case = simple("a", *(statistics.mean(scores) for scores in runs), criterion="m")
    (pair,) = compare(stored(None), run(case, criteria=[info("m", threshold)])).pairs
    return pair.below


def test_the_mean_over_runs_decides_as_in_agent_evaluator(adk213_python):
    cases = list(drawn(11, 2_000))
    done = subprocess.run(
        [adk213_python, "-W", "ignore", "-c", ORACLE],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = [below(*one) for one in cases]
    assert [case for case, a, b in zip(cases, ours, theirs, strict=True) if a != b] == []
    assert 0.2 < sum(ours) / len(ours) < 0.8, "both verdicts are drawn"
