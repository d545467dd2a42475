"""A baseline made in the same run: the base commit's agent, measured beside this change's instead of remembered."""

from __future__ import annotations

from collections.abc import Sequence

from agent_eval_action.baseline.records import from_result
from agent_eval_action.model.baseline import Accepted, Baseline, CaseRecord
from agent_eval_action.model.result import CaseResult, RunResult

PASSES = 5
"""How often the base runs every case: as `baseline update` does, one run of a noisy case saying little."""


def baseline_of(result: RunResult) -> Baseline | None:
    """What the base commit's agent scored in this run; None when it did not run."""
    if result.base is None or not result.totals.control:
        return None
    sets = tuple(
        one.model_copy(update={"cases": tuple(_as_attempts(case) for case in one.cases if case.control)})
        for one in result.sets
    )
    conditions = result.conditions.model_copy(
        update={"commit": result.base.commit, "agents": result.base.agents, "repeats": PASSES}
    )
    return from_result(result.model_copy(update={"sets": sets, "conditions": conditions}))


def without_control(result: RunResult) -> RunResult:
    """The run as it is held against such a baseline: what is the history is no control besides."""
    sets = tuple(
        one.model_copy(update={"cases": tuple(case.model_copy(update={"control": ()}) for case in one.cases)})
        for one in result.sets
    )
    return result.model_copy(
        update={"sets": sets, "totals": result.totals.model_copy(update={"control": 0}), "base": None}
    )


def _as_attempts(case: CaseResult) -> CaseResult:
    return case.model_copy(update={"attempts": case.control, "control": ()})


def without_accepted(baseline: Baseline | None, accepted: Sequence[Accepted]) -> Baseline | None:
    """The baseline without the scores of pairs whose change is accepted: they are compared with nothing."""
    if baseline is None or not accepted:
        return baseline
    return baseline.model_copy(update={"records": tuple(_without(record, accepted) for record in baseline.records)})


def _without(record: CaseRecord, accepted: Sequence[Accepted]) -> CaseRecord:
    kept = {
        name: one
        for name, one in record.criteria.items()
        if not any(entry.covers(record.key, name) for entry in accepted)
    }
    return record.model_copy(update={"criteria": kept})
