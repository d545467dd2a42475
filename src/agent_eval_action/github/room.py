"""Room in the comment: how much of it each section gets, and how a section that is already there is made shorter."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_FENCE: Final = re.compile(r"(`{3,})[a-z]*")
_SHORTENED: Final = "<sub>Shortened to make room for the other sections; the summary of its run has all of it.</sub>"


def shares(wanted: Mapping[str, int], room: int) -> dict[str, int]:
    """Bytes for each: what it wants, or as much as every other that wants more than there is."""
    given: dict[str, int] = {}
    left = max(room, 0)
    for number, (key, size) in enumerate(sorted(wanted.items(), key=lambda item: item[1])):
        given[key] = min(size, left // (len(wanted) - number))
        left -= given[key]
    return given


def shortened(text: str, room: int) -> str:
    """``text`` in at most ``room`` bytes: its details go first, from the last on, then whole blocks; its top stays."""
    if len(text.encode()) <= room:
        return text
    blocks = _blocks(text)
    folded = [number for number, block in enumerate(blocks) if block.startswith("<details")]
    others = [number for number in range(1, len(blocks)) if number not in folded]
    gone: set[int] = set()
    for number in [*reversed(folded), *reversed(others)]:
        gone.add(number)
        made = _joined([block for at, block in enumerate(blocks) if at not in gone], room)
        if made is not None:
            return made
    return "" if len(_SHORTENED.encode()) > room else _SHORTENED


def _joined(blocks: Sequence[str], room: int) -> str | None:
    kept = [block for block in blocks if block != _SHORTENED]
    text = "\n\n".join([*kept, _SHORTENED])
    return text if len(text.encode()) <= room else None


def _blocks(text: str) -> list[str]:
    """What stands between blank lines, folded details and code blocks whole."""
    blocks: list[list[str]] = [[]]
    fence, depth = "", 0
    for line in text.split("\n"):
        if fence:
            fence = "" if line == fence else fence
        elif opened := _FENCE.fullmatch(line):
            fence = opened[1]
        elif line.startswith("<details"):
            depth += 1
        elif line.startswith("</details"):
            depth = max(depth - 1, 0)
        elif not line and not depth:
            blocks.append([])
            continue
        blocks[-1].append(line)
    return ["\n".join(block) for block in blocks if block]
