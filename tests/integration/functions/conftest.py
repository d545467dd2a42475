"""Metric functions in real processes of google-adk's environments."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.metric_functions import FunctionOptions, MetricFunctions, open_functions

SHOP = Path(__file__).with_name("shop")


@pytest.fixture
async def opened(tmp_path: Path, adk213_python: Path) -> AsyncIterator[Callable[..., MetricFunctions]]:
    """Functions of a copy of the folder ``shop``; stopped at the end."""
    made: list[MetricFunctions] = []
    folder = tmp_path / "shop"
    shutil.copytree(SHOP, folder)

    def make(**more: Any) -> MetricFunctions:
        options = {
            "path": folder,
            "workspace": tmp_path,
            "logs": OutputFolder.at(tmp_path),
            "log_name": "metrics.log",
            "cache": OutputFolder.at(tmp_path / "cache"),
            "python": adk213_python,
            "timeout_s": 20.0,
            "environ": {"PATH": "/usr/bin:/bin"},
            **more,
        }
        made.append(open_functions(FunctionOptions(**options)))
        return made[-1]

    yield make
    for functions in made:
        await functions.stop()
