"""The workflow commands of GitHub Actions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from agent_eval_action.ci.log import neutralize

if TYPE_CHECKING:
    from agent_eval_action.results.evalset import Annotation

_DATA: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: Final = {**_DATA, ":": "%3A", ",": "%2C"}
_NAME: Final = re.compile(r"[a-z][a-z-]*")


def command(name: str, message: str = "", **properties: str | int | None) -> str:
    """``::name key=value,…::message`` on one line, whatever the values hold; empty properties are left out."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no command")
    given = {key: str(value) for key, value in properties.items() if value not in (None, "")}
    pairs = ",".join(f"{key}={_escape(value, _PROPERTY)}" for key, value in given.items())
    return f"::{name}{' ' if pairs else ''}{pairs}::{_escape(message, _DATA)}"


class WorkflowCommands:
    """Lines that command the log of a step; each carries any text."""

    def mask(self, secret: str) -> str:
        """Replace a text in everything that follows."""
        return command("add-mask", secret)

    def group(self, title: str) -> str:
        """Begin lines that can be folded."""
        return command("group", title)

    def end_group(self) -> str:
        return command("endgroup")

    def annotation(self, remark: Annotation) -> str:
        """Show a remark at its place."""
        # the runner looks for the old form only where the new one is none; it is broken all the same
        message, title = neutralize(remark.message), neutralize(remark.title)
        return command(remark.level, message, file=remark.path, line=remark.line, title=title)


def _escape(value: str, table: Mapping[str, str]) -> str:
    encodable = value.encode("utf-8", "replace").decode()  # a lone surrogate would end the stream it is written to
    return "".join(table.get(char, char) for char in encodable)
