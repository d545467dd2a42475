"""Which records a run is compared with: those of main at or before the commit that the change was put upon."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent_eval_action.git import Commit, Remote, Repository, Scratch
from agent_eval_action.model.history import Record

WALK: Final = 1_000
"""How many ancestors are looked at: a record older than that says little about main."""

_MERGED: Final = 2
_PULL: Final = ("pull_request", "pull_request_target", "pull_request_review", "pull_request_review_comment")


@dataclass(frozen=True, slots=True)
class Event:
    """What the CI says about this run; nothing of it outside of CI. Commits are whole object names.

    ``ref`` is like ``refs/heads/main``, ``default_branch`` like ``main``, ``base_ref`` the branch a change
    is for. ``base_sha`` of a pull request is the base branch's tip when the event fired; of a merge queue
    the commit the group is put upon. ``sha``: the commit the run is of, whatever was checked out.
    """

    name: str = ""
    ref: str = ""
    default_branch: str = ""
    base_ref: str = ""
    base_sha: str | None = None
    head_sha: str | None = None
    sha: str | None = None
    fork: bool = False

    @property
    def is_change(self) -> bool:
        """Whether what is tested is not main yet."""
        return self.name in _PULL or self.name == "merge_group"


@dataclass(frozen=True, slots=True)
class Reference:
    """The commit whose agent a run is compared with. ``how`` says it for people; ``tip`` asks for a merge base.

    ``exact``: the change was put upon this very commit; if not, it may have been put upon a later one.
    """

    sha: str | None
    how: str
    tip: str | None = None
    exact: bool = field(default=True, compare=False)


def reference(event: Event, head: Commit | None, main: str | None = None) -> Reference:
    """The commit to compare with, from what the event and the commit under test say. Pure.

    ``main``: the tip of the main branch as the clone knows it. ``tip`` of the answer: the merge base of
    the head and this commit is meant, which takes history to find.
    """
    if event.name == "merge_group" and event.base_sha:
        return Reference(event.base_sha, "the commit the merge queue's group is put upon")
    if head is None:
        how = "the base the event names" if event.base_sha else "there is no commit"
        return Reference(event.base_sha, how, exact=False)
    if event.name in _PULL:
        return _of_pull_request(event, head, main)
    on_main = event.ref == f"refs/heads/{event.default_branch}"
    if event.name == "push" and (on_main or not event.default_branch):
        how = "the commit's first parent" if head.parents else "the first commit has nothing before it"
        return Reference(head.parents[0] if head.parents else None, how)
    if main is not None and main != head.sha and not on_main:
        return Reference(None, "where the branch left main", tip=main)
    return Reference(head.sha, "the commit that is checked out")


def _of_pull_request(event: Event, head: Commit, main: str | None) -> Reference:
    if head.sha == event.head_sha:
        tip = event.base_sha or main
        return Reference(None, "where the pull request left its base", tip=tip) if tip else Reference(None, "no base")
    merged = len(head.parents) >= _MERGED and event.head_sha in (None, head.parents[1])
    if merged:
        return Reference(head.parents[0], "the merge commit's first parent")
    if head.sha == event.base_sha or (event.name == "pull_request_target" and head.sha == main):
        return Reference(head.sha, "the base that is checked out")
    if event.base_sha is None and main is not None:
        return Reference(None, "where the pull request left its base", tip=main)
    how = "the base the event names, which may be older than what was merged"
    return Reference(event.base_sha, how, exact=False)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Which records: ``ancestors`` are the reference and its first parents, nearest first.

    ``complete``: they reach as far as is looked; if not, records of other commits up to ``at`` (the
    reference's date, seconds since 1970) are taken too, and ``notes`` say so.
    """

    reference: str | None = None
    how: str = ""
    ancestors: tuple[str, ...] = ()
    complete: bool = False
    at: int | None = None
    limit: int = 20
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Records, the newest commit first, and what there is to say about them."""

    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


def select(records: Sequence[Record], lookup: Lookup) -> Found:
    """Of all records those at or before the reference, nearest first, at most ``limit`` runs. Pure."""
    rank = {sha: place for place, sha in enumerate(lookup.ancestors)}
    near = [record for record in records if record.commit in rank]
    near.sort(key=lambda record: (-rank[record.commit or ""], record.created_at), reverse=True)
    if lookup.complete or len(near) >= lookup.limit:
        return Found(tuple(near[: lookup.limit]), lookup.notes)
    by_date = [record for record in records if record.commit not in rank and _before(record, lookup.at)]
    by_date.sort(key=lambda record: (record.committed_at or 0, record.created_at), reverse=True)
    chosen = (*near, *by_date)[: lookup.limit]
    note = "matched by date, not by ancestry: the clone's history is cut (actions/checkout: fetch-depth: 0)"
    more = (
        (f"{len(chosen) - len(near)} of {len(chosen)} records of main are {note}",) if len(chosen) > len(near) else ()
    )
    return Found(tuple(chosen), (*lookup.notes, *more))


def _before(record: Record, at: int | None) -> bool:
    return at is None or (record.committed_at is not None and record.committed_at <= at)


def look_up(
    repository: Repository, event: Event, remote: Remote | None = None, *, remote_name: str = "origin", limit: int = 20
) -> Lookup:
    """The look-up of a checkout. ``remote``: may be asked for history that the clone lacks (None: it may not)."""
    sha = repository.resolve("HEAD")
    head = repository.commit(sha) if sha else None
    found = resolved(repository, event, head, main_tip(repository, event, remote_name), lambda: remote)
    if found.sha is None:
        return Lookup(how=found.how, limit=limit, notes=(f"which commit to compare with is not known: {found.how}",))
    walked, complete = _walk(repository, found.sha, remote)
    at = walked[0].at if walked else None
    if at is None and head is not None:
        at = head.at  # the merge commit is younger than what it was merged onto
    return Lookup(found.sha, found.how, tuple(one.sha for one in walked) or (found.sha,), complete, at, limit)


def resolved(
    repository: Repository, event: Event, head: Commit | None, main: str | None, remote: Callable[[], Remote | None]
) -> Reference:
    """``reference``, and where it asks for a merge base that commit. ``remote`` is called where history is lacking."""
    found = reference(event, head, main)
    return _forked(repository, found, found.tip, head, remote) if found.tip and head else found


def main_tip(repository: Repository, event: Event, remote_name: str = "origin") -> str | None:
    """The tip of the branch a change is for, else of the main branch, as this clone knows it."""
    named = (event.base_ref if event.is_change else "") or event.default_branch
    names = [named] if named else ["HEAD", "main", "master"]
    places = [f"refs/remotes/{remote_name}/{name}" for name in names]
    places += [f"refs/heads/{name}" for name in names if name != "HEAD"]
    return next((sha for place in places if (sha := repository.resolve(place))), None)


def _forked(
    repository: Repository, asked: Reference, tip: str, head: Commit, ask: Callable[[], Remote | None]
) -> Reference:
    """The merge base; in a shallow clone the remote is asked for the commits between."""
    if base := repository.merge_base(head.sha, tip):
        return Reference(base, asked.how)
    if (remote := ask()) is not None:
        with _history(repository, remote, head.sha, tip) as scratch:
            if scratch is not None and (base := scratch.merge_base(head.sha, tip)):
                return Reference(base, asked.how)
    return Reference(tip, f"the base the event names: {asked.how} is beyond the clone's history", exact=False)


def _walk(repository: Repository, sha: str, remote: Remote | None) -> tuple[tuple[Commit, ...], bool]:
    """The reference and its first parents; whether that is all of them that are looked at."""
    walked = repository.first_parents(sha, WALK)
    if walked and (len(walked) == WALK or not repository.is_shallow()):
        return walked, True
    # where a clone was cut rev-list names no parents, but the commit itself does
    last = repository.commit(walked[-1].sha) if walked else None
    if last is not None and not last.parents:
        return walked, True
    if remote is not None:
        with _history(repository, remote, sha) as scratch:
            if scratch is not None and (fetched := scratch.first_parents(sha, WALK)):
                return fetched, True
    return walked, False


@contextlib.contextmanager
def _history(repository: Repository, remote: Remote, *shas: str) -> Iterator[Scratch | None]:
    """The commits before these, fetched without their files into a place of our own; None when they cannot be had."""
    with contextlib.ExitStack() as stack:
        try:
            scratch = stack.enter_context(Scratch.open(remote, repository.environ))
        except OSError:
            yield None
            return
        had = all(scratch.fetch(sha, depth=WALK, commits_only=True).sha for sha in shas)
        yield scratch if had else None
