"""The comment of a run: one per key, found by its first line, an HTML comment that untrusted text cannot forge."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.host import TEMPORARY, Account, ApiError, ApiErrorKind, Comment, CommentHost, pause_before

_MARKER: Final = re.compile(r"<!-- agent-eval-action:comment (\{.*\}) -->")
_FORGED: Final = re.compile(r"<!--(?=\s*agent-eval-action:)")
_LONGEST_VALUE: Final = 300  # characters
_TYPES: Final = {"str": str, "int": int}


@dataclass(frozen=True, slots=True)
class Marker:
    """Identifies a comment and its run. Long values are cut.

    ``key`` names the job, or is the input comment-key. ``run`` is the number of the run, ``run_id`` its id (0:
    unknown). ``outcome`` is the verdict, ``state`` what the mode ``changes`` compares.
    """

    key: str
    sha: str = ""
    run: int = 0
    attempt: int = 1
    run_id: int = 0
    outcome: str = ""
    state: str = ""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, str):
                object.__setattr__(self, name, value[:_LONGEST_VALUE])

    def is_newer_than(self, other: Marker) -> bool:
        """Return whether this is a later run, or a later attempt of the same run.

        Run numbers restart at 1 when a workflow file is renamed; run ids never do. If both are known, they must agree.
        """
        if self.run_id and self.run_id == other.run_id:
            return self.attempt > other.attempt
        if self.run_id and other.run_id:
            return self.run > other.run and self.run_id > other.run_id
        return (self.run, self.attempt) > (other.run, other.attempt)


def add_marker(marker: Marker, text: str) -> str:
    """Return the comment: the marker's line, then ``text`` with any other markers escaped."""
    values = {name: value for name, value in asdict(marker).items() if name == "key" or value not in ("", 0)}
    line = json.dumps(values, separators=(",", ":"))
    for character in "<>-":  # nothing may end the HTML comment
        line = line.replace(character, f"\\u{ord(character):04x}")
    return f"<!-- agent-eval-action:comment {line} -->\n\n{escape_markers(text).strip(chr(10))}\n"


def read_marker(body: str | None) -> Marker | None:
    """Return the marker of one of our comments; None for any other comment."""
    found = _MARKER.fullmatch((body or "").partition("\n")[0].strip())
    try:
        values: dict[str, Any] = json.loads(found[1]) if found else {}
    except ValueError:
        return None
    # people and later versions may have edited the comment
    known = {f.name: values[f.name] for f in fields(Marker) if type(values.get(f.name)) is _TYPES[str(f.type)]}
    return Marker(**known) if "key" in known else None


def escape_markers(text: str) -> str:
    """Escape our markers in ``text``, since code blocks quote agents verbatim."""
    return _FORGED.sub("<!\N{ZERO WIDTH SPACE}--", text)


BUDGETS: Final = (65_000, 48_000, 32_000, 16_000, 8_000)
"""Bytes, tried in turn after each "too long": GitHub's limit is 65,536 characters, undocumented how it counts them."""
_PATIENCE: Final = 120.0
_PAUSE: Final = (0.3, 0.9)
_MOST_WRITES: Final = 5
_QUIET: Final = frozenset({"pass", "collecting"})


@dataclass(frozen=True, slots=True)
class Published:
    """The result of publishing a comment. ``note``: one sentence for the log, or ""; ``url``: the comment's.

    ``written``: whether anything changed on the host. ``ok``: False if the note is a warning.
    """

    note: str = ""
    url: str = ""
    written: bool = False
    ok: bool = True


def publish(
    host: CommentHost, target: ChangeRequest, marker: Marker, render: Callable[[int], str], mode: str = "update"
) -> Published:
    """Write the comment on the change request. Never raises: a failure becomes a warning in the result.

    ``render`` returns the text without the marker, in at most the given number of bytes of UTF-8. ``mode``: update,
    recreate, changes or off, as in docs/comment.md.
    """
    if mode == "off":
        return Published()
    writer = _CommentWriter(host, target, marker, render, mode)
    try:
        return writer.run()
    except ApiError as error:
        advice = host.advice.get(error.kind)
        why = f"{error}. {advice}" if advice else str(error)
    except Exception as error:  # noqa: BLE001 - a failed comment must not change the verdict
        why = f"{type(error).__name__}: {error}"[:500]
    return Published(f"no comment on {target}: {why}", writer.url, writer.written is not None, ok=False)


