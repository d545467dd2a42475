"""Files of other tools: one table says how each is recognised and what is said, wherever it is met."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_eval_action.config.types import EvalPattern, Origin
from agent_eval_action.config.walk import expand, walk
from agent_eval_action.diagnostics import foreign_files
from agent_eval_action.diagnostics.foreign_files import CRITERIA_FILES, EVAL_FILES, recognise_criteria_file
from agent_eval_action.diagnostics.foreign_files import recognise_eval_file as recognise
from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import load_eval_file

DATASET = {"eval_cases": [{"eval_case_id": "a", "prompt": {"role": "user", "parts": [{"text": "hi"}]}}]}
VALUES = (
    ("an agents-cli evaluation dataset", DATASET),
    ("an agents-cli evaluation dataset", {"eval_cases": [{"agent_data": {}}]}),
    ("an agents-cli evaluation dataset", {"eval_cases": [{"eval_case_id": "a"}]}),
    ("one case of an agents-cli dataset", {"eval_case_id": "a", "conversation": []}),
    (
        "a trpc-agent-go eval set (chat messages, not parts)",
        {"evalCases": [{"evalId": "a", "conversation": [{"userContent": {"content": "hi"}}]}]},
    ),
    ("one eval case without its set", {"eval_id": "a", "conversation": []}),
    ("one eval case without its set", {"evalId": "a", "conversation": []}),
    ("a conversation without its case and set", {"conversation": []}),
    ("one turn of the older list schema", {"query": "hi"}),
    ("an adk-rust prompt-optimizer case", {"input": "hi", "expected": "ho"}),
    ("a list of test cases in no schema of ADK", {"test_cases": []}),
    ("a metrics file, not an eval file", {"metrics": []}),
    ("an initial session, not an eval file", {"state": {}, "events": []}),
    ("a recorded run, not an eval file", {"events": []}),
    ("a criteria file, not an eval file", {"criteria": {}}),
)


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_a_file_that_is_not_read_is_named(tmp_path, name, value):
    found = recognise(value)
    assert found
    assert found.name == name
    path = tmp_path / "a.evalset.json"
    path.write_text(json.dumps(value))
    with pytest.raises(EvalFileError) as refused:
        load_eval_file(path, workspace=tmp_path)
    problem = refused.value.problems[0]
    assert problem.message == f"this is {name}, which is not read"
    assert problem.hint == found.hint


def test_every_entry_has_a_value_that_it_recognises():
    assert {recognise(value) for _, value in VALUES} == set(EVAL_FILES)
    values = {"metrics_to_run": []}, [{"metricName": "m"}], {"metrics": [{"metric_name": "m"}]}
    assert [recognise_criteria_file(value) for value in values] == list(CRITERIA_FILES)
    assert not any(recognise_criteria_file({"criteria": {}, **value}) for value in values if isinstance(value, dict))


@pytest.mark.parametrize("conversation", [5, True, "x", {"userContent": 1}, [5], None])
def test_a_conversation_that_is_no_list_is_nothing_foreign(tmp_path, conversation):
    value = {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": conversation}]}
    assert recognise(value) is None
    path = tmp_path / "a.evalset.json"
    path.write_text(json.dumps(value))
    with pytest.raises(EvalFileError):
        load_eval_file(path, workspace=tmp_path)


@pytest.mark.parametrize("value", [0, None, "evalCases", [], [[]], {}])
def test_a_value_without_such_keys_is_nothing_foreign(value):
    assert recognise(value) is None
    assert recognise_criteria_file(value) is None


def write_dataset(root: Path) -> Path:
    path = root / "datasets" / "basic.json"
    path.parent.mkdir()
    path.write_text(json.dumps(DATASET))
    return path


def test_the_search_for_eval_files_says_what_reading_one_says(tmp_path):
    path = write_dataset(tmp_path)
    assert walk(tmp_path).foreign == ((path, recognise(DATASET)),)
    with pytest.raises(EvalFileError) as refused:
        expand(EvalPattern("datasets", Origin(tmp_path, tmp_path)))
    problem = refused.value.problems[0]
    assert problem.message == "what is in this folder is an agents-cli evaluation dataset, which is not read"
    assert problem.hint == EVAL_FILES[0].hint


def test_a_format_whose_entry_is_deleted_is_refused_nowhere(tmp_path, monkeypatch):
    write_dataset(tmp_path)
    monkeypatch.setattr(foreign_files, "EVAL_FILES", EVAL_FILES[1:])
    assert recognise(DATASET) is None
    assert walk(tmp_path).foreign == ()
