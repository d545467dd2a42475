"""The scores of ADK-Rust's crate: every vector of trajectories and texts, computed or executed by its own code."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import build
from agent_eval_action.criteria.adk_rust import (
    ResponseSimilarity,
    ToolTrajectoryScore,
    trajectory_score,
)
from agent_eval_action.criteria.answers import common_subsequence, edit_distance
from agent_eval_action.criteria.base import Criterion, Sample
from agent_eval_action.errors import ConfigError
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus

UNICODE_MARKS = 2
"""Texts where Rust keeps vowel signs and circled letters that ``str.isalnum`` does not know as letters."""


NOT_SCORED = {
    "llm_judge_parse_v2": "lines of a judge's answer; ours answers in JSON, and one that cannot be read is asked again",
    "structured_judge_parse": "a judge that no criteria file can ask for",
    "trace": "an analysis that no criterion of ADK-Rust has a threshold for",
    "wilcoxon_p": "the comparison of two agents, which the gate makes in its own way",
}
"""Groups of vectors that stand for nothing a file of ADK-Rust can ask for, with the reason."""


@pytest.fixture(scope="module")
def vectors(corpus: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((corpus.parent / "golden" / "adk_rust.json").read_text())
    return content


def test_every_group_of_vectors_is_tested_or_has_a_reason_why_not(vectors):
    assert vectors.keys() == {"tool_trajectory", "response_similarity", *NOT_SCORED}


def test_every_trajectory_has_the_score_of_version_3(vectors):
    seen = 0
    for vector in vectors["tool_trajectory"]:
        calls = {side: [(c["name"], c.get("args")) for c in vector[side]] for side in ("expected", "actual")}
        for key, score in vector["scores_v3"].items():
            in_order, strict = ("order=true" in key), ("args=true" in key)
            _, ours = trajectory_score(calls["expected"], calls["actual"], in_order=in_order, strict=strict)
            assert ours == score, (vector["name"], key)
            seen += 1
    assert seen == 26 * 4


def test_every_pair_of_texts_has_the_score_of_all_algorithms(vectors):
    different = []
    for vector in vectors["response_similarity"]:
        for algorithm, score in vector["scores"].items():
            ours = ResponseSimilarity(algorithm=algorithm, **vector["config"])
            if ours.similarity(vector["expected"], vector["actual"]) != pytest.approx(score, abs=1e-12):
                different.append((vector["expected"], vector["actual"], vector["config"], algorithm))
    assert len(different) <= UNICODE_MARKS, different
    assert all(config["ignore_punctuation"] for _, _, config, _ in different)


def test_a_criteria_file_of_adk_rust_is_read_and_what_it_asks_beyond_is_refused(tmp_path):
    path = tmp_path / "test_config.json"
    path.write_text(
        '{"tool_trajectory_score": 1, "tool_trajectory_config": {"strict_args": true}, "safety_score": null}'
    )
    (criterion,) = build(load_criteria_file(path, workspace=tmp_path).specs)
    assert (criterion.name, criterion.threshold) == ("tool_trajectory_score", 1)
    assert criterion.model_dump()["strict_args"] is True
    for asked in ('"tool_trajectory_avg_score": 1', '"custom": [{"name": "x"}]'):
        path.write_text(f'{{"tool_trajectory_score": 1,\n {asked}}}')
        with pytest.raises(ConfigError) as refused:
            load_criteria_file(path, workspace=tmp_path)
        assert [problem.line for problem in refused.value.problems] == [2]


def turn(text: str | None, *calls: str) -> Invocation:
    content = {"parts": [{"text": text}]} if text is not None else None
    uses = [{"name": name, "args": {}} for name in calls]
    fields = {"user_content": {"parts": [{"text": "?"}]}, "final_response": content}
    return Invocation.model_validate({**fields, "intermediate_data": {"tool_uses": uses}})


def scored(criterion: Criterion, expected: list[Invocation], actual: list[Invocation]) -> CriterionScore:
    case = EvalCase(eval_id="a", conversation=tuple(expected))
    return asyncio.run(criterion.score(Sample(case, tuple(actual))))


def test_a_case_is_its_worst_turn_of_those_that_have_a_reference():
    similarity = ResponseSimilarity(threshold=0.5)
    made = scored(similarity, [turn("a b"), turn(None), turn("c")], [turn("a b"), turn("x"), turn(None)])
    assert (made.score, made.passed) == (0, False)
    assert [each.score for each in made.turns] == [1, None, 0]
    assert scored(similarity, [turn(None)], [turn("x")]).status is ScoreStatus.NOT_APPLICABLE
    trajectory = ToolTrajectoryScore(threshold=1)
    assert scored(trajectory, [turn("x", "a", "b"), turn("x")], [turn("x", "b"), turn("x")]).score == 0.5


def test_hostile_texts_and_arguments_take_seconds_at_most():
    long = ResponseSimilarity(algorithm="levenshtein", threshold=1)
    assert scored(long, [turn("a" * 10**6)], [turn("b" * 10**6)]).status is ScoreStatus.ERROR
    assert scored(long, [turn("\x00\ud800")], [turn("\x00\x1b[2J")]).score == pytest.approx(0.2)


@given(st.text("abc ", max_size=20), st.text("abc ", max_size=20))
def test_distances_are_those_of_the_tables_they_stand_for(first, second):
    distances = list(range(len(second) + 1))
    common = [0] * (len(second) + 1)
    for row, char in enumerate(first, 1):
        distances, above = [row], distances
        common, before = [0], common
        for column, other in enumerate(second, 1):
            distances.append(min(above[column] + 1, distances[-1] + 1, above[column - 1] + (char != other)))
            best = before[column - 1] + 1 if char == other else max(before[column], common[-1])
            common.append(best)
    assert edit_distance(first, second) == distances[-1]
    assert common_subsequence(first, second) == common[-1]
