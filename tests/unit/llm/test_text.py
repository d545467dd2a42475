"""What is sent is Unicode; what is shown of a stranger's words is one clean line without secrets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.llm.client import quoted, sendable, sendable_json
from agent_eval_action.llm.providers.base import retry_after, status_error
from agent_eval_action.llm.providers.google import duration

ANYTHING = st.text(st.characters())  # lone surrogates too


@given(ANYTHING)
def test_what_is_sent_encodes_and_whole_text_is_left_alone(text):
    sent = sendable(text)
    sent.encode()
    assert sent == text or any("\ud800" <= letter <= "\udfff" for letter in text)


def test_pairs_are_joined_and_halves_replaced():
    assert sendable("\ud83d\ude00 \ud83d \ude00") == "\U0001f600 \ufffd \ufffd"


def test_json_is_sent_by_the_same_rule():
    value = {"\ud800": ["\udfff", ("a", 1, None, True, 1.5)]}
    assert sendable_json(value) == {"\ufffd": ["\ufffd", ["a", 1, None, True, 1.5]]}
    json.dumps(sendable_json(value), ensure_ascii=False).encode()


@given(ANYTHING, st.integers(2, 400))
def test_what_is_quoted_is_one_printable_line_of_bounded_length(text, limit):
    line = quoted(text, limit=limit)
    assert len(line) <= limit
    assert line.isprintable()


SECRETS = [
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "ya29.a0AfB_byC-abcdefghijklmnopqrstuvwxyz",
    "sk-proj-abcdefghijkl",
    "sk-abc***********wxyz",
    "Bearer abcdef",
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.c2ln",
    "ghp_abcdefghijklmnopqrstuvwxyz",
    "x-goog-api-key: 12345678",
    '"api_key": "12345678"',
    "https://host/v1?key=12345678&alt=json",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_are_not_quoted(secret):
    line = quoted(f"the server said {secret} and more")
    assert "***" in line
    assert not any(word in line for word in ("12345678", "abcdef", "AIza", "eyJ"))
    assert line.startswith("the server said")
    assert line.endswith("more")


def test_given_secrets_are_not_quoted_wherever_they_stand():
    assert quoted("key=<hunter2hunter2>", ["hunter2hunter2"]) == "key=<***>"
    assert quoted("a short word", ["word"]) == "a short word"  # too short to tell from a word


@pytest.mark.parametrize(
    "words",
    ["the model is overloaded", "API key not valid. Please pass a valid API key.", "unknown field risk-free-ratio"],
)
def test_plain_words_are_left_alone(words):
    assert quoted(words) == words


def test_an_escape_sequence_leaves_no_trace():
    assert quoted("\x1b[31mred\x1b[0m\r\n::error::\u202e\x07x") == "red ::error:: x"


def test_what_is_no_text_says_nothing():
    assert quoted(None) == quoted({"a": 1}) == ""


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"Retry-After": "9", "retry-after-ms": "250"}, 0.25),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "1e999"}, None),
        ({"Retry-After": "later"}, None),
        ({}, None),
    ],
)
def test_when_a_server_wants_us_back(headers, seconds):
    assert retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("1.5s", 1.5), ("30s", 30.0), ("s", None), ("-1s", None), ("1m", None), (None, None), (3, None)],
)
def test_googles_durations(said, seconds):
    assert duration(said) == seconds


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, "refused"),
        (400, "refused"),
        (408, "timeout"),
        (409, "unavailable"),
        (429, "rate_limited"),
        (499, "unavailable"),
        (500, "unavailable"),
        (504, "timeout"),
        (529, "unavailable"),
    ],
)
def test_kinds_of_statuses(status, kind):
    assert status_error("it", status, "", {}).kind == kind
