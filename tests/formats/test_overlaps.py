"""Where the shapes of the schemas overlap: keys of one in a file of another, as google-adk 2.13 takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.formats import LoadedEvalFile, load_eval_file

TURN: dict[str, Any] = {"query": "q", "expected_tool_use": []}


def load(tmp_path: Path, value: Any) -> LoadedEvalFile:
    path = tmp_path / "x.evalset.json"
    path.write_text(json.dumps(value))
    return load_eval_file(path, workspace=tmp_path)


@pytest.mark.parametrize("extra", ["data", "name"])
def test_keys_of_the_other_list_schema_beside_a_query_are_ignored_as_in_adk(tmp_path, adk_loaders, extra):
    value = [{**TURN, extra: 5}, TURN]
    loaded = load(tmp_path, value)
    assert len(loaded.eval_set.eval_cases[0].turns) == 2
    assert adk_loaders.loaded(tmp_path / "x.evalset.json")


@pytest.mark.parametrize("extra", ["prompt", "agent_data", "eval_case_id"])
def test_keys_of_other_tools_beside_an_eval_id_are_kept_as_in_adk(tmp_path, adk_loaders, extra):
    loaded = load(tmp_path, {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": [], extra: 5}]})
    assert loaded.eval_set.eval_cases[0].model_extra == {extra: 5}
    assert adk_loaders.loaded(tmp_path / "x.evalset.json")


def test_unknown_keys_of_personas_are_ignored_as_in_adk(tmp_path, adk_loaders):
    behavior = {"name": "n", "description": "d", "behavior_instructions": [], "violation_rubrics": [], "x": 1}
    persona = {"id": "me", "description": "d", "behaviors": [behavior], "x": 1}
    scenario = {"starting_prompt": "s", "conversation_plan": "p", "user_persona": persona}
    value = {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation_scenario": scenario}]}
    assert load(tmp_path, value).eval_set.eval_cases
    assert adk_loaders.loaded(tmp_path / "x.evalset.json")


def test_a_null_beside_the_other_spelling_of_a_part_is_absent_as_in_adk(tmp_path, adk_loaders):
    call = {"name": "f"}
    for part in ({"functionCall": call, "function_call": None}, {"functionCall": None, "function_call": None}):
        turn = {"user_content": {"parts": [part]}}
        loaded = load(tmp_path, {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": [turn]}]})
        assert adk_loaders.loaded(tmp_path / "x.evalset.json")
        found = loaded.eval_set.eval_cases[0].turns[0].user_content.parts[0].function_call
        assert (found.name if found else None) == ("f" if part["functionCall"] else None)
