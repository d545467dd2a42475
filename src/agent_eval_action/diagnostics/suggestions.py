"""Formatting for messages: JSON paths, shortened values, plurals, did-you-mean hints."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count, islice
from typing import Any, TypeVar

from pydantic.alias_generators import to_snake

JsonPath = tuple[str | int, ...]
_Item = TypeVar("_Item")

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_LONGEST_WORD = 80
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


def snake_case(name: str) -> str:
    """Convert a name to snake_case, except long ones, for which pydantic takes quadratic time."""
    return to_snake(name) if len(name) <= _LONGEST_WORD else name


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """``1 case``, ``2 cases``, ``1,200 cases``; ``nouns`` is the plural if it is irregular."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def shortlist(items: Sequence[_Item], most: int, show: Callable[[_Item], str] = str, separator: str = ", ") -> str:
    """``a, b and 3 more``: at most ``most`` of the items, each formatted by ``show``."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return separator.join(map(show, items[:most])) + more


def json_path_text(json_path: JsonPath) -> str:
    """``("eval_cases", 3, "x y")`` as ``$.eval_cases[3]["x y"]``."""
    out = ["$"]
    for step in json_path:
        if isinstance(step, int):
            out.append(f"[{step}]")
        elif _PLAIN_KEY.match(step):
            out.append(f".{step}")
        else:
            out.append(f"[{shorten(step)}]")
    return "".join(out)


def shorten(value: Any, limit: int = 80) -> str:
    """A value as a line of JSON with at most ``limit`` characters."""
    if isinstance(value, str) and len(value) > limit:
        value = value[: limit + 1]
    if not isinstance(value, dict | list | tuple):
        return clip(_ENCODER.encode(value), limit)
    # iterencode is lazy, so a huge value is never encoded completely; ``limit`` chunks suffice
    text = "".join(islice(_ENCODER.iterencode(value), limit))
    return clip(text, limit)


def clip(text: str, limit: int) -> str:
    """Cut a text to at most ``limit`` characters, ending in an ellipsis if cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def closest(word: str, choices: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The choice most similar to ``word``, or None. Ignores case, ``_`` and ``-``."""
    if not 0 < len(word) <= _LONGEST_WORD:
        return None
    known = {_letters(choice): choice for choice in choices}
    found = difflib.get_close_matches(_letters(word), known, n=1, cutoff=cutoff)
    return known[found[0]] if found else None


def did_you_mean(word: str, choices: Iterable[str]) -> str | None:
    """The hint ``did you mean `x`?``, or None if no choice is similar."""
    found = closest(word, choices)
    return None if found is None else f"did you mean `{found}`?"


def _letters(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return ``wanted``, with a number appended if it is taken."""
    known = {*taken}
    numbered = (f"{wanted}-{number}" for number in count(2))
    return next(name for name in chain([wanted], numbered) if name not in known)
