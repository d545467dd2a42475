"""Resolve the base commit of a checkout: a change is compared with it, and its rules apply to the change."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from agent_eval_action.git.repository import ORIGIN, Commit, Remote, Repository, Scratch, is_sha, remote_of

WALK: Final = 1_000
"""How many ancestors to look at; older records say little about main."""


Answer = TypeVar("Answer")


class EventKind(enum.StrEnum):
    """Why CI runs this job, in CI-neutral terms."""

    LOCAL = "local"  # not in CI
    CHANGE = "change"  # a pull or merge request
    PRIVILEGED_CHANGE = "privileged change"  # a pull request, run with the secrets of its base
    QUEUE = "merge queue"
    PUSH = "push"
    SCHEDULE = "schedule"
    MANUAL = "manual"
    FOLLOW_UP = "follow-up"  # started by the end of another run
    OTHER = "other"


_CHANGES: Final = frozenset({EventKind.CHANGE, EventKind.PRIVILEGED_CHANGE, EventKind.QUEUE})


@dataclass(frozen=True, slots=True)
class Event:
    """The CI event of this run, as far as git needs it. Commits are full object names.

    ``name``: the CI's name of the event. ``ref``: like ``refs/heads/main``. ``default_branch``: like ``main``.
    ``base_ref``: the target branch of a change. ``base_sha``: for a pull request the tip of its base branch when the
    event fired, for a merge queue the commit that the group is based on. ``sha``: the commit that the run is about,
    whatever is checked out. ``base_is_first_parent``: the CI merges a change into its base, so the merge commit's first
    parent is the base; False if it may merge the base into the change. ``keeps_branch``: records of main are kept on a
    branch unless a file with them is committed. ``clone_hint``: how a job fetches more history; ``{}`` stands for the
    number of commits.
    """

    kind: EventKind = EventKind.LOCAL
    ref: str = ""
    default_branch: str = ""
    base_ref: str = ""
    base_sha: str | None = None
    head_sha: str | None = None
    sha: str | None = None
    fork: bool = False
    base_is_first_parent: bool = True
    keeps_branch: bool = False
    name: str = ""
    clone_hint: str = "git fetch --unshallow"

    @property
    def is_change(self) -> bool:
        """Whether the tested commit is not yet part of main."""
        return self.kind in _CHANGES

    @property
    def on_main(self) -> bool:
        """Whether the run is for the default branch."""
        return bool(self.default_branch) and self.ref == f"refs/heads/{self.default_branch}"


@dataclass(frozen=True, slots=True)
class Reference:
    """The commit that a run is compared with; ``how`` describes it for people.

    With ``tip`` (a commit, or a branch ``refs/heads/…`` of the remote), the merge base of that and the head is needed.
    ``exact``: the change is based on exactly this commit; otherwise it may be based on a later one.
    """

    sha: str | None
    how: str
    tip: str | None = None
    exact: bool = field(default=True, compare=False)


def expected_reference(event: Event, head: Commit | None, main: str | None = None) -> Reference:
    """The commit to compare with, given the event and the tested commit. Pure.

    ``main``: the tip of the main branch in this clone.
    """
    if event.kind is EventKind.QUEUE and event.base_sha:
        return Reference(event.base_sha, "the commit the merge queue's group is based on")
    if head is None:
        how = "the base the event names" if event.base_sha else "there is no commit"
        return Reference(event.base_sha, how, exact=False)
    if event.kind in {EventKind.CHANGE, EventKind.PRIVILEGED_CHANGE}:
        return _reference_of_change(event, head, main)
    if event.kind is EventKind.PUSH and (event.on_main or not event.default_branch):
        how = "the commit's first parent" if head.parents else "the first commit has nothing before it"
        return Reference(head.parents[0] if head.parents else None, how)
    if main is not None and main != head.sha and not event.on_main:
        return Reference(None, "where the branch left main", tip=main)
    return Reference(head.sha, "the commit that is checked out")


def _reference_of_change(event: Event, head: Commit, main: str | None) -> Reference:
    left = "where the pull request left its base"
    branch = f"refs/heads/{event.base_ref}" if event.base_ref else None
    if head.sha == event.head_sha:
        tip = event.base_sha or main or branch
        return Reference(None, left, tip=tip) if tip else Reference(None, "no base")
    is_merge = len(head.parents) > 1
    if is_merge and event.base_is_first_parent and event.head_sha in (None, head.parents[1]):
        return Reference(head.parents[0], "the merge commit's first parent")
    if head.sha == event.base_sha or (event.kind is EventKind.PRIVILEGED_CHANGE and head.sha == main):
        return Reference(head.sha, "the base that is checked out")
    if event.base_sha is None and (tip := main or branch) is not None:
        return Reference(None, left, tip=tip)
    return Reference(event.base_sha, "the base the event names, which may be older than what was merged", exact=False)


def ask_remote(
    repository: Repository, remote: Remote, names: Sequence[str], question: Callable[..., Answer]
) -> Answer | None:
    """Return ``question(repository, *commits)`` for the commits that these names (commits or refs) have on the remote.

    Their history is fetched without files into a private repository. None if that fails.
    """
    with contextlib.suppress(OSError), Scratch.open(remote, repository.environ) as scratch:
        commits: list[str] = []
        for name in names:
            if (sha := scratch.fetch(name, depth=WALK, commits_only=True).sha) is None:
                return None
            commits.append(sha)
        return question(scratch, *commits)
    return None


@dataclass(frozen=True, slots=True)
class CheckoutBase:
    """The tested commit and the commit it is compared with.

    ``of_main``: this is a run of main itself. ``known_main``: git or the event names main; otherwise the commit before
    the head may be part of the change.
    """

    reference: Reference
    head: Commit | None = None
    of_main: bool = False
    known_main: bool = False

    @property
    def is_head(self) -> bool:
        """Whether the commit to compare with is the tested commit."""
        return self.head is not None and self.reference.sha == self.head.sha

    @property
    def exact_sha(self) -> str | None:
        """The commit that the change is certainly based on, or None."""
        return self.reference.sha if self.reference.exact and not self.is_head else None

    def control(self, recorded: str | None = None) -> str | None:
        """The commit whose agent serves as the control, or None if unknown.

        ``recorded``: for main itself, the commit of its newest record if that is behind; without it, the parent commit
        is used. Nothing is guessed, since a commit of the change would be as broken as the change.
        """
        if not self.is_head:
            return self.reference.sha
        if recorded is not None:
            return recorded
        return self.head.parents[0] if self.head and self.head.parents and self.known_main else None

    @property
    def rules(self) -> str | None:
        """The commit whose rules and cases apply; for main itself the head."""
        if self.head is not None and (self.of_main or (self.is_head and self.known_main)):
            return self.head.sha
        return None if self.is_head else self.reference.sha


def resolve_base(
    repository: Repository,
    event: Event,
    remote_name: str = ORIGIN,
    open_remote: Callable[[], Remote | None] | None = None,
) -> CheckoutBase:
    """Resolve the base of a checkout. If the clone lacks history, commits without files are fetched from a remote.

    ``open_remote``: by default opens the remote ``remote_name``.
    """
    head = repository.head()
    # the tip of a change's target branch, else of the main branch, in this clone
    named = (event.base_ref if event.is_change else "") or event.default_branch
    names = [named] if named else ["HEAD", "main", "master"]
    places = [f"refs/remotes/{remote_name}/{name}" for name in names]
    places += [f"refs/heads/{name}" for name in names if name != "HEAD"]
    main = next((sha for place in places if (sha := repository.resolve(place))), None) if head else None
    reference = expected_reference(event, head, main)
    if reference.tip is not None and head is not None:
        find = open_remote or partial(remote_of, repository, remote_name, repository.environ)
        reference = _merge_base(repository, event, head, reference, find)
    of_main = event.on_main and not event.is_change
    return CheckoutBase(reference, head, of_main, event.on_main or event.is_change or main is not None)


def _merge_base(
    repository: Repository, event: Event, head: Commit, found: Reference, open_remote: Callable[[], Remote | None]
) -> Reference:
    tip = found.tip or ""
    if is_sha(tip) and (base := repository.merge_base(head.sha, tip)):
        return Reference(base, found.how)
    if (remote := open_remote()) is not None:
        # the remote does not have a merge commit that CI made locally, but has its parents
        for commits in ((head.sha,), head.parents) if len(head.parents) > 1 else ((head.sha,),):
            if base := ask_remote(repository, remote, (tip, *commits), Repository.merge_base):
                return Reference(base, found.how)
    if not is_sha(tip):
        return Reference(None, f"the branch {event.base_ref} is neither in this clone nor can it be fetched")
    return Reference(tip, f"the base the event names: {found.how} is beyond the clone's history", exact=False)


def commit_behind(repository: Repository, sha: str | None, head: Commit | None) -> str | None:
    """Return ``sha`` if it is the head or an ancestor of it, else None."""
    if sha is None or head is None or not is_sha(sha):
        return None
    return sha if repository.merge_base(sha, head.sha) == sha else None
