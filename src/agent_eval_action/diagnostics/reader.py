"""A JSON or YAML file read from a workspace: text, value, and the line of every value in it.

Hostile files (fifos, bombs, links that lead out, broken encodings) end here as problems with a line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agent_eval_action.diagnostics.files import MAX_JSON_BYTES, MAX_YAML_BYTES, Unreadable, decode, read_bytes
from agent_eval_action.diagnostics.json_positions import JsonLines, parse_json
from agent_eval_action.diagnostics.suggestions import JsonPath, closest, did_you_mean, json_path_text, plural, shorten
from agent_eval_action.diagnostics.yaml_loader import parse_yaml
from agent_eval_action.errors import AgentEvalError, Problem

__all__ = ["JsonPath", "Source", "closest", "did_you_mean", "json_path_text", "plural", "shorten"]

YAML_SUFFIXES = frozenset({".yaml", ".yml"})


class _Lines(Protocol):
    def line(self, json_path: JsonPath) -> int | None: ...


@dataclass(frozen=True, eq=False)
class Source:
    """A file's text and value. ``warnings`` are what is legal and still looks wrong (a key written twice)."""

    path: Path
    text: str = field(repr=False)
    value: Any = field(repr=False)
    warnings: tuple[Problem, ...] = ()
    _lines: _Lines = field(default_factory=lambda: JsonLines(""), repr=False)

    @classmethod
    def read(cls, path: Path, *, workspace: Path | None, error: type[AgentEvalError]) -> Source:
        """Read a file; ``.yaml`` and ``.yml`` are YAML, the rest is JSON.

        ``workspace`` is the folder the file's real path must lie in (None: anywhere).
        Raises ``error`` with problems.
        """
        try:
            text = decode(path, read_bytes(path, workspace, MAX_YAML_BYTES if _is_yaml(path) else MAX_JSON_BYTES))
        except Unreadable as unreadable:
            raise error(f"{_shown(path)} cannot be read", problems=(unreadable.problem,)) from None
        return cls.parse(text, path=path, error=error)

    @classmethod
    def parse(cls, text: str, *, path: Path, error: type[AgentEvalError]) -> Source:
        """Parse text that is already here; ``path`` names it in messages and tells JSON from YAML."""
        try:
            if _is_yaml(path):
                value, yaml_lines = parse_yaml(path, text)
                return cls(path, text, value, _lines=yaml_lines)
            value, warnings = parse_json(path, text)
        except Unreadable as unreadable:
            raise error(f"{_shown(path)} cannot be read", problems=(unreadable.problem,)) from None
        return cls(path, text, value, tuple(warnings), JsonLines(text))

    @property
    def json(self) -> str | None:
        """The text where it is JSON, so that it need not be written again to be validated as JSON."""
        return None if _is_yaml(self.path) else self.text

    def line(self, json_path: JsonPath) -> int | None:
        """1-based line where that value begins; None when the file has no such value.

        The first question costs a scan of the text; after it the lines of all items of a list are cheap.
        """
        return self._lines.line(json_path)

    def nearest_line(self, json_path: JsonPath) -> int | None:
        """Line of the value, or of what encloses it where it is missing."""
        for length in range(len(json_path), -1, -1):
            if (found := self.line(json_path[:length])) is not None:
                return found
        return None

    def problem(self, json_path: JsonPath, message: str, **fields: Any) -> Problem:
        """A problem at a place in this file, with its line."""
        return Problem(
            path=self.path,
            message=message,
            line=self.nearest_line(json_path),
            json_path=json_path_text(json_path) if json_path else None,
            **fields,
        )


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in YAML_SUFFIXES


def _shown(path: Path) -> str:
    return Problem(path, "").where
