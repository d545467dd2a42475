"""Workflow commands: the one function that makes them, and the one that keeps any other text from being one.

The runner reads stdout and stderr line by line, and a lone CR starts a new line. ``::name::`` after blanks is a
command; so is the old ``##[name]``, anywhere in a line (actions/runner, ActionCommand.cs).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from agent_eval_action.model.annotation import Annotation

_DATA: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: Final = {**_DATA, ":": "%3A", ",": "%2C"}
_NAME: Final = re.compile(r"[a-z][a-z-]*")
_COMMAND: Final = re.compile(r"(?m)^\s*:(?=:)|#(?=#\[)")
_BREAK: Final = re.compile(r"\r\n?")
# Shows nothing, and the runner does not trim it; what is found with it in between is no name of a command.
_APART: Final = "\N{ZERO WIDTH SPACE}"


def command(name: str, message: str = "", **properties: str | int | None) -> str:
    """``::name key=value,…::message`` on one line, whatever the values hold; empty properties are left out."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no command")
    given = {key: str(value) for key, value in properties.items() if value not in (None, "")}
    said = ",".join(f"{key}={_escaped(value, _PROPERTY)}" for key, value in given.items())
    return f"::{name}{' ' if said else ''}{said}::{_escaped(message, _DATA)}"


def annotation(one: Annotation) -> str:
    """The command that puts a remark at its place."""
    # the runner looks for the old form only where the new one is none; it is broken all the same
    return command(one.level, neutral(one.message), file=one.path, line=one.line, title=neutral(one.title))


def neutral(text: str) -> str:
    """``text`` with every command in it broken by a character that shows nothing; a CR becomes a new line.

    Nothing else of it changes: control characters are the part of ``reports.cleaning``.
    """
    broken = _BREAK.sub("\n", text)
    return _COMMAND.sub(lambda found: f"{found.group()}{_APART}", broken)


def _escaped(value: str, table: Mapping[str, str]) -> str:
    encodable = value.encode("utf-8", "replace").decode()  # a lone surrogate would end the stream it is written to
    return "".join(table.get(char, char) for char in encodable)
