"""Values that are in no file and no log: secrets are taken out of every text before it is stored or shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, Literal, TypeVar, cast, get_origin

from pydantic import BaseModel

HIDDEN: Final = "***"
LEAST: Final = 6
"""Characters of the shortest value that is hidden: what is shorter stands in every second line by chance."""
_CUT: Final = "…"
_SENTENCE: Final = 20_000  # what was shortened is no longer than this
_LONGEST_CUT: Final = 300
_ALIKE: Final = 100

# What results are kept and found under comes from the repository's own files, and has to stay what it is.
_NAMES: Final = frozenset(
    {"agent", "eval_set", "case", "criterion", "path", "commit", "id", "invocation_id", "rubric_id"}
)
# A user's pattern may fit more than it is meant for: what says when, by what version and of what kind is no text.
_FACTS: Final = frozenset(
    {"digest", "case_digest", "packages_digest", "scoring_version", "tool_version", "started_at", "created_at", "role"}
    | {"mime_type", "fail_on", "threshold_on"}
)

_Value = TypeVar("_Value")


def pieces(value: str) -> tuple[str, ...]:
    """What of a value is hidden: all of it, and each of its lines, for a log shows lines."""
    lines = [line.strip() for line in value.splitlines()]
    found = dict.fromkeys(piece for piece in (value.strip(), *lines) if len(piece) >= LEAST)
    return tuple(found)


class Redaction:
    """The values to hide in one process; it grows as they become known. An empty one changes nothing."""

    def __init__(self, rewrites: Iterable[Callable[[str], str]] = ()) -> None:
        self._hidden: set[str] = set()
        self._rewrites = tuple(rewrites)
        self._found: re.Pattern[str] | None = None
        self._beginnings: dict[str, list[str]] = {}

    def hide(self, values: Iterable[str]) -> tuple[str, ...]:
        """Hide these from now on. Returns the pieces that were not hidden before."""
        new = dict.fromkeys(piece for value in values for piece in pieces(value) if piece not in self._hidden)
        if new:
            self._hidden.update(new)
            longest_first = sorted(self._hidden, key=lambda piece: (-len(piece), piece))
            self._found = re.compile("|".join(map(re.escape, longest_first)))
            self.meet(new)
        return tuple(new)

    def meet(self, found: Iterable[str]) -> None:
        """Know these where they were cut: of what a pattern fits, a sentence may quote the beginning alone."""
        for piece in found:
            known = self._beginnings.setdefault(piece[:LEAST], [])
            if len(piece) > LEAST and piece[:_LONGEST_CUT] not in known and len(known) < _ALIKE:
                known.append(piece[:_LONGEST_CUT])

    def add(self, rewrite: Callable[[str], str]) -> None:
        """Have every text go through this as well: patterns a user gave."""
        self._rewrites += (rewrite,)

    def text(self, text: str) -> str:
        """``text`` without them."""
        if self._found is not None:
            text = self._found.sub(HIDDEN, text)
        for rewrite in self._rewrites:
            text = rewrite(text)
        return self._without_cuts(text) if _CUT in text and len(text) <= _SENTENCE else text

    def _without_cuts(self, text: str) -> str:
        """``text`` without the beginnings that were left of values where it was shortened."""
        parts = text.split(_CUT)
        for number, part in enumerate(parts[:-1]):
            for start in range(max(len(part) - _LONGEST_CUT, 0), len(part) - LEAST + 1):
                left = part[start:]
                if any(piece.startswith(left) for piece in self._beginnings.get(left[:LEAST], ())):
                    parts[number] = part[:start] + HIDDEN
                    break
        return _CUT.join(parts)

    def data(self, data: bytes) -> bytes:
        """The same for bytes that may be no text."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def value(self, value: _Value) -> _Value:
        """A value of ours, or of JSON, with every text in it redacted; the very same object where none was found."""
        if self._found is None and not self._rewrites:
            return value
        return cast("_Value", _walked(value, self.text))


@cache
def _kept_as_it_is(model: type[BaseModel]) -> frozenset[str]:
    """Fields of names and facts, and of words from a fixed list, which would not be read back."""
    words = {name for name, one in model.model_fields.items() if get_origin(one.annotation) is Literal}
    return frozenset(words) | _NAMES | _FACTS


def _walked(value: Any, redact: Callable[[str], str]) -> Any:
    if type(value) is str:
        shown = redact(value)
        return value if shown == value else shown
    if isinstance(value, BaseModel):
        held = {**{name: getattr(value, name) for name in type(value).model_fields}, **(value.model_extra or {})}
        kept = _kept_as_it_is(type(value))
        walked = {name: _walked(item, redact) for name, item in held.items() if name not in kept}
        changed = {name: item for name, item in walked.items() if item is not held[name]}
        return value.model_copy(update=changed) if changed else value
    if isinstance(value, dict):
        walked_items = {_walked(key, redact): _walked(item, redact) for key, item in value.items()}
        same = all(walked_items.get(key, _GONE) is item for key, item in value.items())
        return value if same else walked_items
    if type(value) in (list, tuple):
        items = [_walked(item, redact) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else type(value)(items)
    return value


_GONE: Final = object()
