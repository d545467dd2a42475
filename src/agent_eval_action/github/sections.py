"""The text of the comment: one section per key, each between markers that no other text can forge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

FORMAT: Final = 1
_HEAD: Final = re.compile(r"<!-- agent-eval-action:comment (\{.*\}) -->")
_BEGIN: Final = re.compile(r"<!-- agent-eval-action:section (\{.*\}) -->")
_END: Final = "<!-- agent-eval-action:end -->"
_FORGED: Final = re.compile(r"<!--(?=\s*agent-eval-action:)")
_TEXTS: Final = 300  # characters of a value in a marker


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose section it is and of which run.

    ``key`` names the configuration and matrix leg. ``run`` and ``attempt`` are GITHUB_RUN_NUMBER and
    GITHUB_RUN_ATTEMPT, ``run_id`` is GITHUB_RUN_ID (0: not known). ``outcome`` is the verdict's word, ``state``
    what the mode ``changes`` compares. ``title``, in Markdown, heads the section where there are several.
    """

    key: str
    sha: str = ""
    run: int = 0
    attempt: int = 1
    run_id: int = 0
    outcome: str = ""
    state: str = ""
    title: str = ""

    @property
    def made_by(self) -> str:
        """The run, for what it makes once."""
        return f"{self.run_id}.{self.attempt}"

    def is_newer_than(self, other: Stamp) -> bool:
        """Whether this is of a later run, or a later attempt of the same.

        Run numbers begin again at 1 when a workflow's file is renamed, run ids never do: where both are known
        they have to agree.
        """
        if self.run_id and self.run_id == other.run_id:
            return self.attempt > other.attempt
        if self.run_id and other.run_id:
            return self.run > other.run and self.run_id > other.run_id
        return (self.run, self.attempt) > (other.run, other.attempt)


@dataclass(frozen=True, slots=True)
class Kept:
    """A section as it stands in a comment."""

    stamp: Stamp
    text: str


@dataclass(frozen=True, slots=True)
class CommentText:
    """A comment taken apart. ``made_by``: the run that wrote the comment first."""

    sections: dict[str, Kept]
    made_by: str = ""


def taken_apart(body: str | None) -> CommentText | None:
    """The comment's sections; None when it is not one of ours. What stands outside of them is dropped."""
    lines = (body or "").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = _HEAD.fullmatch(lines[0].strip())
    said = _object(head[1]) if head else None
    if said is None:
        return None
    sections: dict[str, Kept] = {}
    stamp, inside = None, list[str]()

    def keep() -> None:
        if stamp is not None and not _newer_in(sections, stamp):
            sections[stamp.key] = Kept(stamp, "\n".join(inside).strip("\n"))

    for line in lines[1:]:
        begin = _BEGIN.fullmatch(line.strip())
        if begin or line.strip() == _END:
            keep()
            stamp, inside = _stamp(_object(begin[1])) if begin else None, []
        else:
            inside.append(line)
    keep()
    return CommentText(sections, str(said.get("by", "")))


def merged(texts: Iterable[CommentText]) -> dict[str, Kept]:
    """All sections, of one key the newest; of equals the first."""
    found: dict[str, Kept] = {}
    for text in texts:
        for key, kept in text.sections.items():
            if key not in found or kept.stamp.is_newer_than(found[key].stamp):
                found[key] = kept
    return found


def put_together(sections: Iterable[Kept], made_by: str) -> str:
    """The comment, its sections in the order of their keys."""
    in_order = sorted(sections, key=lambda kept: kept.stamp.key)
    parts = [_marker("comment", {"v": FORMAT, "by": made_by})]
    for kept in in_order:
        if len(in_order) > 1:
            parts.append(heading(kept.stamp))
        parts += [_marker("section", {"v": FORMAT, **asdict(kept.stamp)}), unforged(kept.text).strip("\n"), _END]
    return "\n\n".join(parts) + "\n"


def heading(stamp: Stamp) -> str:
    """What tells sections apart to a reader."""
    icon = {"pass": "✅", "fail": "❌", "inconclusive": "⚠️", "collecting": "📥"}.get(stamp.outcome, "▪️")
    return f"## {icon} {unforged(stamp.title) or 'Agent eval'}"


def unforged(text: str) -> str:
    """``text`` without markers of ours: what an agent says stands in code blocks as it is."""
    return _FORGED.sub("<!\N{ZERO WIDTH SPACE}--", text)


def around(stamps: Iterable[Stamp]) -> int:
    """Bytes of a comment that are not sections' texts."""
    return len(put_together([Kept(stamp, "") for stamp in stamps], "0" * 24).encode())


def as_kept(stamp: Stamp) -> Stamp:
    """The stamp as it is read back from a comment."""
    text = taken_apart(put_together([Kept(stamp, "")], ""))
    return next((kept.stamp for kept in text.sections.values()), stamp) if text else stamp


def _newer_in(sections: dict[str, Kept], stamp: Stamp) -> bool:
    other = sections.get(stamp.key)
    return other is not None and other.stamp.is_newer_than(stamp)


def _marker(kind: str, values: dict[str, Any]) -> str:
    """An HTML comment on one line: nothing in it can end it."""
    short = {name: value[:_TEXTS] if isinstance(value, str) else value for name, value in values.items()}
    said = json.dumps(
        {name: value for name, value in short.items() if name == "key" or value not in ("", 0)}, separators=(",", ":")
    )
    for character in "<>-":
        said = said.replace(character, f"\\u{ord(character):04x}")
    return f"<!-- agent-eval-action:{kind} {said} -->"


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _stamp(said: dict[str, Any] | None) -> Stamp | None:
    """What a marker says, as far as it is what we write: a comment can be edited by hand, and by later versions."""
    if said is None or not isinstance(said.get("key"), str):
        return None
    known: dict[str, Any] = {}
    for one in fields(Stamp):
        value = said.get(one.name)
        if isinstance(value, str if one.type == "str" else int) and not isinstance(value, bool):
            known[one.name] = value
    return Stamp(**known)
