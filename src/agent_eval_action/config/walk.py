"""One bounded walk over folders: which hold an agent, where eval files lie, and which files a pattern names."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from agent_eval_action.config.types import EvalPattern
from agent_eval_action.diagnostics.reader import did_you_mean, shorten
from agent_eval_action.diagnostics.tables import is_table
from agent_eval_action.errors import EvalFileError
from agent_eval_action.results.evalset import EVAL_SUFFIXES

SET_FOLDERS: Final = ("evalsets", "eval/datasets")
"""Folders of Google's project templates, in which every JSON file that holds eval cases is an eval file."""
MAX_ENTRIES: Final = 250_000
GO_SERVER: Final = ("go", "run", ".", "web", "--port", "{port}", "--write-timeout", "10m", "api", "-path_prefix", "/")
"""What serves an agent of ADK for Go over REST, as agents-cli starts it. By default ADK cuts answers off after 15 s."""

_MAX_DEPTH: Final = 40
_PRUNED: Final = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "build", "dist", "target"})
_NO_AGENTS: Final = frozenset({"tests", "test"})  # eval files are kept there, agents in there are fixtures
_FOREIGN: Final = frozenset({"tsconfig.test.json"})  # TypeScript's, by the same suffix
_MENTION: Final = re.compile(rb"\b(?:root_agent|get_agent_async)\b")
_APP: Final = re.compile(rb"^app\s*(?::[^=\n]+)?=|\bimport\b[^\n]*\bapp\b", re.MULTILINE)
_CASE: Final = re.compile(rb'"(?:eval_?[iI]d|eval_?[cC]ase_?[iI]d|prompt|agent_?[dD]ata)"\s*:')
_MANIFEST: Final = "agents-cli-manifest.yaml"
_MANIFEST_LINE: Final = re.compile(rb"^(language|agent_directory):\s*[\"']?([^\"'\s#]+)", re.MULTILINE)
_READ: Final = 256 * 1024
_MAGIC: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Walked:
    """What a walk saw, sorted by path. ``complete`` is False when it stopped at its bound.

    ``go_agents`` are the agents' folders of agents-cli's Go projects, which ``GO_SERVER`` serves.
    """

    agents: tuple[Path, ...]
    eval_files: tuple[Path, ...]
    complete: bool
    go_agents: tuple[Path, ...] = ()


def walk(root: Path, *, max_entries: int = MAX_ENTRIES) -> Walked:
    """Look through a folder. Links to folders are not followed; hidden, built and installed ones are left out."""
    agents: list[Path] = []
    go_agents: list[Path] = []
    files: list[Path] = []
    seen = 0
    for folder, entries in _folders(root):
        seen += len(entries)
        names = {entry.name for entry in entries}
        if not _NO_AGENTS & set(folder.relative_to(root).parts) and holds_agent(folder, names):
            agents.append(folder)
        if _MANIFEST in names and (agent := _go_agent(folder)) is not None:
            go_agents.append(agent)
        json_files = [folder / entry.name for entry in entries if entry.name.endswith(".json")]
        here = [file for file in json_files if os.path.isfile(file)]  # noqa: PTH113 - the other raises for some links
        files += filter(is_eval_file, here)
        if seen > max_entries:
            break
    return Walked(tuple(sorted(agents)), tuple(sorted(files)), seen <= max_entries, tuple(sorted(go_agents)))


def _go_agent(project: Path) -> Path | None:
    """The agent's folder that the manifest of a Go project names; None where it is of another language."""
    found = {match[1]: os.fsdecode(match[2]) for match in _MANIFEST_LINE.finditer(_beginning(project / _MANIFEST))}
    folder = Path(os.path.normpath(project / found.get(b"agent_directory", "app")))
    is_inside = folder != project and folder.is_relative_to(project)
    return folder if found.get(b"language") == "go" and is_inside and folder.is_dir() else None


def is_set_folder(folder: Path) -> bool:
    """Whether the folder is one of ``SET_FOLDERS``, wherever it lies."""
    return folder.as_posix().endswith(tuple(f"/{name}" for name in SET_FOLDERS))


def is_eval_file(path: Path) -> bool:
    """Whether a file is found as an eval file: by its name, or by its folder and what it holds."""
    if path.name.endswith(EVAL_SUFFIXES):
        return path.name not in _FOREIGN
    return is_set_folder(path.parent) and _holds_cases(path)


def _holds_cases(path: Path) -> bool:
    text = _beginning(path) if path.suffix == ".json" else b""
    return b"eval_cases" in text and bool(_CASE.search(text))


class TooManyEntries(Exception):  # noqa: N818 - internal signal; the caller says what to name instead
    """More entries were found than a walk looks at."""


