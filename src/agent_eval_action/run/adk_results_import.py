"""Imports google-adk's result files as one run: files of one set are its repeats, and what has no score is an error."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent_eval_action import criteria
from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.errors import ConfigError
from agent_eval_action.formats import case_digest
from agent_eval_action.formats.adk_results import STATUS, AdkCase, AdkMetric, AdkResults
from agent_eval_action.results.evalset import EvalCase
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
from agent_eval_action.run.collector import excerpt_turn, summarise
from agent_eval_action.run.scoring import SharedScores

TOOL: Final = "google-adk"


@dataclass
class _ImportedSet:
    """One eval set of one agent, its cases under their newest definitions; ``left_out`` counts those of older ones."""

    agent: str
    name: str
    criteria: dict[str, CriterionInfo] = field(default_factory=dict)
    cases: dict[str, CaseResult] = field(default_factory=dict)
    attempts: dict[str, list[AttemptSummary]] = field(default_factory=lambda: defaultdict(list))
    left_out: int = 0
    _shared: SharedScores = field(default_factory=SharedScores)

    def add(self, file: AdkResults, case: AdkCase) -> None:
        """Add an attempt of a case. Files must be added from the newest to the oldest."""
        turns = case.eval_metric_result_per_invocation
        expected = tuple(turn.expected_invocation for turn in turns if turn.expected_invocation is not None)
        whole = len(expected) == len(turns)
        digest = case_digest(EvalCase(eval_id=case.eval_id, conversation=expected if whole else ())) if turns else ""
        known = self.cases.get(case.eval_id)
        # a case that could not be run has no turns, which its definition would be known by
        if known is None or not known.digest:
            excerpts = tuple(excerpt_turn(turn) for turn in expected)
            self.cases[case.eval_id] = CaseResult(case=case.eval_id, digest=digest, expected=excerpts)
        elif turns and known.digest != digest:
            self.left_out += 1
            return
        error, scores = None, []
        if not case.overall_eval_metric_results:
            # google-adk writes FAILED for a case whose agent raised (2.13, local_eval_service.py)
            message = f"google-adk has no score of it, and says {_status(case.final_eval_status)}"
            error = AttemptError(kind=ErrorKind.EXCEPTION, message=message)
        for metric in case.overall_eval_metric_results:
            info = _criterion_info(metric, file)
            newest = self.criteria.setdefault(metric.metric_name, info)
            if info.digest == newest.digest:
                scores.append(_score(metric, newest, case))
            else:
                self.left_out += 1
        actual, attempts = tuple(turn.actual_invocation for turn in turns), self.attempts[case.eval_id]
        attempt = Attempt(
            agent=self.agent,
            eval_set=self.name,
            case=case.eval_id,
            repeat=len(attempts),
            case_digest="",
            turns=actual,
            error=error,
            scores=tuple(scores),
            usage=Usage.of_turns(actual),
        )
        attempts.append(summarise(attempt, self._shared))

    def result(self) -> SetResult:
        """Return everything that was added."""
        ordered = [self.cases[name] for name in sorted(self.cases)]
        cases = (case.model_copy(update={"attempts": tuple(self.attempts[case.case])}) for case in ordered)
        infos = tuple(self.criteria[name] for name in sorted(self.criteria))
        return SetResult(agent=self.agent, eval_set=self.name, path=self.name, criteria=infos, cases=tuple(cases))


def import_results(files: Sequence[AdkResults]) -> tuple[RunResult, tuple[str, ...]]:
    """Return one result of all files, and notes. Of a case or metric that changed between files the newest counts."""
    imported: dict[tuple[str, str], _ImportedSet] = {}
    newest_first = sorted(files, key=lambda file: (-file.creation_timestamp, file.eval_set_result_id))
    for file in newest_first:
        name = file.app, file.eval_set_id
        eval_set = imported.setdefault(name, _ImportedSet(*name))
        for case in file.eval_case_results:
            eval_set.add(file, case)
    ordered = [imported[name] for name in sorted(imported)]
    sets = tuple(eval_set.result() for eval_set in ordered)
    cases = [case for eval_set in sets for case in eval_set.cases]
    attempts = [attempt for case in cases for attempt in case.attempts]
    repeats = max((len(case.attempts) for case in cases), default=1)
    errors = sum(attempt.error is not None for attempt in attempts)
    usage = Usage.total(attempt.usage for attempt in attempts)
    result = RunResult(
        started_at=_timestamp(newest_first[0].creation_timestamp if newest_first else 0),
        conditions=Conditions(tool_version=TOOL, repeats=repeats, adaptive=repeats == 1),
        sets=sets,
        totals=Totals(cases=len(cases), attempts=len(attempts), errors=errors, usage=usage),
    )
    older = "older results are of another definition of their case or metric: left out"
    return result, tuple(f"{each.name}: {each.left_out} {older}" for each in ordered if each.left_out)


def align_names(result: RunResult, sets: Iterable[SetResult]) -> RunResult:
    """Return the result under the names that another tool gave the same sets and cases.

    google-adk knows an eval set by its id, a run of ours by its file: a set is taken for the only one of the other
    side that ends in its name. google-adk's result does not hold the whole definition of a case, so a case of the same
    name is taken for the same case unless what is expected is known to differ.
    """
    by_key = {(other.agent, other.eval_set): other for other in sets}
    by_name: dict[str, list[SetResult]] = defaultdict(list)
    for other in by_key.values():
        by_name[_short_name(other)].append(other)
    aligned = []
    for eval_set in result.sets:
        same_name = by_name[_short_name(eval_set)]
        target = by_key.get((eval_set.agent, eval_set.eval_set)) or (same_name[0] if len(same_name) == 1 else None)
        aligned.append(_aligned_set(eval_set, target) if target else eval_set)
    return result.model_copy(update={"sets": tuple(aligned)})


def _aligned_set(eval_set: SetResult, target: SetResult) -> SetResult:
    others = {case.case: case for case in target.cases}
    cases = []
    for case in eval_set.cases:
        other = others.get(case.case)
        same = other is not None and (not other.expected or not case.expected or other.expected == case.expected)
        cases.append(case.model_copy(update={"digest": other.digest, "line": other.line}) if other and same else case)
    names = {"agent": target.agent, "eval_set": target.eval_set, "path": target.path}
    return eval_set.model_copy(update={**names, "cases": tuple(cases)})


def _short_name(eval_set: SetResult) -> str:
    return eval_set.eval_set.rpartition("/")[2]


def _status(number: int) -> str:
    return STATUS.get(number, str(number))


def _score(metric: AdkMetric, info: CriterionInfo, case: AdkCase) -> CriterionScore:
    if not metric.scored or metric.score is None:
        reason = f"google-adk says {_status(metric.eval_status)}: no score"
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


def _criterion_info(metric: AdkMetric, file: AdkResults) -> CriterionInfo:
    """Describe a metric as our own criterion of that name and options; one we do not have, by its options alone."""
    source = f"{TOOL}: {file.eval_set_result_id}"[:200]
    try:
        return criteria.criterion_info(criteria.build((CriterionSpec(metric.metric_name, metric.options),))[0], source)
    except ConfigError:
        options = {name: value for name, value in metric.options.items() if name != "threshold" and value is not False}
    text = json.dumps([metric.metric_name, options], sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    threshold = metric.threshold if metric.threshold is not None else metric.options.get("threshold")
    return CriterionInfo(name=metric.metric_name, threshold=threshold, options=options, digest=digest, source=source)


def _timestamp(seconds: float) -> str:
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a file may say anything
        return dt.datetime.fromtimestamp(0, dt.UTC).isoformat(timespec="seconds")
