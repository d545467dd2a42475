"""What draws, hides or breaks never reaches a report, whatever its format."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.reports.formatting import clean


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x1b\\", "red link"),
        ("\x9b1mbold\x1b(B\x1bc", "bold"),
        ("a\x00b\x07c\x7fd\x9fe", "abcde"),
        ("a\tb\r\nc\rd\x85e\u2028f", "a b c d e f"),
        ("\ud800\ufffe\U0001ffff\ufdd0", "\ufffd\ufffd\ufffd\ufffd"),
        ("\u202eabc\u2066\u200b\u00ad\U000e0041", "\\u202eabc\\u2066\\u200b\\u00ad\\ue0041"),
        ("👩‍💻 कर्‍म naïve 日本語 العربية", "👩‍💻 कर्‍म naïve 日本語 العربية"),
        ("  many   blanks  ", "many blanks"),
        ("", ""),
    ],
)
def test_unprintable_text_is_cleaned(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_lines_and_indentation_can_be_kept() -> None:
    assert clean("def f():\r\n    return\r\n\tx", lines=True) == "def f():\n    return\n    x"


@given(st.text(st.characters()), st.integers(1, 50), st.booleans())
def test_nothing_unprintable_is_left_and_the_limit_holds(text: str, limit: int, lines: bool) -> None:
    cleaned = clean(text, limit, lines=lines)
    assert len(cleaned) <= limit
    kept = {"\u200d", "\u200c", *("\n" if lines else "")}
    assert not [c for c in cleaned if c not in kept and unicodedata.category(c) in {"Cc", "Cs", "Cf", "Co"}]
    cleaned.encode()


@given(st.text(st.characters()))
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


def test_a_text_of_megabytes_is_cut_before_it_is_walked() -> None:
    assert clean("\x1b" * 50_000_000, 10) == "…"
    assert clean("x" * 50_000_000, 10) == "xxxxxxxxx…"