def files_below(root: Path, *, max_entries: int = MAX_ENTRIES) -> Iterator[Path]:
    """Every file below a folder that `walk` would look at. Raises TooManyEntries."""
    for folder, entries in _folders(root):
        max_entries -= len(entries)
        if max_entries < 0:
            raise TooManyEntries
        for entry in entries:
            is_link = entry.is_symlink()
            if not (os.path.isdir(entry) if is_link else entry.is_dir()):  # noqa: PTH112 - as above
                yield folder / entry.name


def _folders(root: Path) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    """Folders with their entries, in a stable order, parents first."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:  # unreadable, or gone since: nothing in there can be run
            entries = []
        if depth and any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        yield folder, entries
        waiting += [
            (folder / entry.name, depth + 1)
            for entry in reversed(entries)
            if depth < _MAX_DEPTH
            and entry.is_dir(follow_symlinks=False)
            and not entry.name.startswith(".")
            and entry.name not in _PRUNED
        ]


def holds_agent(folder: Path, names: Iterable[str]) -> bool:
    """Whether the folder's files look like an agent that ADK would find; nothing is imported."""
    present = set(names)
    if "root_agent.yaml" in present:
        return True
    if "agent.py" in present:
        text = _beginning(folder / "agent.py")
        return bool(_MENTION.search(text) or (b"adk" in text and (_APP.search(text) or not _parses(text))))
    return "__init__.py" in present and bool(_MENTION.search(_beginning(folder / "__init__.py")))


def _parses(text: bytes) -> bool:
    """Whether it is Python. A broken agent.py counts as an agent, so that starting it reports the line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError):
        return len(text) >= _READ  # cut in the middle
    except (RecursionError, MemoryError):
        return True
    return True


def _beginning(path: Path) -> bytes:
    try:
        # A fifo of this name must not block the walk.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - opens a descriptor
            return file.read(_READ) or b""
    except OSError:
        return b""


def expand(named: EvalPattern) -> tuple[Path, ...]:
    """The files, sorted. Raises EvalFileError when there is none: a gate that ran nothing must not pass."""
    path = Path(os.path.normpath(named.origin.base / named.pattern))
    if path.is_file():
        return (path,)
    try:
        if path.is_dir():
            return _eval_files_below(path, named)
        found = tuple(sorted(_matches(path))) if _MAGIC.search(named.pattern) else ()
    except TooManyEntries:
        message = f"more than {MAX_ENTRIES} files to look through"
        raise _refusal(named, message, "name a folder further down") from None
    except re.error:
        raise _refusal(named, "is not a glob", "[a-z] holds a range, ** stands alone") from None
    if not found and _MAGIC.search(named.pattern):
        raise _refusal(named, "matches no file", f"paths start from {named.origin.base}")
    if not found:
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise _refusal(named, "there is no such eval file", did_you_mean(path.name, siblings))
    return found


def _refusal(named: EvalPattern, message: str, hint: str | None) -> EvalFileError:
    problem = named.origin.problem(message, value=shorten(named.pattern), hint=hint)
    return EvalFileError("eval files cannot be found", problems=(problem,))


def _eval_files_below(folder: Path, named: EvalPattern) -> tuple[Path, ...]:
    files = sorted(files_below(folder))
    if named.columns is not None:
        found = tuple(filter(is_table, files))
        what, names = "no table", "*.csv, *.tsv, *.jsonl or *.ndjson"
    else:
        found = tuple(filter(is_eval_file, files)) or tuple(filter(_holds_cases, files))
        what, names = "no eval file", "*.evalset.json or *.test.json; a table is named itself"
    if not found:
        raise _refusal(named, f"{what} in this folder", names)
    return found


def _matches(path: Path) -> Iterator[Path]:
    """Files that match, searched from the last folder that is spelt out."""
    first = next(index for index, part in enumerate(path.parts) if _MAGIC.search(part))
    start = Path(*path.parts[:first])
    wanted = glob_regex("/".join(path.parts[first:]))
    for file in files_below(start):
        if wanted.fullmatch(file.relative_to(start).as_posix()):
            yield file


def glob_regex(pattern: str) -> re.Pattern[str]:
    """``*``, ``?`` and ``[...]`` inside a name; ``**`` for any number of folders, as in the shell."""
    *folders, name = PurePosixPath(pattern).parts
    out = "".join("(?:[^/]+/)*" if part == "**" else _name_regex(part) + "/" for part in folders)
    return re.compile(out + (".*" if name == "**" else _name_regex(name)), re.DOTALL)


def _name_regex(part: str) -> str:
    out, index = "", 0
    while index < len(part):
        sign, index = part[index], index + 1
        end = part.find("]", index + 1 + (part[index : index + 1] == "!"))
        if sign == "[" and end > 0:
            inside, index = part[index:end], end + 1
            letters = inside.removeprefix("!").replace("\\", r"\\").replace("^", r"\^").replace("[", r"\[")
            out += f"(?!/)[{'^' if inside.startswith('!') else ''}{letters}]"
        else:
            out += {"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign))
    return out
