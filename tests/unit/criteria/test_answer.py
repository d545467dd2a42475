"""A judge's answer is JSON of the schema or nothing: no searching in it, no guessing what it may have meant."""

from __future__ import annotations

import json
import re
from typing import Literal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import create_model

from agent_eval_action.criteria.judge import Answer, VerdictAnswer, parse_answer, schema_of
from support.judging import said, verdicts

ANSWER = {"rationale": "so", "verdict": "yes"}
YES = json.dumps(ANSWER)


@pytest.mark.parametrize(
    "text",
    [
        YES,
        f"  {YES}\n",
        f"```json\n{YES}\n```",
        f"\n```JSON\r\n{YES}\r\n```\n",
        f"```\n{YES}```",
        json.dumps(ANSWER, indent=4),
    ],
)
def test_json_is_read_with_or_without_a_code_block(text):
    assert parse_answer(text, VerdictAnswer).model_dump() == ANSWER


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "it is not JSON"),
        ("yes", "it is not JSON"),
        (f"The verdict is {YES}", "it is not JSON"),
        (f"{YES} I am sure.", "it is not JSON"),
        (f"{YES}\n{said('no')}", "it is not JSON"),
        (f"Here:\n```json\n{YES}\n```", "it is not JSON"),
        (f"```json\n{YES}\n```\n```json\n{said('no')}\n```", "it is not JSON"),
        (f"```python\n{YES}\n```", "it is not JSON"),
        (YES[:-1], "it is not JSON"),
        (YES.replace('"yes"', "yes"), "it is not JSON"),
        ('{"rationale": "so", "verdict": "no", "verdict": "yes"}', "a key is there twice"),
        ('{"rationale": NaN, "verdict": "yes"}', "NaN is no JSON number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"rationale": 1' + "0" * 5_000 + "}", "integer"),
        ("null", "the answer: "),
        ("[]", "the answer: "),
        (f"[{YES}]", "the answer: "),
        ('"yes"', "the answer: "),
        (said("Yes"), "`verdict`: Input should be 'yes' or 'no', and is \"Yes\""),
        (said("unknown"), "`verdict`: Input should be 'yes' or 'no', and is \"unknown\""),
        ('{"rationale": "so", "verdict": true}', "`verdict`: Input should be 'yes' or 'no', and is true"),
        ('{"rationale": null, "verdict": "yes"}', "`rationale`: Input should be a valid string, and is null"),
        ('{"verdict": "yes"}', "`rationale`: Field required"),
        ('{"rationale": "so"}', "`verdict`: Field required"),
        ('{"rationale": "so", "verdict": "yes", "note": 1}', "`note`: Extra inputs are not permitted"),
    ],
)
def test_anything_else_is_refused_and_says_what_is_wrong(text, wrong):
    with pytest.raises(ValueError, match=re.escape(wrong)):
        parse_answer(text, VerdictAnswer)


class Row(Answer):
    key: Literal["a", "b"]
    count: int


class Listed(Answer):
    """Rows, and what is said of them."""

    rows: list[Row]
    sure: bool
    share: float


LISTED = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"key": {"type": "string", "enum": ["a", "b"]}, "count": {"type": "integer"}},
                "required": ["key", "count"],
                "additionalProperties": False,
            },
        },
        "sure": {"type": "boolean"},
        "share": {"type": "number"},
    },
    "required": ["rows", "sure", "share"],
    "additionalProperties": False,
}


def test_the_schema_of_a_shape_has_what_gemini_and_openai_both_take():
    assert schema_of(Listed) == LISTED
    verdict = {
        "type": "object",
        "properties": {
            "rationale": {"type": "string", "description": "Why, in one or two sentences."},
            "verdict": {"type": "string", "enum": ["yes", "no"]},
        },
        "required": ["rationale", "verdict"],
        "additionalProperties": False,
    }
    assert schema_of(VerdictAnswer) == verdict
    assert list(schema_of(VerdictAnswer)["properties"]) == ["rationale", "verdict"], (
        "the verdict follows from the rationale"
    )


LEAVES = st.sampled_from(["a", "b", "c", 1, 1.5, True, False, None])
ROWS = st.lists(st.dictionaries(st.sampled_from(["key", "count", "more"]), LEAVES, max_size=3), max_size=3)
NEARLY = st.fixed_dictionaries({}, optional={"rows": ROWS | LEAVES, "sure": LEAVES, "share": LEAVES, "more": LEAVES})


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(NEARLY | LEAVES | ROWS)
def test_what_fits_a_schema_is_what_jsonschema_says(value):
    try:
        assert parse_answer(json.dumps(value), Listed).model_dump() == value
        fits = True
    except ValueError:
        fits = False
    assert fits is jsonschema.Draft202012Validator(LISTED).is_valid(value)


def test_true_is_no_number():
    for kind in (int, float):
        shape = create_model("Shape", __base__=Answer, value=(kind, ...))
        assert parse_answer('{"value": 1}', shape).value == 1
        with pytest.raises(ValueError, match="is true"):
            parse_answer('{"value": true}', shape)


def test_a_note_says_what_did_not_fit():
    with pytest.raises(ValueError, match=r"`rows\.2\.count`: Field required"):
        parse_answer('{"rows": [{"key": "a", "count": 1}, {"key": "b"}], "sure": true, "share": 1}', Listed)


def test_an_escaped_lone_surrogate_becomes_a_replacement_character():
    answer = parse_answer('{"rationale": "a\\ud83d\\ude00 b\\ud83d c", "verdict": "yes"}', VerdictAnswer)
    assert answer.rationale == "a\U0001f600 b\ufffd c"
    assert answer.rationale.encode()
    assert parse_answer('{"rationale": "\\\\ud83d", "verdict": "no"}', VerdictAnswer).rationale == "\\ud83d"


def test_the_replies_the_tests_use_are_of_the_schema():
    assert parse_answer(said("no"), VerdictAnswer).verdict == "no"
    assert len(json.loads(verdicts("yes", None, "no"))["verdicts"]) == 2
