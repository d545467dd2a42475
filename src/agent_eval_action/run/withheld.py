"""What is left out of a run for want of credentials, where that is meant so: on pull requests.

GitHub gives no secrets to a fork's. What needs none is run; the rest is said to be not measured, once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from agent_eval_action.model.result import CaseResult, ErrorKind, RunResult, SetResult
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet

NOT_MEASURED: Final = "not measured: no credentials on this pull request"

Lacking = Mapping[str, str]
"""Models that cannot be asked, and the sentence that says what each wants."""


def without(plan: Plan, lacking: Lacking, recorded: Collection[str] = ()) -> Plan:
    """The plan with what would ask these models marked as not measured. Pure.

    ``recorded``: names of agents that are recordings, whose simulated users are asked nothing.
    """
    if not lacking:
        return plan
    return replace(plan, sets=tuple(_set(one, lacking, played=one.agent not in recorded) for one in plan.sets))


def _set(planned: PlannedSet, lacking: Lacking, *, played: bool) -> PlannedSet:
    infos = tuple(
        info.model_copy(update={"unmeasured": NOT_MEASURED}) if any(m in lacking for m in criterion.models()) else info
        for criterion, info in zip(planned.criteria, planned.infos, strict=True)
    )
    silent = played and planned.simulator.model in lacking
    return replace(planned, infos=infos, cases=tuple(_case(item, silent=silent) for item in planned.cases))


def _case(item: PlannedCase, *, silent: bool) -> PlannedCase:
    """A conversation whose user nobody can play is not begun."""
    return replace(item, unmeasured=NOT_MEASURED) if silent and item.case.conversation_scenario is not None else item


def warnings_of(lacking: Lacking) -> tuple[str, ...]:
    """What to say before the run, each sentence once."""
    return tuple(dict.fromkeys(f"{NOT_MEASURED}: {sentence}" for sentence in lacking.values()))


def without_answers(result: RunResult, withheld: str, lacking: Lacking) -> RunResult:
    """The result with cases that could not be asked at all, for want of the agent's own credentials, not measured.

    A case some attempt of which was answered stays as it is: there the credentials were not what was missing.
    ``withheld`` says why GitHub gave the run no secrets, ``lacking`` what judges wanted. Pure.
    """
    agents = (message for one in result.sets for case in one.cases if (message := _wanted(case)))
    said = tuple(dict.fromkeys((*lacking.values(), *agents)))
    conditions = result.conditions.model_copy(update={"withheld": withheld if said else "", "lacking": said})
    sets = tuple(map(_unmeasured, result.sets)) if said else result.sets
    return result.model_copy(update={"sets": sets, "conditions": conditions})


def _unmeasured(one: SetResult) -> SetResult:
    cases = tuple(
        case.model_copy(update={"unmeasured": NOT_MEASURED, "attempts": ()}) if _wanted(case) else case
        for case in one.cases
    )
    return one.model_copy(update={"cases": cases})


def _wanted(case: CaseResult) -> str:
    errors = [attempt.error for attempt in case.attempts]
    if not errors or any(error is None or error.kind is not ErrorKind.CREDENTIALS for error in errors):
        return ""
    return next((error.message for error in errors if error is not None), "")
