"""Import the results of google-adk and agents-cli as runs of ours, for a comparison.

google-adk's files of one set are its repeats, and a missing score is an error. agents-cli averages over the cases that
it graded, and leaves out the cases that its agent failed on: here a metric without a score is an error, and a case
that only the other side has was not measured.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_eval_action import criteria
from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.diagnostics.reader import Source
from agent_eval_action.diagnostics.validation import validated
from agent_eval_action.errors import ConfigError, EvalFileError, ResultsError
from agent_eval_action.formats import case_digest
from agent_eval_action.formats.adk_results import STATUS, AdkCase, AdkMetric, AdkResults
from agent_eval_action.formats.agents_cli import AGENTS_CLI
from agent_eval_action.formats.base import Reading
from agent_eval_action.results.base import LenientModel, json_digest, text_digest
from agent_eval_action.results.evalset import DatasetCase, EvalCase, Invocation
from agent_eval_action.results.pair_scores import meets
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
    TurnScore,
    Usage,
)
from agent_eval_action.run.collector import SharedScores, excerpt_turn, summarise

GOOGLE_ADK: Final = "google-adk"


@dataclass
class _ImportedSet:
    """One eval set of one agent, cases by their newest definition. ``left_out``: scores of older definitions."""

    agent: str
    name: str
    criteria: dict[str, CriterionInfo] = field(default_factory=dict)
    cases: dict[str, CaseResult] = field(default_factory=dict)
    left_out: int = 0
    _shared: SharedScores = field(default_factory=SharedScores)

    def add(self, file: AdkResults, case: AdkCase) -> None:
        """Add an attempt of a case. Files must be added newest first."""
        turns = case.eval_metric_result_per_invocation
        expected = tuple(turn.expected_invocation for turn in turns if turn.expected_invocation is not None)
        whole = len(expected) == len(turns)
        digest = case_digest(EvalCase(eval_id=case.eval_id, conversation=expected if whole else ())) if turns else ""
        known = self.cases.get(case.eval_id) or CaseResult(case=case.eval_id, digest="")
        # a case that could not be run has no turns, so that its definition is unknown
        if not known.digest:
            known = known.model_copy(update={"digest": digest, "expected": tuple(map(excerpt_turn, expected))})
        elif turns and known.digest != digest:
            self.left_out += 1
            return
        error, scores = None, list[CriterionScore]()
        if not case.overall_eval_metric_results:
            # google-adk writes FAILED for a case whose agent raised (2.13, local_eval_service.py)
            status = STATUS.get(case.final_eval_status, case.final_eval_status)
            message = f"google-adk has no score of it, and says {status}"
            error = AttemptError(kind=ErrorKind.EXCEPTION, message=message)
        for metric in case.overall_eval_metric_results:
            info = _adk_criterion(metric, file)
            newest = self.criteria.setdefault(metric.metric_name, info)
            if info.digest == newest.digest:
                scores.append(_adk_score(metric, newest, case))
            else:
                self.left_out += 1
        actual = tuple(turn.actual_invocation for turn in turns)
        attempt = _summary(len(known.attempts), actual, scores, error, self._shared)
        self.cases[case.eval_id] = known.model_copy(update={"attempts": (*known.attempts, attempt)})

    def result(self) -> SetResult:
        """Return the set with everything added so far."""
        cases = tuple(self.cases[name] for name in sorted(self.cases))
        infos = tuple(self.criteria[name] for name in sorted(self.criteria))
        return SetResult(agent=self.agent, eval_set=self.name, path=self.name, criteria=infos, cases=cases)


def import_results(files: Sequence[AdkResults]) -> tuple[RunResult, tuple[str, ...]]:
    """Return one result of all files, and notes. Of a changed case or metric only the newest definition counts."""
    imported: dict[tuple[str, str], _ImportedSet] = {}
    newest_first = sorted(files, key=lambda file: (-file.creation_timestamp, file.eval_set_result_id))
    for file in newest_first:
        name = file.app, file.eval_set_id
        eval_set = imported.setdefault(name, _ImportedSet(*name))
        for case in file.eval_case_results:
            eval_set.add(file, case)
    ordered = [imported[name] for name in sorted(imported)]
    made = dt.datetime.fromtimestamp
    started_at = _timestamp(lambda: made(newest_first[0].creation_timestamp if newest_first else 0, dt.UTC))
    result = _result(GOOGLE_ADK, started_at, tuple(eval_set.result() for eval_set in ordered))
    older = "older results are of another definition of their case or metric: left out"
    return result, tuple(f"{each.name}: {each.left_out} {older}" for each in ordered if each.left_out)


def align_names(result: RunResult, sets: Iterable[SetResult]) -> RunResult:
    """Return the result with the names that another tool gave the same sets and cases.

    google-adk names an eval set by its id, we by its file: a set is matched with the only set of the other side whose
    name ends in that id. google-adk's result lacks parts of a case's definition, so cases match by name unless their
    expectations are known to differ.
    """
    by_key = {(other.agent, other.eval_set): other for other in sets}
    by_name: dict[str, list[SetResult]] = defaultdict(list)
    for other in by_key.values():
        by_name[other.eval_set.rpartition("/")[2]].append(other)
    aligned = []
    for eval_set in result.sets:
        same_name = by_name[eval_set.eval_set.rpartition("/")[2]]
        target = by_key.get((eval_set.agent, eval_set.eval_set)) or (same_name[0] if len(same_name) == 1 else None)
        if target is None:
            aligned.append(eval_set)
            continue
        others = {case.case: case for case in target.cases}
        cases = []
        for case in eval_set.cases:
            known = others.get(case.case)
            same = known and (not known.expected or not case.expected or known.expected == case.expected)
            cases.append(_with_definition_of(known, case) if known and same else case)
        aligned.append(_with_names_of(target, eval_set, cases=tuple(cases)))
    return result.model_copy(update={"sets": tuple(aligned)})


def _adk_score(metric: AdkMetric, info: CriterionInfo, case: AdkCase) -> CriterionScore:
    if not metric.scored or metric.score is None:
        reason = f"google-adk says {STATUS.get(metric.eval_status, metric.eval_status)}: no score"
        return CriterionScore(criterion=info.name, status=ScoreStatus.ERROR, reason=reason)
    turns = (
        TurnScore(turn=number, score=result.score)
        for number, turn in enumerate(case.eval_metric_result_per_invocation)
        for result in turn.eval_metric_results
        if result.metric_name == info.name and result.scored
    )
    passed = None if info.threshold is None else meets(metric.score, info.threshold, info.goal)
    return CriterionScore(
        criterion=info.name, status=ScoreStatus.SCORED, score=metric.score, passed=passed, turns=tuple(turns)
    )


def _adk_criterion(metric: AdkMetric, file: AdkResults) -> CriterionInfo:
    """Describe a metric as our criterion of the same name and options; one that we lack, by its options."""
    source = f"{GOOGLE_ADK}: {file.eval_set_result_id}"[:200]
    try:
        return criteria.criterion_info(criteria.build((CriterionSpec(metric.metric_name, metric.options),))[0], source)
    except ConfigError:
        options = {name: value for name, value in metric.options.items() if name != "threshold" and value is not False}
    digest = json_digest([metric.metric_name, options])
    threshold = metric.threshold if metric.threshold is not None else metric.options.get("threshold")
    return CriterionInfo(name=metric.metric_name, threshold=threshold, options=options, digest=digest, source=source)


# --- agents-cli: the files that ``eval grade`` writes to artifacts/grade_results ---------------------

GRADED_BY: Final = "agents-cli"
GRADE_RESULTS: Final = Path("artifacts") / "grade_results"
"""Where agents-cli writes them in a project."""

_NAMES: Final = "results_*.json"
_AGENT: Final = "agent"  # the files do not name it
_HINT: Final = f"agents-cli eval grade writes it to {GRADE_RESULTS.as_posix()}"


class _Metric(LenientModel):
    score: float | None = None
    explanation: str | None = None
    error_message: str | None = None


class _Candidate(LenientModel):
    metric_results: dict[str, _Metric] | None = None


class _Graded(LenientModel):
    eval_case_index: int | None = None
    response_candidate_results: tuple[_Candidate, ...] | None = None


class _Summary(LenientModel):
    metric_name: str = ""


class _Dataset(LenientModel):
    eval_cases: tuple[dict[str, Any], ...] | None = None


class _Metadata(LenientModel):
    dataset_name: str | None = None
    creation_timestamp: str | None = None


class GradeResults(LenientModel):
    """One file. ``evaluation_dataset`` holds the graded traces, by the index of their case."""

    eval_case_results: tuple[_Graded, ...] | None = None
    summary_metrics: tuple[_Summary, ...] | None = None
    evaluation_dataset: tuple[_Dataset, ...] | None = None
    metadata: _Metadata | None = None

    @property
    def created(self) -> str:
        """When it was graded, "" if unknown."""
        return (self.metadata.creation_timestamp if self.metadata else None) or ""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that was requested, including those without any score."""
        names = [summary.metric_name for summary in self.summary_metrics or () if summary.metric_name]
        for graded in self.eval_case_results or ():
            for candidate in graded.response_candidate_results or ():
                names += candidate.metric_results or ()
        return tuple(sorted(set(names)))


