"""Metric functions in real processes of google-adk's environments."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.environments.runtime import AgentRuntimeSpec
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.metric_functions import MetricFunctions

SHOP = Path(__file__).with_name("shop")


@pytest.fixture
async def opened(tmp_path: Path, adk213_python: Path) -> AsyncIterator[Callable[..., MetricFunctions]]:
    """Functions of a copy of the folder ``shop``; stopped at the end."""
    made: list[MetricFunctions] = []
    folder = tmp_path / "shop"
    shutil.copytree(SHOP, folder)

    def make(**more: Any) -> MetricFunctions:
        options: dict[str, Any] = {
            "path": folder,
            "workspace": tmp_path,
            "logs": OutputFolder.at(tmp_path),
            "name": "shop",
            "cache": OutputFolder.at(tmp_path / "cache"),
            "python": adk213_python,
            "timeout_s": 20.0,
            "role": "metrics",
            "environ": {"PATH": "/usr/bin:/bin"},
            **more,
        }
        known = options.pop("known_interpreter", lambda: None)
        made.append(MetricFunctions(AgentRuntimeSpec(**options), known))
        return made[-1]

    yield make
    for functions in made:
        await functions.stop()
