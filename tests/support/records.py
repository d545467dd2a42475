"""Records of main in few words, and a store over a checkout."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_eval_action.baseline.branch_store import BranchStore
from agent_eval_action.baseline.pooling import Suite
from agent_eval_action.baseline.records import definitions, record_of
from agent_eval_action.baseline.stores import FoundRecords, RecordQuery
from agent_eval_action.git.repository import Commit, remote_of
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.history import History, Record, kept_digest, kept_key, kept_name
from agent_eval_action.results.run_result import RunResult
from support.repositories import environ, repository
from support.results import run, simple

_NUMBERS = itertools.count()


def record(commit: str, *scores: float, at: int | None = None, **given: Any) -> Record:
    """A run of one case, ``a``; each one made is a minute younger than the one before."""
    made = record_of(run(simple("a", *(scores or (1.0,)))), Commit(commit, (), at))
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=next(_NUMBERS))
    return made.model_copy(update={"created_at": moment.isoformat(timespec="seconds"), **given})


def store_at(path: Path, branch: str = "agent-eval-data", keep: int = 100, **env: str) -> BranchStore:
    own = repository(path, **env)
    return BranchStore(own, remote_of(own, "origin", environ(**env)), branch, keep=keep)


def stored(record: Record | None, source: str = "") -> History:
    """A record as it was stored, to compare a run with."""
    return History(pooled=record if record and record.cases else None, source=source)


def everything(store: BranchStore) -> FoundRecords:
    """Every record that can be read, newest first."""
    found = store.records(RecordQuery(limit=1_000))
    return FoundRecords(found.records, tuple(note for note in found.notes if "matched by date" not in note))


def suite_of(result: RunResult) -> Suite:
    """The suite a run had."""
    cases: dict[CaseKey, tuple[str, Mapping[str, str]]] = {}
    for one in result.sets:
        digests = {kept_name(info.name): kept_digest(info.digest) for info in one.criteria}
        for case in one.cases:
            key = CaseKey(one.agent, one.eval_set, case.case)
            cases[kept_key(key)] = (kept_digest(case.digest), digests)
    return Suite(cases, definitions(result))