def holds_grade_results(head: bytes) -> bool:
    """Whether a file with this beginning comes from agents-cli; google-adk's results use other keys."""
    ours = (b'"eval_case_index"', b'"response_candidate_results"', b'"summary_metrics"')
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and any(key in head for key in ours)


def newest_of_folder(folder: Path) -> Path | None:
    """Return the newest result in a folder or project; older ones belong to other states of the agent."""
    found = [*folder.glob(_NAMES), *(folder / GRADE_RESULTS).glob(_NAMES)]
    return max((path for path in found if path.is_file()), key=lambda path: path.name, default=None)


def read_grade_results(path: Path) -> GradeResults:
    """Read one file. Raises ResultsError if it is not a result."""
    source = Source.read(path, workspace=None, error=ResultsError)
    found = validated(source, GradeResults, f"{path} holds no results of {GRADED_BY} that can be read", _HINT)
    if not found.eval_case_results:
        raise ResultsError(f"{path} holds no case: nothing was measured", hint=_HINT)
    if any(len(graded.response_candidate_results or ()) > 1 for graded in found.eval_case_results):
        raise ResultsError(f"{path} compares several candidates", hint="grade the traces of each agent by themselves")
    return found


def import_grade_results(files: Sequence[GradeResults]) -> RunResult:
    """Return one result of all files, which are repeats of each other."""
    metrics = dict.fromkeys(name for file in files for name in file.metrics)
    # a metric is known by its name only: the files do not contain its definition
    infos = (CriterionInfo(name=name, digest=text_digest(f"{GRADED_BY}:{name}"), source=GRADED_BY) for name in metrics)
    cases: dict[str, CaseResult] = {}
    shared = SharedScores()
    for file in sorted(files, key=lambda file: file.created):
        for name, graded, trace in _cases_by_name(file):
            if name not in cases:
                digest = case_digest(trace.model_copy(update={"recorded": (), "metric_fields": {}})) if trace else ""
                expected = tuple(map(excerpt_turn, trace.turns)) if trace else ()
                cases[name] = CaseResult(case=name, digest=digest, expected=expected)
            known = cases[name]
            candidates = graded.response_candidate_results or ()
            results = (candidates[0].metric_results or {}) if candidates else {}
            message = f"{GRADED_BY} graded nothing of it"
            error = None if results else AttemptError(kind=ErrorKind.SCORING, message=message)
            scores = [_graded_score(metric, results.get(metric)) for metric in file.metrics if results]
            attempt = _summary(len(known.attempts), trace.recorded if trace else (), scores, error, shared)
            cases[name] = known.model_copy(update={"attempts": (*known.attempts, attempt)})
    name = next((file.metadata.dataset_name for file in files if file.metadata), None) or GRADED_BY
    found = SetResult(agent=_AGENT, eval_set=name, path=name, criteria=tuple(infos), cases=tuple(cases.values()))
    newest = max(file.created for file in files)
    return _result(GRADED_BY, _timestamp(lambda: dt.datetime.fromisoformat(newest).astimezone(dt.UTC)), (found,))


