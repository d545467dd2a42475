"""One bounded walk over a workspace: which folders hold an agent, and where eval files lie."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EVAL_SUFFIXES: Final = (".evalset.json", ".test.json")
EVAL_SETS: Final = "evalsets"  # in a folder of this name every JSON file that holds a set is one
MAX_ENTRIES: Final = 250_000
MAX_DEPTH: Final = 40

_PRUNED: Final = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "build", "dist", "target"})
_NO_AGENTS: Final = frozenset({"tests", "test"})  # eval files are kept there, agents in there are fixtures
_FOREIGN: Final = frozenset({"tsconfig.test.json"})  # TypeScript's, by the same suffix
_MENTION: Final = re.compile(rb"\b(?:root_agent|get_agent_async)\b")
_APP: Final = re.compile(rb"^app\s*(?::[^=\n]+)?=|\bimport\b[^\n]*\bapp\b", re.MULTILINE)
_ADK_CASE: Final = re.compile(rb'"eval_?[iI]d"\s*:')
_AGENTS_CLI_CASE: Final = re.compile(rb'"eval_case_id"\s*:')
_READ: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Walked:
    """What a walk saw, sorted. ``complete`` is False when it stopped at its bound."""

    agents: tuple[Path, ...]
    eval_files: tuple[Path, ...]
    agents_cli_datasets: tuple[Path, ...] = ()
    complete: bool = True


def walk(root: Path, *, max_entries: int = MAX_ENTRIES) -> Walked:
    """Look through a folder. Links to folders are not followed; hidden, built and installed ones are left out."""
    agents: list[Path] = []
    files: list[Path] = []
    datasets: list[Path] = []
    seen = 0
    for folder, entries in _folders(root):
        seen += len(entries)
        names = {entry.name for entry in entries}
        if not _NO_AGENTS & set(folder.relative_to(root).parts) and holds_agent(folder, names):
            agents.append(folder)
        here = [folder / entry.name for entry in entries if entry.name.endswith(".json") and _is(entry.is_file)]
        files += [file for file in here if is_eval_file(file) or (folder.name == EVAL_SETS and holds_eval_set(file))]
        if folder.name == "datasets":
            datasets += [file for file in here if is_agents_cli_dataset(file)]
        if seen > max_entries:
            return Walked(tuple(sorted(agents)), tuple(sorted(files)), tuple(sorted(datasets)), complete=False)
    return Walked(tuple(sorted(agents)), tuple(sorted(files)), tuple(sorted(datasets)))


def is_eval_file(path: Path) -> bool:
    """Whether the name says so."""
    return path.name.endswith(EVAL_SUFFIXES) and path.name not in _FOREIGN


def holds_eval_set(path: Path) -> bool:
    """Whether a JSON file is an ADK eval set, by a look at its beginning."""
    text = _beginning(path) if path.suffix == ".json" else b""
    return b"eval_cases" in text and bool(_ADK_CASE.search(text))


def is_agents_cli_dataset(path: Path) -> bool:
    """Whether a JSON file is an evaluation dataset of agents-cli, by the same look."""
    text = _beginning(path) if path.suffix == ".json" else b""
    return b"eval_cases" in text and bool(_AGENTS_CLI_CASE.search(text)) and not _ADK_CASE.search(text)


class TooManyEntries(Exception):  # noqa: N818 - internal signal; the caller says what to name instead
    """The bound was hit: what lies beyond it is unknown."""


def files_below(root: Path, *, max_entries: int = MAX_ENTRIES) -> Iterator[Path]:
    """Every file below a folder, by the same rules. Raises TooManyEntries at its bound."""
    for folder, entries in _folders(root):
        max_entries -= len(entries)
        if max_entries < 0:
            raise TooManyEntries
        yield from (folder / entry.name for entry in entries if not _is(entry.is_dir))


def _folders(root: Path) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    """Folders with their entries, in a stable order, parents first."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        entries = _entries(folder)
        names = {entry.name for entry in entries}
        if "pyvenv.cfg" in names and depth:
            continue
        yield folder, entries
        if depth < MAX_DEPTH:
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            waiting += [
                (folder / name, depth + 1)
                for name in reversed(below)
                if not name.startswith(".") and name not in _PRUNED
            ]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:  # unreadable, or gone since: nothing in there can be run
        return []


def _is(asked: Callable[[], bool]) -> bool:
    """What a link leads to, where it leads to anything: links that form a circle raise OSError."""
    try:
        return asked()
    except OSError:
        return False


def holds_agent(folder: Path, names: Iterable[str]) -> bool:
    """Whether ADK would find an agent here, by a look at the text; nothing is imported."""
    present = set(names)
    if "root_agent.yaml" in present:
        return True
    if "agent.py" in present:
        text = _beginning(folder / "agent.py")
        return bool(_MENTION.search(text) or (b"adk" in text and (_APP.search(text) or not _parses(text))))
    return "__init__.py" in present and bool(_MENTION.search(_beginning(folder / "__init__.py")))


def _parses(text: bytes) -> bool:
    """Whether it is Python. An agent.py that is not, is an agent that does not start: the line is said there."""
    if len(text) >= _READ:  # cut in the middle
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError):
        return False
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
