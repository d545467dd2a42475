"""How GitHub's runner reads what a step prints: a small model of its parser (actions/runner, ActionCommand.cs)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# char.IsWhiteSpace of .NET, which String.TrimStart goes by
_BLANKS = "\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


@dataclass(frozen=True)
class Command:
    """A command as the runner takes it. ``old``: written as ``##[name]``."""

    name: str
    message: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    old: bool = False


def commands(data: bytes) -> list[Command]:
    """Every command in what one stream carried, the unknown ones too."""
    text = data.decode("utf-8", "replace")
    found = (_new(line) or _old(line) for line in re.split(r"\r\n|\r|\n", text))
    return [one for one in found if one is not None]


def _new(line: str) -> Command | None:
    line = line.lstrip(_BLANKS)
    end = line.find("::", 2)
    if not line.startswith("::") or end < 0:
        return None
    name, _, rest = line[2:end].partition(" ")
    return Command(name.lower(), _unescaped(line[end + 2 :]), _properties(rest, ","))


def _old(line: str) -> Command | None:
    start = line.find("##[")
    end = line.find("]", start)
    if start < 0 or end < 0:
        return None
    name, _, rest = line[start + 3 : end].partition(" ")
    return Command(name.lower(), _unescaped(line[end + 1 :]), _properties(rest, ";"), old=True)


def _properties(text: str, between: str) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in text.split(between) if part.strip())
    return {name: _unescaped(value) for name, _, value in pairs}


def _unescaped(text: str) -> str:
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text
