"""Names and lists as findings show them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.reports.formatting import listed
from agent_eval_action.results.findings import excerpt


@given(st.text(max_size=300), st.integers(2, 80))
def test_clipped_text_is_one_bounded_line(text, limit):
    said = excerpt(text, limit)
    assert len(said) <= limit
    assert said.splitlines() in ([said], [])


def test_a_list_says_how_many_more_there_are():
    assert (str(listed("abc", 3)), str(listed("abc", 5))) == ("a, b, c", "a, b, c and 2 more")
