"""Imports what ``agents-cli eval grade`` leaves in ``artifacts/grade_results``: each case with what its metrics gave.

agents-cli averages over the cases that graded, and leaves out the cases that its agent failed on. Here a metric
without a score is an error, and a case that the other side has and this one lacks was not measured.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, ValidationError

from agent_eval_action.diagnostics.reader import Source
from agent_eval_action.errors import EvalFileError, ResultsError
from agent_eval_action.formats import case_digest
from agent_eval_action.formats.agents_cli import AGENTS_CLI
from agent_eval_action.formats.base import Reading
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.evalset import DatasetCase
from agent_eval_action.results.run_result import (
    Attempt,
    AttemptError,
    AttemptSummary,
    CaseResult,
    Conditions,
    CriterionInfo,
    CriterionScore,
    ErrorKind,
    RunResult,
    ScoreStatus,
    SetResult,
    Totals,
    Usage,
)
from agent_eval_action.run.collector import excerpt_turn, summarise
from agent_eval_action.run.scoring import SharedScores

GRADED_BY: Final = "agents-cli"
GRADE_RESULTS: Final = Path("artifacts") / "grade_results"
"""Where agents-cli writes them in a project."""

_NAMES: Final = "results_*.json"
_AGENT: Final = "agent"  # the files do not name it
_HINT: Final = f"agents-cli eval grade writes it to {GRADE_RESULTS.as_posix()}"


class _Lenient(AdkModel):
    model_config = ConfigDict(extra="ignore")


class _Metric(_Lenient):
    score: float | None = None
    explanation: str | None = None
    error_message: str | None = None


class _Candidate(_Lenient):
    metric_results: dict[str, _Metric] | None = None


class _Graded(_Lenient):
    eval_case_index: int | None = None
    response_candidate_results: tuple[_Candidate, ...] | None = None


class _Summary(_Lenient):
    metric_name: str = ""


class _Dataset(_Lenient):
    eval_cases: tuple[dict[str, Any], ...] | None = None


class _Metadata(_Lenient):
    dataset_name: str | None = None
    creation_timestamp: str | None = None


class GradeResults(_Lenient):
    """One file. ``evaluation_dataset`` holds the traces that were graded, by the index of their case."""

    eval_case_results: tuple[_Graded, ...] | None = None
    summary_metrics: tuple[_Summary, ...] | None = None
    evaluation_dataset: tuple[_Dataset, ...] | None = None
    metadata: _Metadata | None = None

    @property
    def created(self) -> str:
        """When it was graded, "" where the file does not say."""
        return (self.metadata.creation_timestamp if self.metadata else None) or ""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that was to be computed, those that no case has a score of included."""
        names = [summary.metric_name for summary in self.summary_metrics or () if summary.metric_name]
        for graded in self.eval_case_results or ():
            for candidate in graded.response_candidate_results or ():
                names += candidate.metric_results or ()
        return tuple(sorted(set(names)))


def holds_grade_results(head: bytes) -> bool:
    """Whether a file that begins so is of agents-cli; google-adk's results name their set and cases otherwise."""
    ours = (b'"eval_case_index"', b'"response_candidate_results"', b'"summary_metrics"')
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and any(key in head for key in ours)


def newest_of_folder(folder: Path) -> Path | None:
    """Return the last result of a folder or of a project: each file is of another state of the agent."""
    found = [*folder.glob(_NAMES), *(folder / GRADE_RESULTS).glob(_NAMES)]
    return max((path for path in found if path.is_file()), key=lambda path: path.name, default=None)


def read_grade_results(path: Path) -> GradeResults:
    """Read one file. Raises ResultsError for whatever is not one."""
    source = Source.read(path, workspace=None, error=ResultsError)
    unreadable = f"{path} holds no results of {GRADED_BY} that can be read"
    try:
        found = GradeResults.model_validate(source.value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step)[:60] for step in first["loc"])
        raise ResultsError(f"{unreadable}: {where}: {first['msg']}", hint=_HINT) from None
    except RecursionError:
        raise ResultsError(f"{unreadable}: it is nested too deeply", hint=_HINT) from None
    if not found.eval_case_results:
        raise ResultsError(f"{path} holds no case: nothing was measured", hint=_HINT)
    if any(len(graded.response_candidate_results or ()) > 1 for graded in found.eval_case_results):
        raise ResultsError(f"{path} compares several candidates", hint="grade the traces of each agent by themselves")
    return found


