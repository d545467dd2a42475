"""The baseline of ``baseline: rerun``: the base commit's agent, measured in the same run as the change's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from agent_eval_action.baseline.file_store import FileStore
from agent_eval_action.baseline.lookup import FoundRecords, RecordQuery, Store, WriteResult
from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import Settings
from agent_eval_action.results.base import CaseKey, StoreKind
from agent_eval_action.results.history import Accepted, Record
from agent_eval_action.results.run_result import CaseResult, ErrorKind, RunResult, RunStatus

_NOT_OF_CODE: Final = frozenset(
    {ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE, ErrorKind.CREDENTIALS, ErrorKind.STOPPED}
)
PASSES: Final = 5
"""How often the base runs every case, as in `baseline update`: a single run of a noisy case tells little."""


def baseline_of(result: RunResult) -> Record | None:
    """The scores of the base commit's agent in this run; None if it did not run."""
    if result.base is None or not result.totals.control:
        return None
    sets = tuple(
        measured.model_copy(update={"cases": tuple(_as_attempts(case) for case in measured.cases if case.control)})
        for measured in result.sets
    )
    conditions = result.conditions.model_copy(
        update={"commit": result.base.commit, "agents": result.base.agents, "repeats": PASSES}
    )
    return from_result(result.model_copy(update={"sets": sets, "conditions": conditions}))


def unmeasured_on_base(result: RunResult) -> Mapping[CaseKey, str]:
    """Cases that the base commit's agent should have answered but did not, with the reason.

    Cases in which its code raises are not included: that is main's real state. Missing credentials are reported
    elsewhere.
    """
    base = result.base
    if base is None or result.status is not RunStatus.COMPLETE:
        return {}
    found: dict[CaseKey, str] = {}
    for key, case in result.keyed_cases():
        if key.agent in {*base.absent, *base.lacking}:
            continue
        errors = [attempt.error for attempt in case.control if attempt.error is not None]
        of_code = any(error.kind not in _NOT_OF_CODE for error in errors)
        answered = len(errors) < len(case.control)
        reason = errors[0].message if errors else base.unavailable_agents.get(key.agent) or base.unavailable
        if reason and not (case.unmeasured or of_code or answered):
            found[key] = reason
    return found


def without_control(result: RunResult) -> RunResult:
    """The run without its control, whose scores are already the baseline."""
    sets = tuple(
        measured.model_copy(update={"cases": tuple(case.model_copy(update={"control": ()}) for case in measured.cases)})
        for measured in result.sets
    )
    totals = result.totals.model_copy(update={"control": 0})
    return result.model_copy(update={"sets": sets, "totals": totals, "base": None})


def without_accepted(record: Record | None, accepted: Sequence[Accepted]) -> Record | None:
    """The record without the scores of accepted pairs, which are compared with nothing."""
    if record is None or not accepted:
        return record

    def is_accepted(key: CaseKey, criterion: str) -> bool:
        return any(entry.covers(key, criterion) for entry in accepted)

    return record.model_copy(update={"cases": tuple(case.without_criteria(is_accepted) for case in record.cases)})


def _as_attempts(case: CaseResult) -> CaseResult:
    """The case with its control attempts as attempts; failed ones count only if all of them failed."""
    answered = tuple(attempt for attempt in case.control if attempt.error is None)
    return case.model_copy(update={"attempts": answered or case.control, "control": ()})


@dataclass(frozen=True, slots=True)
class RerunStore(Store):
    """Stores no records. ``file``: written by `agent-eval baseline update`, but not read by runs of this store."""

    kind: ClassVar[StoreKind] = "rerun"
    begin: ClassVar[str] = "it is measured beside a run, on the base commit's agent, which could not be run here"

    file: FileStore

    @classmethod
    def of_settings(cls, settings: Settings, environ: Mapping[str, str]) -> Self:
        return cls(FileStore.of_settings(settings, environ))

    @property
    def name(self) -> str:
        return self.file.name

    def records(self, query: RecordQuery) -> FoundRecords:  # noqa: ARG002 - there are none to choose from
        return FoundRecords()

    def add(self, record: Record) -> WriteResult:  # noqa: ARG002 - nothing is stored
        return WriteResult(False, "the rerun store keeps nothing")
