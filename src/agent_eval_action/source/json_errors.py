"""What a person did to a JSON file, from where the parser stopped."""

from __future__ import annotations

import json
import re
from pathlib import Path

from agent_eval_action.source.files import Unreadable

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
