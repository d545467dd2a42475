"""Compare two results without running anything: our own results, a baseline, or google-adk's results."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.records import from_result, result_of
from agent_eval_action.baseline.stores import FileStore
from agent_eval_action.config.loader import load_settings
from agent_eval_action.config.models import Settings
from agent_eval_action.criteria import CRITERIA
from agent_eval_action.errors import ResultsError
from agent_eval_action.folders import beginning, relative
from agent_eval_action.formats.adk_results import SUFFIX, read_results
from agent_eval_action.gate import compare, decide
from agent_eval_action.gate_changes.diff import apply_weakenings, weakenings
from agent_eval_action.gate_changes.snapshot import SetSnapshot, Snapshot, sets_of_result
from agent_eval_action.reports import results_json
from agent_eval_action.results.findings import text_note
from agent_eval_action.results.history import History, Record
from agent_eval_action.results.run_result import RunResult
from agent_eval_action.run.foreign_results import (
    GOOGLE_ADK,
    GRADED_BY,
    align_graded,
    align_names,
    holds_grade_results,
    import_grade_results,
    import_results,
    newest_of_folder,
    read_grade_results,
    with_missing_cases,
)

_ADK_HISTORY: Final = Path(".adk") / "eval_history"
_BASELINE: Final = "baseline.json"
_ACCEPTED: Final = (
    f"give {results_json.RESULTS}, {_BASELINE}, *{SUFFIX}, agents-cli's results_*.json, "
    "or a folder that holds one of them"
)
_ADK_KEYS: Final = (b"eval_set_result", b"evalSetResult", b"eval_set_id", b"eval_case_results")
_MAX_FILES: Final = 10_000
_ALIGNMENTS: Final = {
    GRADED_BY: (
        align_graded,
        f"cases and metrics of {GRADED_BY}'s results are known by their names alone: it keeps no definitions",
    ),
    GOOGLE_ADK: (
        align_names,
        f"cases of {GOOGLE_ADK}'s results are known by their names alone: it does not keep their whole definition",
    ),
}
_PEEK_BYTES: Final = 4_096


@dataclass(frozen=True)
class ComparisonInput:
    """One of the two results. ``baseline`` is set if a baseline was given."""

    result: RunResult
    baseline: Record | None = None
    notes: tuple[str, ...] = ()

    @property
    def tool(self) -> str:
        return self.result.conditions.tool_version

    def aligned_with(self, other: ComparisonInput) -> ComparisonInput:
        """Return this input under the other's names of eval sets and cases, if only this one is another tool's."""
        if self.tool == other.tool or self.tool not in _ALIGNMENTS:
            return self
        align, note = _ALIGNMENTS[self.tool]
        return ComparisonInput(align(self.result, other.result.sets), notes=(*self.notes, note))

    def sets(self) -> tuple[SetSnapshot, ...]:
        """Return its measured eval sets, without the metrics that google-adk reports unasked (INFORMATIONAL)."""
        sets = sets_of_result(self.result)
        if self.tool != GOOGLE_ADK:
            return sets
        return tuple(
            replace(each, criteria=tuple(info for info in each.criteria if info.threshold is not None)) for each in sets
        )


def compare_results(base: RunResult | Path | str, head: RunResult | Path | str, settings: Settings | None) -> RunResult:
    """Do what ``api.compare`` promises."""
    settings = settings or load_settings()
    after, before = read_comparison_input(head), read_comparison_input(base)
    before, after = before.aligned_with(after), after.aligned_with(before)
    if after.tool == GRADED_BY:
        after = replace(after, result=with_missing_cases(after.result, before.result))
    source = Path(base) if isinstance(base, Path | str) else Path("the result given")
    baseline = before.baseline or from_result(before.result)
    history = History(pooled=baseline if baseline.cases else None, source=relative(source, settings.workspace))
    decision = decide(compare(history, after.result), after.result, settings.policy)
    sets_before, sets_after = before.sets(), after.sets()
    if after.result.conditions.selection:  # narrowed on purpose
        run = {case.key for each in sets_after for case in each.cases}
        sets_before = tuple(
            replace(each, cases=tuple(case for case in each.cases if case.key in run)) for each in sets_before
        )
    found = weakenings(Snapshot(sets_before), Snapshot(sets_after))
    decision = apply_weakenings(decision, found, settings.policy.on_weakened)
    notes = (*map(text_note, dict.fromkeys((*before.notes, *after.notes))), *decision.notes)
    return after.result.model_copy(update={"decision": decision.model_copy(update={"notes": notes})})


def read_comparison_input(given: RunResult | Path | str) -> ComparisonInput:
    """Read a file, a folder of results, or a pattern of another tool's files. Raises ResultsError."""
    if isinstance(given, RunResult):
        return ComparisonInput(given)
    path = Path(given)
    foreign = _foreign_files(path)
    if not foreign and not path.exists():
        raise ResultsError(f"there is nothing at {path}", hint=_ACCEPTED)
    if graded := [file for file in foreign if holds_grade_results(beginning(file, _PEEK_BYTES))]:
        if len(graded) < len(foreign):
            raise ResultsError(
                f"{path} names results of {GRADED_BY} and of {GOOGLE_ADK}", hint="name those of one tool"
            )
        newest = (f"of the results in {path} the newest is read: {graded[0].name}",) if path.is_dir() else ()
        return ComparisonInput(import_grade_results([read_grade_results(file) for file in graded]), notes=newest)
    if foreign:
        result, notes = import_results([read_results(file) for file in foreign])
        return ComparisonInput(result, notes=notes)
    if path.is_dir():
        inside = next((path / name for name in (results_json.RESULTS, _BASELINE) if (path / name).is_file()), None)
        if inside is None:
            raise ResultsError(f"there are no results in {path}", hint=_ACCEPTED)
        path = inside
    if _is_baseline(path):
        baseline = FileStore(path).read()
        if baseline is None:
            raise ResultsError(f"there is no baseline at {path}", hint="make one: agent-eval baseline update")
        result = result_of(baseline, {name: (kind.goal, kind.unit) for name, kind in CRITERIA.items()})
        return ComparisonInput(result, baseline)
    return ComparisonInput(results_json.read(path))


