"""What a store is made with, and what became of a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent_eval_action.model.baseline import Baseline

BRANCH: Final = "agent-eval-data"
REMOTE: Final = "origin"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the baseline may lie: a file, or a branch of a remote. ``last``: how many runs are pooled."""

    workspace: Path
    file: Path
    branch: str = BRANCH
    remote: str = REMOTE
    last: int = 20
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the base commit of a change has stored beside its code; ``baseline`` None: nothing that can be read."""

    commit: str
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """Whether a record was stored, and in words what became of it."""

    stored: bool
    note: str
