"""A real Chromium draws a comment; a machine without one is told what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.screenshots.__main__ import WIDTH, draw
from support.screenshots.browser import NoBrowserError, find, size
from support.screenshots.report_page import PAGE_IMAGES, draw_page


def test_where_there_is_no_chromium_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBrowserError, match="no Chromium: install one; looked on PATH for chromium, "):
        find()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_comment_is_drawn_as_high_as_it_is_and_small(tmp_path: Path) -> None:
    try:
        browser = find()
    except NoBrowserError as error:
        pytest.skip(f"NOT TESTED in a browser: {error}")
    drawn = {name: tmp_path / f"{name}.png" for name in ("passed", "regressed")}
    for name, image in drawn.items():
        draw(name, image, browser)
    (width, short), (same, tall) = size(drawn["passed"]), size(drawn["regressed"])
    assert width == same == WIDTH
    assert 150 < short < tall < 1500
    # an empty page of that height packs into a tenth of this
    assert all(5_000 < image.stat().st_size < 150_000 for image in drawn.values())
    assert drawn["passed"].read_bytes()[25] == 3, "colours by index, or the pictures treble"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_page_is_drawn_in_both_themes(tmp_path: Path) -> None:
    try:
        images = draw_page(tmp_path, find())
    except NoBrowserError as error:
        pytest.skip(f"NOT TESTED in a browser: {error}")
    assert tuple(image.name for image in images) == PAGE_IMAGES
    assert {size(image) for image in images} == {(1200, 900)}
    assert len({image.read_bytes() for image in images}) == 4
