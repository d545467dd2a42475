"""The comment on a pull request: found, merged with what other jobs wrote, written, and looked at again.

GitHub offers no way to write only if nobody else has: what two jobs write at once is put right by looking again
after a pause, for as long as others still write.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from agent_eval_action.github.connection import pause_before
from agent_eval_action.github.refusals import GitHubError, Refusal
from agent_eval_action.github.rest import Comment, GitHub, PullRequest, User, is_author
from agent_eval_action.github.room import shares, shortened
from agent_eval_action.github.sections import (
    CommentText,
    Kept,
    Stamp,
    around,
    as_kept,
    merged,
    put_together,
    taken_apart,
)

Mode = Literal["update", "recreate", "changes", "off"]

BUDGETS: Final = (65_000, 48_000, 32_000, 16_000, 8_000)
"""Bytes, the next after each "too long": GitHub names 65,536 characters and is not said to count as we do."""
_PATIENCE: Final = 120.0
_ROUNDS: Final = 40
_PAUSE: Final = (0.3, 0.9)
_LONGEST_PAUSE: Final = 6.0
_STALE: Final = 0.25
_TRIES_TO_BE_FRESH: Final = 5
_STEP: Final = 1024
_MOST_CREATED: Final = 5
_QUIET: Final = frozenset({"pass", "collecting"})


@dataclass(frozen=True, slots=True)
class Section:
    """What this job has to say. ``render`` gives it in at most so many bytes of UTF-8, without any marker."""

    stamp: Stamp
    render: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Published:
    """What became of it. ``note`` is one sentence for the log, "" when there is nothing to say; ``url`` the comment's.

    ``written``: whether anything on GitHub was changed. ``ok`` is False when the note is a warning.
    """

    note: str = ""
    url: str = ""
    written: bool = False
    ok: bool = True


def publish(github: GitHub, target: PullRequest, section: Section, mode: Mode = "update") -> Published:
    """Bring the section into the pull request's comment. Never raises: a comment that fails is a warning."""
    if mode == "off":
        return Published()
    work = _Work(github, target, Section(as_kept(section.stamp), section.render), mode)
    try:
        return work.done()
    except GitHubError as error:
        return Published(f"no comment on {target}: {_advice(error)}", work.url, work.written, ok=False)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a comment, the verdict stands
        what = f"{type(error).__name__}: {error}"
        return Published(f"no comment on {target}: {what[:500]}", work.url, work.written, ok=False)


@dataclass(frozen=True, slots=True)
class _Found:
    comment: Comment
    text: CommentText


