"""Files of which nothing is to be said are read by a shorter way, with the same outcome; all others are looked into."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from agent_eval_action.formats import LoadedEvalFile, load_eval_file
from agent_eval_action.formats.adk import read_plain
from support import eval_files

TURN = {"user_content": {"parts": [{"text": "hello"}]}, "intermediate_data": {"tool_uses": [{"name": "roll"}]}}
CASE = {"eval_id": "first", "conversation": [TURN]}
SCENARIO = {"eval_id": "first", "conversation_scenario": {"starting_prompt": "hi", "conversation_plan": "ask"}}


def text_of(*cases: object, **root: object) -> str:
    return json.dumps({"eval_set_id": "set", "eval_cases": cases, **root}, indent=1)


def looked_into(text: str, tmp_path) -> LoadedEvalFile:
    """What is made of the same value the longer way."""
    path = tmp_path / "x.evalset.json"
    path.write_text(text.replace('"eval_cases"', '"eval_c\\u0061ses"'))
    return load_eval_file(path, workspace=tmp_path)


@settings(max_examples=300, deadline=None)
@given(value=eval_files.damaged(eval_files.SAMPLE_PLAIN))
def test_the_shorter_way_leads_to_the_same_set(value, tmp_path_factory):
    text = eval_files.text_of(value)
    plain = read_plain(text)
    if plain is not None:
        loaded = looked_into(text, tmp_path_factory.getbasetemp())
        assert loaded.eval_set == plain
        assert [case.line for case in loaded.eval_set.eval_cases] == [case.line for case in plain.eval_cases]
        assert (loaded.format, loaded.warnings) == ("adk", ())


@pytest.mark.parametrize(
    "text",
    [
        eval_files.text_of(eval_files.SAMPLE_PLAIN),
        text_of(CASE, {**CASE, "eval_id": "second", "creationTimestamp": 1.5}),
        text_of(SCENARIO, name="a name", description='"eval_cases": [ ] }'),
        json.dumps({"eval_cases": [CASE], "eval_set_id": "set"}),
        text_of({**CASE, "session_input": {"app_name": "a", "user_id": "u", "state": {"a": {"a": [1]}}}}),
    ],
)
def test_what_is_in_order_is_read_the_shorter_way(text, tmp_path):
    plain, loaded = read_plain(text), looked_into(text, tmp_path)
    assert plain == loaded.eval_set
    assert [case.line for case in plain.eval_cases] == [case.line for case in loaded.eval_set.eval_cases]


@pytest.mark.parametrize(
    "text",
    [
        text_of(),
        text_of(CASE, CASE),
        text_of({**CASE, "eval_id": " "}),
        text_of({**CASE, "eval_id": "a\u200bb"}),
        text_of({**CASE, "conversation": []}),
        text_of({**CASE, **SCENARIO}),
        text_of({"eval_id": "neither"}),
        text_of({**CASE, "rubrix": []}),
        text_of({**CASE, "evalId": "again"}),
        text_of({**CASE, "conversation": [{**TURN, "user_content": {"parts": [{"inline_data": {"nonsense": 1}}]}}]}),
        text_of({**CASE, "conversation": [{**TURN, "user_content": {"parts": [{"inlineData": {"nonsense": 1}}]}}]}),
        text_of({**CASE, "conversation": [TURN] * 10_001}),
        text_of({"eval_id": "x", "conversation_scenario": {**SCENARIO["conversation_scenario"], "user_persona": "XP"}}),
        text_of(CASE, eval_sets=[]),
        text_of(CASE) + " {}",
        text_of(CASE).replace('"eval_id"', '"eval_id": "second", "eval_id"'),
        text_of(CASE).replace('"eval_set_id"', '"eval_set_id": "second", "eval_set_id"'),
        text_of(CASE).replace('"eval_set_id"', '"eval_cases": [], "eval_set_id"'),
        text_of(CASE).replace('"roll"', '"roll", "\\u0069nlineData": null'),
        text_of(CASE).replace('"roll"', '"roll", "args": {"a": 1, "a": 2}'),
        text_of(CASE).replace("hello", "\\ud800"),
        text_of({**CASE, "final_session_state": {"n": "N"}}).replace('"N"', "1" * 5_000),
        text_of({**CASE, "final_session_state": {"n": "N"}}).replace('"N"', "[" * 900 + "]" * 900),
        text_of(CASE)[:-40],
        text_of(CASE).replace("[", "[,", 1),
    ],
)
def test_what_something_is_to_be_said_of_is_looked_into(text):
    assert read_plain(text) is None