def _foreign_files(path: Path) -> Sequence[Path]:
    """Return other tools' files: a named file, a pattern's matches, or those in a folder or an agent's history.

    Of agents-cli's results in a folder only the newest counts, and only if the folder has no other results.
    """
    files: list[Path] = []
    if path.is_dir():
        files = sorted([*path.glob(f"*{SUFFIX}"), *(path / _ADK_HISTORY).glob(f"*{SUFFIX}")])
        ours = any((path / name).is_file() for name in (results_json.RESULTS, _BASELINE))
        newest = None if files or ours else newest_of_folder(path)
        files = [newest] if newest else files
    elif path.is_file():
        # google-adk 1.10 wrote its results as JSON inside a JSON string
        head = beginning(path, _PEEK_BYTES).replace(b'\\"', b'"').lstrip(b'\xef\xbb\xbf \t\r\n"{\\n')
        graded = holds_grade_results(beginning(path, _PEEK_BYTES)) and path.name != results_json.RESULTS
        files = [path] if path.name.endswith(SUFFIX) or graded or head.startswith(_ADK_KEYS) else []
    elif not path.exists() and glob.has_magic(str(path)):
        files = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 - absolute patterns too
        if not files:
            raise ResultsError(f"nothing matches {path}")
    if len(files) > _MAX_FILES:
        raise ResultsError(f"{path} holds {len(files):,} files of results, more than {_MAX_FILES:,}")
    return files


def _is_baseline(path: Path) -> bool:
    """Whether a file is not one of our results, so that the baseline reader should report what is wrong with it."""
    head = beginning(path, _PEEK_BYTES)
    return path.name != results_json.RESULTS and b'"conditions"' not in head and b'"started_at"' not in head
