"""The ``rerun`` store: nothing is kept, because the base commit's agent runs beside the change's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from agent_eval_action.baseline.file_store import FileStore
from agent_eval_action.baseline.lookup import FoundRecords, RecordQuery, WriteResult
from agent_eval_action.config.models import Settings
from agent_eval_action.results.history import Record


@dataclass(frozen=True, slots=True)
class RerunStore:
    """No records. ``name``: the file that `agent-eval baseline update` writes and no run of this store reads."""

    begin: ClassVar[str] = "it is measured beside a run, on the base commit's agent, which could not be run here"
    committed: ClassVar[bool] = False
    written_by_runs: ClassVar[bool] = False
    needs_remote: ClassVar[bool] = False

    name: str

    @classmethod
    def of_settings(cls, settings: Settings, environ: Mapping[str, str]) -> Self:
        """The store of a configuration."""
        return cls(FileStore.of_settings(settings, environ).name)

    def records(self, query: RecordQuery) -> FoundRecords:  # noqa: ARG002 - there are none to choose from
        """No records."""
        return FoundRecords()

    def add(self, record: Record) -> WriteResult:  # noqa: ARG002 - nothing is kept
        """Keep nothing."""
        return WriteResult(False, "the rerun store keeps nothing")