@dataclass
class _CommentWriter:
    """Writes one comment. ``written``: the comment as last written."""

    host: CommentHost
    target: ChangeRequest
    marker: Marker
    render: Callable[[int], str]
    mode: str
    url: str = ""
    written: Comment | None = None
    _viewer: Account | None = None
    _budget: int = 0
    _writes: int = 0

    def run(self) -> Published:
        """Read and write until the host has exactly one comment with our key, and it is ours."""
        clock = self.host.clock
        ends, failed = clock.now() + _PATIENCE, 0
        while True:
            try:
                found = self._find()
                if (result := self._result(found)) is not None:
                    return result
                self._write(found)
                pause = random.uniform(*_PAUSE)  # noqa: S311 - jitter
            except ApiError as error:
                if error.kind is ApiErrorKind.TOO_LONG and self._budget + 1 < len(BUDGETS):
                    self._budget += 1
                    continue
                # if the comment is gone, search again; if the change request is missing, give up
                gone = error.kind is ApiErrorKind.MISSING and bool(self.url)
                if not gone and error.kind not in TEMPORARY:
                    raise
                failed += 1
                pause = pause_before(failed) if error.wait is None else error.wait
                if clock.now() + pause > ends:
                    raise
            clock.sleep(pause)

    def _find(self) -> list[tuple[Comment, Marker]]:
        """Return our comments with this key, oldest first; when recreating, this run's comment first."""
        if self._viewer is None:
            self._viewer = self.host.viewer()
        listed = self.host.comments(self.target)
        if self.written is not None and all(comment.id != self.written.id for comment in listed):
            try:  # the list may be stale; if it lacked our comment, we would write a second one
                listed.append(self.host.comment(self.target, self.written.id))
            except ApiError as error:
                if error.kind is not ApiErrorKind.MISSING:
                    raise
        marked = [(comment, read_marker(comment.body)) for comment in listed if self._viewer.is_same(comment.author)]
        found = [(comment, marker) for comment, marker in marked if marker and marker.key == self.marker.key]
        found.sort(key=lambda item: (self._must_recreate(item[1]), item[0].id))
        self.url = found[0][0].url if found else ""
        return found

    def _result(self, found: list[tuple[Comment, Marker]]) -> Published | None:
        """Return the final result; None while there is something to write."""
        newest = next((marker for _, marker in found if marker.is_newer_than(self.marker)), None)
        if newest is not None:
            which = f"run {newest.run}" + (f" (attempt {newest.attempt})" if newest.attempt > 1 else "")
            note = f"the comment was left as the newer {which} wrote it"
            return Published(note, self.url, self.written is not None)
        if self.written is None:
            return self._unchanged(found) if self.mode == "changes" else None
        if self._writes == _MOST_WRITES:
            if not found:
                raise ApiError(ApiErrorKind.ANSWER, "what was written is not there when it is looked for")
            return Published("another run was still writing the comment", self.url, written=True)
        ours = [(comment.id, comment.body) for comment, _ in found] == [(self.written.id, self.written.body)]
        return Published(url=self.url, written=True) if ours else None

    def _unchanged(self, found: list[tuple[Comment, Marker]]) -> Published | None:
        if found and found[0][1].state == self.marker.state:
            return Published("the comment was not edited: nothing changed", self.url)
        if not found and self.marker.outcome in _QUIET:
            return Published("no comment: there is none yet, and nothing to object to")
        return None

    def _write(self, found: list[tuple[Comment, Marker]]) -> None:
        """Create or edit the comment, and delete all others with its key."""
        self._writes += 1
        stays = found[0][0] if found and not self._must_recreate(found[0][1]) else None
        room = BUDGETS[self._budget] - len(add_marker(self.marker, "").encode())
        body = add_marker(self.marker, self.render(room))
        if stays is None:
            made = self.host.create_comment(self.target, body)
        elif self.written is None or (stays.id, stays.body) != (self.written.id, self.written.body):
            made = self.host.update_comment(self.target, stays.id, body)
        else:
            made = stays
        self.url, self.written = made.url, made
        self._viewer = made.author or self._viewer  # our own comment's author is more reliable than the viewer query
        for other, _ in found:
            if other.id != made.id:
                self.host.delete_comment(self.target, other.id)

    def _must_recreate(self, marker: Marker) -> bool:
        own = self.marker
        is_same_run = (marker.run_id, marker.run, marker.attempt) == (own.run_id, own.run, own.attempt)
        return self.mode == "recreate" and not is_same_run
