"""List what a run would measure: agents, sets, cases and criteria with their locations, and an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from agent_eval_action.baseline.history_session import HistorySession
from agent_eval_action.config.discovery import Discovery
from agent_eval_action.config.models import Settings
from agent_eval_action.folders import relative
from agent_eval_action.llm.budget import Meter
from agent_eval_action.results.base import Frozen
from agent_eval_action.results.evalset import DatasetCase, EvalCase
from agent_eval_action.results.history import kept_key
from agent_eval_action.results.run_result import Goal
from agent_eval_action.run.plan import Plan, estimate_plan
from agent_eval_action.run.shards import CaseSeconds, expected_seconds

_TAGS: Final = 100


class ListedCriterion(Frozen):
    """A criterion of a set. ``source``: where it is configured, "default" for ADK's; ``judge``: the judging model."""

    name: str
    threshold: float | None
    goal: Goal
    judge: str | None
    source: str
    line: int | None


class ListedCase(Frozen):
    """A case. ``turns`` None: a simulated user decides. ``seconds``: an attempt's time in main's history."""

    case: str
    line: int | None
    turns: int | None
    tags: tuple[str, ...]
    seconds: float | None


class ListedSet(Frozen):
    """An eval set for its agent. ``path`` is relative to the workspace."""

    eval_set: str
    path: str
    criteria: tuple[ListedCriterion, ...]
    cases: tuple[ListedCase, ...]


class ListedAgent(Frozen):
    """An agent and its sets, () if it has none."""

    agent: str
    path: str
    sets: tuple[ListedSet, ...]


class RunEstimate(Frozen):
    """An estimate of a run's first pass: its attempts, calls, time and price.

    ``turns``: of fixed conversations. ``judge_calls``: answers of judges and simulated users, of which a call may give
    several; ``judge_usd``: their price, None if a model has none. ``seconds``: by main's durations, known for
    ``timed_cases`` of the cases, with the configured concurrency. ``usd``: the total cost of main's newest run. None:
    unknown.
    """

    attempts: int
    turns: int
    judge_calls: int
    most_judge_calls: int
    judge_usd: float | None
    seconds: float | None
    timed_cases: int
    usd: float | None
    history: str


class SuiteListing(Frozen):
    """The document of `agent-eval list --json`."""

    schema_version: Literal[1] = 1
    agents: tuple[ListedAgent, ...]
    estimate: RunEstimate


def list_suite(settings: Settings, found: Discovery, plan: Plan, session: HistorySession) -> SuiteListing:
    """Return everything that a run with these settings would measure, with an estimate by main's history."""
    pooled = session.history(plan.suite()).pooled
    times = {case.key: case.seconds for case in pooled.cases} if pooled else {}
    sets: dict[str, list[ListedSet]] = {agent.name: [] for agent in found.agents}
    for planned in plan.sets:
        cases = (
            ListedCase(
                case=item.case.eval_id,
                line=item.case.line,
                turns=None if item.case.conversation is None else len(item.case.conversation),
                tags=tags_of(item.case),
                seconds=times.get(kept_key(planned.case_key(item))),
            )
            for item in planned.cases
        )
        criteria = (
            ListedCriterion(
                name=info.name,
                threshold=info.threshold,
                goal=info.goal,
                judge=info.judge or None,
                source=info.source,
                line=info.line,
            )
            for info in planned.infos
        )
        listed = ListedSet(eval_set=planned.key, path=planned.path, criteria=tuple(criteria), cases=tuple(cases))
        sets[planned.agent].append(listed)
    agents = (
        ListedAgent(agent=agent.name, path=relative(agent.path, settings.workspace), sets=tuple(sets[agent.name]))
        for agent in sorted(found.agents, key=lambda agent: agent.name)
    )
    known = CaseSeconds.of_record(plan, pooled)
    seconds = expected_seconds(known.seconds, dict.fromkeys(known.seconds, 1), 1, settings.concurrency)
    judges = estimate_plan(plan, Meter.for_run(settings).prices)
    cost = next((record.cost for record in session.found.records if record.cost is not None), None)
    estimate = RunEstimate(
        attempts=plan.cases * plan.repeats,
        turns=plan.repeats * sum(len(item.case.turns) for planned in plan.sets for item in planned.cases),
        judge_calls=judges.calls,
        most_judge_calls=judges.most_calls,
        judge_usd=judges.usd,
        seconds=seconds * plan.repeats if known.known else None,
        timed_cases=known.known,
        usd=cost.usd if cost is not None else None,
        history=session.store.name if session.found.records else "",
    )
    return SuiteListing(agents=tuple(agents), estimate=estimate)


def tags_of(case: EvalCase) -> tuple[str, ...]:
    """The texts in the list ``tags``, which several formats and tables have."""
    given: Any = (case.model_extra or {}).get("tags")
    if given is None and isinstance(case, DatasetCase):
        given = case.metric_fields.get("tags")
    values: Sequence[Any] = given if isinstance(given, list | tuple) else [given] if given else []
    return tuple(value for value in values[:_TAGS] if isinstance(value, str))