def import_grade_results(files: Sequence[GradeResults]) -> RunResult:
    """Return one result of all files, which are repeats of each other."""
    names = [name for file in files for name in file.metrics]
    metrics = {name: _criterion_info(name) for name in dict.fromkeys(names)}
    cases: dict[str, CaseResult] = {}
    shared = SharedScores()
    for file in sorted(files, key=lambda file: file.created):
        for name, graded in _named(file):
            known = cases.get(name) or CaseResult(case=name, digest=graded.digest, expected=graded.expected())
            attempt = graded.attempt(name, len(known.attempts), file.metrics)
            cases[name] = known.model_copy(update={"attempts": (*known.attempts, summarise(attempt, shared))})
    eval_set = next((file.metadata.dataset_name for file in files if file.metadata), None) or GRADED_BY
    found = SetResult(
        agent=_AGENT, eval_set=eval_set, path=eval_set, criteria=tuple(metrics.values()), cases=tuple(cases.values())
    )
    repeats = max(len(case.attempts) for case in found.cases)
    return RunResult(
        started_at=_timestamp(max(file.created for file in files)),
        conditions=Conditions(tool_version=GRADED_BY, repeats=repeats, adaptive=repeats == 1),
        sets=(found,),
        totals=_totals((found,)),
    )


@dataclass(frozen=True)
class _GradedCase:
    """A case of one file; ``case`` is None where its trace cannot be read."""

    graded: _Graded
    case: DatasetCase | None

    @property
    def digest(self) -> str:
        return case_digest(self.case.model_copy(update={"recorded": (), "metric_fields": {}})) if self.case else ""

    def expected(self) -> tuple[Any, ...]:
        return tuple(map(excerpt_turn, self.case.turns)) if self.case else ()

    def attempt(self, name: str, repeat: int, metrics: Iterable[str]) -> Attempt:
        candidates = self.graded.response_candidate_results or ()
        results = (candidates[0].metric_results or {}) if candidates else {}
        error = None
        if not results:
            message = f"{GRADED_BY} graded nothing of it"
            error = AttemptError(kind=ErrorKind.SCORING, message=message)
        turns = self.case.recorded if self.case else ()
        return Attempt(
            agent=_AGENT,
            eval_set=GRADED_BY,
            case=name,
            repeat=repeat,
            case_digest="",
            turns=turns,
            error=error,
            scores=() if error else tuple(_score(metric, results.get(metric)) for metric in metrics),
            usage=Usage.of_turns(turns),
        )


def _named(file: GradeResults) -> Iterator[tuple[str, _GradedCase]]:
    """The cases of a file by their ids; of an id that traces of two files have, the later ones by their index too."""
    datasets = file.evaluation_dataset or ()
    traces = (datasets[0].eval_cases or ()) if datasets else ()
    seen: set[str] = set()
    for position, graded in enumerate(file.eval_case_results or ()):
        index = position if graded.eval_case_index is None else graded.eval_case_index
        case = _case(traces[index]) if 0 <= index < len(traces) else None
        named = case is not None and (traces[index].get("eval_case_id") or traces[index].get("evalCaseId"))
        name = case.eval_id if case and named else str(index)  # agents-cli knows a case without an id by its place
        name = f"{name} #{index}" if name in seen else name
        seen.add(name)
        yield name, _GradedCase(graded, case)


def _case(trace: Mapping[str, Any]) -> DatasetCase | None:
    """The trace as the format of datasets reads it; None where it is none."""
    given = {name: value for name, value in trace.items() if value is not None}
    try:
        source = Source.parse(json.dumps({"eval_cases": [given]}), path=Path("trace"), error=EvalFileError)
        eval_set = AGENTS_CLI.read(Reading(source))
    except EvalFileError:
        return None
    case = eval_set.eval_cases[0] if eval_set else None
    return case if isinstance(case, DatasetCase) else None


