"""The history that a run is compared with, and the store of its own record, with the rules for recording."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from agent_eval_action.baseline import STORES
from agent_eval_action.baseline.accepted import ACCEPT, accepted_changes, pending, read
from agent_eval_action.baseline.pooling import Suite, age_note, pool
from agent_eval_action.baseline.records import record_of
from agent_eval_action.baseline.stores import FileStore, FoundRecords, RecordQuery, Store, WriteResult
from agent_eval_action.config.models import Settings
from agent_eval_action.git.base_commit import WALK, Event, EventKind, ask_remote, resolve_base
from agent_eval_action.git.repository import ORIGIN, Commit, Remote, Repository, remote_of
from agent_eval_action.results.base import CaseKey, StoreKind
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.history import Accepted, History, Quarantine, Record
from agent_eval_action.results.run_result import RunResult, RunStatus

_RECORDED: Final = frozenset({EventKind.PUSH, EventKind.SCHEDULE, EventKind.MANUAL})


def why_never_recorded(event: Event, head: str | None) -> str | None:
    """Why no run of this job is ever recorded; None if it may be. ``head``: the tested commit."""
    reasons = (
        (event.kind is EventKind.LOCAL, "only runs of main in CI are recorded"),
        (event.is_change or event.fork, "a change that is not merged is never recorded"),
        (event.kind not in _RECORDED, f"runs on {event.name} are not recorded"),
        (not event.default_branch, "the event names no default branch"),
        (not event.on_main, f"only runs of {event.default_branch} are recorded, not of {event.ref or 'nothing'}"),
        (head is None or event.sha not in (None, head), "the commit that was tested is not the one this run is of"),
    )
    return next((why for holds, why in reasons if holds), None)


def why_not_recorded(event: Event, result: RunResult, head: str | None) -> str | None:
    """Why this run is not recorded; None if it may be. ``head``: the tested commit."""
    if why := why_never_recorded(event, head):
        return why
    if result.status is not RunStatus.COMPLETE:
        return "the run is not complete"
    inconclusive = result.decision is None or result.decision.outcome is Verdict.INCONCLUSIVE
    return "the run is inconclusive" if inconclusive else None


def regressed(decision: Decision) -> tuple[tuple[CaseKey, str], ...]:
    """The pairs to leave out of the record: those confirmed worse than main, and quarantined ones.

    A pair that is only below its threshold stays, since it shows main's real state: leaving it out would let only
    lucky scores into the history. After a quarantine the case is compared with main's scores from before it.
    """
    return tuple((pair.key, pair.criterion) for pair in decision.pairs if pair.confirmed or pair.quarantined)


@dataclass(frozen=True, slots=True)
class BaseBaseline:
    """The baseline that the base commit of a change has stored; ``baseline`` None: nothing readable."""

    commit: str
    baseline: Record | None = None


@dataclass(frozen=True, slots=True)
class HistorySession:
    """The records of main that a run is compared with, and the store of its own record.

    ``how`` describes the commit to compare with. ``entries``: those of accept.yaml, with their lines.
    """

    settings: Settings
    store: Store
    event: Event
    head: Commit | None
    found: FoundRecords
    how: str
    entries: Mapping[Accepted, int | None]

    @property
    def _honoured_entries(self) -> tuple[Accepted, ...]:
        """() if the policy forbids accepting: then no history restarts, now or at the merge."""
        return tuple(self.entries) if self.settings.policy.accept == "honour" else ()

    def history(self, suite: Suite | None = None) -> History:
        """The pooled history that is comparable with ``suite``; without a suite, with main's newest definitions."""
        records, rules = self.found.records, self.settings.baseline
        accepts = pending(self._honoured_entries, records)
        pooled = pool(records, suite, accepts=accepts, last=rules.runs, source=self.store.name)
        now = dt.datetime.now(dt.UTC)
        old = age_note(pooled, now, rules.max_age)
        notes = (*((old,) if old else ()), *self.found.notes, *pooled.notes)
        quarantines = [entry for entry in self._honoured_entries if isinstance(entry, Quarantine)]
        return replace(
            pooled,
            store=self.store.kind,
            notes=notes,
            quarantines=tuple(entry for entry in quarantines if not entry.is_overdue(now)),
            overdue=tuple(entry for entry in quarantines if entry.is_overdue(now)),
        )

    @property
    def recording(self) -> bool:
        return why_never_recorded(self.event, self.head.sha if self.head else None) is None

    def add(self, result: RunResult) -> WriteResult:
        """Record a run of main, without the pairs that regressed."""
        if why := why_not_recorded(self.event, result, self.head.sha if self.head else None):
            return WriteResult(False, why)
        bad = regressed(result.decision) if result.decision else ()
        return self.store.add(
            record_of(result, self.head, regressed=bad, accepted=accepted_changes(self._honoured_entries))
        )


