"""A function of the user's beside a judge; one that hangs costs its own score and no other."""

from __future__ import annotations

import pytest

from .conftest import MATCH, Judged

METRICS = """
import time
from google.adk.evaluation.eval_metrics import EvalMetric
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult


def tone(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    said = actual_invocations[0].final_response.parts[0].text
    return EvaluationResult(overall_score=0.75 if "Enjoy" in said else 0.0, overall_eval_status=EvalStatus.PASSED)


def forever(*_):
    while True:
        time.sleep(1)
"""


@pytest.mark.exhaustive
def test_a_metric_of_ones_own_scores_beside_a_judge_and_one_that_hangs_costs_its_own_score(judged: Judged) -> None:
    (judged.root / "clerk" / "metrics.py").write_text(METRICS)
    judged.criteria(
        {**MATCH, "tone": 0.5, "forever": 0.5},
        custom_metrics={name: {"code_config": {"name": f"clerk.metrics.{name}"}} for name in ("tone", "forever")},
    )
    judged.configure(timeout_s=8)
    done = judged.run()
    assert done.code == 3, done.said
    assert done.score("rome", "tone")["score"] == 0.75
    assert done.score("rome", "final_response_match_v2")["score"] == 1
    hung = done.score("rome", "forever")
    assert (hung["status"], hung["score"]) == ("error", None)
    assert "8 s" in hung["reason"], hung["reason"]
    assert "clerk.metrics.forever" in hung["reason"]
    assert "<code>forever</code>" in done.comment
