"""Edits of JSON text: what is not changed stays byte for byte, what is new is written like its neighbours."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.capture.case_editors import edit_json, same_json

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4)
)
LAYOUTS = st.sampled_from(
    [{"indent": None}, {"indent": 2}, {"indent": "\t"}, {"indent": None, "separators": (",", ":")}]
)


@given(old=VALUES, new=VALUES, layout=LAYOUTS, ascii_only=st.booleans(), crlf=st.booleans())
def test_any_text_becomes_any_value(old: Any, new: Any, layout: dict[str, Any], ascii_only: bool, crlf: bool) -> None:
    text = json.dumps(old, ensure_ascii=ascii_only, **layout)
    text = text.replace("\n", "\r\n") if crlf else text
    assert edit_json(text, old) == text
    assert same_json(json.loads(edit_json(text, new)), new)


TEXT = """\
{
    "name" : "caf\\u00e9",
    "calls": [
        {"tool": "a", "args": {}},
        {"tool": "b", "args": {"n": 1.0}}
    ],

    "empty": [],
    "answer": {
        "text": "yes"
    }
}
"""


def edited(change: Any) -> str:
    value = json.loads(TEXT)
    change(value)
    return edit_json(TEXT, value)


def test_a_new_item_stands_as_its_neighbours_do() -> None:
    made = edited(lambda value: value["calls"].append({"tool": "c", "args": {"x": "ü"}}))
    line = '        {"tool": "b", "args": {"n": 1.0}}'
    assert made == TEXT.replace(line, line + ',\n        {"tool" : "c", "args" : {"x" : "\\u00fc"}}')


def test_removed_members_leave_no_comma_and_no_line() -> None:
    made = edited(lambda value: [value.pop("name"), value["calls"].pop(0)])
    kept = TEXT.replace('    "name" : "caf\\u00e9",\n', "").replace('        {"tool": "a", "args": {}},\n', "")
    assert made == kept


def test_an_empty_list_is_opened_and_a_key_follows_the_one_before_it() -> None:
    def change(value: Any) -> None:
        value["empty"] = [1]
        value["answer"] = {"role": "model", **value["answer"], "more": {"a": []}}

    assert edited(change) == TEXT.replace('"empty": []', '"empty": [\n        1\n    ]').replace(
        '        "text": "yes"\n',
        '        "role" : "model",\n        "text": "yes",\n        "more" : {\n            "a" : []\n        }\n',
    )


def test_of_a_key_that_is_written_twice_the_last_one_is_changed() -> None:
    text = '{"a": 1, "b": 2, "a": 3}'
    assert edit_json(text, {"a": 4, "b": 2}) == '{"a": 1, "b": 2, "a": 4}'
    assert edit_json(text, {"b": 2}) == '{"b": 2}'


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0, False), ([1], [True]), ({"a": None}, {})])
def test_values_that_python_takes_for_equal_are_told_apart(one: Any, other: Any) -> None:
    assert not same_json(one, other)
    text = json.dumps({"x": one})
    assert edit_json(text, {"x": other}) == json.dumps({"x": other})


def test_a_value_of_a_deep_file_is_changed_alone() -> None:
    value: Any = {"leaf": 1}
    for _ in range(150):
        value = [value]
    text, new = json.dumps(value, indent=1), copy.deepcopy(value)
    inner = new
    while isinstance(inner, list):
        inner = inner[0]
    inner["leaf"] = 2
    assert edit_json(text, new) == text.replace('"leaf": 1', '"leaf": 2')
