"""Criteria as configured: name, options, and where that is written. ``criteria.build`` makes them real."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class CriterionSpec:
    """One entry of ``criteria`` in a test_config.json or agent-eval.yaml."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    line: int | None = None
