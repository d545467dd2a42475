"""Stored baselines: where they lie (``STORES``), what of a run they keep, how they are shown."""

from __future__ import annotations

from typing import Final, Protocol

from agent_eval_action.baseline.file import FileStore
from agent_eval_action.baseline.table import show
from agent_eval_action.model.baseline import Baseline

__all__ = ["STORES", "Store", "show"]


class Store(Protocol):
    """A place a baseline lies in."""

    def read(self) -> Baseline | None:
        """The baseline, or None when there is none. Raises ResultsError when what is there is no baseline."""
        ...

    def write(self, baseline: Baseline) -> None:
        """Replace the baseline. Raises OutputError."""
        ...


STORES: Final[dict[str, type[FileStore]]] = {"file": FileStore}
"""By the name in ``baseline.store``. A store is made with a path and the workspace."""
