"""What GitHub says of this run, as far as baselines need it: from GITHUB_* and the event's file.

Everything else that is read of an event is built on this reading (``github.events``), so that there is one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_eval_action.diagnostics.reader import Source
from agent_eval_action.errors import ResultsError
from agent_eval_action.git import Commit, Remote, Repository, Scratch, remote_of
from agent_eval_action.git.repository import is_sha
from agent_eval_action.results.history import Baseline, Record

_HEADS: Final = "refs/heads/"


def event_of(environ: Mapping[str, str]) -> Event:
    """The event of this job; an empty one outside of GitHub Actions. A file that cannot be read says nothing."""
    return event_from(environ, payload_of(environ))


def payload_of(environ: Mapping[str, str]) -> Any:
    """The event's file as JSON; None outside of GitHub Actions, and where it cannot be read."""
    path = environ.get("GITHUB_EVENT_PATH", "")
    if not in_actions(environ) or not path:
        return None
    try:
        return Source.read(Path(path), workspace=None, error=ResultsError).value
    except ResultsError:
        return None


def in_actions(environ: Mapping[str, str]) -> bool:
    """Whether this is a job of GitHub Actions."""
    return environ.get("GITHUB_ACTIONS") == "true"


def event_from(environ: Mapping[str, str], payload: Any) -> Event:
    """The event from the environment and its payload, which may be anything. Pure."""
    if not in_actions(environ):
        return Event()
    pull, group = at(payload, "pull_request"), at(payload, "merge_group")
    name = environ.get("GITHUB_EVENT_NAME", "")
    base_repo, head_repo = at(pull, "base", "repo", "id"), at(pull, "head", "repo", "id")
    return Event(
        name=name,
        ref=environ.get("GITHUB_REF", ""),
        sha=sha_of(environ.get("GITHUB_SHA")),
        default_branch=text_of(at(payload, "repository", "default_branch")),
        base_ref=environ.get("GITHUB_BASE_REF", "") or text_of(at(group, "base_ref")).removeprefix(_HEADS),
        base_sha=sha_of(at(group, "base_sha")) if name == "merge_group" else sha_of(at(pull, "base", "sha")),
        head_sha=sha_of(at(group, "head_sha")) if name == "merge_group" else sha_of(at(pull, "head", "sha")),
        # of a deleted fork there is no repository any more
        fork=bool(pull) and base_repo != head_repo,
    )


