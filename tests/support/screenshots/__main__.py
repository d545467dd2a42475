"""`make screenshots`: docs/images/ from the golden comments and pages."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .browser import TALLEST, NoBrowserError, find, picture
from .page import comment_page
from .report_page import draw_page
from .smaller import shrink

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden"
IMAGES = ROOT / "docs" / "images"
SCENARIOS = ("passed", "regressed", "inconclusive")
README_IMAGE = "regressed-top"
README_HEIGHT = 585  # px: heading, reason, table and the first difference
WIDTH = 900  # px; what a comment has of a pull request's page, with its avatar


def source(scenario: str) -> Path:
    """The comment a picture shows."""
    return GOLDEN / scenario / "comment.md"


def draw(scenario: str, image: Path, browser: str, highest: int = TALLEST) -> None:
    """The picture of one scenario's comment."""
    page = comment_page(source(scenario).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "comment.html"
        path.write_text(page, encoding="utf-8")
        picture(browser, path, image, WIDTH, highest=highest)
    shrink(image)


def main() -> None:
    try:
        browser = find()
    except NoBrowserError as error:
        sys.exit(f"make screenshots: {error}")
    IMAGES.mkdir(parents=True, exist_ok=True)
    pictures = {name: (name, TALLEST) for name in SCENARIOS} | {README_IMAGE: ("regressed", README_HEIGHT)}
    for name, (scenario, highest) in pictures.items():
        image = IMAGES / f"{name}.png"
        draw(scenario, image, browser, highest)
        sys.stdout.write(f"{image.relative_to(ROOT)}: {image.stat().st_size:,} bytes\n")
    for image in draw_page(IMAGES, browser):
        sys.stdout.write(f"{image.relative_to(ROOT)}: {image.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
