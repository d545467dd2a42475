"""criteria.build: every problem at once, at its line; unknown apart from not-yet; what a digest is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.config.criteria import DEFAULT_CRITERIA, CriterionSpec
from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import CRITERIA, build, criterion_digest, criterion_info
from agent_eval_action.errors import ConfigError, Problem
from support.turns import criterion


def refused(tmp_path: Path, text: str, name: str = "test_config.json") -> list[Problem]:
    path = tmp_path / name
    path.write_text(text)
    config = load_criteria_file(path, workspace=tmp_path)
    with pytest.raises(ConfigError) as raised:
        build(config.specs)
    return list(raised.value.problems)


def test_the_defaults_are_those_of_adk():
    made = build(DEFAULT_CRITERIA)
    assert [(one.name, one.threshold) for one in made] == [
        ("tool_trajectory_avg_score", 1.0),
        ("response_match_score", 0.8),
    ]


def test_the_table_goes_by_the_names_of_its_classes():
    assert {name: kind.name for name, kind in CRITERIA.items()} == {name: name for name in CRITERIA}


def test_every_problem_of_every_criterion_is_reported_with_its_line(tmp_path):
    problems = refused(
        tmp_path,
        """{"criteria": {
  "tool_trajectory_avg_scor": 1.0,
  "response_match_score": {"threshold": 0.5, "treshold": 1},
  "tool_trajectory_avg_score": {
    "threshold": 1,
    "matchType": "ROUGHLY",
    "ignore_args": "perhaps"
  },
  "final_response_match_v2": {
    "threshold": 0.5,
    "judge_model_options": {
      "num_samples": 0
    }
  }
}}""",
    )
    lines = [(problem.line, problem.json_path, problem.message, problem.hint) for problem in problems]
    assert lines[0][:3] == (2, "$.criteria.tool_trajectory_avg_scor", "unknown criterion `tool_trajectory_avg_scor`")
    assert lines[0][3] == "did you mean `tool_trajectory_avg_score`?"
    assert lines[1][:3] == (
        3,
        "$.criteria.response_match_score.treshold",
        "response_match_score: unknown key `treshold`",
    )
    assert lines[1][3] == "did you mean `threshold`?"
    assert lines[2][:2] == (6, "$.criteria.tool_trajectory_avg_score.matchType")
    assert "'EXACT', 'IN_ORDER', 'ANY_ORDER' or 'UNORDERED'" in lines[2][2]
    assert lines[3][0] == 7
    assert lines[4][:2] == (12, "$.criteria.final_response_match_v2.judge_model_options.num_samples")
    assert len(problems) == 5


def test_a_function_nobody_declared_is_an_unknown_criterion(tmp_path):
    (problem,) = refused(tmp_path, '{"criteria": {"tone": 1}}')
    assert problem.message == "unknown criterion `tone`"
    assert "custom_metrics" in (problem.hint or "")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("response_match_score", "1.5"),
        ("response_match_score", "-0.1"),
        ("tool_trajectory_avg_score", "85"),
        ("tool_call_count_v1", "-1"),
        ("token_usage_v1", ".inf"),
        ("response_match_score", ".nan"),
        ("token_usage_v1", ".nan"),
        ("response_match_score", "{}"),
        ("response_match_score", "null"),
        ("response_match_score", '"high"'),
        ("safety_v1", "2"),
        ("final_response_match_v2", ".nan"),
        ("response_evaluation_score", "0.8"),
    ],
)
def test_a_threshold_no_score_can_meet_or_miss_is_refused(tmp_path, name, written):
    problems = refused(tmp_path, f"criteria:\n  {name}: {written}\n", "criteria.yaml")
    assert any("threshold" in str(problem) and problem.line == 2 for problem in problems), problems


@pytest.mark.parametrize(("written", "threshold"), [("0.8", 0.8), ("1", 1.0), ('"0.8"', 0.8), ('{"threshold": 0}', 0)])
def test_thresholds_as_adk_reads_them(tmp_path, written, threshold):
    path = tmp_path / "test_config.json"
    path.write_text(f'{{"criteria": {{"response_match_score": {written}}}}}')
    (made,) = build(load_criteria_file(path, workspace=tmp_path).specs)
    assert made.threshold == threshold


def test_a_threshold_of_nan_in_json_is_refused(tmp_path):
    (problem,) = refused(tmp_path, '{"criteria": {\n"response_match_score": NaN}}')
    assert (problem.line, problem.value) == (2, "NaN")


def test_efficiency_needs_no_threshold(tmp_path):
    path = tmp_path / "criteria.yaml"
    path.write_text("criteria:\n  token_usage_v1:\n  tool_call_count_v1: {}\n  invocation_duration_v1: 2.5\n")
    made = build(load_criteria_file(path, workspace=tmp_path).specs)
    assert [one.threshold for one in made] == [None, None, 2.5]


@pytest.mark.parametrize("key", ["include_intermediate_responses_in_final", "includeIntermediateResponsesInFinal"])
def test_an_option_without_effect_is_refused_when_it_is_asked_for(tmp_path, key):
    (problem,) = refused(tmp_path, f'{{"criteria": {{"response_match_score": {{"threshold": 1, "{key}": true}}}}}}')
    assert "has no effect" in problem.message
    (made,) = build([CriterionSpec("response_match_score", {"threshold": 1, key: False})])
    assert criterion_digest(made) == criterion_digest(criterion("response_match_score", threshold=1))


def test_a_digest_is_of_what_is_measured_and_not_of_the_threshold():
    def digest(**options: object) -> str:
        return criterion_digest(criterion("tool_trajectory_avg_score", threshold=1, **options))

    assert digest() == digest(match_type="exact", ignoreArgs=False) == digest(match_type=0)
    assert digest() == criterion_digest(criterion("tool_trajectory_avg_score", threshold=0.5))
    assert len({digest(), digest(match_type=1), digest(match_type=2), digest(ignore_args=True)}) == 4
    assert criterion_digest(criterion("token_usage_v1")) != criterion_digest(criterion("tool_call_count_v1"))


def test_a_digest_changes_with_the_scoring_version(monkeypatch):
    before = criterion_digest(criterion("response_match_score", threshold=1))
    monkeypatch.setattr(CRITERIA["response_match_score"], "scoring_version", "2")
    assert criterion_digest(criterion("response_match_score", threshold=1)) != before


def test_results_record_how_a_criterion_was_applied():
    info = criterion_info(
        criterion("tool_trajectory_avg_score", threshold=0.5, match_type="in-order"), "evals/test_config.json:3"
    )
    assert (info.threshold, info.goal, info.source) == (0.5, "maximize", "evals/test_config.json:3")
    assert info.options == {"match_type": "IN_ORDER", "ignore_args": False}
    assert criterion_info(criterion("token_usage_v1")).goal == "minimize"
