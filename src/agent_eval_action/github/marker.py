"""The first line of the comment: an HTML comment that says whose it is, and that no other text can forge."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

_MARKER: Final = re.compile(r"<!-- agent-eval-action:comment (\{.*\}) -->")
_FORGED: Final = re.compile(r"<!--(?=\s*agent-eval-action:)")
_LONGEST_VALUE: Final = 300  # characters


@dataclass(frozen=True, slots=True)
class Marker:
    """Whose comment it is and of which run.

    ``key`` names the job, or what the input comment-key says. ``run`` and ``attempt`` are GITHUB_RUN_NUMBER and
    GITHUB_RUN_ATTEMPT, ``run_id`` is GITHUB_RUN_ID (0: unknown). ``outcome`` is the verdict, ``state`` what the mode
    ``changes`` compares.
    """

    key: str
    sha: str = ""
    run: int = 0
    attempt: int = 1
    run_id: int = 0
    outcome: str = ""
    state: str = ""

    def is_newer_than(self, other: Marker) -> bool:
        """Whether this is of a later run, or of a later attempt of the same run.

        Run numbers begin again at 1 when a workflow's file is renamed, run ids never do: where both are known
        they have to agree.
        """
        if self.run_id and self.run_id == other.run_id:
            return self.attempt > other.attempt
        if self.run_id and other.run_id:
            return self.run > other.run and self.run_id > other.run_id
        return (self.run, self.attempt) > (other.run, other.attempt)

    def is_of_same_run(self, other: Marker) -> bool:
        """Whether both are of one attempt of one run."""
        return (self.run_id, self.run, self.attempt) == (other.run_id, other.run, other.attempt)


def add_marker(marker: Marker, text: str) -> str:
    """The comment: the marker's line, then ``text``, in which no other marker is left."""
    return f"{_line(marker)}\n\n{escape_markers(text).strip(chr(10))}\n"


def read_marker(body: str | None) -> Marker | None:
    """The marker of a comment of ours; None for any other comment."""
    line = (body or "").partition("\n")[0].strip()
    found = _MARKER.fullmatch(line)
    values = _object(found[1]) if found else None
    if values is None or not isinstance(values.get("key"), str):
        return None
    known: dict[str, Any] = {}  # a comment can be edited by hand, and by later versions
    for field in fields(Marker):
        value = values.get(field.name)
        if isinstance(value, str if field.type == "str" else int) and not isinstance(value, bool):
            known[field.name] = value
    return Marker(**known)


def normalize_marker(marker: Marker) -> Marker:
    """The marker as it is read back: long values are cut."""
    return read_marker(_line(marker)) or marker


def escape_markers(text: str) -> str:
    """``text`` without markers of ours: what an agent says stands in code blocks as it is."""
    return _FORGED.sub("<!\N{ZERO WIDTH SPACE}--", text)


def _line(marker: Marker) -> str:
    """An HTML comment on one line: nothing in it can end it."""
    values = {
        name: value[:_LONGEST_VALUE] if isinstance(value, str) else value for name, value in asdict(marker).items()
    }
    kept = {name: value for name, value in values.items() if name == "key" or value not in ("", 0)}
    line = json.dumps(kept, separators=(",", ":"))
    for character in "<>-":
        line = line.replace(character, f"\\u{ord(character):04x}")
    return f"<!-- agent-eval-action:comment {line} -->"


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
