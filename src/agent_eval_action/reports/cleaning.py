"""What every text loses before it is escaped for any format: bytes that draw, hide or break instead of saying."""

from __future__ import annotations

import re
import unicodedata

_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS and their like: titles, hyperlinks
    r"|\x1b[ -/]*[0-~]"
)
# What is neither printable ASCII, nor a letter or sign of the common scripts, is looked at one by one.
_SUSPECT = re.compile(r"[^\n\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff\u0370-\u058f\u3040-\ud7ff\uf900-\ufaff]")
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"  # emoji and Indic scripts need them
_NONCHARACTER = 0xFFFE  # the last two code points of every plane
_ARABIC_NONCHARACTERS = frozenset(map(chr, range(0xFDD0, 0xFDF0)))
_CUT = "…"


def clean(text: str, limit: int | None = None, *, lines: bool = False) -> str:
    r"""``text`` without escape sequences and control characters; on one line unless ``lines``.

    Bidirectional marks, other invisible format characters and private-use ones are shown as ``\u202e``;
    lone surrogates and noncharacters become U+FFFD. What is longer than ``limit`` characters is cut with an ellipsis.
    """
    if limit is not None and len(text) > 4 * limit:
        text = text[: 4 * limit]
        text += _CUT
    text = _ANSI.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _SUSPECT.sub(lambda found: _visible(found.group()), text)
    text = text if lines else " ".join(text.split())
    return text if limit is None or len(text) <= limit else text[: limit - 1].rstrip() + _CUT


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if char == "\t":
        return "    "
    if category in {"Zl", "Zp"} or char == "\x85":
        return "\n"
    if category == "Cc":
        return ""
    if category == "Cs" or ord(char) & _NONCHARACTER == _NONCHARACTER or char in _ARABIC_NONCHARACTERS:
        return "\N{REPLACEMENT CHARACTER}"
    if (category == "Cf" and char not in _JOINERS) or category == "Co":
        return f"\\u{ord(char):04x}"
    return char
