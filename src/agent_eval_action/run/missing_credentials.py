"""What is left out of a run for want of credentials, where that is meant so: on pull requests.

GitHub gives no secrets to a fork's. What needs none is run; the rest is said to be not measured, once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from agent_eval_action.results.run_result import AttemptSummary, CaseKey, CaseResult, ErrorKind, RunResult
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet

NOT_MEASURED: Final = "not measured: no credentials on this pull request"

MissingCredentials = Mapping[str, str]
"""Models that cannot be asked, and the sentence that says what each wants."""


def mark_unmeasured(plan: Plan, lacking: MissingCredentials, recorded: Collection[str] = ()) -> Plan:
    """The plan with what would ask these models marked as not measured. Pure.

    ``recorded``: names of agents that are recordings, whose simulated users are asked nothing.
    """
    if not lacking:
        return plan
    return replace(plan, sets=tuple(_set(one, lacking, played=one.agent not in recorded) for one in plan.sets))


def _set(planned: PlannedSet, lacking: MissingCredentials, *, played: bool) -> PlannedSet:
    infos = tuple(
        info.model_copy(update={"unmeasured": NOT_MEASURED}) if any(m in lacking for m in criterion.models()) else info
        for criterion, info in zip(planned.criteria, planned.infos, strict=True)
    )
    silent = played and planned.simulator.model in lacking
    return replace(planned, infos=infos, cases=tuple(_case(item, silent=silent) for item in planned.cases))


def _case(item: PlannedCase, *, silent: bool) -> PlannedCase:
    """A conversation whose user nobody can play is not begun."""
    return replace(item, unmeasured=NOT_MEASURED) if silent and item.has_scenario else item


def credential_warnings(lacking: MissingCredentials) -> tuple[str, ...]:
    """What to say before the run, each sentence once."""
    return tuple(dict.fromkeys(f"{NOT_MEASURED}: {sentence}" for sentence in lacking.values()))


def cases_to_ask_on_base(result: RunResult) -> tuple[CaseKey, ...]:
    """Cases that no attempt of this change answered for want of credentials, and that main's agent was not asked yet.

    What a change says of itself excuses nothing: its agent may say so of just the cases that got worse.
    """
    known = {*result.base.lacking, *result.base.unavailable_agents} if result.base else set()
    return tuple(
        CaseKey(one.agent, one.eval_set, case.case)
        for one in result.sets
        if one.agent not in known
        for case in one.cases
        if _wanted(case) and not case.control
    )


def mark_unanswered(result: RunResult, withheld: str, lacking: MissingCredentials) -> RunResult:
    """The result with cases that could not be asked at all, for want of the agent's own credentials, not measured.

    A case some attempt of which was answered stays as it is: there the credentials were not what was missing.
    ``withheld`` says why GitHub gave the run no secrets, "" where it did; ``lacking`` what judges wanted. Where GitHub
    gave none, a case is left out only if the base commit's agent could not answer it either. Pure.
    """
    agents = (message for one in result.sets for case in one.cases if (message := _wanted(case)))
    said = tuple(dict.fromkeys((*lacking.values(), *agents)))
    if not said:
        return result
    conditions = result.conditions.model_copy(update={"withheld": withheld, "lacking": said})
    base_lacks = result.base.lacking if result.base else ()
    sets = tuple(
        one.model_copy(
            update={
                "cases": tuple(
                    _checked(case, excused=not withheld or one.agent in base_lacks) if _wanted(case) else case
                    for case in one.cases
                )
            }
        )
        for one in result.sets
    )
    return result.model_copy(update={"sets": sets, "conditions": conditions})


def _checked(case: CaseResult, *, excused: bool) -> CaseResult:
    """A case without an answer for want of credentials: not measured if main's agent lacks them too, else an error."""
    if excused or (case.control and all(_lacks(attempt) for attempt in case.control)):
        return case.model_copy(update={"unmeasured": NOT_MEASURED, "attempts": (), "control": ()})
    if any(attempt.error is None for attempt in case.control):
        return _as_errors(
            case, ErrorKind.EXCEPTION, "main's agent answers this without credentials, this change's says"
        )
    return _as_errors(case, ErrorKind.CREDENTIALS, "it is not known whether main's agent needs credentials here")


def _as_errors(case: CaseResult, kind: ErrorKind, words: str) -> CaseResult:
    """The case with its missing credentials as errors of another kind, and in other words."""
    attempts: list[AttemptSummary] = []
    for attempt in case.attempts:
        if attempt.error is not None:
            error = attempt.error.model_copy(update={"kind": kind, "message": f"{words}: {attempt.error.message}"})
            attempts.append(attempt.model_copy(update={"error": error}))
    return case.model_copy(update={"attempts": tuple(attempts)})


def _wanted(case: CaseResult) -> str:
    if not case.attempts or not all(_lacks(attempt) for attempt in case.attempts):
        return ""
    return next((attempt.error.message for attempt in case.attempts if attempt.error is not None), "")


def _lacks(attempt: AttemptSummary) -> bool:
    return attempt.error is not None and attempt.error.kind is ErrorKind.CREDENTIALS