def _score(metric: str, found: _Metric | None) -> CriterionScore:
    said = found.error_message if found else None
    if found is None or said or found.score is None or not math.isfinite(found.score):
        reason = f"{GRADED_BY}: {said}" if said else f"{GRADED_BY} has no score of it"
        return CriterionScore(criterion=metric, status=ScoreStatus.ERROR, reason=reason)
    return CriterionScore(
        criterion=metric, status=ScoreStatus.SCORED, score=found.score, reason=found.explanation or ""
    )


def _criterion_info(metric: str) -> CriterionInfo:
    """A metric is known by its name alone: the files do not say how it was defined."""
    digest = hashlib.sha256(f"{GRADED_BY}:{metric}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return CriterionInfo(name=metric, digest=digest, source=GRADED_BY)


def align_graded(result: RunResult, sets: Sequence[SetResult]) -> RunResult:
    """Return the result with each case in the only set of the other side that has a case of its name.

    Cases and metrics are taken for those of the same name: agents-cli keeps no definition of either.
    """
    places: dict[str, list[tuple[SetResult, CaseResult]]] = {}
    for other in sets:
        for case in other.cases:
            places.setdefault(case.case, []).append((other, case))
    moved: dict[tuple[str, str], tuple[SetResult, list[CaseResult]]] = {}
    for eval_set in result.sets:
        for case in eval_set.cases:
            target, known = eval_set, case
            if len(found := places.get(case.case, [])) == 1:
                ((other, same),) = found
                target = _like(eval_set, other)
                known = case.model_copy(update={"digest": same.digest, "line": same.line})
            moved.setdefault((target.agent, target.eval_set), (target, []))[1].append(known)
    aligned = (target.model_copy(update={"cases": tuple(cases)}) for target, cases in moved.values())
    return result.model_copy(update={"sets": tuple(aligned)})


def _like(eval_set: SetResult, target: SetResult) -> SetResult:
    by_name = {info.name: info for info in target.criteria}
    criteria = tuple(by_name.get(info.name, info) for info in eval_set.criteria)
    names = {"agent": target.agent, "eval_set": target.eval_set, "path": target.path}
    return eval_set.model_copy(update={**names, "criteria": criteria})


def with_missing_cases(result: RunResult, base: RunResult) -> RunResult:
    """Return the result with each case that the base has and this lacks, as one that could not be measured.

    agents-cli leaves out the cases that its agent failed on, so a case that is gone may be one that breaks.
    """
    message = f"{GRADED_BY}'s results do not hold this case: it leaves out cases that its agent failed on"
    error = AttemptError(kind=ErrorKind.EXCEPTION, message=message)
    others = {(each.agent, each.eval_set): each for each in base.sets}
    sets = []
    for eval_set in result.sets:
        other = others.get((eval_set.agent, eval_set.eval_set))
        present = {case.case for case in eval_set.cases}
        gone = [case for case in other.cases if case.case not in present] if other else []
        added = (case.model_copy(update={"attempts": (AttemptSummary(repeat=0, error=error),)}) for case in gone)
        sets.append(eval_set.model_copy(update={"cases": (*eval_set.cases, *added)}))
    return result.model_copy(update={"sets": tuple(sets), "totals": _totals(sets)})


def _totals(sets: Sequence[SetResult]) -> Totals:
    cases = [case for eval_set in sets for case in eval_set.cases]
    made = [attempt for case in cases for attempt in case.attempts]
    usage = Usage.total(attempt.usage for attempt in made)
    errors = sum(attempt.error is not None for attempt in made)
    return Totals(cases=len(cases), attempts=len(made), errors=errors, usage=usage)


def _timestamp(text: str) -> str:
    try:
        return dt.datetime.fromisoformat(text).astimezone(dt.UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):  # a file may say anything
        return dt.datetime.fromtimestamp(0, dt.UTC).isoformat(timespec="seconds")
