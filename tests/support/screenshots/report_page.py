"""Pictures of report.html: views of a golden result, in both themes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import sync_playwright

from agent_eval_action.reports import REPORTS
from support.report_pages import case_link, recorded, report

from .smaller import shrink

WIDTH, HIGHEST = 1200, 900  # px
VIEWS: Final = {"report-overview": "#/", "report-case": case_link("dice", "basics", "roll_then_prime")}
THEMES: Final[dict[Literal["light", "dark"], str]] = {"light": "", "dark": "-dark"}
PAGE_IMAGES: Final = tuple(f"{name}{suffix}.png" for suffix in THEMES.values() for name in VIEWS)


def draw_page(folder: Path, browser: str) -> list[Path]:
    """Draw every view in every theme into ``folder``; a dark one has ``-dark`` in its name."""
    images = []
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page = Path(scratch) / "report.html"
        page.write_text(REPORTS["html"](recorded(report("regressed"), Path(scratch)), None), encoding="utf-8")
        started = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-lcd-text"])
        for theme, suffix in THEMES.items():
            context = started.new_context(viewport={"width": WIDTH, "height": HIGHEST}, color_scheme=theme)
            for name, view in VIEWS.items():
                opened = context.new_page()
                opened.goto(page.as_uri() + view)
                image = folder / f"{name}{suffix}.png"
                opened.screenshot(path=image)
                shrink(image)
                images.append(image)
        started.close()
    return images
