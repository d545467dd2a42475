"""The words a user is played with: one file per prompt, whose first line is ``version: N``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_PART = re.compile(r"^=== *(\w+) *\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UserPrompt:
    """Texts by name, as lines ``=== name`` divide the file. ``version`` changes whenever the words do."""

    version: str
    parts: Mapping[str, str]


@cache
def load(name: str) -> UserPrompt:
    """The prompt of ``<name>.md``. Raises ValueError when it does not begin with its version."""
    first, _, text = files(__package__).joinpath(f"{name}.md").read_text("utf-8").partition("\n")
    label, _, version = first.partition(":")
    if label != "version" or not version.strip().isdigit():
        raise ValueError(f"{name}.md does not begin with its version")
    pieces = _PART.split(text)
    parts = zip(pieces[1::2], pieces[2::2], strict=True)
    return UserPrompt(f"{name}-{version.strip()}", {part: body.strip("\n") for part, body in parts})
