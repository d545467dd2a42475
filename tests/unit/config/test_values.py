"""Every kind of value: what it takes from YAML, what from text, and what it refuses, with which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_eval_action.config.models import Mode
from agent_eval_action.config.types import (
    FILE,
    Boolean,
    Drop,
    Duration,
    Origin,
    Rise,
    Text,
    Texts,
    fraction,
    items_of,
    whole_number,
)
from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.diagnostics.validation import Issue
from support.option_values import issues, read

YAML = Origin(Path("/base"), Path("agent-eval.yaml"), 3)
SAID = Origin(Path("/base"), Path("INPUT_X"), text=True)


def refusal(kind, value, where) -> Issue:
    return issues(kind, value, where)[0]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("45m", 2700), ("90s", 90), ("1h30m", 5400), ("1h0m5s", 3605), ("0.5h", 1800), (90, 90), (1.5, 1.5)],
)
def test_a_duration_in_yaml(value, seconds):
    assert read(Duration, value, YAML) == seconds
    assert read(Duration, f" {value} ", SAID) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        "0s",
        "-5",
        "45",
        "m",
        "1m1h",
        "forever",
        "45 m",
        "9999h",
        "٣m",
        True,
        None,
        [],
        0,
        -1,
        float("nan"),
        1e300,
    ],
)
def test_a_duration_that_is_none(value):
    assert "45m, 90s, 1h30m" in refusal(Duration, value, YAML).message


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e99", "soon"])
def test_a_duration_in_text_that_is_none(text):
    assert refusal(Duration, text, SAID).value == json.dumps(text)


def test_whole_numbers_are_not_guessed_from_yaml_text_or_booleans():
    kind = whole_number(1, 10)
    assert read(kind, 3, YAML) == 3
    assert read(kind, " 3 ", SAID) == 3
    assert read(kind, 3.0, YAML) == 3, "JSON Schema has no other whole numbers"
    for value in ("3", True, 3.5, 0, 11, None, [3], float("nan"), float("inf")):
        assert refusal(kind, value, YAML).message == "must be a whole number from 1 to 10"
    for value in ("3.5", "0", "11", "true", "three", "9" * 5000):
        assert refusal(kind, value, SAID).value == shorten(value)


@pytest.mark.parametrize(
    ("value", "number"), [(0.1, 0.1), (0, 0.0), (2, 2.0), ("10%", 0.1), ("none", None), (None, None)]
)
def test_an_amount(value, number):
    assert read(Rise, value, YAML) == pytest.approx(number)


@pytest.mark.parametrize("value", [-0.1, True, "0.1", "-5%", "ten", "%", float("nan"), float("inf"), "1e3%"])
def test_an_amount_that_is_none(value):
    assert "number from 0" in refusal(Rise, value, YAML).message


def test_a_drop_is_on_the_criterions_scale_and_so_no_percentage():
    assert "0.05" in refusal(Drop, "5%", YAML).message
    assert read(Drop, "0.1", SAID) == 0.1
    assert read(Drop, "None", SAID) is None


def test_a_choice_names_the_nearest_word():
    kind = Mode
    assert read(kind, "off", YAML) == "off"
    assert read(kind, "Off", SAID) == "off"
    flaw = refusal(kind, "advisry", YAML)
    assert flaw.hint == "did you mean `advisory`?"
    assert flaw.value == '"advisry"'
    assert refusal(kind, False, YAML).message == "must be one of blocking, advisory, off"


@pytest.mark.parametrize("value", [0.4, 1.0, "0.99", True, None, float("nan")])
def test_a_fraction_is_a_number_between_its_ends(value):
    kind = fraction(0.5, 0.9999)
    assert read(kind, 0.99, YAML) == 0.99
    assert refusal(kind, value, YAML).message == "must be a number from 0.5 to 0.9999"


def test_booleans_are_booleans_in_yaml_and_words_in_text():
    assert read(Boolean, True, YAML) is True
    assert read(Boolean, " False ", SAID) is False
    for value, where in (("true", YAML), (1, YAML), ("yes", SAID), ("1", SAID)):
        assert refusal(Boolean, value, where).message == "must be true or false"


def test_text_is_not_made_of_numbers():
    flaw = refusal(Text, 3.11, YAML)
    assert (flaw.message, flaw.hint) == ("must be text", "put it in quotes")
    assert refusal(Text, "  ", YAML).message == "must not be empty"
    assert refusal(FILE, "a\0b", YAML).message == "must not hold a NUL character"


def test_paths_start_from_where_they_are_written():
    assert read(FILE, "a/b", YAML) == Path("/base/a/b")
    assert read(FILE, "/a", SAID) == Path("/a")


@pytest.mark.parametrize(
    ("text", "items"),
    [("a", ["a"]), ("a, b ,,c", ["a", "b", "c"]), ("a,b\nc\n", ["a,b", "c"]), ("a,b\n", ["a", "b"]), ("\n", [])],
)
def test_a_list_in_text_is_one_per_line_or_separated_by_commas(text, items):
    assert items_of(text, SAID) == items


def test_a_list_in_yaml_is_a_list_and_commas_are_letters():
    assert items_of("a,b", YAML) == ["a,b"]
    assert read(Texts, ["a", "b"], YAML) == ("a", "b")
    assert [(issue.at, issue.message) for issue in issues(Texts, ["a", 1, "", "b"], YAML)] == [
        ((1,), "must be text"),
        ((2,), "must not be empty"),
    ]


def test_a_huge_value_is_shown_on_one_short_line():
    shown = refusal(whole_number(1, 2), "x" * 10_000 + "\n", SAID).value
    assert shown is not None
    assert len(shown) <= 80
    assert "\n" not in shown
