"""One side of ``agent-eval compare``: a baseline, results of ours or google-adk's, told apart by what is in it."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.file_store import FileStore
from agent_eval_action.baseline.records import from_result, result_of
from agent_eval_action.cli import output
from agent_eval_action.criteria import CRITERIA
from agent_eval_action.errors import ResultsError
from agent_eval_action.formats.adk_results import SUFFIX, read_results
from agent_eval_action.reports import results_json
from agent_eval_action.results.history import Baseline
from agent_eval_action.results.run_result import RunResult
from agent_eval_action.run.adk_results_import import TOOL, align_names, import_results

_HISTORY: Final = Path(".adk") / "eval_history"
_BASELINE: Final = "baseline.json"
_TAKEN: Final = f"give {output.RESULTS}, {_BASELINE}, *{SUFFIX}, or a folder that holds one of them"
_MAX_FILES: Final = 10_000
_PEEK: Final = 4_096


@dataclass(frozen=True)
class Side:
    """A run, or a baseline seen as one. ``baseline`` is set where it is what was given."""

    result: RunResult
    baseline: Baseline | None = None
    notes: tuple[str, ...] = ()

    @property
    def foreign(self) -> bool:
        """Whether google-adk made it."""
        return self.result.conditions.tool_version == TOOL

    def as_baseline(self) -> Baseline:
        """What the other side is compared with."""
        return self.baseline or from_result(self.result)

    def named_like(self, other: Side) -> Side:
        """Under the other side's names, where this is google-adk's and the other is not."""
        if not self.foreign or other.foreign:
            return self
        note = f"cases of {TOOL}'s results are known by their names alone: it does not keep their whole definition"
        return Side(align_names(self.result, other.result.sets), notes=(*self.notes, note))


def read_side(path: Path) -> Side:
    """Read whatever lies at ``path``: a file, a folder with results, or a pattern of google-adk's files."""
    foreign = _foreign_files(path)
    if not foreign and not path.exists():
        raise ResultsError(f"there is nothing at {path}", hint=_TAKEN)
    if foreign:
        result, notes = import_results([read_results(file) for file in foreign])
        return Side(result, notes=notes)
    if path.is_dir():
        found = next((path / name for name in (output.RESULTS, _BASELINE) if (path / name).is_file()), None)
        if found is None:
            raise ResultsError(f"there are no results in {path}", hint=_TAKEN)
        path = found
    if _is_baseline(path):
        baseline = FileStore(path).read()
        if baseline is None:
            raise ResultsError(f"there is no baseline at {path}", hint="make one: agent-eval baseline update")
        return Side(result_of(baseline, {name: (kind.goal, kind.unit) for name, kind in CRITERIA.items()}), baseline)
    return Side(results_json.read(path))


def _foreign_files(path: Path) -> list[Path]:
    """google-adk's files: the one named, those a pattern matches, those of a folder or of an agent's history."""
    if path.name.endswith(SUFFIX) and path.is_file():
        return [path]
    if path.is_dir():
        found = sorted([*path.glob(f"*{SUFFIX}"), *(path / _HISTORY).glob(f"*{SUFFIX}")])
    elif not path.exists() and glob.has_magic(str(path)):
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 - absolute patterns too
        if not found:
            raise ResultsError(f"nothing matches {path}")
    elif path.is_file() and _begins_like_adk(path):
        found = [path]
    else:
        found = []
    if len(found) > _MAX_FILES:
        raise ResultsError(f"{path} holds {len(found):,} files of results, more than {_MAX_FILES:,}")
    return found


def _begins_like_adk(path: Path) -> bool:
    """A file of another name, known by its first key; 1.10 wrote it inside a string."""
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK).replace(b'\\"', b'"').lstrip(b'\xef\xbb\xbf \t\r\n"{\\n')
    except OSError:
        return False
    return head.startswith((b"eval_set_result", b"evalSetResult", b"eval_set_id", b"eval_case_results"))


def _is_baseline(path: Path) -> bool:
    """A file that is no results: its own reader says what is wrong with it."""
    if path.name == output.RESULTS:
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK)
    except OSError:
        return True
    return b'"conditions"' not in head and b'"started_at"' not in head
