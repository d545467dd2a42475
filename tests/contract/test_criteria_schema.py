"""What editors accept of a criterion is what the reader accepts, option by option."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import CRITERIA, build
from agent_eval_action.errors import ConfigError
from tools.config_schema import agent_eval_schema, criteria_file_schema

RUBRICS = [{"rubric_id": "polite", "rubric_content": {"text_property": "The answer is polite."}}]

ENTRIES = [
    ("tool_trajectory_avg_score", 1.0),
    ("tool_trajectory_avg_score", {"threshold": 1, "match_type": "IN_ORDER"}),
    ("tool_trajectory_avg_score", {"threshold": 1, "matchType": "ANY_ORDER"}),
    ("tool_trajectory_avg_score", {"threshold": 1, "match_typ": "IN_ORDER"}),
    ("tool_trajectory_avg_score", {"threshold": 1, "match_type": "LOOSE"}),
    ("tool_trajectory_avg_score", {"threshold": 1, "match_type": "any order"}),
    ("tool_trajectory_avg_score", {"threshold": 1, "match_type": 2}),
    ("tool_trajectory_avg_score", {"threshold": 1, "match_type": 3}),
    ("tool_trajectory_avg_score", {"threshold": 1, "_remark": "why"}),
    ("response_match_score", {"threshold": "high"}),
    ("final_response_match_v2", {"threshold": 0.8, "judge_model_options": {"num_samples": 3}}),
    ("final_response_match_v2", {"threshold": 0.8, "judge_model_options": {"numSamples": 3}}),
    ("final_response_match_v2", {"threshold": 0.8, "judge_model_options": None}),
    ("final_response_match_v2", {"threshold": 0.8, "judge_model_options": {"samples": 3}}),
    ("final_response_match_v2", {"threshold": 0.8, "judge_model_options": {"num_samples": 0}}),
    ("rubric_based_final_response_quality_v1", {"threshold": 0.8, "rubrics": RUBRICS}),
    ("rubric_based_final_response_quality_v1", {"threshold": 0.8, "rubrics": [{"rubric_id": "x"}]}),
    ("hallucinations_v1", {"threshold": 0.8, "evaluate_intermediate_nl_responses": True}),
    ("token_usage_v1", {}),
]


@functools.cache
def validators() -> tuple[Any, Any]:
    """What editors accept as a file of criteria, and as the configuration."""
    file, config = map(jsonschema.Draft202012Validator, (criteria_file_schema(), agent_eval_schema()))
    return file, config


def is_read(path: Path, entry: tuple[str, object]) -> bool:
    path.write_text(json.dumps({"criteria": dict([entry])}))
    try:
        build(load_criteria_file(path, workspace=path.parent).specs)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("entry", ENTRIES, ids=json.dumps)
def test_editor_and_reader_agree_about_an_option(entry, tmp_path):
    read = is_read(tmp_path / "test_config.json", entry)
    assert validators()[0].is_valid({"criteria": dict([entry])}) == read
    assert validators()[1].is_valid({"criteria": dict([entry])}) == read


def test_both_sides_of_the_list_above_have_entries(tmp_path):
    read = [is_read(tmp_path / "test_config.json", entry) for entry in ENTRIES]
    assert read.count(True) > 5
    assert read.count(False) > 5


@pytest.mark.parametrize("name", CRITERIA)
def test_an_editor_can_complete_every_option(name):
    """Snake case alone is proposed; each option is a property of the criterion's mapping."""
    definitions = criteria_file_schema()["$defs"]
    _, options = definitions["criteria"]["properties"][name]["anyOf"]
    properties = definitions[options["$ref"].rpartition("/")[2]]["properties"]
    assert set(properties) == set(CRITERIA[name].model_fields)


def test_a_metric_of_ones_own_is_no_mistake():
    data = {"criteria": {"tone": 0.5}, "custom_metrics": {"tone": {"code_config": {"name": "pkg.metrics.tone"}}}}
    validators()[0].validate(data)
    validators()[1].validate({"criteria": {"tone": 0.5}})


def test_the_schemas_are_schemas():
    jsonschema.Draft202012Validator.check_schema(criteria_file_schema())
