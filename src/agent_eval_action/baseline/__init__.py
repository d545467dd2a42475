"""What main knows: the stores of its records (``STORES``), their making, pooling and look-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from agent_eval_action.baseline.branch_store import BranchStore
from agent_eval_action.baseline.file_store import FileStore
from agent_eval_action.baseline.lookup import FoundRecords, RecordQuery, WriteResult
from agent_eval_action.config.models import Settings
from agent_eval_action.results.history import Record


class Store(Protocol):
    """A place records of main lie in."""

    @property
    def name(self) -> str:
        """As reports show it."""
        ...

    def records(self, query: RecordQuery) -> FoundRecords:
        """The records to compare a run with. Raises ResultsError when a file the user keeps is no baseline."""
        ...

    def add(self, record: Record) -> WriteResult:
        """Keep one run of main. A failure is noted, not raised: the verdict stands without it."""
        ...


STORES: Final[dict[str, Callable[[Settings, Mapping[str, str]], Store]]] = {
    "file": FileStore.of_settings,
    "branch": BranchStore.of_settings,
}
"""By the name in ``baseline.store``; each is made of the settings and the environment's variables."""