def at(value: Any, *keys: str) -> Any:
    """What lies under these keys; None where a step is missing or is no object."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def sha_of(value: Any) -> str | None:
    """A whole object name, or None: a text that is put into a command line must be nothing else."""
    return value if isinstance(value, str) and is_sha(value) else None


def text_of(value: Any) -> str:
    """The text, "" for everything else."""
    return value if isinstance(value, str) else ""


BRANCH: Final = "agent-eval-data"
REMOTE: Final = "origin"


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where the baseline may lie: a file, or a branch of a remote. ``last``: how many runs are pooled."""

    workspace: Path
    file: Path
    branch: str = BRANCH
    remote: str = REMOTE
    last: int = 20
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class BaseBaseline:
    """What the base commit of a change has stored beside its code; ``baseline`` None: nothing that can be read."""

    commit: str
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Whether a record was stored, and in words what became of it."""

    stored: bool
    note: str


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
class RecordQuery:
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
class FoundRecords:
    """Records, the newest commit first, and what there is to say about them."""

    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


def select(records: Sequence[Record], lookup: RecordQuery) -> FoundRecords:
    """Of all records those at or before the reference, nearest first, at most ``limit`` runs. Pure."""
    rank = {sha: place for place, sha in enumerate(lookup.ancestors)}
    near = [record for record in records if record.commit in rank]
    near.sort(key=lambda record: (-rank[record.commit or ""], record.created_at), reverse=True)
    if lookup.complete or len(near) >= lookup.limit:
        return FoundRecords(tuple(near[: lookup.limit]), lookup.notes)
    by_date = [record for record in records if record.commit not in rank and _before(record, lookup.at)]
    by_date.sort(key=lambda record: (record.committed_at or 0, record.created_at), reverse=True)
    chosen = (*near, *by_date)[: lookup.limit]
    note = "matched by date, not by ancestry: the clone's history is cut (actions/checkout: fetch-depth: 0)"
    more = (
        (f"{len(chosen) - len(near)} of {len(chosen)} records of main are {note}",) if len(chosen) > len(near) else ()
    )
    return FoundRecords(tuple(chosen), (*lookup.notes, *more))


def _before(record: Record, at: int | None) -> bool:
    return at is None or (record.committed_at is not None and record.committed_at <= at)


def look_up(
    repository: Repository, event: Event, remote: Remote | None = None, *, remote_name: str = "origin", limit: int = 20
) -> RecordQuery:
    """The look-up of a checkout. ``remote``: may be asked for history that the clone lacks (None: it may not)."""
    sha = repository.resolve("HEAD")
    head = repository.commit(sha) if sha else None
    found = resolved(repository, event, head, main_tip(repository, event, remote_name), lambda: remote)
    if found.sha is None:
        return RecordQuery(
            how=found.how, limit=limit, notes=(f"which commit to compare with is not known: {found.how}",)
        )
    walked, complete = _walk(repository, found.sha, remote)
    at = walked[0].at if walked else None
    if at is None and head is not None:
        at = head.at  # the merge commit is younger than what it was merged onto
    return RecordQuery(found.sha, found.how, tuple(one.sha for one in walked) or (found.sha,), complete, at, limit)


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


_REMOTE: Final = "origin"


@dataclass(frozen=True, slots=True)
class Upon:
    """What ``lookup.reference`` names, and the commit under test.

    ``of_main``: no change asks to be merged here, main itself is run. ``known_main``: git or the event
    says what main is; without it a commit before the head may be one of the change itself.
    """

    reference: Reference
    head: Commit | None = None
    of_main: bool = False
    known_main: bool = False

    @property
    def itself(self) -> bool:
        """Whether the commit to compare with is the very commit under test."""
        return self.head is not None and self.reference.sha == self.head.sha

    @property
    def exactly(self) -> str | None:
        """The commit of which it is sure that the change was put upon it; None where there is none. Pure."""
        return self.reference.sha if self.reference.exact and not self.itself else None

    def control(self, known: str | None = None) -> str | None:
        """The commit whose agent controls this one's; None where nothing says it. Pure.

        Of main itself ``known``, the commit its history is of, where that is behind; else the commit
        before. A guess would be worse than none: a commit of the change is as broken as the change.
        """
        if not self.itself:
            return self.reference.sha
        if known is not None:
            return known
        return self.head.parents[0] if self.head and self.head.parents and self.known_main else None

    @property
    def rules(self) -> str | None:
        """The commit whose rules and cases a change is held to; of main itself what was last committed. Pure."""
        if self.head is not None and (self.of_main or (self.itself and self.known_main)):
            return self.head.sha
        return None if self.itself else self.reference.sha


def put_upon(folder: Path, environ: Mapping[str, str], event: Event) -> Upon:
    """What the checkout around ``folder`` is put upon. A shallow clone's remote is asked for commits, not for files."""
    repository = Repository(folder, environ)
    sha = repository.resolve("HEAD")
    head = repository.commit(sha) if sha else None
    main = main_tip(repository, event)
    on_main = bool(event.default_branch) and event.ref == f"refs/heads/{event.default_branch}"
    # not opened before it is needed: most clones know what they were made of
    found = resolved(repository, event, head, main, lambda: remote_of(repository, _REMOTE, environ))
    return Upon(found, head, on_main and not event.is_change, on_main or event.is_change or main is not None)


def behind(folder: Path, environ: Mapping[str, str], known: str | None, head: Commit | None) -> str | None:
    """``known`` if it is a commit at or before the head."""
    if known is None or head is None or not is_sha(known):
        return None
    return known if Repository(folder, environ).merge_base(known, head.sha) == known else None
