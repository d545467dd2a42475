"""Where the oracles and the corpus are, and saying aloud when they are not; which tests `make test` leaves out."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

FOR_CI = ("CI", "GITHUB_", "GITLAB_", "INPUT_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")

# At the end workers take tests from each other: those left then should be short, and need no oracle of their own.
FIRST = ("parity", "integration")

# Else, where PYTHONDONTWRITEBYTECODE is set, every worker of every run rewrites the assertions of all tests anew.
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what the golden tests compare with anew")
    parser.addoption("--all-examples", action="store_true", help="count property tests, whole, as exhaustive ones")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage, which is a quarter of the time: what is imported and made stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before markers select tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    variants: Counter[str] = Counter()
    properties = {item.obj for item in items if hasattr(getattr(item, "obj", None), "hypothesis")}
    for test in properties:
        _settle(test, part=1 if config.getoption("--all-examples") else 4)
    items.sort(key=lambda item: next((n for n, name in enumerate(FIRST) if name in item.path.parts), len(FIRST)))
    for item in items:
        if config.getoption("--all-examples") and item.obj in properties:
            item.add_marker("exhaustive")
        marker = item.get_closest_marker("exhaustive")
        if marker and "after" in marker.kwargs:
            test = item.nodeid.partition("[")[0]
            variants[test] += 1
            if variants[test] <= marker.kwargs["after"]:
                item.own_markers.remove(marker)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why a test failed that was run once more: it may be a defect that shows only now and then."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed at first: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


def pytest_collection_finish() -> None:
    """Have a test see the same environment on every machine; only Hypothesis, imported by now, may know of a CI."""
    for name in [name for name in os.environ if name.startswith(FOR_CI)]:
        del os.environ[name]


def _settle(test: Any, part: int) -> None:
    """Have a property try one in so many of its examples, and no machine be too slow for it."""
    from hypothesis import HealthCheck, settings  # noqa: PLC0415 - few tests are about properties

    given = test._hypothesis_internal_use_settings
    examples = given.max_examples if part == 1 else max(10, given.max_examples // part)
    patient = {"deadline": None, "suppress_health_check": {*given.suppress_health_check, HealthCheck.too_slow}}
    test._hypothesis_internal_use_settings = settings(given, max_examples=examples, **patient)


def _interpreter(name: str) -> Path:
    python = ROOT / ".venvs" / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {name} environment at {python}: run `make setup-oracles setup-peers`")
    return python


@pytest.fixture(scope="session")
def adk213_python() -> Path:
    return _interpreter("adk-2.13")


@pytest.fixture(scope="session")
def adk110_python() -> Path:
    return _interpreter("adk-1.10")


@pytest.fixture(scope="session")
def agents_cli_python() -> Path:
    return _interpreter("agents-cli")


@pytest.fixture(scope="session")
def peers_python() -> Path:
    return _interpreter("peers")


@pytest.fixture(scope="session")
def a2a_python() -> Path:
    return _interpreter("a2a")


@pytest.fixture(scope="session")
def corpus() -> Path:
    folder = SHARED / "corpus"
    if not folder.is_dir():
        pytest.skip(f"no corpus of public eval files at {folder}: these tests ran on nothing")
    return folder
