"""The comment of a run: one per key, found by its first line, an HTML comment that no other text can forge."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, Protocol

from pydantic import AliasChoices, Field

from agent_eval_action.ci.api_client import ApiError, ApiErrorKind, ApiModel, Clock, pause_before
from agent_eval_action.ci.base import ChangeRequest

_MARKER: Final = re.compile(r"<!-- agent-eval-action:comment (\{.*\}) -->")
_FORGED: Final = re.compile(r"<!--(?=\s*agent-eval-action:)")
_LONGEST_VALUE: Final = 300  # characters
_BOT: Final = "[bot]"


class Account(ApiModel):
    """Who wrote a comment. GraphQL may leave out the ``[bot]`` of an app's login, REST never does."""

    login: str = Field(validation_alias=AliasChoices("login", "username"))
    id: int | None = None


class Comment(ApiModel):
    """A comment on a change request; ``author`` is None when the account is gone."""

    id: int
    body: str | None = None
    url: str = Field("", validation_alias="html_url")
    author: Account | None = Field(None, validation_alias=AliasChoices("author", "user"))


class CommentHost(Protocol):
    """Where comments are written. Every method raises ApiError and nothing else."""

    @property
    def clock(self) -> Clock: ...

    def viewer(self) -> Account:
        """Whose token this is."""
        ...

    def comments(self, target: ChangeRequest) -> list[Comment]:
        """All comments, oldest first."""
        ...

    def comment(self, target: ChangeRequest, number: int) -> Comment: ...

    def create_comment(self, target: ChangeRequest, body: str) -> Comment:
        """Write a comment; never tried again, for it may have been written."""
        ...

    def update_comment(self, target: ChangeRequest, number: int, body: str) -> Comment:
        """Replace a comment's text; never tried again, for another job may have written meanwhile."""
        ...

    def delete_comment(self, target: ChangeRequest, number: int) -> None: ...

    def advice(self, error: ApiError) -> str:
        """What to do about a comment that was refused; "" where nothing can be said."""
        ...

    def close(self) -> None: ...


def is_author(viewer: Account, author: Account | None) -> bool:
    """Whether a comment is the viewer's: by number where both have one, else by the login without ``[bot]``."""
    if author is None:
        return False
    if viewer.id is not None and author.id is not None:
        return viewer.id == author.id
    return viewer.login.lower().removesuffix(_BOT) == author.login.lower().removesuffix(_BOT)


@dataclass(frozen=True, slots=True)
class Marker:
    """Whose comment it is and of which run.

    ``key`` names the job, or what the input comment-key says. ``run`` is the number of the run, ``run_id`` its id
    (0: unknown). ``outcome`` is the verdict, ``state`` what the mode
    ``changes`` compares.
    """

    key: str
    sha: str = ""
    run: int = 0
    attempt: int = 1
    run_id: int = 0
    outcome: str = ""
    state: str = ""

    def is_newer_than(self, other: Marker) -> bool:
        """Whether this is of a later run, or of a later attempt of the same run.

        Run numbers begin again at 1 when a workflow's file is renamed, run ids never do: where both are known
        they have to agree.
        """
        if self.run_id and self.run_id == other.run_id:
            return self.attempt > other.attempt
        if self.run_id and other.run_id:
            return self.run > other.run and self.run_id > other.run_id
        return (self.run, self.attempt) > (other.run, other.attempt)

    def is_of_same_run(self, other: Marker) -> bool:
        """Whether both are of one attempt of one run."""
        return (self.run_id, self.run, self.attempt) == (other.run_id, other.run, other.attempt)


def add_marker(marker: Marker, text: str) -> str:
    """The comment: the marker's line, then ``text``, in which no other marker is left."""
    return f"{_line(marker)}\n\n{escape_markers(text).strip(chr(10))}\n"


