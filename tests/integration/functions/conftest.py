"""Metric functions in real processes of google-adk's environments."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agent_eval_action.environments.runtime import AgentRuntimeSpec
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.metric_functions import MetricFunctions

SHOP = Path(__file__).with_name("shop")


def make(workspace: Path, python: Path, **more: Any) -> MetricFunctions:
    """Functions of a copy of the folder ``shop``."""
    shutil.copytree(SHOP, workspace / "shop", dirs_exist_ok=True)
    options: dict[str, Any] = {
        "path": workspace / "shop",
        "workspace": workspace,
        "logs": OutputFolder.at(workspace),
        "name": "shop",
        "cache": OutputFolder.at(workspace / "cache"),
        "python": python,
        "timeout_s": 20.0,
        "role": "metrics",
        "environ": {"PATH": "/usr/bin:/bin"},
        **more,
    }
    known = options.pop("known_interpreter", lambda: None)
    return MetricFunctions(AgentRuntimeSpec(**options), known)


@pytest.fixture
async def opened(tmp_path: Path, adk213_python: Path) -> AsyncIterator[Callable[..., MetricFunctions]]:
    """Makes functions in the test's own folder, with options; stopped at the end."""
    made: list[MetricFunctions] = []

    def opened(**more: Any) -> MetricFunctions:
        made.append(make(tmp_path, more.pop("python", adk213_python), **more))
        return made[-1]

    shutil.copytree(SHOP, tmp_path / "shop")
    yield opened
    for functions in made:
        await functions.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def functions(tmp_path_factory: pytest.TempPathFactory, adk213_python: Path) -> AsyncIterator[MetricFunctions]:
    """One instance for all tests that leave it usable, as it is for all cases of a run."""
    shared = make(tmp_path_factory.mktemp("functions"), adk213_python)
    yield shared
    await shared.stop()
