"""Edits JSON text and keeps every byte outside the members that changed.

New text follows the style around it: indentation, line ends, escapes, one line or several.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from agent_eval_action.diagnostics.reader import members, skip_space

_ESCAPED = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")
_LINE_START = re.compile(r"[ \t]*")


def edit_json(text: str, value: Any) -> str:
    """Return ``text`` with the fewest edits that turn it into ``value``; keeps key order and line ends."""
    editor = _Editor(text)
    old, end = json.JSONDecoder().raw_decode(text, editor.start)
    return text[: editor.start] + editor.changed(editor.start, end, old, value, flat=False) + text[end:]


class _Editor:
    """Writes values in the style of ``text``. ``indent``: of one level; None if the text is on one line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = start = skip_space(text, 0)
        found = list(members(text, start))
        lead = text[start : found[0].start] if found else ""
        self.indent = (lead.rpartition("\n")[2] or "  ") if "\n" in lead else None
        self.line_end = "\r\n" if "\r\n" in text else "\n"
        self.comma = text[found[0].end : found[1].start] if self.indent is None and len(found) > 1 else ", "
        self.ascii = text.isascii() and bool(_ESCAPED.search(text))
        first = next(iter(found), None)
        while first is not None and first.key == 0:  # the outermost object may be nested in lists
            first = next(members(text, first.value), None)
        self.colon = text[json.JSONDecoder().raw_decode(text, first.start)[1] : first.value] if first else ": "

    def write(self, value: Any, indentation: str, *, flat: bool) -> str:
        """Return a value in this style, for a line that begins with ``indentation``."""
        separators = (self.comma if flat else ",", self.colon)
        indent = None if flat else self.indent
        written = json.dumps(value, indent=indent, ensure_ascii=self.ascii, separators=separators)
        return written if indent is None else written.replace("\n", self.line_end + indentation)

    def changed(self, start: int, end: int, old: Any, new: Any, *, flat: bool) -> str:
        """Return the text of the value between two offsets, changed to ``new``. ``flat``: written on one line."""
        if same_json(old, new):
            return self.text[start:end]
        if isinstance(old, dict) and isinstance(new, dict):
            return self._object(start, end, old, new)
        if isinstance(old, list) and isinstance(new, list):
            return self._list(start, end, old, new)
        return self.write(new, self._indentation(start), flat=flat)

    def _object(self, start: int, end: int, old: dict[str, Any], new: dict[str, Any]) -> str:
        flat, indentation = self._member_layout(start)
        remaining = [member for member in members(self.text, start) if member.key in new]
        last = {member.key: number for number, member in enumerate(remaining)}
        pieces: list[tuple[int | None, str]] = []
        for number, member in enumerate(remaining):  # of duplicate keys the last one counts
            key = str(member.key)
            value = self.text[member.value : member.end]
            if last[key] == number:
                value = self.changed(member.value, member.end, old[key], new[key], flat=flat)
            pieces.append((member.start, self.text[member.start : member.value] + value))
        order = [str(member.key) for member in remaining]
        before: str | None = None
        for key, value in new.items():
            if key not in old:
                place = len(order) - order[::-1].index(before) if before in order else 0
                written = json.dumps(key, ensure_ascii=self.ascii) + self.colon
                pieces.insert(place, (None, written + self.write(value, indentation, flat=flat)))
                order.insert(place, key)
            before = key
        return self._container(start, end, pieces)

    def _list(self, start: int, end: int, old: list[Any], new: list[Any]) -> str:
        """Keep equal items at both ends; between them pair old and new items, and edit each pair."""
        head, shorter = 0, min(len(old), len(new))
        while head < shorter and same_json(old[head], new[head]):
            head += 1
        tail = 0
        while tail < shorter - head and same_json(old[-1 - tail], new[-1 - tail]):
            tail += 1
        places = list(members(self.text, start))
        changed = min(len(old), len(new)) - tail
        flat, indentation = self._member_layout(start)
        flat_items = flat or (bool(places) and not any("\n" in self.text[item.value : item.end] for item in places))
        pieces: list[tuple[int | None, str]] = []
        for number, value in enumerate(new):
            if number < changed:
                at = number
            elif number >= len(new) - tail:
                at = number - len(new) + len(old)
            else:
                pieces.append((None, self.write(value, indentation, flat=flat_items)))
                continue
            place = places[at]
            pieces.append((place.start, self.changed(place.value, place.end, old[at], value, flat=flat)))
        return self._container(start, end, pieces)

    def _container(self, start: int, end: int, pieces: list[tuple[int | None, str]]) -> str:
        """Return the container with these members; an offset of None marks a new one."""
        text, places = self.text, list(members(self.text, start))
        opening, closing = text[start], text[end - 1]
        if not pieces:
            return opening + closing
        flat, indentation = self._member_layout(start)
        new_line = "" if flat else self.line_end + indentation
        if places:
            lead, trail = text[start + 1 : places[0].start], text[places[-1].end : end - 1]
            gap = text[places[0].end : places[1].start] if len(places) > 1 else self.comma if flat else "," + lead
        else:
            outer = self._indentation(start)
            lead, trail = new_line, "" if flat else self.line_end + outer
            gap = self.comma if flat else "," + new_line
        between = {(a.start, b.start): text[a.end : b.start] for a, b in pairwise(places)}
        joined = pieces[0][1]
        for (before, _), (after, written) in pairwise(pieces):
            joined += (between.get((before, after)) if before is not None and after is not None else None) or gap
            joined += written
        return opening + lead + joined + trail + closing

    def _member_layout(self, start: int) -> tuple[bool, str]:
        """Return whether the container at ``start`` is on one line, and the indentation of its members if not."""
        first = next(members(self.text, start), None)
        if first is None:
            return self.indent is None, self._indentation(start) + (self.indent or "")
        lead = self.text[start + 1 : first.start]
        return "\n" not in lead, lead.rpartition("\n")[2]

    def _indentation(self, offset: int) -> str:
        line = self.text.rfind("\n", 0, offset) + 1
        found = _LINE_START.match(self.text, line)
        return found.group() if found else ""


def same_json(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal: 1, 1.0 and true differ, key order is ignored."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_json(item, second[key]) for key, item in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_json, first, second))
    return type(first) is type(second) and first == second
