"""Every kind of value: what it takes from YAML, what from text, and what it refuses, with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.config.types import (
    BOOLEAN,
    DURATION,
    PATH,
    TEXT,
    TEXTS,
    Flaw,
    Refused,
    Where,
    amount,
    choice,
    fraction,
    integer,
    items_of,
)

YAML = Where(Path("/base"), Path("agent-eval.yaml"), 3)
SAID = Where(Path("/base"), Path("INPUT_X"), text=True)


def refusal(kind, value, where) -> Flaw:
    with pytest.raises(Refused) as caught:
        kind.read(value, where)
    return caught.value.flaws[0]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("45m", 2700), ("90s", 90), ("1h30m", 5400), ("1h0m5s", 3605), ("0.5h", 1800), (90, 90), (1.5, 1.5)],
)
def test_a_duration_in_yaml(value, seconds):
    assert DURATION.read(value, YAML) == seconds
    assert DURATION.read(f" {value} ", SAID) == seconds


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
    assert "45m, 90s, 1h30m" in refusal(DURATION, value, YAML).message


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e99", "soon"])
def test_a_duration_in_text_that_is_none(text):
    assert refusal(DURATION, text, SAID).value == text


def test_whole_numbers_are_not_guessed_from_yaml_text_or_booleans():
    kind = integer(1, 10)
    assert kind.read(3, YAML) == 3
    assert kind.read(" 3 ", SAID) == 3
    assert kind.read(3.0, YAML) == 3, "JSON Schema has no other whole numbers"
    for value in ("3", True, 3.5, 0, 11, None, [3], float("nan"), float("inf")):
        assert refusal(kind, value, YAML).message == "must be a whole number from 1 to 10"
    for value in ("3.5", "0", "11", "true", "three", "9" * 5000):
        assert refusal(kind, value, SAID).value == value


@pytest.mark.parametrize(
    ("value", "read"), [(0.1, 0.1), (0, 0.0), (2, 2.0), ("10%", 0.1), ("none", None), (None, None)]
)
def test_an_amount(value, read):
    assert amount(percent=True).read(value, YAML) == pytest.approx(read)


@pytest.mark.parametrize("value", [-0.1, True, "0.1", "-5%", "ten", "%", float("nan"), float("inf"), "1e3%"])
def test_an_amount_that_is_none(value):
    assert "number from 0" in refusal(amount(percent=True), value, YAML).message


def test_a_drop_is_on_the_criterions_scale_and_so_no_percentage():
    assert "0.05" in refusal(amount(percent=False), "5%", YAML).message
    assert amount(percent=False).read("0.1", SAID) == 0.1
    assert amount(percent=False).read("None", SAID) is None


def test_a_choice_names_the_nearest_word():
    kind = choice("blocking", "advisory", "off")
    assert kind.read("off", YAML) == "off"
    assert kind.read("Off", SAID) == "off"
    flaw = refusal(kind, "advisry", YAML)
    assert flaw.hint == "did you mean `advisory`?"
    assert flaw.shown == '"advisry"'
    assert refusal(kind, False, YAML).message == "must be one of blocking, advisory, off"


@pytest.mark.parametrize("value", [0.4, 1.0, "0.99", True, None, float("nan")])
def test_a_fraction_is_a_number_between_its_ends(value):
    kind = fraction(0.5, 0.9999)
    assert kind.read(0.99, YAML) == 0.99
    assert refusal(kind, value, YAML).message == "must be a number from 0.5 to 0.9999"


def test_booleans_are_booleans_in_yaml_and_words_in_text():
    assert BOOLEAN.read(True, YAML) is True
    assert BOOLEAN.read(" False ", SAID) is False
    for value, where in (("true", YAML), (1, YAML), ("yes", SAID), ("1", SAID)):
        assert refusal(BOOLEAN, value, where).message == "must be true or false"


def test_text_is_not_made_of_numbers():
    flaw = refusal(TEXT, 3.11, YAML)
    assert (flaw.message, flaw.hint) == ("must be text", "put it in quotes")
    assert refusal(TEXT, "  ", YAML).message == "must not be empty"
    assert refusal(PATH, "a\0b", YAML).message == "must not hold a NUL character"


def test_paths_start_from_where_they_are_written():
    assert PATH.read("a/b", YAML) == Path("/base/a/b")
    assert PATH.read("/a", SAID) == Path("/a")


@pytest.mark.parametrize(
    ("text", "items"),
    [("a", ["a"]), ("a, b ,,c", ["a", "b", "c"]), ("a,b\nc\n", ["a,b", "c"]), ("a,b\n", ["a", "b"]), ("\n", [])],
)
def test_a_list_in_text_is_one_per_line_or_separated_by_commas(text, items):
    assert items_of(text, SAID) == items


def test_a_list_in_yaml_is_a_list_and_commas_are_letters():
    assert items_of("a,b", YAML) == ["a,b"]
    assert TEXTS.read(["a", "b"], YAML) == ("a", "b")
    with pytest.raises(Refused) as caught:
        TEXTS.read(["a", 1, "", "b"], YAML)
    assert [(flaw.at, flaw.message) for flaw in caught.value.flaws] == [
        ((1,), "must be text"),
        ((2,), "must not be empty"),
    ]


def test_a_huge_value_is_shown_on_one_short_line():
    shown = refusal(integer(1, 2), "x" * 10_000 + "\n", SAID).shown
    assert shown is not None
    assert len(shown) <= 80
    assert "\n" not in shown
