"""Joining attempts into the run result, in the order of the plan whatever finished first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent_eval_action.model.result import (
    Attempt,
    AttemptError,
    AttemptKey,
    AttemptSummary,
    CaseResult,
    Conditions,
    CriterionScore,
    ErrorKind,
    RunResult,
    RunStatus,
    SetResult,
    Totals,
    Usage,
)
from agent_eval_action.run.brief import excerpt, turn_brief
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet

_REASON_LIMIT = 2_000
_TRACEBACK_LIMIT = 8_000


def summarise(attempt: Attempt) -> AttemptSummary:
    """What results.json keeps of an attempt: scores and reasons whole, the transcript as excerpts."""
    error = attempt.error
    if error is not None:
        error = error.model_copy(
            update={
                "message": excerpt(error.message, _REASON_LIMIT),
                "traceback": error.traceback[-_TRACEBACK_LIMIT:],
            }
        )
    return AttemptSummary(
        repeat=attempt.repeat,
        error=error,
        scores=tuple(_bounded(score) for score in attempt.scores),
        turns=tuple(turn_brief(turn) for turn in attempt.turns),
        usage=attempt.usage,
        durations=attempt.durations,
        tries=attempt.tries,
    )


def _bounded(score: CriterionScore) -> CriterionScore:
    if len(score.reason) <= _REASON_LIMIT:
        return score
    return score.model_copy(update={"reason": excerpt(score.reason, _REASON_LIMIT)})


@dataclass
class Collector:
    """Holds the summaries of what has finished."""

    plan: Plan
    summaries: dict[AttemptKey, AttemptSummary] = field(default_factory=dict)

    def add(self, attempt: Attempt) -> None:
        """Keep the summary of a finished attempt."""
        self.summaries[attempt.key] = summarise(attempt)

    def result(self, *, started_at: str, seconds: float, status: RunStatus, conditions: Conditions) -> RunResult:
        """The run as far as it came; attempts that were not made are errors of kind ``stopped``."""
        sets = tuple(self._set(planned) for planned in self.plan.sets)
        summaries = [attempt for result in sets for case in result.cases for attempt in case.attempts]
        return RunResult(
            started_at=started_at,
            status=status,
            conditions=conditions,
            sets=sets,
            totals=Totals(
                cases=self.plan.cases,
                attempts=len(summaries),
                errors=sum(attempt.error is not None for attempt in summaries),
                retries=sum(attempt.tries - 1 for attempt in summaries),
                seconds=round(seconds, 3),
                usage=_total(attempt.usage for attempt in summaries),
            ),
        )

    def _set(self, planned: PlannedSet) -> SetResult:
        cases = tuple(self._case(planned, item) for item in planned.cases)
        return SetResult(
            agent=planned.agent, eval_set=planned.key, path=planned.path, criteria=planned.infos, cases=cases
        )

    def _case(self, planned: PlannedSet, item: PlannedCase) -> CaseResult:
        keys = [AttemptKey(planned.agent, planned.key, item.case.eval_id, n) for n in range(self.plan.repeats)]
        return CaseResult(
            case=item.case.eval_id,
            line=item.case.line,
            digest=item.digest,
            expected=tuple(turn_brief(turn) for turn in item.case.turns),
            attempts=tuple(self.summaries.get(key) or _not_made(key) for key in keys),
        )


def _not_made(key: AttemptKey) -> AttemptSummary:
    error = AttemptError(kind=ErrorKind.STOPPED, message="the run ended before this attempt was made")
    return AttemptSummary(repeat=key.repeat, error=error, tries=1)


def _total(usages: Iterable[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total += usage
    return total
