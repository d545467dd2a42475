"""A headless Chromium that draws one page as high as it is, with no network and a profile of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_QUIET = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--force-color-profile=srgb", "--force-device-scale-factor=1", "--disable-lcd-text"),
    "--no-sandbox",  # as root there is none; the page is our own file
)
_HEIGHT = re.compile(r'<html[^>]* data-height="(\d+)"')
TALLEST = 16_384  # px; Chromium draws no higher
SIGNATURE = b"\x89PNG\r\n\x1a\n"


class NoBrowserError(RuntimeError):
    """There is no Chromium, or it drew nothing."""


def find() -> str:
    """The first Chromium on PATH."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoBrowserError(f"no Chromium: install one; looked on PATH for {', '.join(NAMES)}")
    return found


def picture(browser: str, page: Path, image: Path, width: int, *more: str, highest: int = TALLEST) -> None:
    """Draw ``page`` (which notes its own height as ``data-height`` of ``<html>``) into ``image``, cut at ``highest``.

    Asked twice, as the command line knows no "whole page": once for the height, once for the picture.
    """
    dom = _run(browser, page, f"--window-size={width},1000", "--dump-dom", *more)
    height = _HEIGHT.search(dom)
    if height is None:
        raise NoBrowserError(f"{browser} did not run the page's script, so its height is unknown")
    image.unlink(missing_ok=True)
    _run(browser, page, f"--window-size={width},{min(int(height[1]), highest)}", f"--screenshot={image}", *more)
    if not image.exists():
        raise NoBrowserError(f"{browser} wrote no {image.name}")


def size(image: Path) -> tuple[int, int]:
    """Width and height of a PNG, in pixels."""
    head = image.read_bytes()[:24]
    if not head.startswith(SIGNATURE) or head[12:16] != b"IHDR":
        raise ValueError(f"{image} is no PNG")
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def _run(browser: str, page: Path, *options: str) -> str:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [browser, *_QUIET, f"--user-data-dir={profile}", *options, page.as_uri()],
            capture_output=True,
            check=False,
            timeout=120,
        )
    if done.returncode:
        raise NoBrowserError(f"{browser} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-600:]}")
    return done.stdout.decode("utf-8", "replace")
