"""`make screenshots`: docs/images/ from the golden comments."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .browser import NoBrowserError, find, picture
from .page import comment_page
from .smaller import shrink

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden"
IMAGES = ROOT / "docs" / "images"
SCENARIOS = ("passed", "regressed", "inconclusive")
WIDTH = 900  # px; what a comment has of a pull request's page, with its avatar


def source(scenario: str) -> Path:
    """The comment a picture shows."""
    return GOLDEN / scenario / "comment.md"


def draw(scenario: str, image: Path, browser: str) -> None:
    """The picture of one scenario's comment."""
    page = comment_page(source(scenario).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "comment.html"
        path.write_text(page, encoding="utf-8")
        picture(browser, path, image, WIDTH)
    shrink(image)


def main() -> None:
    try:
        browser = find()
    except NoBrowserError as error:
        sys.exit(f"make screenshots: {error}")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS:
        image = IMAGES / f"{scenario}.png"
        draw(scenario, image, browser)
        sys.stdout.write(f"{image.relative_to(ROOT)}: {image.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
