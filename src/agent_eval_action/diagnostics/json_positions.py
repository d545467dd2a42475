"""Parse JSON text, explain syntax errors, warn of repeated keys, and find the lines of values lazily."""

from __future__ import annotations

import bisect
import json
import re
from array import array
from collections.abc import Iterator
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json

from agent_eval_action.diagnostics.suggestions import JsonPath, clip, json_path_text, shorten
from agent_eval_action.errors import Problem, Unreadable

MAX_DUPLICATES_SHOWN = 20

_SPACE = re.compile(r"[ \t\n\r]*")
_AT = re.compile(r" at line (\d+) column \d+$")


def parse_json(path: Path, text: str) -> tuple[Any, list[Problem]]:
    """The value, and warnings about repeated keys (the last one counts, as in ADK). Raises Unreadable."""
    unusable = _unusable(path, text)
    twice = False

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        value = dict(pairs)
        twice = twice or len(value) != len(pairs)
        return value

    try:
        value = json.loads(text, object_pairs_hook=build)
    except json.JSONDecodeError as error:
        raise explain(path, error) from None
    except ValueError:  # Python, and therefore ADK, converts no integers of more than 4300 digits
        digits = re.search(r"\d{4301,}", text)
        line = text.count("\n", 0, digits.start()) + 1 if digits else None
        raise Unreadable(path, "holds an integer of more than 4300 digits", line) from None
    except RecursionError:
        raise unusable or Unreadable(path, "is nested too deeply") from None
    if unusable:
        raise unusable
    return value, _repeated_keys(path, text) if twice else []


def _unusable(path: Path, text: str) -> Unreadable | None:
    """Why this value could not be written again, although json.loads accepts it; None if it could.

    pydantic's parser refuses more than 200 levels, like ADK (google-adk 2.13, ``model_validate_json``), and half
    surrogate pairs. Its value is discarded; it finds these several times faster than Python code would.
    """
    try:
        from_json(text)
    except ValueError as error:
        found = _AT.search(str(error))
        line = int(found[1]) if found else None
        if "recursion" in str(error):
            return Unreadable(path, "is nested more than 200 levels deep", line)
        if "surrogate" in str(error) or "hex escape" in str(error):
            hint = "write the character itself, or both halves of the pair"
            return Unreadable(path, "holds half a surrogate pair (\\ud800 to \\udfff)", line, hint=hint)
    return None


def _repeated_keys(path: Path, text: str) -> list[Problem]:
    lines = JsonLines(text)
    return [
        Problem(
            path=path,
            message="this key is written twice; the last one counts",
            line=lines.line_at(offset),
            json_path=json_path_text(json_path),
            value=shorten(json_path[-1]),
            severity="warning",
        )
        for json_path, offset in islice(lines.repeated_keys(lines.start), MAX_DUPLICATES_SHOWN)
    ]


class Member(NamedTuple):
    """A member of a container: key or index, and the offsets of its start (in an object, the key's), value and end."""

    key: str | int
    start: int
    value: int
    end: int


_decode = json.JSONDecoder().raw_decode


def members(text: str, offset: int) -> Iterator[Member]:
    """The members of the container at ``offset`` of a JSON text; nothing for other values."""
    opening = text[offset]
    if opening not in "{[":
        return
    offset = skip_space(text, offset + 1)
    for index in count():
        if text[offset] in "}]":
            return
        key: str | int = index
        start = offset
        if opening == "{":
            key, offset = _decode(text, offset)
            offset = skip_space(text, skip_space(text, offset) + 1)
        value, end = offset, _decode(text, offset)[1]
        yield Member(key, start, value, end)
        offset = skip_space(text, end)
        if text[offset] == ",":
            offset = skip_space(text, offset + 1)


def skip_space(text: str, offset: int) -> int:
    """The offset after the whitespace at ``offset``."""
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