def _cases_by_name(file: GradeResults) -> Iterator[tuple[str, _Graded, DatasetCase | None]]:
    """Yield the name, the grades and the trace of each case; the trace is None if it cannot be read.

    Later cases with a repeated id get their index appended.
    """
    datasets = file.evaluation_dataset or ()
    traces = (datasets[0].eval_cases or ()) if datasets else ()
    seen: set[str] = set()
    for position, graded in enumerate(file.eval_case_results or ()):
        index = position if graded.eval_case_index is None else graded.eval_case_index
        case = _case(traces[index]) if 0 <= index < len(traces) else None
        named = case is not None and (traces[index].get("eval_case_id") or traces[index].get("evalCaseId"))
        name = case.eval_id if case and named else str(index)  # agents-cli knows a case without an id by its position
        name = f"{name} #{index}" if name in seen else name
        seen.add(name)
        yield name, graded, case


def _case(trace: Mapping[str, Any]) -> DatasetCase | None:
    """The trace, read as a dataset case; None if it is not one."""
    given = {name: value for name, value in trace.items() if value is not None}
    try:
        source = Source.parse(json.dumps({"eval_cases": [given]}), path=Path("trace"), error=EvalFileError)
        eval_set = AGENTS_CLI.read(Reading(source))
    except EvalFileError:
        return None
    case = eval_set.eval_cases[0] if eval_set else None
    return case if isinstance(case, DatasetCase) else None


