"""A baseline as rows for a table. Pure; whoever prints escapes."""

from __future__ import annotations

from dataclasses import dataclass

from agent_eval_action.model.baseline import Baseline, CaseRecord


@dataclass(frozen=True, slots=True)
class Row:
    """One pair of the baseline. ``usual`` says how many attempts made the case's usual tool calls."""

    agent: str
    eval_set: str
    case: str
    criterion: str
    n: int
    mean: float
    low: float
    high: float
    passed: int | None
    threshold: float | None
    usual: str


def show(baseline: Baseline) -> tuple[Row, ...]:
    """Every pair, in the order of the file."""
    return tuple(
        Row(
            agent=record.agent,
            eval_set=record.eval_set,
            case=record.case,
            criterion=name,
            n=one.n,
            mean=one.average,
            low=min(score for score, _ in one.scores),
            high=max(score for score, _ in one.scores),
            passed=one.passed,
            threshold=one.threshold,
            usual=_usual(record),
        )
        for record in baseline.records
        for name, one in sorted(record.criteria.items())
    )


def _usual(record: CaseRecord) -> str:
    if record.trajectory is None:
        return ""
    return f"{record.trajectory.seen} of {record.trajectory.attempts}"