def read_marker(body: str | None) -> Marker | None:
    """The marker of a comment of ours; None for any other comment."""
    line = (body or "").partition("\n")[0].strip()
    found = _MARKER.fullmatch(line)
    values = _object(found[1]) if found else None
    if values is None or not isinstance(values.get("key"), str):
        return None
    known: dict[str, Any] = {}  # a comment can be edited by hand, and by later versions
    for field in fields(Marker):
        value = values.get(field.name)
        if isinstance(value, str if field.type == "str" else int) and not isinstance(value, bool):
            known[field.name] = value
    return Marker(**known)


def normalize_marker(marker: Marker) -> Marker:
    """The marker as it is read back: long values are cut."""
    return read_marker(_line(marker)) or marker


def escape_markers(text: str) -> str:
    """``text`` without markers of ours: what an agent says stands in code blocks as it is."""
    return _FORGED.sub("<!\N{ZERO WIDTH SPACE}--", text)


def _line(marker: Marker) -> str:
    """An HTML comment on one line: nothing in it can end it."""
    values = {
        name: value[:_LONGEST_VALUE] if isinstance(value, str) else value for name, value in asdict(marker).items()
    }
    kept = {name: value for name, value in values.items() if name == "key" or value not in ("", 0)}
    line = json.dumps(kept, separators=(",", ":"))
    for character in "<>-":
        line = line.replace(character, f"\\u{ord(character):04x}")
    return f"<!-- agent-eval-action:comment {line} -->"


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


Mode = Literal["update", "recreate", "changes", "off"]

BUDGETS: Final = (65_000, 48_000, 32_000, 16_000, 8_000)
"""Bytes, the next after each "too long": GitHub names 65,536 characters and does not say how it counts them."""
_PATIENCE: Final = 120.0
_PAUSE: Final = (0.3, 0.9)
_MOST_WRITES: Final = 5
_QUIET: Final = frozenset({"pass", "collecting"})


@dataclass(frozen=True, slots=True)
class RunComment:
    """What a run has to say. ``render`` gives it in at most so many bytes of UTF-8, without the marker."""

    marker: Marker
    render: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Published:
    """What became of it. ``note`` is one sentence for the log, "" when there is nothing to say; ``url`` the comment's.

    ``written``: whether anything on the host was changed. ``ok`` is False when the note is a warning.
    """

    note: str = ""
    url: str = ""
    written: bool = False
    ok: bool = True


def publish(host: CommentHost, target: ChangeRequest, comment: RunComment, mode: Mode = "update") -> Published:
    """Write the comment on the change request. Never raises: a comment that fails is a warning."""
    if mode == "off":
        return Published()
    sync = CommentSync(host, target, normalize_marker(comment.marker), comment.render, mode)
    try:
        return sync.run()
    except ApiError as error:
        advice = host.advice(error)
        note = f"no comment on {target}: {error}{f'. {advice}' if advice else ''}"
        return Published(note, sync.url, sync.written, ok=False)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a comment, the verdict stands
        what = f"{type(error).__name__}: {error}"
        return Published(f"no comment on {target}: {what[:500]}", sync.url, sync.written, ok=False)


@dataclass(frozen=True, slots=True)
class _Found:
    comment: Comment
    marker: Marker


