"""Who gets how much of the comment, and how a section that is already there is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.github.room import shares, shortened

BLOCKS = (
    "> [!CAUTION]\n> **Blocked:** why",
    "| a | b |\n| - | - |\n| 1 | 2 |",
    "<details open>\n<summary>one</summary>\n\n```text\n</details>\n\n</details>\n\n````\n```\n\n</details>",
    "#### next",
    "<details>\n<summary>two</summary>\n\n<details>\n<summary>inner</summary>\n\n</details>\n\nrest\n\n</details>",
    "<sub>foot</sub>",
)
TEXT = "\n\n".join(BLOCKS)


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 100_000), max_size=20), st.integers(-10, 200_000))
def test_nobody_gets_more_than_wanted_and_all_together_no_more_than_there_is(wanted, room):
    given_ = shares(wanted, room)
    assert given_.keys() == wanted.keys()
    assert all(0 <= given_[key] <= size for key, size in wanted.items())
    assert sum(given_.values()) <= max(room, 0)
    if sum(wanted.values()) <= room:
        assert given_ == wanted


def test_small_sections_are_whole_and_large_ones_share_the_rest():
    assert shares({"small": 100, "large": 90_000, "huge": 500_000}, 60_100) == {
        "small": 100,
        "large": 30_000,
        "huge": 30_000,
    }


def test_what_fits_stays_as_it_is():
    assert shortened(TEXT, len(TEXT.encode())) == TEXT


def test_details_go_first_from_the_last_on_and_the_top_stays():
    cut = shortened(TEXT, len(TEXT.encode()) - 1)
    assert "two" not in cut
    assert "one" in cut
    assert "foot" in cut
    assert "Shortened" in cut
    least = shortened(TEXT, 150)
    assert least.startswith("> [!CAUTION]\n> **Blocked:** why\n\n")
    assert "| a |" not in least


@given(st.integers(0, 700))
def test_a_cut_text_keeps_its_room_and_closes_what_it_opens(room):
    cut = shortened(TEXT, room)
    assert len(cut.encode()) <= room
    assert ("````" in cut) == ("summary>one" in cut)
    if "one" in cut:
        # the code block is whole: what looks like a tag in it is none
        assert "```text\n</details>\n\n</details>\n\n````\n```\n\n</details>" in cut
    if "two" in cut:
        assert "inner</summary>\n\n</details>\n\nrest\n\n</details>" in cut


def test_a_text_that_was_cut_before_is_not_told_so_twice():
    once = shortened(TEXT, 400)
    assert shortened(once, 300).count("Shortened") <= 1