def look_up(
    repository: Repository, event: Event, remote: Remote | None = None, *, remote_name: str = ORIGIN, limit: int = 20
) -> RecordQuery:
    """The query for a checkout. ``remote`` supplies history that the clone lacks; None: no network."""
    base = resolve_base(repository, event, remote_name, lambda: remote)
    found, head = base.reference, base.head
    if found.sha is None:
        note = f"which commit to compare with is not known: {found.how}"
        return RecordQuery(how=found.how, limit=limit, notes=(note,))
    walked, complete = _first_parents(repository, found.sha, remote)
    at = walked[0].at if walked else None
    if at is None and head is not None:
        at = head.at  # the merge commit is younger than the base it was merged onto
    ancestors, hint = tuple(commit.sha for commit in walked) or (found.sha,), event.clone_hint.format(0)
    return RecordQuery(found.sha, found.how, ancestors, complete, at, limit, clone_hint=hint)


def _first_parents(repository: Repository, sha: str, remote: Remote | None) -> tuple[tuple[Commit, ...], bool]:
    """A commit and its first parents, and whether they go back far enough."""
    walked = repository.first_parents(sha, WALK)
    if walked and (len(walked) == WALK or not repository.is_shallow()):
        return walked, True
    # where a clone is cut rev-list omits the parents, but the commit itself names them
    last = repository.commit(walked[-1].sha) if walked else None
    if last is not None and not last.parents:
        return walked, True
    if remote is not None:
        fetched = ask_remote(repository, remote, (sha,), lambda history, sha: history.first_parents(sha, WALK))
        if fetched:
            return fetched, True
    return walked, False


def open_history_session(
    settings: Settings, environ: Mapping[str, str], event: Event, base: BaseBaseline | None = None
) -> HistorySession:
    """Find the history for a run of this checkout. ``base``: what the base commit of a change has stored.

    Raises ResultsError if the file store's file is no baseline, ConfigError if accept.yaml is wrong. Problems with a
    branch, for example that it cannot be reached, are notes.
    """
    repository = Repository(settings.workspace, environ)
    store: Store = STORES[store_kind(settings, environ, event, base)].of_settings(settings, environ)
    own, baseline = FileStore.of_settings(settings, environ), settings.baseline
    remote = remote_of(repository, baseline.remote, environ) if store.written_by_runs else None
    query = look_up(repository, event, remote, remote_name=baseline.remote, limit=2 * baseline.runs)
    found = _records_of_base(own, base) if base and store.committed else store.records(query)
    if base and not store.committed and baseline.store == "auto" and os.path.lexists(own.path):
        if found.records:
            note = f"the {own.name} that this change adds is not used: main's scores are on {store.name}"
            found = replace(found, notes=(*found.notes, note))
        else:
            store, found = own, _records_of_base(own, base)
    return HistorySession(
        settings=settings,
        store=store,
        event=event,
        head=repository.head(),
        found=found,
        how=query.how,
        entries=read(settings.workspace / ACCEPT, workspace=settings.workspace),
    )


def _records_of_base(store: FileStore, base: BaseBaseline) -> FoundRecords:
    """The base commit's baseline: a change's own file could make a worse agent pass."""
    own, short = store.read(), base.commit[:10]
    if base.baseline is None:
        note = f"{store.name}, which this change adds, counts from the merge on: the base commit {short} has none"
        return FoundRecords((), (note,) if own else ())
    records = (base.baseline,) if base.baseline.cases else ()
    note = f"compared with {store.name} of the base commit {short}, not with the change's own"
    return FoundRecords(records, () if own == base.baseline else (note,))


def store_kind(
    settings: Settings, environ: Mapping[str, str], event: Event, base: BaseBaseline | None = None
) -> StoreKind:
    """The store to use: the configured one; else the file if there is one; else the branch if CI supports it.

    ``base``: what the base commit of a change has stored, because a change must not choose its own reference.
    """
    if settings.baseline.store != "auto":
        return settings.baseline.store
    kept = os.path.lexists(settings.baseline.path) if base is None else base.baseline is not None
    if kept or not event.keeps_branch:
        return "file"
    repository = Repository(settings.workspace, environ)
    return "branch" if remote_of(repository, settings.baseline.remote, environ) else "file"
