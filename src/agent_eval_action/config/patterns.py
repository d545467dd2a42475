"""From the eval files a person names (a path, a folder, a glob) to files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from agent_eval_action.config.composite import EvalPattern
from agent_eval_action.config.values import Flaw, Refused
from agent_eval_action.config.walk import (
    MAX_ENTRIES,
    TooManyEntries,
    files_below,
    holds_eval_set,
    is_agents_cli_dataset,
    is_eval_file,
)
from agent_eval_action.source import did_you_mean

NOT_READ: Final = "is an agents-cli evaluation dataset, which is not read"
AS_EVAL_SET: Final = "write it as an ADK eval set: `eval_id` and `conversation` in each case"
_MAGIC = re.compile(r"[*?\[]")


def expand(named: EvalPattern) -> tuple[Path, ...]:
    """The files, sorted. Raises Refused when there is none: a gate that ran nothing must not pass."""
    path = Path(os.path.normpath(named.where.base / named.pattern))
    if path.is_file():
        return (path,)
    try:
        return _searched(path, named)
    except TooManyEntries:
        hint = "name a folder further down"
        raise Refused(Flaw(f"more than {MAX_ENTRIES} files to look through", named.pattern, hint=hint)) from None
    except re.error:
        raise Refused(Flaw("is not a glob", named.pattern, hint="[a-z] holds a range, ** stands alone")) from None


def _searched(path: Path, named: EvalPattern) -> tuple[Path, ...]:
    if path.is_dir():
        files = sorted(files_below(path))
        named_so = tuple(file for file in files if is_eval_file(file))
        found = named_so or tuple(file for file in files if holds_eval_set(file))
        if not found and any(map(is_agents_cli_dataset, files)):
            raise Refused(Flaw(f"what is in this folder {NOT_READ}", named.pattern, hint=AS_EVAL_SET))
        if not found:
            raise Refused(Flaw("no eval file in this folder", named.pattern, hint="*.evalset.json or *.test.json"))
        return found
    if not _MAGIC.search(named.pattern):
        there = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise Refused(Flaw("there is no such eval file", named.pattern, hint=did_you_mean(path.name, there)))
    found = tuple(sorted(_matches(path)))
    if not found:
        raise Refused(Flaw("matches no file", named.pattern, hint=f"paths start from {named.where.base}"))
    return found


def _matches(path: Path) -> Iterator[Path]:
    """Files that match, searched from the last folder that is spelt out."""
    parts = path.parts
    first = next(index for index, part in enumerate(parts) if _MAGIC.search(part))
    start = Path(*parts[:first])
    wanted = glob_regex("/".join(parts[first:]))
    for file in files_below(start):
        if wanted.fullmatch(file.relative_to(start).as_posix()):
            yield file


def glob_regex(pattern: str) -> re.Pattern[str]:
    """``*``, ``?`` and ``[...]`` inside a name; ``**`` for any number of folders, as in the shell."""
    out = ""
    parts = PurePosixPath(pattern).parts
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            out += ".*" if last else "(?:[^/]+/)*"
        else:
            out += _name_regex(part) + ("" if last else "/")
    return re.compile(out, re.DOTALL)


def _name_regex(part: str) -> str:
    out, index = "", 0
    while index < len(part):
        sign, index = part[index], index + 1
        end = part.find("]", index + 1 + (part[index : index + 1] == "!"))
        if sign == "[" and end > 0:
            inside, index = part[index:end], end + 1
            negated = inside.startswith("!")
            letters = inside.removeprefix("!").replace("\\", r"\\").replace("^", r"\^").replace("[", r"\[")
            out += f"(?!/)[{'^' if negated else ''}{letters}]"
        else:
            out += {"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign))
    return out
