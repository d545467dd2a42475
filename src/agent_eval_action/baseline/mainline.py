"""What main has scored, opened for one run: found before any agent starts, pooled on demand, added to at the end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_eval_action.baseline import STORES, Store
from agent_eval_action.baseline.accept import ACCEPT, Entry, pending, read
from agent_eval_action.baseline.history import Suite, age_note, pool
from agent_eval_action.baseline.lookup import Event, Found, look_up
from agent_eval_action.baseline.place import Place, Written
from agent_eval_action.baseline.run_record import record_of
from agent_eval_action.baseline.writing import regressed, why_not_written
from agent_eval_action.config.settings import Settings
from agent_eval_action.git import Commit, Repository, remote_of
from agent_eval_action.model.history import Accepted, History
from agent_eval_action.model.result import CaseKey, RunResult


@dataclass(frozen=True, slots=True)
class Mainline:
    """The records of main that a run is compared with, and the place its own goes to."""

    store: Store
    store_kind: str
    event: Event
    head: Commit | None
    found: Found
    how: str
    entries: tuple[Entry, ...]
    last: int
    max_age: int

    @property
    def pending(self) -> tuple[Accepted, ...]:
        """Accepted changes that main has no record with yet."""
        return pending(self.entries, self.found.records)

    def history(self, suite: Suite | None = None, *, honour: bool = True, now: dt.datetime | None = None) -> History:
        """The pooled history. Without ``honour`` the policy forbids accepting: nothing starts anew for what waits."""
        accepts = self.pending if honour else ()
        pooled = pool(self.found.records, suite, accepts=accepts, last=self.last, source=self.store.name)
        old = age_note(pooled, now or dt.datetime.now(dt.UTC), self.max_age)
        return replace(pooled, notes=(*((old,) if old else ()), *self.found.notes))

    def add(
        self,
        result: RunResult,
        worse: Sequence[tuple[CaseKey, str]] | None = None,
        simulators: Mapping[CaseKey, str] | None = None,
    ) -> Written:
        """Record a run of main that says something. ``worse``: the pairs found regressed; None: as decided."""
        head = self.head.sha if self.head else None
        if why := why_not_written(self.event, result, head):
            return Written(False, why)
        bad = worse if worse is not None else regressed(result.decision) if result.decision else ()
        accepted = [entry.accepted for entry in self.entries]
        return self.store.add(record_of(result, self.head, regressed=bad, accepted=accepted, simulators=simulators))


def open_mainline(settings: Settings, environ: Mapping[str, str], event: Event) -> Mainline:
    """Find what a run of this checkout is compared with.

    Raises ResultsError when the file store's file is no baseline, ConfigError when accept.yaml is wrong;
    what is on a branch, or that it cannot be reached, is noted.
    """
    place = place_of(settings, environ)
    repository = Repository(settings.workspace, environ)
    head = repository.resolve("HEAD")
    name = store_name(settings, environ)
    store = STORES[name](place)
    remote = remote_of(repository, place.remote, environ) if name == "branch" else None
    lookup = look_up(repository, event, remote, remote_name=place.remote, limit=2 * settings.baseline_runs)
    return Mainline(
        store=store,
        store_kind=name,
        event=event,
        head=repository.commit(head) if head else None,
        found=store.records(lookup),
        how=lookup.how,
        entries=read(settings.workspace / ACCEPT, workspace=settings.workspace),
        last=settings.baseline_runs,
        max_age=settings.baseline_max_age,
    )


def place_of(settings: Settings, environ: Mapping[str, str]) -> Place:
    """Where the baseline of these settings may lie."""
    return Place(
        workspace=settings.workspace,
        file=settings.baseline,
        branch=settings.baseline_branch,
        remote=settings.baseline_remote,
        last=settings.baseline_runs,
        environ=environ,
    )


def store_name(settings: Settings, environ: Mapping[str, str]) -> str:
    """Which store is meant: the one named; else the file where one is kept; else on GitHub the branch."""
    if settings.baseline_store == "rerun":  # nothing is kept: the file store is never written by a run
        return "file"
    if settings.baseline_store != "auto":
        return settings.baseline_store
    if _exists(settings.baseline) or environ.get("GITHUB_ACTIONS") != "true":
        return "file"
    repository = Repository(settings.workspace, environ)
    return "branch" if remote_of(repository, settings.baseline_remote, environ) else "file"


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()
