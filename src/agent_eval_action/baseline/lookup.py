"""Choose the records of main that a run is compared with; the interface of stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from agent_eval_action.config.models import Settings
from agent_eval_action.git.base_commit import WALK, Event, ask_remote, resolve_base
from agent_eval_action.git.remote import ORIGIN, Remote
from agent_eval_action.git.repository import Commit, Repository
from agent_eval_action.results.base import StoreKind
from agent_eval_action.results.history import Record


@dataclass(frozen=True, slots=True)
class BaseBaseline:
    """The baseline that the base commit of a change has stored; ``baseline`` None: nothing readable."""

    commit: str
    baseline: Record | None = None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Whether a record was stored, and a sentence about it."""

    stored: bool
    note: str


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which records a run is compared with. ``ancestors``: the reference and its first parents, nearest first.

    ``complete``: the ancestors go back far enough. Otherwise records of other commits up to ``at`` (the reference's
    date, seconds since 1970) count as well, and ``notes`` report it, with ``clone_hint``.
    """

    reference: str | None = None
    how: str = ""
    ancestors: tuple[str, ...] = ()
    complete: bool = False
    at: int | None = None
    limit: int = 20
    notes: tuple[str, ...] = ()
    clone_hint: str = ""


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Records, newest commit first, and notes about them."""

    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


class Store(ABC):
    """A place for records of main.

    ``kind``: its name in the settings.
    ``begin``: how to create a baseline there, for hints; backticks mark names.
    ``committed``: it is a file of the checkout, so a change is compared with the base commit's version.
    ``written_by_runs``: runs of main add their records, which may belong to commits that a shallow clone lacks and must
    fetch; otherwise only people write it, if anyone.
    """

    kind: ClassVar[StoreKind]
    begin: ClassVar[str]
    committed: ClassVar[bool] = False
    written_by_runs: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of_settings(cls, settings: Settings, environ: Mapping[str, str]) -> Self:
        """The configured store."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that reports show."""

    @abstractmethod
    def records(self, query: RecordQuery) -> FoundRecords:
        """The records to compare a run with. Raises ResultsError if a file that the user keeps is no baseline."""

    @abstractmethod
    def add(self, record: Record) -> WriteResult:
        """Store one run of main. A failure is returned as a note: the verdict stands without it."""


def select(records: Sequence[Record], query: RecordQuery) -> FoundRecords:
    """The records at or before the reference, nearest first, at most ``limit`` runs. Pure."""
    rank = {sha: place for place, sha in enumerate(query.ancestors)}
    near = [record for record in records if record.commit in rank]
    near.sort(key=lambda record: (-rank[record.commit or ""], record.created_at), reverse=True)
    if query.complete or len(near) >= query.limit:
        return FoundRecords(tuple(near[: query.limit]), query.notes)
    latest = query.at
    by_date = [
        record
        for record in records
        if record.commit not in rank
        and (latest is None or (record.committed_at is not None and record.committed_at <= latest))
    ]
    by_date.sort(key=lambda record: (record.committed_at or 0, record.created_at), reverse=True)
    chosen = (*near, *by_date)[: query.limit]
    if len(chosen) == len(near):
        return FoundRecords(chosen, query.notes)
    which = f"{len(chosen) - len(near)} of {len(chosen)} records of main are matched by date, not by ancestry"
    return FoundRecords(chosen, (*query.notes, f"{which}: the clone's history is cut ({query.clone_hint})"))


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