@dataclass
class CommentSync:
    """Writes one comment. ``last``: the comment as we wrote it last."""

    host: CommentHost
    target: ChangeRequest
    marker: Marker
    render: Callable[[int], str]
    mode: Mode
    url: str = ""
    written: bool = False
    viewer: Account | None = None
    last: Comment | None = None
    _budget: int = 0
    _writes: int = 0

    def run(self) -> Published:
        """Look and write until there is exactly our comment."""
        clock = self.host.clock
        ends, failed = clock.now() + _PATIENCE, 0
        while True:
            try:
                found = self._find()
                if (ended := self._result(found)) is not None:
                    return ended
                self._write(found)
                pause = random.uniform(*_PAUSE)  # noqa: S311 - jitter
            except ApiError as error:
                failed += 1
                pause = self._pause_after(error, failed)
                if clock.now() + pause > ends:
                    raise
            clock.sleep(pause)

    def _find(self) -> list[_Found]:
        """Our comments under this key, oldest first; when recreating, the one of this run first."""
        if self.viewer is None:
            self.viewer = self.host.viewer()
        found = []
        for comment in self._comments():
            marker = read_marker(comment.body)
            if marker is not None and marker.key == self.marker.key and is_author(self.viewer, comment.author):
                found.append(_Found(comment, marker))
        found.sort(key=lambda item: (self._must_recreate(item), item.comment.id))
        self.url = found[0].comment.url if found else ""
        return found

    def _comments(self) -> list[Comment]:
        """All there are; also the one we wrote where the list is behind, or we would write a second."""
        listed = self.host.comments(self.target)
        if self.last is None or any(comment.id == self.last.id for comment in listed):
            return listed
        try:
            return [*listed, self.host.comment(self.target, self.last.id)]
        except ApiError as error:
            if error.kind is not ApiErrorKind.MISSING:
                raise
            return listed

    def _result(self, found: list[_Found]) -> Published | None:
        """How it ended; None while there is something to write."""
        newest = next((item.marker for item in found if item.marker.is_newer_than(self.marker)), None)
        if newest is not None:
            which = f"run {newest.run}" + (f" (attempt {newest.attempt})" if newest.attempt > 1 else "")
            return Published(f"the comment was left as the newer {which} wrote it", self.url, self.written)
        if self.last is None:
            return self._unchanged(found) if self.mode == "changes" else None
        if self._writes == _MOST_WRITES:
            if not found:
                raise ApiError(ApiErrorKind.ANSWER, "what was written is not there when it is looked for")
            return Published("another run was still writing the comment", self.url, self.written)
        ours = len(found) == 1 and found[0].comment.id == self.last.id and found[0].comment.body == self.last.body
        return Published(url=self.url, written=True) if ours else None

    def _unchanged(self, found: list[_Found]) -> Published | None:
        if not found:
            quiet = self.marker.outcome in _QUIET
            return Published("no comment: there is none yet, and nothing to object to") if quiet else None
        same = found[0].marker.state == self.marker.state
        return Published("the comment was left as it is: it says the same", self.url) if same else None

    def _write(self, found: list[_Found]) -> None:
        """Create or edit the comment, and remove every other of its key."""
        self._writes += 1
        stays = found[0] if found and not self._must_recreate(found[0]) else None
        body = add_marker(self.marker, self.render(BUDGETS[self._budget] - len(add_marker(self.marker, "").encode())))
        if stays is None:
            made = self.host.create_comment(self.target, body)
        elif self.last is None or (stays.comment.id, stays.comment.body) != (self.last.id, self.last.body):
            made = self.host.update_comment(self.target, stays.comment.id, body)
        else:
            made = stays.comment
        self.url, self.written, self.last = made.url, True, made
        self.viewer = made.author or self.viewer  # who wrote it is who we are, whatever was said before
        for other in found:
            if other.comment.id != made.id:
                self.host.delete_comment(self.target, other.comment.id)

    def _must_recreate(self, found: _Found) -> bool:
        return self.mode == "recreate" and not found.marker.is_of_same_run(self.marker)

    def _pause_after(self, error: ApiError, failed: int) -> float:
        """Seconds until another try; raises when none would help."""
        if error.kind is ApiErrorKind.TOO_LONG and self._budget + 1 < len(BUDGETS):
            self._budget += 1
            return 0.0
        # a comment that is gone is looked for anew; a change request that is not there is not
        gone = error.kind is ApiErrorKind.MISSING and bool(self.url)
        if not gone and error.kind not in {ApiErrorKind.UNAVAILABLE, ApiErrorKind.LIMITED}:
            raise error
        return pause_before(failed) if error.wait is None else error.wait
