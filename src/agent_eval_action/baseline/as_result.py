"""A stored baseline as the run it could be of: one attempt for every score it counts, without a transcript."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from agent_eval_action.model.baseline import Baseline, CaseRecord, CriterionRecord
from agent_eval_action.model.brief import TurnBrief
from agent_eval_action.model.decision import Unit
from agent_eval_action.model.measured import meets
from agent_eval_action.model.result import (
    AttemptSummary,
    CaseResult,
    Conditions,
    CriterionInfo,
    CriterionScore,
    Goal,
    RunResult,
    ScoreStatus,
    SetResult,
    Totals,
)

Kind = tuple[Goal, Unit]
"""Which way a criterion is better, and what its numbers count."""


def result_of(baseline: Baseline, known: Mapping[str, Kind]) -> RunResult:
    """The run. ``known``: goal and unit of the criteria there are; a baseline does not keep them."""
    records = sorted(baseline.records, key=lambda record: record.key)
    sets = tuple(
        _set(agent, name, list(cases), known)
        for (agent, name), cases in groupby(records, key=lambda record: (record.agent, record.eval_set))
    )
    cases = [case for one in sets for case in one.cases]
    return RunResult(
        started_at=baseline.created_at,
        conditions=Conditions(
            tool_version=baseline.tool_version,
            commit=baseline.commit,
            repeats=baseline.repeats,
            adaptive=baseline.repeats == 1,
        ),
        sets=sets,
        totals=Totals(cases=len(cases), attempts=sum(len(case.attempts) for case in cases)),
    )


def _set(agent: str, name: str, records: list[CaseRecord], known: Mapping[str, Kind]) -> SetResult:
    infos: dict[str, CriterionInfo] = {}
    for record in records:
        for criterion, one in record.criteria.items():
            goal, unit = known.get(criterion, ("maximize", "score"))
            info = CriterionInfo(
                name=criterion, goal=goal, unit=unit, threshold=one.threshold, digest=one.digest, source="the baseline"
            )
            infos.setdefault(criterion, info)
    cases = tuple(_case(record, infos) for record in records)
    return SetResult(agent=agent, eval_set=name, path=name, criteria=tuple(infos.values()), cases=cases)


def _case(record: CaseRecord, infos: Mapping[str, CriterionInfo]) -> CaseResult:
    scores = {name: list(_scores(one)) for name, one in record.criteria.items()}
    turns = tuple(TurnBrief(calls=calls) for calls in record.trajectory.turns) if record.trajectory else ()
    count = max(map(len, scores.values()), default=0)
    return CaseResult(
        case=record.case,
        digest=record.digest,
        attempts=tuple(
            AttemptSummary(
                repeat=number,
                turns=turns,
                scores=tuple(_score(infos[name], found, number) for name, found in scores.items()),
            )
            for number in range(count)
        ),
    )


def _scores(record: CriterionRecord) -> Iterator[float]:
    for score, count in record.scores:
        yield from [score] * count


def _score(info: CriterionInfo, found: list[float], number: int) -> CriterionScore:
    if number >= len(found):
        return CriterionScore(
            criterion=info.name, status=ScoreStatus.NOT_APPLICABLE, reason="the baseline has fewer scores of it"
        )
    passed = None if info.threshold is None else meets(found[number], info.threshold, info.goal)
    return CriterionScore(criterion=info.name, status=ScoreStatus.SCORED, score=found[number], passed=passed)