@dataclass
class _Work:
    """One publication. ``known`` are other jobs' sections as last seen: what one of them loses can be given back."""

    github: GitHub
    target: PullRequest
    section: Section
    mode: Mode
    url: str = ""
    written: bool = False
    known: dict[str, Kept] = field(default_factory=dict)
    viewer: User | None = None
    _budget: int = 0
    _failed: int = 0
    _created: int = 0
    _before: str = ""
    _window: float = 0.0
    _wrote_section: bool = False
    _written: int | None = None
    _rendered: dict[int, str] = field(default_factory=dict)

    def done(self) -> Published:
        """Write, wait, look again, until the comment holds everything and nobody else writes."""
        clock = self.github.clock
        ends = clock.now() + _PATIENCE
        for _ in range(_ROUNDS):
            try:
                ended, pause = self._step(), self._pause()
            except GitHubError as error:
                ended, pause = None, self._pause_after(error)
                if clock.now() + pause > ends:
                    raise
            if ended is not None:
                return ended
            if clock.now() > ends:
                break
            clock.sleep(pause)
        if self._wrote_section:
            return Published("other jobs were still writing the comment", self.url, self.written)
        return Published(f"no comment on {self.target}: it kept changing", self.url, self.written, ok=False)

    def _step(self) -> Published | None:
        found = self._look()
        ended = self._nothing_to_do(found)
        if ended is not None:
            return ended
        if not self._is_whole(found):
            self._before = self._write(found)
            return None
        self._remove(found[1:])
        body, before = found[0].comment.body or "", self._before
        self._before = body
        return Published(url=self.url, written=self.written) if len(found) == 1 and body == before else None

    def _pause_after(self, error: GitHubError) -> float:
        """Seconds until another try; raises when none would help."""
        if error.kind is Refusal.TOO_LONG and self._budget + 1 < len(BUDGETS):
            self._budget += 1
            return 0.0
        # a comment that is gone is looked for anew; a pull request that is not there is not
        gone = error.kind is Refusal.MISSING and bool(self.url)
        if not gone and error.kind not in {Refusal.UNAVAILABLE, Refusal.LIMITED}:
            raise error
        self._failed += 1
        return pause_before(self._failed) if error.wait is None else error.wait

    def _look(self) -> list[_Found]:
        """Our comments, the one to keep first; what they hold is remembered."""
        if self.viewer is None:
            self.viewer = self._who()
        found = []
        for comment in self._comments():
            text = taken_apart(comment.body)
            if text is not None and is_author(self.viewer, comment.user):
                found.append(_Found(comment, text))
        ours = self.section.stamp.made_by if self.mode == "recreate" else None
        found.sort(key=lambda one: (ours is not None and one.text.made_by != ours, one.comment.id))
        self._remember(found)
        self.url = found[0].comment.html_url if found else ""
        return found

    def _comments(self) -> list[Comment]:
        """All there are; also the one we wrote where the list is behind, or we would write a second."""
        listed = self.github.comments(self.target)
        if self._written is None or any(comment.id == self._written for comment in listed):
            return listed
        try:
            return [*listed, self.github.comment(self.target, self._written)]
        except GitHubError as error:
            if error.kind is not Refusal.MISSING:
                raise
            self._written = None  # another job has merged it into an older one
            return listed

    def _who(self) -> User:
        """Whose token this is; where GraphQL does not say, it is taken for a job's own."""
        try:
            return self.github.viewer()
        except GitHubError as error:
            if error.kind not in {Refusal.ANSWER, Refusal.PERMISSION, Refusal.MISSING}:
                raise
            return User(login="github-actions")

    def _remember(self, found: list[_Found]) -> None:
        seen = merged([*(one.text for one in found), CommentText(self.known)])
        self.known = {key: kept for key, kept in seen.items() if key != self.section.stamp.key}

    def _nothing_to_do(self, found: list[_Found]) -> Published | None:
        mine = merged(one.text for one in found).get(self.section.stamp.key)
        stamp = self.section.stamp
        if mine is not None and mine.stamp.is_newer_than(stamp):
            which = f"run {mine.stamp.run}" + (f" (attempt {mine.stamp.attempt})" if mine.stamp.attempt > 1 else "")
            return Published(f"the comment was left as the newer {which} wrote it", self.url, self.written)
        if self.mode != "changes" or self._wrote_section:
            return None
        if mine is None and stamp.outcome in _QUIET:
            return Published("no comment: there is none yet, and nothing to object to")
        if mine is not None and mine.stamp.state == stamp.state:
            return Published("the comment was left as it is: it says the same", self.url)
        return None

    def _is_whole(self, found: list[_Found]) -> bool:
        """Whether the first holds our section and all that is known of the others'."""
        if not self._wrote_section or not found or self._must_recreate(found):
            return False
        held = found[0].text.sections
        mine = held.get(self.section.stamp.key)
        if mine is None or mine.stamp != self.section.stamp:
            return False
        return all(key in held and not kept.stamp.is_newer_than(held[key].stamp) for key, kept in self.known.items())

    def _must_recreate(self, found: list[_Found]) -> bool:
        return self.mode == "recreate" and found[0].text.made_by != self.section.stamp.made_by

    def _write(self, found: list[_Found]) -> str:
        """Create or edit the comment; returns its text."""
        clock = self.github.clock
        if not found and not self._wrote_section:
            # jobs of a matrix end at once: let one of them be first, for every new comment sends mail
            clock.sleep(random.uniform(0.0, _PAUSE[1]))  # noqa: S311 - jitter
            found = self._look()
        if not found or self._must_recreate(found):
            if self._created == _MOST_CREATED:
                raise GitHubError(Refusal.ANSWER, "what was written is not there when it is looked for")
            self._created += 1
            made = self.github.create_comment(self.target, self._body(self.section.stamp.made_by))
            self._is_written(made)
            self._remove(found)
            return made.body or ""
        self._body(found[0].text.made_by)  # what takes time is done before the comment is read
        self.github.connection.wait_to_write()
        for _ in range(_TRIES_TO_BE_FRESH):
            read = clock.now()
            fresh = self.github.comment(self.target, found[0].comment.id)
            text = taken_apart(fresh.body) or CommentText({}, found[0].text.made_by)
            self._remember([_Found(fresh, text), *found[1:]])
            mine = text.sections.get(self.section.stamp.key)
            if mine is not None and mine.stamp.is_newer_than(self.section.stamp):
                return ""  # the next look says so
            body = self._body(text.made_by)
            if clock.now() - read < _STALE:
                break
        made = self.github.update_comment(self.target, found[0].comment.id, body)
        self._window = clock.now() - read
        self._is_written(made)
        return made.body or ""

    def _is_written(self, made: Comment) -> None:
        self.url, self.written, self._wrote_section, self._written = made.html_url, True, True, made.id
        self.viewer = made.user or self.viewer  # who wrote it is who we are, whatever was said before

    def _remove(self, found: list[_Found]) -> None:
        """Remove comments whose sections stand in the one that is kept."""
        for one in found:
            self.github.delete_comment(self.target, one.comment.id)
            self.written = True

    def _pause(self) -> float:
        """Long enough for a job that read before we wrote to have written: as long as our own reading and writing."""
        return min(max(random.uniform(*_PAUSE), 2 * self._window), _LONGEST_PAUSE)  # noqa: S311 - jitter

    def _body(self, made_by: str) -> str:
        """Everything known, with our own section, inside the budget."""
        budget = BUDGETS[self._budget]
        stamp = self.section.stamp
        room = budget - around([stamp, *(kept.stamp for kept in self.known.values())])
        own = self._render(room // _STEP * _STEP if room > _STEP else room)  # others' growth is no reason to draw anew
        size = len(own.encode())
        wanted = {key: len(kept.text.encode()) for key, kept in self.known.items()}
        given = shares({**wanted, stamp.key: size}, room)
        others = [Kept(kept.stamp, shortened(kept.text, given[key])) for key, kept in self.known.items()]
        mine = own if size <= given[stamp.key] else self._render(given[stamp.key])
        return put_together([*others, Kept(stamp, mine)], made_by)

    def _render(self, room: int) -> str:
        if room not in self._rendered:
            self._rendered[room] = self.section.render(room)
        return self._rendered[room]


def _advice(error: GitHubError) -> str:
    match error.kind:
        case Refusal.PERMISSION:
            return (
                f"{error.message}. The job needs `permissions: pull-requests: write`; "
                "a pull request from a fork or of Dependabot has a token that may only read"
            )
        case Refusal.TOKEN:
            return f"{error.message}. The input github-token is not a token of this GitHub, or it has expired"
        case Refusal.MISSING:
            return f"{error.message}. There is no such pull request, or the token may not see the repository"
        case _:
            return error.message
