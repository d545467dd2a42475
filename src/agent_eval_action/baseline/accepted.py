"""``.agent-eval/accept.yaml``: intended changes of the agent and quarantines, each with its reason."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent_eval_action.baseline.stores import FOLDER, replace_committed
from agent_eval_action.diagnostics.reader import Source, did_you_mean
from agent_eval_action.errors import ConfigError, Problem, writing
from agent_eval_action.results.base import json_digest
from agent_eval_action.results.history import Accepted, Quarantine, Record

ACCEPT: Final = Path(FOLDER) / "accept.yaml"
_KEYS: Final = ("case", "criterion", "agent", "eval_set", "reason", "owner", "until")
_NEEDED: Final = ("case", "reason")
_QUARANTINE: Final = ("owner", "until")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_LONGEST: Final = 2_000
_HEAD: Final = (
    "# Intended changes of the agent: their history starts anew at the merge. Remove entries when you like.\n"
)


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names of the current suite's cases, criteria, agents and eval sets."""

    case: Collection[str] = ()
    criterion: Collection[str] = ()
    agent: Collection[str] = ()
    eval_set: Collection[str] = ()


def read(path: Path, *, workspace: Path | None = None) -> dict[Accepted, int | None]:
    """The entries of the file with their lines; none if there is no file.

    Raises ConfigError with every problem at its line.
    """
    if not os.path.lexists(path):
        return {}
    return _entries(Source.read(path, workspace=workspace, error=ConfigError))


def parse(text: str, path: Path = ACCEPT) -> dict[Accepted, int | None]:
    """The entries of a text. Raises ConfigError."""
    return _entries(Source.parse(text, path=path, error=ConfigError))


def _entries(source: Source) -> dict[Accepted, int | None]:
    if isinstance(source.value, list):
        problems = [problem for index, item in enumerate(source.value) for problem in _problems(source, index, item)]
    else:
        problems = [source.problem((), "must be a list of accepted changes", hint='begin with "- case: ID"')]
    if problems:
        raise ConfigError("the accepted changes cannot be used", problems=tuple(problems))
    return {_parse_entry(item): source.line((index,)) for index, item in enumerate(source.value)}


def unknown(entries: Mapping[Accepted, int | None], names: KnownNames) -> tuple[Problem, ...]:
    """A warning for every unknown name, which must not stop a run: a case may have been removed since."""
    problems: list[Problem] = []
    for accepted, line in entries.items():
        for word in ("case", "criterion", "agent", "eval_set"):
            value, known = getattr(accepted, word), getattr(names, word)
            if value is not None and value not in known:
                does = "quarantines nothing" if isinstance(accepted, Quarantine) else "accepts a change of nothing"
                message = f"{does}: there is no {word.replace('_', ' ')} {value!r}"
                hint = did_you_mean(value, known)
                problems.append(Problem(ACCEPT, message, line, hint=hint, severity="warning"))
    return tuple(problems)


def pending(entries: Iterable[Accepted], records: Sequence[Record]) -> tuple[Accepted, ...]:
    """Accepted changes that no record of main includes yet: the next record restarts their history.

    Once the newest record includes an entry it is spent, and has no effect even if it stays in the file. Quarantines
    are not accepted changes.
    """
    spent = {entry.id for entry in records[0].accepted} if records else set()
    return tuple(entry for entry in accepted_changes(entries) if entry.id not in spent)


def accepted_changes(entries: Iterable[Accepted]) -> tuple[Accepted, ...]:
    """The entries that accept a change of the agent: all except quarantines."""
    return tuple(entry for entry in entries if not isinstance(entry, Quarantine))


def append(path: Path, entries: Sequence[Mapping[str, str]], *, workspace: Path) -> tuple[Accepted, ...]:
    """Append the entries that the file lacks, and leave its other content unchanged byte for byte.

    Returns the added ones. Raises ConfigError or OutputError without writing anything.
    """
    before = read(path, workspace=workspace)
    added = {accepted: entry for entry in entries if (accepted := _parse_entry(entry)) not in before}
    if not added:
        return ()
    text = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    after = (text if text.endswith("\n") else text + "\n") + "".join(map(_entry_text, added.values()))
    try:
        whole = list(parse(after, path)) == [*before, *added]
    except ConfigError:
        whole = False
    if not whole:
        raise ConfigError(f"{path} is not written as a plain list, so nothing can be added", hint="add it by hand")
    with writing(path):
        replace_committed(path, after, workspace)
    return tuple(added)


def _entry_text(entry: Mapping[str, str]) -> str:
    lines = [f"{name}: {json.dumps(entry[name], ensure_ascii=False)}" for name in _KEYS if entry.get(name)]
    return "- " + "\n  ".join(lines) + "\n"


def _problems(source: Source, index: int, item: Any) -> list[Problem]:
    if not isinstance(item, dict):
        return [source.problem((index,), "must be a mapping with a case and a reason", value=str(item)[:80])]
    found = [
        source.problem((index, key), f"unknown key {key[:80]!r}", hint=did_you_mean(key, _KEYS))
        for key in item
        if key not in _KEYS
    ]
    for key in _KEYS:
        value = item.get(key)
        if key in item and not (isinstance(value, str) and value.strip()):
            hint = "put it in quotes" if isinstance(value, bool | int | float) else None
            found.append(source.problem((index, key), f"{key} must be text", hint=hint))
        elif isinstance(value, str) and len(value) > _LONGEST:
            found.append(source.problem((index, key), f"{key} is longer than {_LONGEST} characters"))
        elif key == "until" and isinstance(value, str) and (wrong := why_no_day(value)):
            found.append(source.problem((index, key), f"until {wrong}", value=value[:80]))
    needed = _NEEDED + _QUARANTINE if set(_QUARANTINE) & item.keys() else _NEEDED
    missing = [key for key in needed if key not in item]
    return found + [source.problem((index,), f"needs {'an' if key in _QUARANTINE else 'a'} {key}") for key in missing]


def why_no_day(text: str) -> str:
    """Why a text is not a date; "" if it is one."""
    if not _DAY.fullmatch(text):
        return "must be a day: YYYY-MM-DD"
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return "is no day of the calendar"
    return ""


def _parse_entry(item: Mapping[str, str]) -> Accepted:
    """The id covers all fields, so that the same change accepted for another reason is another acceptance."""
    words = {name: item[name] for name in _KEYS if item.get(name)}
    return (Quarantine if "until" in words else Accepted)(id=json_digest(words), **words)
