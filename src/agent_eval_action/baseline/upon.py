"""The commit a change is put upon, found once for all: the control, `baseline: rerun` and what weakens the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.lookup import Event, Reference, main_tip, resolved
from agent_eval_action.git import Commit, Repository, remote_of
from agent_eval_action.git.repository import is_sha

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
