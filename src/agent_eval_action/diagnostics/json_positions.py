"""JSON text: its value, errors that say what a person did, keys written twice, and lines found lazily."""

from __future__ import annotations

import bisect
import json
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from agent_eval_action.diagnostics.suggestions import JsonPath, json_path_text, shorten
from agent_eval_action.errors import Problem, Unreadable

MAX_DUPLICATES_SHOWN = 20

_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_AT = re.compile(r" at line (\d+) column \d+$")


def parse_json(path: Path, text: str) -> tuple[Any, list[Problem]]:
    """The value, and warnings about keys written twice (the last one counts, as in ADK)."""
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
    except ValueError:  # Python converts no integer of more than 4300 digits, nor does ADK
        digits = re.search(r"\d{4301,}", text)
        line = text.count("\n", 0, digits.start()) + 1 if digits else None
        raise Unreadable(path, "holds an integer of more than 4300 digits", line) from None
    except RecursionError:
        raise unusable or Unreadable(path, "is nested too deeply") from None
    if unusable:
        raise unusable
    return value, list(_duplicates(path, text)) if twice else []


def _unusable(path: Path, text: str) -> Unreadable | None:
    """Why nothing downstream could write this value again, though json.loads would let it pass.

    pydantic's own parser stops at 200 levels, as ADK does (google-adk 2.13, ``model_validate_json``), and
    at half a surrogate pair. Its value is thrown away; it is several times faster than looking ourselves.
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


def _duplicates(path: Path, text: str) -> Iterator[Problem]:
    """Where keys are written twice. Slow and exact; only asked when there are some."""
    for json_path, offset in islice(_repeated_keys(text), MAX_DUPLICATES_SHOWN):
        yield Problem(
            path=path,
            message="this key is written twice; the last one counts",
            line=text.count("\n", 0, offset) + 1,
            json_path=json_path_text(json_path),
            value=shorten(json_path[-1]),
            severity="warning",
        )


def _repeated_keys(text: str) -> Iterator[tuple[JsonPath, int]]:
    steps: list[str | int] = []
    seen: list[set[str] | None] = []  # one per open container; None for a list
    for match in _TOKEN.finditer(text):
        sign = match[0]
        if sign in "{[":
            seen.append(set() if sign == "{" else None)
            steps.append("" if sign == "{" else 0)
            expect_key = sign == "{"
        elif sign in "}]":
            seen.pop()
            steps.pop()
        elif sign == ",":
            expect_key = seen[-1] is not None
            if isinstance(last := steps[-1], int):
                steps[-1] = last + 1
        elif sign == ":":
            expect_key = False
        elif seen and (keys := seen[-1]) is not None and expect_key:
            steps[-1] = key = json.loads(sign)
            if key in keys:
                yield tuple(steps), match.start()
            keys.add(key)


class JsonLines:
    """Finds the line of a value. Containers on the way are walked once, with json's own scanner."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decode = json.JSONDecoder().raw_decode
        self._ends: array[int] | None = None
        self._children: dict[int, dict[str, int] | Sequence[int]] = {}

    def line(self, json_path: JsonPath) -> int | None:
        if not self._text:
            return None
        offset = self._skip(0)
        for step in json_path:
            below = self._below(offset)
            if isinstance(below, dict):
                found = below.get(step) if isinstance(step, str) else None
            else:
                found = below[step] if isinstance(step, int) and 0 <= step < len(below) else None
            if found is None:
                return None
            offset = found
        if self._ends is None:
            self._ends = array("Q", (match.start() for match in re.finditer("\n", self._text)))
        return bisect.bisect_left(self._ends, offset) + 1

    def _below(self, offset: int) -> dict[str, int] | Sequence[int]:
        if offset not in self._children:
            if self._text[offset] == "{":
                self._children[offset] = self._object(offset + 1)
            else:
                self._children[offset] = self._array(offset + 1) if self._text[offset] == "[" else ()
        return self._children[offset]

    def _object(self, offset: int) -> dict[str, int]:
        found: dict[str, int] = {}
        offset = self._skip(offset)
        while self._text[offset] != "}":
            key, offset = self._decode(self._text, self._skip(offset))
            offset = self._skip(self._skip(offset) + 1)
            found[key] = offset
            _, offset = self._decode(self._text, offset)
            offset = self._skip(offset)
            if self._text[offset] == ",":
                offset = self._skip(offset + 1)
        return found

    def _array(self, offset: int) -> Sequence[int]:
        found = array("Q")
        offset = self._skip(offset)
        while self._text[offset] != "]":
            found.append(offset)
            _, offset = self._decode(self._text, offset)
            offset = self._skip(offset)
            if self._text[offset] == ",":
                offset = self._skip(offset + 1)
        return found

    def _skip(self, offset: int) -> int:
        match = _SPACE.match(self._text, offset)
        return match.end() if match else offset


_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_WORD = re.compile(r"[A-Za-z_]+")
_FOREIGN = (
    (re.compile(r"//|/\*|#"), "comments are not allowed", "remove the comment"),
    (re.compile(r"\.\.\.|…"), "`...` stands for something left out", "write the value in full"),
    (re.compile(r"<{7}|={7}|>{7}"), "a merge conflict is left in the file", "resolve the conflict"),
    (re.compile(r"'"), "strings are written in double quotes", "replace ' by \""),
)


def explain(path: Path, error: json.JSONDecodeError) -> Unreadable:
    """The error as a sentence with a line, the text there, and what to do."""
    text, position = error.doc, error.pos
    before = text[:position].rstrip()
    rest = text[position:]
    if before.endswith(",") and rest[:1] in {"}", "]"}:
        position = len(before) - 1
    message, hint = _diagnose(before, rest, error.msg)
    return Unreadable(
        path,
        f"is not valid JSON: {message}",
        text.count("\n", 0, position) + 1,
        value=_excerpt(text, position),
        hint=hint,
    )


def _diagnose(before: str, rest: str, message: str) -> tuple[str, str | None]:
    if (before.endswith(",") and rest[:1] in {"}", "]"}) or re.match(r",\s*[}\]]", rest):
        return "a comma before a closing bracket (trailing comma)", "remove the comma"
    for pattern, what, hint in _FOREIGN:
        if pattern.match(rest):
            return what, hint
    word = _WORD.match(rest)
    if word and word[0] in _LITERALS:
        return f"`{word[0]}` is not JSON", f"write `{_LITERALS[word[0]]}`"
    return _by_message(rest, message)


def _by_message(rest: str, message: str) -> tuple[str, str | None]:
    if not rest.strip():
        return "the file ends in the middle of a value", "is it cut off?"
    if message.startswith("Unterminated string"):
        return "a string is not closed, or the file ends in the middle of it", None
    if message.startswith("Invalid control character"):
        return "a line break or control character inside a string", "write \\n, \\t or \\u00XX"
    if message.startswith("Extra data"):
        return "a second value begins after the end of the first", "one file holds one JSON value"
    return message[:1].lower() + message[1:], None


def _excerpt(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[max(start, position - 40) : len(text) if end < 0 else end].strip()
    return line if len(line) <= 80 else line[:79] + "…"  # noqa: PLR2004 - as wide as other shown values
