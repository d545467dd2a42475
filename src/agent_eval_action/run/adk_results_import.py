"""google-adk's result files as a run of ours: files of one set are its repeats, and what has no score is an error."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

TOOL: Final = "google-adk"

Key = tuple[str, str]
"""Agent and eval set."""


@dataclass
class _Case:
    """The attempts of one case under its newest definition."""

    result: CaseResult
    attempts: list[AttemptSummary] = field(default_factory=list)


@dataclass
class _Set:
    """One eval set; ``left_out`` are attempts and scores of older definitions."""

    criteria: dict[str, CriterionInfo] = field(default_factory=dict)
    cases: dict[str, _Case] = field(default_factory=dict)
    left_out: int = 0


def import_results(files: Sequence[AdkResults]) -> tuple[RunResult, tuple[str, ...]]:
    """One result of all files, and notes. Of a case or metric that changed between files the newest form counts."""
    sets: dict[Key, _Set] = defaultdict(_Set)
    newest_first = sorted(files, key=lambda file: (-file.creation_timestamp, file.eval_set_result_id))
    for file in newest_first:
        one = sets[file.app, file.eval_set_id]
        for case in file.eval_case_results:
            _add(one, file, case)
    results = tuple(_set(key, sets[key]) for key in sorted(sets))
    attempts = [made for one in results for case in one.cases for made in case.attempts]
    usage = Usage()
    for made in attempts:
        usage += made.usage
    repeats = max((len(case.attempts) for one in results for case in one.cases), default=1)
    result = RunResult(
        started_at=_when(newest_first[0].creation_timestamp) if newest_first else _when(0),
        conditions=Conditions(tool_version=TOOL, repeats=repeats, adaptive=repeats == 1),
        sets=results,
        totals=Totals(
            cases=sum(len(one.cases) for one in results),
            attempts=len(attempts),
            errors=sum(made.error is not None for made in attempts),
            usage=usage,
        ),
    )
    return result, tuple(_notes(sets))


def align_names(result: RunResult, sets: Iterable[SetResult]) -> RunResult:
    """The result under the names another tool gave the same sets and cases.

    google-adk knows an eval set by its id, a run of ours by its file: where exactly one set of the other
    side ends in that name, it is meant. Its result does not hold the whole definition of a case, so a case
    of the same name is taken for the same case unless what is expected is known to differ.
    """
    theirs = {(one.agent, one.eval_set): one for one in sets}
    renamed = []
    for one in result.sets:
        like = theirs.get((one.agent, one.eval_set)) or _one(
            other for other in theirs.values() if _short(other.eval_set) == _short(one.eval_set)
        )
        renamed.append(_like(one, like) if like else one)
    return result.model_copy(update={"sets": tuple(renamed)})


def _add(one: _Set, file: AdkResults, case: AdkCase) -> None:
    turns = case.eval_metric_result_per_invocation
    expected = tuple(turn.expected for turn in turns)
    known = tuple(turn for turn in expected if turn is not None)
    digest = case_digest(EvalCase(eval_id=case.eval_id, conversation=known if len(known) == len(expected) else ()))
    held = one.cases.get(case.eval_id)
    # a case that could not be run has no turns, so nothing to tell its definition by
    if held is None or not held.result.digest:
        brief = tuple(excerpt_turn(turn) for turn in known)
        result = CaseResult(case=case.eval_id, digest=digest if turns else "", expected=brief)
        one.cases[case.eval_id] = held = _Case(result, held.attempts if held else [])
    elif turns and held.result.digest != digest:
        one.left_out += 1
        return
    infos = {metric.metric_name: _info(metric, file) for metric in case.overall_eval_metric_results}
    for name, info in infos.items():
        one.criteria.setdefault(name, info)
    held.attempts.append(summarise(_attempt(one, file, case, len(held.attempts), infos)))


def _attempt(one: _Set, file: AdkResults, case: AdkCase, repeat: int, infos: Mapping[str, CriterionInfo]) -> Attempt:
    turns = tuple(turn.actual for turn in case.eval_metric_result_per_invocation)
    error = None
    if not case.overall_eval_metric_results:
        # google-adk writes FAILED for a case whose agent raised (2.13, local_eval_service.py)
        said = STATUS.get(case.final_eval_status, str(case.final_eval_status))
        error = AttemptError(kind=ErrorKind.EXCEPTION, message=f"google-adk has no score of it, and says {said}")
    scores = []
    for metric in case.overall_eval_metric_results:
        if infos[metric.metric_name].digest == one.criteria[metric.metric_name].digest:
            scores.append(_score(metric, one.criteria[metric.metric_name], case))
        else:
            one.left_out += 1
    return Attempt(
        agent=file.app,
        eval_set=file.eval_set_id,
        case=case.eval_id,
        repeat=repeat,
        case_digest="",
        turns=turns,
        error=error,
        scores=tuple(scores),
        usage=Usage.of_turns(turns),
    )


def _score(metric: AdkMetric, info: CriterionInfo, case: AdkCase) -> CriterionScore:
    if not metric.scored or metric.score is None:
        said = STATUS.get(metric.eval_status, str(metric.eval_status))
        return CriterionScore(criterion=info.name, status=ScoreStatus.ERROR, reason=f"google-adk says {said}: no score")
    passed = None if info.threshold is None else meets(metric.score, info.threshold, info.goal)
    return CriterionScore(
        criterion=info.name,
        status=ScoreStatus.SCORED,
        score=metric.score,
        passed=passed,
        turns=tuple(_turns(info.name, case)),
    )


def _turns(name: str, case: AdkCase) -> Iterator[TurnScore]:
    for number, turn in enumerate(case.eval_metric_result_per_invocation):
        for metric in turn.eval_metric_results:
            if metric.metric_name == name and metric.scored:
                yield TurnScore(turn=number, score=metric.score)


def _info(metric: AdkMetric, file: AdkResults) -> CriterionInfo:
    """As our own criterion of that name and these options; one we do not score ourselves by its options alone."""
    source = f"{TOOL}: {file.eval_set_result_id}"[:200]
    try:
        built = criteria.build((CriterionSpec(metric.metric_name, metric.options),))[0]
    except ConfigError:
        options = {k: v for k, v in metric.options.items() if k != "threshold" and v is not False}
        text = json.dumps([metric.metric_name, options], sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        threshold = metric.threshold if metric.threshold is not None else metric.options.get("threshold")
        return CriterionInfo(
            name=metric.metric_name, threshold=threshold, options=options, digest=digest, source=source
        )
    return criteria.criterion_info(built, source)


def _set(key: Key, one: _Set) -> SetResult:
    return SetResult(
        agent=key[0],
        eval_set=key[1],
        path=key[1],
        criteria=tuple(one.criteria[name] for name in sorted(one.criteria)),
        cases=tuple(
            case.result.model_copy(update={"attempts": tuple(case.attempts)}) for _, case in sorted(one.cases.items())
        ),
    )


def _notes(sets: Mapping[Key, _Set]) -> Iterator[str]:
    for (_, name), one in sorted(sets.items()):
        if one.left_out:
            yield f"{name}: {one.left_out} older results are of another definition of their case or metric: left out"


def _like(one: SetResult, like: SetResult) -> SetResult:
    theirs = {case.case: case for case in like.cases}
    cases = []
    for case in one.cases:
        other = theirs.get(case.case)
        same = other is not None and (not other.expected or not case.expected or other.expected == case.expected)
        cases.append(case.model_copy(update={"digest": other.digest, "line": other.line}) if same and other else case)
    return one.model_copy(
        update={"agent": like.agent, "eval_set": like.eval_set, "path": like.path, "cases": tuple(cases)}
    )


def _one(found: Iterable[SetResult]) -> SetResult | None:
    several = list(found)
    return several[0] if len(several) == 1 else None


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _when(seconds: float) -> str:
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a file may say anything
        return dt.datetime.fromtimestamp(0, dt.UTC).isoformat(timespec="seconds")