def _graded_score(metric: str, found: _Metric | None) -> CriterionScore:
    message = found.error_message if found else None
    if found is None or message or found.score is None or not math.isfinite(found.score):
        reason = f"{GRADED_BY}: {message}" if message else f"{GRADED_BY} has no score of it"
        return CriterionScore(criterion=metric, status=ScoreStatus.ERROR, reason=reason)
    return CriterionScore(
        criterion=metric, status=ScoreStatus.SCORED, score=found.score, reason=found.explanation or ""
    )


def align_graded(result: RunResult, sets: Sequence[SetResult]) -> RunResult:
    """Return the result with each case moved to the only set of the other side that has a case of its name.

    Cases and metrics match by name: agents-cli keeps no definition of either.
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
                by_name = {info.name: info for info in other.criteria}
                criteria = tuple(by_name.get(info.name, info) for info in eval_set.criteria)
                target, known = _with_names_of(other, eval_set, criteria=criteria), _with_definition_of(same, case)
            moved.setdefault((target.agent, target.eval_set), (target, []))[1].append(known)
    aligned = (target.model_copy(update={"cases": tuple(cases)}) for target, cases in moved.values())
    return result.model_copy(update={"sets": tuple(aligned)})


def with_missing_cases(result: RunResult, base: RunResult) -> RunResult:
    """Return the result with each case that only the base has, as one that could not be measured.

    agents-cli leaves out the cases that its agent failed on, so a missing case may be broken.
    """
    message = f"{GRADED_BY}'s results do not hold this case: it leaves out cases that its agent failed on"
    error = AttemptError(kind=ErrorKind.EXCEPTION, message=message)
    others = {(each.agent, each.eval_set): each for each in base.sets}
    sets = []
    for eval_set in result.sets:
        other = others.get((eval_set.agent, eval_set.eval_set))
        present = {case.case for case in eval_set.cases}
        missing_cases = [case for case in other.cases if case.case not in present] if other else []
        added = (
            case.model_copy(update={"attempts": (AttemptSummary(repeat=0, error=error),)}) for case in missing_cases
        )
        sets.append(eval_set.model_copy(update={"cases": (*eval_set.cases, *added)}))
    return result.model_copy(update={"sets": tuple(sets), "totals": _totals(sets)})


# --- what both have in common ----------------------------------------------------------------------


def _result(tool: str, started_at: str, sets: tuple[SetResult, ...]) -> RunResult:
    repeats = max((len(case.attempts) for eval_set in sets for case in eval_set.cases), default=1)
    return RunResult(
        started_at=started_at,
        conditions=Conditions(tool_version=tool, repeats=repeats, adaptive=repeats == 1),
        sets=sets,
        totals=_totals(sets),
    )


def _summary(
    repeat: int,
    turns: tuple[Invocation, ...],
    scores: Iterable[CriterionScore],
    error: AttemptError | None,
    shared: SharedScores,
) -> AttemptSummary:
    attempt = Attempt(
        agent="",
        eval_set="",
        case="",
        repeat=repeat,
        case_digest="",
        turns=turns,
        error=error,
        scores=tuple(scores),
        usage=Usage.of_turns(turns),
    )
    return summarise(attempt, shared)


def _with_definition_of(other: CaseResult, case: CaseResult) -> CaseResult:
    return case.model_copy(update={"digest": other.digest, "line": other.line})


def _with_names_of(other: SetResult, eval_set: SetResult, **update: Any) -> SetResult:
    names = {"agent": other.agent, "eval_set": other.eval_set, "path": other.path}
    return eval_set.model_copy(update={**names, **update})


def _totals(sets: Iterable[SetResult]) -> Totals:
    cases = [case for eval_set in sets for case in eval_set.cases]
    made = [attempt for case in cases for attempt in case.attempts]
    usage = Usage.total(attempt.usage for attempt in made)
    errors = sum(attempt.error is not None for attempt in made)
    return Totals(cases=len(cases), attempts=len(made), errors=errors, usage=usage)


def _timestamp(made: Callable[[], dt.datetime]) -> str:
    try:
        return made().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # the file may contain anything
        return dt.datetime.fromtimestamp(0, dt.UTC).isoformat(timespec="seconds")
