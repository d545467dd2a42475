"""test_config.json: what is read, what is refused and where, and every config of the corpus."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic.alias_generators import to_camel

from agent_eval_action.config.criteria import CriterionSpec, parse_criteria
from agent_eval_action.config.criteria_files import CriteriaConfig, load_criteria_file
from agent_eval_action.criteria import build
from agent_eval_action.diagnostics.reader import Source
from agent_eval_action.errors import ConfigError, Problem


def load(tmp_path: Path, text: str, name: str = "test_config.json") -> CriteriaConfig:
    path = tmp_path / name
    path.write_text(text)
    return load_criteria_file(path, workspace=tmp_path)


def refused(tmp_path: Path, text: str, name: str = "test_config.json") -> list[Problem]:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text, name)
    return list(raised.value.problems)


def test_numbers_and_options_keep_their_order_and_lines(tmp_path):
    config = load(
        tmp_path,
        """{
  "_why": "nothing else matters here",
  "criteria": {
    "response_match_score": 0.8,
    "_todo": {"safety_v1": 1},
    "tool_trajectory_avg_score": {
      "threshold": 1.0,
      "_note": "calls come in any order",
      "matchType": "ANY_ORDER"
    }
  }
}""",
    )
    assert [(spec.name, spec.options, spec.line) for spec in config.specs] == [
        ("response_match_score", {"threshold": 0.8}, 4),
        ("tool_trajectory_avg_score", {"threshold": 1.0, "matchType": "ANY_ORDER"}, 6),
    ]
    assert config.specs[0].path == tmp_path / "test_config.json"
    assert config.warnings == ()


def test_nulls_that_google_adk_writes_are_options_that_are_not_set_at_every_depth(tmp_path):
    config = load(
        tmp_path,
        """{"criteria": {
  "final_response_match_v2": {
    "threshold": 0.5, "rubrics": null,
    "judge_model_options": {"judge_model": "m", "judge_model_config": null, "more": [{"a": null, "b": 1}]}
  }
}, "custom_metrics": null, "user_simulator_config": null}""",
    )
    options = {"threshold": 0.5, "judge_model_options": {"judge_model": "m", "more": [{"b": 1}]}}
    assert [spec.options for spec in config.specs] == [options]


def test_a_null_reaches_the_users_own_function(tmp_path):
    config = load(
        tmp_path,
        """{"criteria": {"mine": {"threshold": 1, "unit": null}},
            "custom_metrics": {"mine": {"code_config": {"name": "metrics.mine"}}}}""",
    )
    assert [spec.options for spec in config.specs] == [{"threshold": 1, "unit": None}]


def test_yaml_by_its_suffix(tmp_path):
    config = load(tmp_path, "# why\ncriteria:\n  token_usage_v1: 500\n  tool_call_count_v1:\n", "criteria.yml")
    assert [(spec.name, spec.options, spec.line) for spec in config.specs] == [
        ("token_usage_v1", {"threshold": 500}, 3),
        ("tool_call_count_v1", {}, 4),
    ]


@pytest.mark.parametrize("camel", [False, True])
def test_all_of_an_eval_config_in_both_spellings(tmp_path, camel):
    text = """{"criteria": {"tone": 0.5},
      "custom_metrics": {"tone": {"code_config": {"name": "my.tone"}, "metric_info": {"metric_name": "tone",
        "metric_value_info": {"interval": {"min_value": -1, "max_value": 1}}}}},
      "user_simulator_config": {"model": "m", "max_allowed_invocations": -1, "include_function_calls": true}}"""
    if camel:
        text = re.sub(r'"([a-z]+(?:_[a-z]+)+)":', lambda found: f'"{to_camel(found[1])}":', text)
        assert "maxAllowedInvocations" in text
    config = load(tmp_path, text)
    assert config.specs[0].custom is not None
    assert config.specs[0].custom.code_config.name == "my.tone"
    assert config.user_simulator_config is not None
    assert config.user_simulator_config.max_allowed_invocations == -1
    assert config.user_simulator_config.type == "llm_backed"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('{"criteria": {"a": 1},\n "criterion": {}}', 2, "`criterion` at $.criterion — did you mean `criteria`?"),
        ('{"metrics": [],\n "criteria": {"a": 1}}', 1, "unknown key `metrics`"),
        ('{\n"custom_metrics": {}}', 1, "no criteria, so there is nothing to measure"),
        ('{\n"criteria": {}}', 2, "no criteria, so there is nothing to measure"),
        ('{\n"criteria": {"_off": 1}}', 2, "no criteria, so there is nothing to measure"),
        ('{\n"criteria": null}', 2, "no criteria, so there is nothing to measure"),
        ('{\n"criteria": ["response_match_score"]}', 2, "criteria is a mapping"),
        ('{"criteria": {\n"a": [0.5]}}', 2, "a criterion is a threshold or a mapping of options"),
        ('[\n{"metricName": "a"}]', 2, "a: is not measured in this version"),
        ('"x"', 1, "a criteria config is a mapping"),
        ('{"criteria": {"a": 1}, "custom_metrics": {\n"a": {}}}', 2, "`code_config` is required"),
        ('{"criteria": {"a": 1}, "custom_metrics": {\n"a": {"code_config": {}}}}', 2, "`name` is required"),
        ('{"criteria": {"a": 1}, "custom_metrics":\n["a"]}', 2, "must be a mapping at $.custom_metrics"),
        ('{"criteria": {"a": 1}, "custom_metrics": {},\n"customMetrics": {}}', 1, "is given twice, as `customMetrics`"),
        ('{"criteria": {"a": 1}, "user_simulator_config":\n{"type": "robot"}}', 2, "one of llm_backed, llm_audio"),
        ('{"criteria": {"a": 1}, "user_simulator_config":\n{"modle": "m"}}', 2, "did you mean `model`?"),
        ('{"criteria": {"a": 1}, "user_simulator_config":\n{"type": "llm_audio"}}', 2, "llm_audio is known, but not"),
        (
            '{"criteria": {"a": 1}, "user_simulator_config":\n{"modelConfiguration": {"systemInstruction": "x"}}}',
            2,
            "`system_instruction` cannot be set",
        ),
        (
            '{"criteria": {"a": 1}, "user_simulator_config":\n{"custom_instructions": "{{ stop_signal"}}',
            2,
            "is no jinja2 template: line 1",
        ),
        (
            '{"criteria": {"a": 1}, "user_simulator_config": {\n"custom_instructions": "{{ stop_signal }}"}}',
            2,
            "needs the placeholder {{ conversation_plan }}, {{ conversation_history }}",
        ),
        ('{"criteria": {"a": 1},\n"live_model_config": {}}', 2, "live (bidirectional streaming) mode is known"),
        ('{"criteria": {"a": 1,}}', 1, ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_with_its_line(tmp_path, text, line, says):
    problems = refused(tmp_path, text)
    assert any(problem.line == line and says in str(problem) for problem in problems), problems


def test_all_problems_of_a_file_come_at_once(tmp_path):
    text = '{"criterias": {}, "customMetrics": {"a": {}}, "user_simulator_config": {"type": 7}}'
    assert len(refused(tmp_path, text)) == 4


def test_instructions_with_every_placeholder_are_accepted(tmp_path):
    text = "{{stop_signal}} {{ conversation_plan }} {{ conversation_history | upper }}"
    wire = {"criteria": {"a": 1}, "user_simulator_config": {"custom_instructions": text}}
    config = load(tmp_path, json.dumps(wire))
    assert config.user_simulator_config is not None
    assert config.user_simulator_config.custom_instructions == text


def test_a_custom_metric_nobody_asked_for_is_a_warning(tmp_path):
    config = load(tmp_path, '{"criteria": {"a": 1}, "custom_metrics": {\n"tone": {"code_config": {"name": "x.y"}}}}')
    (warning,) = config.warnings
    assert (warning.severity, warning.line) == ("warning", 2)
    assert "never runs" in warning.message


def test_a_file_that_is_not_there_or_leads_out_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_criteria_file(tmp_path / "no.json", workspace=tmp_path)
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.json").write_text('{"criteria": {"response_match_score": 1}}')
    (inside / "test_config.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(ConfigError):
        load_criteria_file(inside / "test_config.json", workspace=inside)


def test_criteria_inside_another_file_are_read_by_the_same_code(tmp_path):
    path = tmp_path / "agent-eval.yaml"
    source = Source.parse(
        "agents:\n- path: a\n  criteria:\n    response_match_score: 2\n", path=path, error=ConfigError
    )
    specs, problems = parse_criteria(source.value["agents"][0]["criteria"], source=source, at=("agents", 0, "criteria"))
    assert problems == ()
    with pytest.raises(ConfigError) as raised:
        build(specs)
    assert str(raised.value.problems[0]).startswith(f"{path}:4: response_match_score: the threshold is no score")
    specs, problems = parse_criteria({}, source=source, at=("agents", 0, "criteria"))
    assert specs == ()
    assert problems[0].message == "no criteria, so there is nothing to measure"


def unscored(specs: tuple[CriterionSpec, ...]) -> list[Problem]:
    try:
        build(specs)
    except ConfigError as error:
        return list(error.problems)
    return []
