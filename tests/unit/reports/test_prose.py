"""Numbers and names as findings show them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.reports.prose import listed, number, numbers
from agent_eval_action.results.findings import excerpt


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.00"),
        (1.0, "1.00"),
        (0.8333, "0.83"),
        (-0.25, "-0.25"),
        (0.001, "0.001"),
        (-0.0004, "-0.0004"),
        (1e-12, "1e-12"),
        (100.0, "100"),
        (1234.5, "1,234.50"),
        (2000.0, "2,000"),
        (12_345_678.0, "1.235e+07"),
    ],
)
def test_a_number_is_short_and_never_a_false_zero(value, shown):
    assert number(value) == shown


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_two_numbers_look_different_exactly_when_they_are(one, other):
    shown = numbers(one, other)
    assert (shown[0] == shown[1]) == (one == other)


@given(st.text(max_size=300), st.integers(2, 80))
def test_clipped_text_is_one_bounded_line(text, limit):
    said = excerpt(text, limit)
    assert len(said) <= limit
    assert said.splitlines() in ([said], [])


def test_a_list_says_how_many_more_there_are():
    assert (str(listed("abc", 3)), str(listed("abc", 5))) == ("a, b, c", "a, b, c and 2 more")
