"""What main knows: the stores of its records (``STORES``), their making, pooling and look-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Protocol, Self

from agent_eval_action.baseline.branch_store import BranchStore
from agent_eval_action.baseline.file_store import FileStore
from agent_eval_action.baseline.lookup import FoundRecords, RecordQuery, WriteResult
from agent_eval_action.baseline.rerun_store import RerunStore
from agent_eval_action.config.models import Settings
from agent_eval_action.results.base import StoreKind
from agent_eval_action.results.history import Record


class Store(Protocol):
    """A place that holds records of main.

    ``begin``: how a baseline comes to be there, for hints; backticks mark names.
    ``committed``: it is a file of the checkout, so a change is compared with what its base commit has of it.
    ``written_by_runs``: runs of main add their records; otherwise only people write it, if anybody does.
    ``needs_remote``: its records may be of commits that a shallow clone lacks, which the remote is asked for.
    """

    begin: ClassVar[str]
    committed: ClassVar[bool]
    written_by_runs: ClassVar[bool]
    needs_remote: ClassVar[bool]

    @classmethod
    def of_settings(cls, settings: Settings, environ: Mapping[str, str]) -> Self:
        """The store that is configured."""
        ...

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


STORES: Final[dict[StoreKind, type[Store]]] = {
    "file": FileStore,
    "branch": BranchStore,
    "rerun": RerunStore,
}
"""By the name in ``baseline.store``. ``results.base.StoreKind`` lists the same names."""
