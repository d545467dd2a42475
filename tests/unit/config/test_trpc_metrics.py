"""Metrics files of trpc-agent: which criteria they are, with which options, and what is refused where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.criteria_files import CriteriaConfig, load_criteria_file
from agent_eval_action.criteria import build
from agent_eval_action.errors import ConfigError


def read(folder: Path, *metrics: dict[str, Any] | str) -> CriteriaConfig:
    path = folder / "basic.metrics.json"
    path.write_text(json.dumps(metrics, indent=1))
    config = load_criteria_file(path, workspace=folder)
    build(config.specs)
    return config


def trajectory(**fields: Any) -> dict[str, Any]:
    return {"metricName": "tool_trajectory_avg_score", "threshold": 1, "criterion": {"toolTrajectory": fields}}


def answer(**fields: Any) -> dict[str, Any]:
    return {
        "metricName": "m",
        "evaluatorName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": fields},
    }


def judge(name: str, **fields: Any) -> dict[str, Any]:
    return {"metric_name": name, "threshold": 0.9, "criterion": {"llm_judge": fields}}


@pytest.mark.parametrize(
    ("in_order", "subset", "match_type"),
    [(True, False, "EXACT"), (True, True, "IN_ORDER"), (False, True, "ANY_ORDER"), (False, False, "UNORDERED")],
)
def test_order_and_subset_are_a_match_type(tmp_path, in_order, subset, match_type):
    (spec,) = read(tmp_path, trajectory(orderSensitive=in_order, subsetMatching=subset)).specs
    assert (spec.name, spec.options) == ("tool_trajectory_avg_score", {"threshold": 1, "match_type": match_type})


def test_strategies_are_rules_by_tool(tmp_path):
    exact = {"matchStrategy": "exact"}
    strategies = {
        "clock": {"result": {"ignore": True}},
        "ticket": {
            "name": exact,
            "arguments": {"ignoreTree": {"time": True, "a": {"b": True, "c": False}}},
            "result": exact,
        },
        "skill": {"arguments": {"onlyTree": {"skill": True}, "numberTolerance": 0.1}},
    }
    config = read(tmp_path, trajectory(defaultStrategy={"name": exact, "arguments": exact}, toolStrategy=strategies))
    assert config.specs[0].options["arguments"] == {
        "*": {},
        "clock": {"ignore": ["*"]},
        "ticket": {"ignore": ["time", "a.b"]},
        "skill": {"only": ["skill"], "tolerance": 0.1},
    }
    assert [warning.message for warning in config.warnings] == [
        "the results of tool calls are not compared, only the calls"
    ]


def test_texts_of_an_answer(tmp_path):
    def of(**text: Any) -> list[tuple[str, dict[str, Any]]]:
        return [(spec.name, spec.options) for spec in read(tmp_path, answer(text=text)).specs]

    assert of() == [("answer_exact_match", {"threshold": 1})]
    assert of(matchStrategy="contains", caseInsensitive=True) == [
        ("answer_contains", {"threshold": 1, "ignore_case": True})
    ]
    (skipped,) = of(matchStrategy="skip", length={"min": 40})
    assert skipped == ("answer_pattern", {"threshold": 1, "pattern": r"(?s)\A.{40,}\z"})
    assert [name for name, _ in of(length={"max": 6})] == ["answer_exact_match", "answer_pattern"]


def test_a_judge_has_its_model_and_samples_and_neither_address_nor_key_of_the_file(tmp_path):
    model = {"model_name": "gpt-5.2", "num_samples": 3, "generation_config": {"max_tokens": 9, "stream": False}}
    (spec,) = read(tmp_path, judge("llm_final_response", judge_model=model)).specs
    own = {"judge_model": "openai/gpt-5.2", "num_samples": 3, "judge_model_config": {"max_output_tokens": 9}}
    assert (spec.name, spec.options) == ("final_response_match_v2", {"threshold": 0.9, "judge_model_options": own})
    secret = {"model_name": "${MODEL}", "api_key": "sk-secret", "base_url": "http://evil.example"}
    config = read(tmp_path, judge("llm_hallucinations", judge_model=secret))
    assert config.specs[0].options == {"threshold": 0.9, "judge_model_options": {}}
    said = " ".join(warning.message for warning in config.warnings)
    assert "address and key are not read" in said
    assert "is in a variable" in said
    assert "sk-secret" not in said


def test_rubrics_are_those_of_the_answer_or_of_the_tools(tmp_path):
    rubrics = [{"id": "1", "type": "X", "description": "d", "content": {"text": "It is right."}}]
    names = ("llm_rubric_response", "llm_rubric_knowledge_recall")
    specs = read(tmp_path, *(judge(name, rubrics=rubrics) for name in names)).specs
    assert [spec.name for spec in specs] == [
        "rubric_based_final_response_quality_v1",
        "rubric_based_tool_use_quality_v1",
    ]
    assert specs[0].options["rubrics"][0]["rubric_content"] == {"text_property": "It is right."}


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ({"metricName": "own"}, "the nearest is a function of yours"),
        (judge("llm_rubric_critic"), "the nearest is rubric_based_final_response_quality_v1"),
        (judge("llm_judge_template", template={}), "the nearest is semantic_match_score"),
        (answer(rouge={"rougeType": "rouge1"}), "the nearest is response_match_score"),
        (answer(text={"matchStrategy": "regex"}), "the nearest is answer_pattern"),
        (answer(text={"matchStrategy": "fuzzy"}), 'no way to compare texts by "fuzzy"'),
        (answer(text={"length": {"min": 5000}}), "up to 1000 characters"),
        (answer(text={"length": {"min": "1}("}}), "up to 1000 characters"),
        (answer(text=3), "must be an object"),
        (trajectory(defaultStrategy={"name": {"matchStrategy": "regex"}}), 'compared exactly, not by "regex"'),
        (trajectory(defaultStrategy={"arguments": {"matchStrategy": "regex"}}), 'compared exactly, not by "regex"'),
        (trajectory(futureOption=1), '"futureOption" is not compared'),
        (trajectory(toolStrategy=[1]), "must be an object"),
        (judge("llm_rubric_response", rubrics="x"), "must be a list of rubrics"),
        ("x", "a metric is an object with a name"),
        ({"metricName": {"a": 1}}, "a metric is an object with a name"),
        ({"metricName": "m", "evaluatorName": {"a": 1}}, "the nearest is a function of yours"),
        (judge("llm_final_response", judge_model={"generation_config": [1]}), "must be an object"),
        (judge("llm_rubric_response", rubrics=[{"id": {}, "content": 5}]), "has no text"),
        ({"metricName": "x\n::error::\x1b[31m<b>@all" + "A" * 100_000}, "is not measured"),
        (trajectory(**{"A" * 100_000: 1}), "is not compared"),
        (trajectory(), "a second `tool_trajectory_avg_score`"),
    ],
)
def test_what_is_measured_in_no_way_of_ours_is_refused_at_its_line(tmp_path, metric, says):
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, trajectory(), metric)
    (problem,) = refused.value.problems
    assert says in str(problem)
    assert len(problem.message) < 1000
    assert "\x1b" not in str(problem)
    assert problem.line is not None
    assert problem.line > 1
