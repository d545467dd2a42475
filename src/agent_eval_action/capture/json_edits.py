"""Edits JSON text and keeps every byte outside the members that changed.

New text follows the style around it: indentation, line ends, escapes, one line or several.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from agent_eval_action.diagnostics.reader import Member, members, skip_space

_ESCAPED = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")
_LINE_START = re.compile(r"[ \t]*")


def edit_json(text: str, value: Any) -> str:
    """Return ``text`` with the fewest edits that turn it into ``value``; keeps key order and line ends."""
    editor = _Editor(text)
    old, end = json.JSONDecoder().raw_decode(text, editor.start)
    return text[: editor.start] + editor.changed(editor.start, end, old, value, flat=False) + text[end:]


_Piece = tuple[int, str]
"""A member's text, and where it stood; -1 for a new one."""


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
        is_object, is_list = (isinstance(old, kind) and isinstance(new, kind) for kind in (dict, list))
        outer = self._indentation(start)
        if not is_object and not is_list:
            return self.write(new, outer, flat=flat)
        if not new:
            return self.text[start] + self.text[end - 1]
        places = list(members(self.text, start))
        if not places:
            flat, indentation = self.indent is None, outer + (self.indent or "")
            lead, trail = ("", "") if flat else (self.line_end + indentation, self.line_end + outer)
        else:
            lead, trail = self.text[start + 1 : places[0].start], self.text[places[-1].end : end - 1]
            flat, indentation = "\n" not in lead, lead.rpartition("\n")[2]
        edit = self._object if is_object else self._list
        pieces = edit(places, old, new, indentation, flat=flat)
        gap = self.comma if flat else "," + lead
        if len(places) > 1:
            gap = self.text[places[0].end : places[1].start]
        between = {(a.start, b.start): self.text[a.end : b.start] for a, b in pairwise(places)}
        joined = pieces[0][1]
        for (before, _), (after, written) in pairwise(pieces):
            joined += between.get((before, after), gap) + written
        return self.text[start] + lead + joined + trail + self.text[end - 1]

    def _object(self, places: list[Member], old: Any, new: Any, indentation: str, *, flat: bool) -> list[_Piece]:
        remaining = [member for member in places if member.key in new]
        last = {member.key: number for number, member in enumerate(remaining)}
        pieces: list[_Piece] = []
        for number, member in enumerate(remaining):  # of duplicate keys the last one counts
            value = self.text[member.value : member.end]
            if last[member.key] == number:
                value = self.changed(member.value, member.end, old[member.key], new[member.key], flat=flat)
            pieces.append((member.start, self.text[member.start : member.value] + value))
        order = [member.key for member in remaining]
        before: str | int = -1
        for key, value in new.items():
            if key not in old:
                place = len(order) - order[::-1].index(before) if before in order else 0
                written = json.dumps(key, ensure_ascii=self.ascii) + self.colon
                pieces.insert(place, (-1, written + self.write(value, indentation, flat=flat)))
                order.insert(place, key)
            before = key
        return pieces

    def _list(self, places: list[Member], old: Any, new: Any, indentation: str, *, flat: bool) -> list[_Piece]:
        """Keep equal items at the end, pair old and new items from the beginning, and edit each pair."""
        tail, shorter = 0, min(len(old), len(new))
        while tail < shorter and same_json(old[-1 - tail], new[-1 - tail]):
            tail += 1
        flat_items = flat or (bool(places) and not any("\n" in self.text[item.value : item.end] for item in places))
        pieces: list[_Piece] = []
        for number, value in enumerate(new):
            at = number if number < shorter - tail else number - len(new) + len(old)
            if shorter - tail <= number < len(new) - tail:
                pieces.append((-1, self.write(value, indentation, flat=flat_items)))
            else:
                place = places[at]
                pieces.append((place.start, self.changed(place.value, place.end, old[at], value, flat=flat)))
        return pieces

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
