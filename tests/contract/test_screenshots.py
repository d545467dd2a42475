"""The pictures of the documentation are of the golden comments, drawn by `make screenshots`; a page shows each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.screenshots.__main__ import IMAGES, README_HEIGHT, README_IMAGE, SCENARIOS, WIDTH, source
from support.screenshots.browser import size
from support.screenshots.page import comment_page
from support.screenshots.report_page import PAGE_IMAGES

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 150_000  # bytes; a page of documentation is read over a phone as well


def test_there_is_a_picture_of_each_scenario_and_no_other() -> None:
    comments = {f"{name}.png" for name in (*SCENARIOS, README_IMAGE)}
    assert {path.name for path in IMAGES.iterdir()} == comments | set(PAGE_IMAGES)


def test_the_readme_shows_the_top_of_a_comment() -> None:
    image = IMAGES / f"{README_IMAGE}.png"
    assert size(image) == (WIDTH, README_HEIGHT)
    assert image.stat().st_size < LARGEST
    assert f"(docs/images/{README_IMAGE}.png)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_picture_is_of_a_golden_comment_and_of_sane_size(scenario: str) -> None:
    assert source(scenario) == ROOT / "tests" / "golden" / scenario / "comment.md"
    assert source(scenario).is_file()
    image = IMAGES / f"{scenario}.png"
    width, height = size(image)
    assert width == WIDTH
    assert 150 < height < 1500
    assert image.stat().st_size < LARGEST


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_picture_is_shown_with_words_for_who_cannot_see_it(scenario: str) -> None:
    shown = (ROOT / "docs" / "comment.md").read_text(encoding="utf-8")
    assert re.search(rf"!\[[^\]]{{20,}}\]\(images/{scenario}\.png\)", shown)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_page_has_what_the_site_makes_of_the_markdown(scenario: str) -> None:
    page = comment_page(source(scenario).read_text(encoding="utf-8"))
    assert page.count("<h2>") == 1
    assert "<table>" in page
    assert "<details>" in page


def test_a_diff_is_coloured() -> None:
    page = comment_page("```diff\n@@ turn 1 @@\n- a <b>\n+ c\n```\n")
    assert "<span class=range>@@ turn 1 @@</span>" in page
    assert "<span class=removed>- a &lt;b&gt;</span>\n<span class=added>+ c</span>" in page
