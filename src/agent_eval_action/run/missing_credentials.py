"""What a run leaves out for want of credentials, where that is intended: on pull requests.

CI gives no secrets to a fork's pull request. What needs none is run; the rest is reported once as not measured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from agent_eval_action.results.run_result import AttemptSummary, CaseKey, CaseResult, ErrorKind, RunResult, SetResult
from agent_eval_action.run.plan import Plan, PlannedSet

NOT_MEASURED: Final = "not measured: no credentials on this pull request"

MissingCredentials = Mapping[str, str]
"""Models that cannot be asked, each with the sentence that says what it needs."""


def mark_unmeasured(plan: Plan, missing: MissingCredentials, recorded: Collection[str] = ()) -> Plan:
    """Return the plan with everything that would ask these models marked as not measured. Pure.

    ``recorded``: names of agents that are recordings, whose users are not simulated.
    """
    if not missing:
        return plan
    sets = (_mark_set(planned, missing, simulated=planned.agent not in recorded) for planned in plan.sets)
    return replace(plan, sets=tuple(sets))


def _mark_set(planned: PlannedSet, missing: MissingCredentials, *, simulated: bool) -> PlannedSet:
    infos = tuple(
        info.model_copy(update={"unmeasured": NOT_MEASURED}) if missing.keys() & set(criterion.models()) else info
        for criterion, info in zip(planned.criteria, planned.infos, strict=True)
    )
    cases = planned.cases
    if simulated and planned.simulator.model in missing:  # a conversation whose user nobody can play is not begun
        cases = tuple(replace(item, unmeasured=NOT_MEASURED) if item.has_scenario else item for item in cases)
    return replace(planned, infos=infos, cases=cases)


def credential_warnings(missing: MissingCredentials) -> tuple[str, ...]:
    """Return what to warn of before the run, each sentence once."""
    return tuple(dict.fromkeys(f"{NOT_MEASURED}: {sentence}" for sentence in missing.values()))


def cases_to_ask_on_base(result: RunResult) -> tuple[CaseKey, ...]:
    """Return cases that no attempt of this change answered for want of credentials, and main's agent was not asked yet.

    What a change says of itself excuses nothing: its agent may say so of just the cases that got worse.
    """
    known = {*result.base.lacking, *result.base.unavailable_agents} if result.base else set()
    return tuple(
        CaseKey(eval_set.agent, eval_set.eval_set, case.case)
        for eval_set in result.sets
        if eval_set.agent not in known
        for case in eval_set.cases
        if _missing_message(case) and not case.control
    )


def mark_unanswered(result: RunResult, withheld: str, missing: MissingCredentials) -> RunResult:
    """Return the result with cases that could not be asked at all, for want of the agent's credentials, not measured.

    A case of which any attempt was answered stays as it is: there credentials were not what was missing.
    ``withheld``: why CI gave the run no secrets, "" where it gave them; then a case is left out only if the base
    commit's agent could not answer it either. ``missing``: models that judges would have asked. Pure.
    """
    agents = (message for one in result.sets for case in one.cases if (message := _missing_message(case)))
    messages = tuple(dict.fromkeys((*missing.values(), *agents)))
    if not messages:
        return result
    conditions = result.conditions.model_copy(update={"withheld": withheld, "lacking": messages})
    base_lacks = result.base.lacking if result.base else ()

    def mark(eval_set: SetResult) -> SetResult:
        excused = not withheld or eval_set.agent in base_lacks
        cases = (_judge_case(case, excused=excused) if _missing_message(case) else case for case in eval_set.cases)
        return eval_set.model_copy(update={"cases": tuple(cases)})

    return result.model_copy(update={"sets": tuple(map(mark, result.sets)), "conditions": conditions})


def _judge_case(case: CaseResult, *, excused: bool) -> CaseResult:
    """Return a case without an answer as not measured if main's agent lacks credentials too, else as an error."""
    if excused or (case.control and all(_lacks_credentials(attempt) for attempt in case.control)):
        return case.model_copy(update={"unmeasured": NOT_MEASURED, "attempts": (), "control": ()})
    kind, words = ErrorKind.CREDENTIALS, "it is not known whether main's agent needs credentials here"
    if any(attempt.error is None for attempt in case.control):
        kind, words = ErrorKind.EXCEPTION, "main's agent answers this without credentials, this change's says"
    attempts = [
        attempt.model_copy(
            update={"error": error.model_copy(update={"kind": kind, "message": f"{words}: {error.message}"})}
        )
        for attempt in case.attempts
        if (error := attempt.error) is not None
    ]
    return case.model_copy(update={"attempts": tuple(attempts)})


def _missing_message(case: CaseResult) -> str:
    """Return what the agent needs, if every attempt failed for want of credentials; else ""."""
    if not case.attempts or not all(_lacks_credentials(attempt) for attempt in case.attempts):
        return ""
    return next((attempt.error.message for attempt in case.attempts if attempt.error is not None), "")


def _lacks_credentials(attempt: AttemptSummary) -> bool:
    return attempt.error is not None and attempt.error.kind is ErrorKind.CREDENTIALS
