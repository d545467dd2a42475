"""Whether a run may become a record of main, and what of it is withheld. Pure."""

from __future__ import annotations

from typing import Final

from agent_eval_action.baseline.lookup import Event
from agent_eval_action.model.decision import Decision, Outcome
from agent_eval_action.model.result import CaseKey, RunResult, RunStatus

_OF_MAIN: Final = frozenset({"push", "schedule", "workflow_dispatch", "repository_dispatch"})


def why_not_of_main(event: Event, head: str | None) -> str | None:
    """Why no run of this job leaves a record, however it ends; None when it may. ``head``: the commit tested."""
    main = f"refs/heads/{event.default_branch}"
    reasons = (
        (not event.name, "only runs of main in CI are recorded"),
        (event.is_change or event.fork, "a change that is not merged is never recorded"),
        (event.name not in _OF_MAIN, f"runs on {event.name} are not recorded"),
        (not event.default_branch, "the event names no default branch"),
        (event.ref != main, f"only runs of {event.default_branch} are recorded, not of {event.ref or 'nothing'}"),
        (head is None or event.sha not in (None, head), "the commit that was tested is not the one this run is of"),
    )
    return next((why for holds, why in reasons if holds), None)


def why_not_written(event: Event, result: RunResult, head: str | None) -> str | None:
    """Why this run leaves no record; None when it may. ``head``: the commit that was tested."""
    decision = result.decision
    never = why_not_of_main(event, head)
    reasons = (
        (never is not None, never),
        (result.status is not RunStatus.COMPLETE, "the run is not complete"),
        (decision is None or decision.outcome is Outcome.INCONCLUSIVE, "the run is inconclusive"),
    )
    return next((why for holds, why in reasons if holds), None)


def regressed(decision: Decision) -> tuple[tuple[CaseKey, str], ...]:
    """The pairs confirmed worse than main. One that is below its threshold alone is main as it is.

    Leaving out what may be chance, or what a threshold forbids, would let only lucky scores into the history.
    """
    return tuple(
        (CaseKey(pair.agent, pair.eval_set, pair.case), pair.criterion) for pair in decision.pairs if pair.confirmed
    )
