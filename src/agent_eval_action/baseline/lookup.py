"""Which records of main a run is compared with, where they may lie, and what became of a new one."""

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
    """What the base commit of a change has stored beside its code; ``baseline`` None: nothing that can be read."""

    commit: str
    baseline: Record | None = None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Whether a record was stored, and in words what became of it."""

    stored: bool
    note: str


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which records a run is compared with. ``ancestors``: the reference and its first parents, nearest first.

    ``complete``: the ancestors reach as far as anybody looks; otherwise records of other commits up to ``at`` (the
    reference's date, seconds since 1970) are taken too, and ``notes`` say so, with ``clone_hint``.
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
    """Records, the newest commit first, and what there is to say about them."""

    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


class Store(ABC):
    """A place that holds records of main.

    ``kind``: its name in the settings.
    ``begin``: how a baseline comes to be there, for hints; backticks mark names.
    ``committed``: it is a file of the checkout, so a change is compared with what its base commit has of it.
    ``written_by_runs``: runs of main add their records; otherwise only people write it, if anybody does.
    ``needs_remote``: its records may be of commits that a shallow clone lacks, which the remote is asked for.
    """

    kind: ClassVar[StoreKind]
    begin: ClassVar[str]
    committed: ClassVar[bool] = False
    written_by_runs: ClassVar[bool] = False
    needs_remote: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of_settings(cls, settings: Settings, environ: Mapping[str, str]) -> Self:
        """The store that is configured."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As reports show it."""

    @abstractmethod
    def records(self, query: RecordQuery) -> FoundRecords:
        """The records to compare a run with. Raises ResultsError when a file the user keeps is no baseline."""

    @abstractmethod
    def add(self, record: Record) -> WriteResult:
        """Keep one run of main. A failure is noted, not raised: the verdict stands without it."""


def select(records: Sequence[Record], query: RecordQuery) -> FoundRecords:
    """Of all records those at or before the reference, nearest first, at most ``limit`` runs. Pure."""
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
        at = head.at  # the merge commit is younger than what it was merged onto
    ancestors, hint = tuple(commit.sha for commit in walked) or (found.sha,), event.clone_hint.format(0)
    return RecordQuery(found.sha, found.how, ancestors, complete, at, limit, clone_hint=hint)


def _first_parents(repository: Repository, sha: str, remote: Remote | None) -> tuple[tuple[Commit, ...], bool]:
    """A commit and its first parents, and whether these are all that anybody looks at."""
    walked = repository.first_parents(sha, WALK)
    if walked and (len(walked) == WALK or not repository.is_shallow()):
        return walked, True
    # where a clone was cut rev-list names no parents, but the commit itself does
    last = repository.commit(walked[-1].sha) if walked else None
    if last is not None and not last.parents:
        return walked, True
    if remote is not None:
        fetched = ask_remote(repository, remote, (sha,), lambda history, sha: history.first_parents(sha, WALK))
        if fetched:
            return fetched, True
    return walked, False
