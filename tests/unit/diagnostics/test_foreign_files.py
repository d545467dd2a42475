"""Files of other tools: one table says how each is recognised and what is said, wherever it is met."""

from __future__ import annotations

import json

import pytest

from agent_eval_action.diagnostics.foreign_files import EVAL_FILES, TRPC_METRICS, is_trpc_metrics
from agent_eval_action.diagnostics.foreign_files import recognise_eval_file as recognise
from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import load_eval_file

VALUES = (
    ("one case of an agents-cli dataset", {"eval_case_id": "a", "conversation": []}),
    ("one eval case without its set", {"eval_id": "a", "conversation": []}),
    ("one eval case without its set", {"evalId": "a", "conversation": []}),
    ("a conversation without its case and set", {"conversation": []}),
    ("one turn of the older list schema", {"query": "hi"}),
    ("an adk-rust prompt-optimizer case", {"input": "hi", "expected": "ho"}),
    ("a list of test cases in no schema of ADK", {"test_cases": []}),
    ("a metrics file, not an eval file", {"metrics": []}),
    ("an initial session, not an eval file", {"state": {}, "events": []}),
    ("a criteria file, not an eval file", {"criteria": {}}),
    ("a metrics file of trpc-agent, not an eval file", [{"metricName": "m"}]),
    ("a metrics file of trpc-agent, not an eval file", {"metrics": [{"metric_name": "m"}]}),
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
    assert {recognise(value) for _, value in VALUES} == {*EVAL_FILES, TRPC_METRICS}
    assert not is_trpc_metrics({"criteria": {}, "metrics": [{"metric_name": "m"}]})


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


def test_a_key_of_a_megabyte_takes_no_time(tmp_path):
    path = tmp_path / "a.evalset.json"
    case = {"eval_id": "a", "evalMode": "trace", "A" * (1 << 20): 1, "conversation": []}
    path.write_text(json.dumps({"eval_set_id": "s", "eval_cases": [case], "B" * (1 << 20): 1}))
    assert load_eval_file(path, workspace=tmp_path).format == "trpc"
