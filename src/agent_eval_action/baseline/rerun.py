"""A baseline made in the same run: the base commit's agent, measured beside this change's instead of remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_eval_action.baseline.records import from_result
from agent_eval_action.model.baseline import Accepted, Baseline, CaseRecord
from agent_eval_action.model.result import CaseKey, CaseResult, ErrorKind, RunResult, RunStatus

_NOT_OF_CODE = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE, ErrorKind.CREDENTIALS, ErrorKind.STOPPED})
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


def unmeasured_on_base(result: RunResult) -> Mapping[CaseKey, str]:
    """Cases of agents that the base commit has and that it did not answer, with the reason.

    Not those in which its code raises: that is how main is. What lacks credentials has words of its own.
    """
    base = result.base
    if base is None or result.status is not RunStatus.COMPLETE:
        return {}
    found: dict[CaseKey, str] = {}
    for one in result.sets:
        why = base.unavailable_agents.get(one.agent) or base.unavailable
        for case in () if one.agent in {*base.absent, *base.lacking} else one.cases:
            errors = [attempt.error for attempt in case.control if attempt.error is not None]
            of_code = any(error.kind not in _NOT_OF_CODE for error in errors)
            if case.unmeasured or of_code or len(errors) < len(case.control) or not (errors or why):
                continue
            said = errors[0].message if errors else why
            found[CaseKey(one.agent, one.eval_set, case.case)] = said
    return found


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
    """One attempt that failed leaves the score of the others: five were made so that there are some."""
    answered = tuple(attempt for attempt in case.control if attempt.error is None)
    return case.model_copy(update={"attempts": answered or case.control, "control": ()})


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
