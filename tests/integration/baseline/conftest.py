"""A remote to keep records on."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.repositories import Origin


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path)