class JsonLines:
    """Finds the lines of values. Each container on the path is scanned once, with json's own scanner."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._items: dict[int, dict[str | int, int] | array[int]] = {}
        self.start = skip_space(text, 0)

    @cached_property
    def _line_ends(self) -> array[int]:
        return array("Q", (match.start() for match in re.finditer("\n", self._text)))

    def line_at(self, offset: int) -> int:
        """The 1-based line of an offset in the text."""
        return bisect.bisect_left(self._line_ends, offset) + 1

    def line(self, json_path: JsonPath) -> int | None:
        """The 1-based line where the value at this path begins, or None."""
        offset = self.start
        for step in json_path:
            if offset not in self._items:
                items = self._scan(offset)
                is_object = self._text[offset] == "{"
                self._items[offset] = dict(items) if is_object else array("Q", (inner for _, inner in items))
            below = self._items[offset]
            known = below if isinstance(below, dict) else range(len(below))
            if step not in known:
                return None
            offset = below[step]  # type: ignore[index]  # an array's range contains only integers
        return self.line_at(offset)

    def repeated_keys(self, offset: int, json_path: JsonPath = ()) -> Iterator[tuple[JsonPath, int]]:
        """Repeated keys of objects below ``offset``, with the offsets of the later values. Slow but exact."""
        seen: set[str | int] = set()
        for key, inner in self._scan(offset):
            if key in seen:
                yield (*json_path, key), inner
            seen.add(key)
            if self._text[inner] in "{[":
                yield from self.repeated_keys(inner, (*json_path, key))

    def _scan(self, offset: int) -> Iterator[tuple[str | int, int]]:
        """Each key or index of the container at ``offset``, with the offset of its value."""
        return ((member.key, member.value) for member in members(self._text, offset))


_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_FOREIGN = (
    (re.compile(r"//|/\*|#"), "comments are not allowed", "remove the comment"),
    (re.compile(r"\.\.\.|…"), "`...` stands for something left out", "write the value in full"),
    (re.compile(r"<{7}|={7}|>{7}"), "a merge conflict is left in the file", "resolve the conflict"),
    (re.compile(r"'"), "strings are written in double quotes", "replace ' by \""),
    *(
        (re.compile(rf"{name}(?![A-Za-z_])"), f"`{name}` is not JSON", f"write `{json_name}`")
        for name, json_name in _LITERALS.items()
    ),
    (re.compile(r"\s*\Z"), "the file ends in the middle of a value", "is it cut off?"),
)
_BY_MESSAGE = {
    "Unterminated string": ("a string is not closed, or the file ends in the middle of it", None),
    "Invalid control character": ("a line break or control character inside a string", "write \\n, \\t or \\u00XX"),
    "Extra data": ("a second value begins after the end of the first", "one file holds one JSON value"),
}


def explain(path: Path, error: json.JSONDecodeError) -> Unreadable:
    """Explain a syntax error in a sentence with the line, the text there and a hint."""
    text, position = error.doc, error.pos
    before, rest = text[:position].rstrip(), text[position:]
    if before.endswith(",") and rest[:1] in {"}", "]"}:
        position = len(before) - 1
    message, hint = _diagnose(before, rest, error.msg)
    start, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
    line = text[max(start, position - 40) : len(text) if end < 0 else end].strip()
    number = text.count("\n", 0, position) + 1
    return Unreadable(path, f"is not valid JSON: {message}", number, value=clip(line, 80), hint=hint)


def _diagnose(before: str, rest: str, message: str) -> tuple[str, str | None]:
    if (before.endswith(",") and rest[:1] in {"}", "]"}) or re.match(r",\s*[}\]]", rest):
        return "a comma before a closing bracket (trailing comma)", "remove the comma"
    found = next(((what, hint) for pattern, what, hint in _FOREIGN if pattern.match(rest)), None)
    by_message = next((found for start, found in _BY_MESSAGE.items() if message.startswith(start)), None)
    return found or by_message or (message[:1].lower() + message[1:], None)
