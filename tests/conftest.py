"""Where the oracles and the corpus are, and saying aloud when they are not; which tests `make test` leaves out."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

# Else, where PYTHONDONTWRITEBYTECODE is set, every worker of every run rewrites the assertions of all tests anew.
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the golden tests compare with anew")


@pytest.hookimpl(tryfirst=True)  # before markers select tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    variants: Counter[str] = Counter()
    for item in items:
        marker = item.get_closest_marker("exhaustive")
        if marker and "after" in marker.kwargs:
            test = item.nodeid.partition("[")[0]
            variants[test] += 1
            if variants[test] <= marker.kwargs["after"]:
                item.own_markers.remove(marker)


def _interpreter(name: str) -> Path:
    python = ROOT / ".venvs" / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {name} environment at {python}: run `make setup-oracles`")
    return python


@pytest.fixture(scope="session")
def adk213_python() -> Path:
    return _interpreter("adk-2.13")


@pytest.fixture(scope="session")
def adk110_python() -> Path:
    return _interpreter("adk-1.10")


@pytest.fixture(scope="session")
def corpus() -> Path:
    folder = SHARED / "corpus"
    if not folder.is_dir():
        pytest.skip(f"no corpus of public eval files at {folder}: these tests ran on nothing")
    return folder
