"""Stored baselines: where they lie (``STORES``), what of a run they keep, how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from agent_eval_action.baseline.branch_store import BranchStore
from agent_eval_action.baseline.file_store import FileStore
from agent_eval_action.baseline.lookup import FoundRecords, RecordQuery, StoreConfig, WriteResult
from agent_eval_action.baseline.table import show
from agent_eval_action.results.history import Record

__all__ = ["STORES", "Found", "Lookup", "Place", "Store", "Written", "show"]


class Store(Protocol):
    """A place records of main lie in."""

    @property
    def name(self) -> str:
        """As reports show it."""
        ...

    def records(self, lookup: RecordQuery) -> FoundRecords:
        """The records to compare a run with. Raises ResultsError when a file the user keeps is no baseline."""
        ...

    def add(self, record: Record) -> WriteResult:
        """Keep one run of main. What went wrong is said, not raised: the verdict stands without it."""
        ...


STORES: Final[dict[str, Callable[[StoreConfig], Store]]] = {"file": FileStore.at, "branch": BranchStore.at}
"""By the name in ``baseline.store``."""
