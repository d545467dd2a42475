"""A judge's answer is JSON of the schema or nothing: no searching in it, no guessing what it may have meant."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action.criteria.judge.base import VERDICT_SCHEMA, parsed
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
    assert parsed(text, VERDICT_SCHEMA) == ANSWER


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
        ("null", "the answer must be of type object"),
        ("[]", "the answer must be of type object"),
        (f"[{YES}]", "the answer must be of type object"),
        ('"yes"', "the answer must be of type object"),
        (said("Yes"), '`verdict` of the answer is "Yes" and must be one of yes, no'),
        (said("unknown"), '`verdict` of the answer is "unknown" and must be one of yes, no'),
        ('{"rationale": "so", "verdict": true}', "`verdict` of the answer must be of type string"),
        ('{"rationale": null, "verdict": "yes"}', "`rationale` of the answer must be of type string"),
        ('{"verdict": "yes"}', "`rationale` of the answer is missing"),
        ('{"rationale": "so"}', "`verdict` of the answer is missing"),
        ('{"rationale": "so", "verdict": "yes", "note": 1}', 'the answer must not have "note"'),
    ],
)
def test_anything_else_is_refused_and_says_what_is_wrong(text, wrong):
    with pytest.raises(ValueError, match=re.escape(wrong)):
        parsed(text, VERDICT_SCHEMA)


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
LEAVES = st.sampled_from(["a", "b", "c", 1, 1.5, True, False, None])
ROWS = st.lists(st.dictionaries(st.sampled_from(["key", "count", "more"]), LEAVES, max_size=3), max_size=3)
NEARLY = st.fixed_dictionaries({}, optional={"rows": ROWS | LEAVES, "sure": LEAVES, "share": LEAVES, "more": LEAVES})


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(NEARLY | LEAVES | ROWS)
def test_what_fits_a_schema_is_what_jsonschema_says(value):
    try:
        assert parsed(json.dumps(value), LISTED) == value
        fits = True
    except ValueError:
        fits = False
    assert fits is jsonschema.Draft202012Validator(LISTED).is_valid(value)


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_true_is_no_number(kind):
    assert parsed("1", {"type": kind}) == 1
    with pytest.raises(ValueError, match=f"must be of type {kind}"):
        parsed("true", {"type": kind})


def test_where_it_does_not_fit_is_said():
    with pytest.raises(ValueError, match="`count` of item 2 of `rows` of the answer is missing"):
        parsed('{"rows": [{"key": "a", "count": 1}, {"key": "b"}], "sure": true, "share": 1}', LISTED)


def test_a_schema_that_says_what_is_not_checked_is_a_mistake_of_ours():
    with pytest.raises(TypeError, match="maxLength"):
        parsed('"a"', {"type": "string", "maxLength": 1})


def test_an_escaped_lone_surrogate_becomes_a_replacement_character():
    answer = parsed('{"rationale": "a\\ud83d\\ude00 b\\ud83d c", "verdict": "yes"}', VERDICT_SCHEMA)
    assert answer["rationale"] == "a\U0001f600 b\ufffd c"
    assert answer["rationale"].encode()
    assert parsed('{"rationale": "\\\\ud83d", "verdict": "no"}', VERDICT_SCHEMA)["rationale"] == "\\ud83d"


def test_the_replies_the_tests_use_are_of_the_schema():
    assert parsed(said("no"), VERDICT_SCHEMA)["verdict"] == "no"
    assert len(json.loads(verdicts("yes", None, "no"))["verdicts"]) == 2
