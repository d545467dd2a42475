"""Edits JSON text and keeps every byte outside the members that changed.

New text follows the style around it: indentation, line ends, escapes, one line or several.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from agent_eval_action.diagnostics.json_positions import Member, members, skip_space

_ESCAPED = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")
_LINE_START = re.compile(r"[ \t]*")


def edit_json(text: str, value: Any) -> str:
    """Return ``text`` with the fewest edits that turn it into ``value``; keeps key order and line ends."""
    start = skip_space(text, 0)
    old, end = json.JSONDecoder().raw_decode(text, start)
    changed = _Editor(text, _Style.found_in(text, start)).changed(start, end, old, value, flat=False)
    return text[:start] + changed + text[end:]


@dataclass(frozen=True)
class _Style:
    """The style of a text. ``indent``: of one level; None if the text is on one line."""

    indent: str | None
    line_end: str
    colon: str
    comma: str
    ascii: bool

    @classmethod
    def found_in(cls, text: str, start: int) -> _Style:
        line_end = "\r\n" if "\r\n" in text else "\n"
        found = list(members(text, start))
        indent, comma, colon = None, ", ", ": "
        first = next(iter(found), None)
        if first is not None and "\n" in text[start : first.start]:
            indent = text[start : first.start].rpartition("\n")[2] or "  "
        keyed = _first_object(text, start)
        if keyed is not None:
            colon = text[_end_of_key(text, keyed) : keyed.value]
        if indent is None and len(found) > 1:
            comma = text[found[0].end : found[1].start]
        return cls(indent, line_end, colon, comma, text.isascii() and bool(_ESCAPED.search(text)))

    def write(self, value: Any, indentation: str, *, flat: bool) -> str:
        """Return a value in this style, for a line that begins with ``indentation``."""
        separators = (self.comma if flat else ",", self.colon)
        indent = None if flat or self.indent is None else self.indent
        written = json.dumps(value, indent=indent, ensure_ascii=self.ascii, separators=separators)
        return written if indent is None else written.replace("\n", self.line_end + indentation)


def _first_object(text: str, start: int) -> Member | None:
    """Return the first member of the outermost object, which may be nested in lists."""
    for _ in range(100):
        first = next(members(text, start), None)
        if first is None or text[start] == "{":
            return first
        start = first.value
    return None


def _end_of_key(text: str, member: Member) -> int:
    return json.JSONDecoder().raw_decode(text, member.start)[1]


@dataclass(frozen=True)
class _Editor:
    text: str
    style: _Style

    def changed(self, start: int, end: int, old: Any, new: Any, *, flat: bool) -> str:
        """Return the text of the value between two offsets, changed to ``new``. ``flat``: written on one line."""
        if same_json(old, new):
            return self.text[start:end]
        if isinstance(old, dict) and isinstance(new, dict):
            return self._object(start, end, old, new)
        if isinstance(old, list) and isinstance(new, list):
            return self._list(start, end, old, new)
        return self.style.write(new, self._indentation(start), flat=flat)

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
                written = json.dumps(key, ensure_ascii=self.style.ascii) + self.style.colon
                pieces.insert(place, (None, written + self.style.write(value, indentation, flat=flat)))
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
                pieces.append((None, self.style.write(value, indentation, flat=flat_items)))
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
        new_line = "" if flat else self.style.line_end + indentation
        if places:
            lead, trail = text[start + 1 : places[0].start], text[places[-1].end : end - 1]
            gap = text[places[0].end : places[1].start] if len(places) > 1 else self.style.comma if flat else "," + lead
        else:
            outer = self._indentation(start)
            lead, trail = new_line, "" if flat else self.style.line_end + outer
            gap = self.style.comma if flat else "," + new_line
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
            return self.style.indent is None, self._indentation(start) + (self.style.indent or "")
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
