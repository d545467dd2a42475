"""What a checkout measures its agents by: cases with what they expect, criteria, rules.

The difference between two of them is what a change does to the gate itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agent_eval_action.config.models import FailOn, Policy
from agent_eval_action.results.case_matching import CaseIdentity
from agent_eval_action.results.decision import CallBrief
from agent_eval_action.results.evalset import EvalCase, Invocation, Rubric
from agent_eval_action.results.history import Accepted, Record
from agent_eval_action.results.run_result import CaseKey, CriterionInfo, RunResult
from agent_eval_action.run.collector import excerpt_call
from agent_eval_action.run.plan import Plan, PlannedSet


@dataclass(frozen=True, slots=True)
class ExpectedTurn:
    """What one turn asks and expects. ``asked`` names what the user says; ``response`` is "" without a reference."""

    asked: str
    calls: tuple[CallBrief, ...] = ()
    response: str = ""
    rubrics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CaseSnapshot:
    """One case. ``turns`` is None where only the digest is known; ``setting`` names everything beside the turns."""

    key: CaseKey
    digest: str
    turns: tuple[ExpectedTurn, ...] | None = None
    rubrics: frozenset[str] = frozenset()
    setting: str = ""


@dataclass(frozen=True, slots=True)
class SetSnapshot:
    """One eval set against one agent. ``path`` is relative to the workspace."""

    agent: str
    eval_set: str
    path: str
    criteria: tuple[CriterionInfo, ...] = ()
    cases: tuple[CaseSnapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that judges a run. ``policy`` is None where it is not known; ``policy_file`` names its file.

    ``baseline`` is what is stored beside the code, None where nothing is, or nothing that can be read.
    """

    sets: tuple[SetSnapshot, ...] = ()
    policy: Policy | None = None
    policy_file: str = "agent-eval.yaml"
    fail_on: FailOn = "inconclusive"
    repeats: int = 1
    accepted: tuple[Accepted, ...] = field(default=())
    baseline: Record | None = None


def case_identities(sets: Iterable[SetSnapshot]) -> Iterator[CaseIdentity]:
    """The cases of these sets, as they are matched with those of another checkout."""
    for item in sets:
        criteria = frozenset(info.digest for info in item.criteria)
        for case in item.cases:
            yield CaseIdentity(case.key, case.digest, criteria)


def identities_of_plan(plan: Plan) -> Iterator[CaseIdentity]:
    """The cases of a plan as they are matched with those of the base."""
    for planned in plan.sets:
        criteria = frozenset(info.digest for info in planned.infos)
        for item in planned.cases:
            yield CaseIdentity(planned.case_key(item), item.digest, criteria)


def set_snapshot(planned: PlannedSet) -> SetSnapshot:
    """One set of a plan, with what every case expects."""
    return SetSnapshot(
        agent=planned.agent,
        eval_set=planned.key,
        path=planned.path,
        criteria=planned.infos,
        cases=tuple(_case(planned.case_key(item), item.case, item.digest) for item in planned.cases),
    )


def sets_of_result(result: RunResult) -> tuple[SetSnapshot, ...]:
    """The sets of a finished run, as far as results.json keeps what was expected."""
    return tuple(
        SetSnapshot(
            agent=measured.agent,
            eval_set=measured.eval_set,
            path=measured.path,
            criteria=measured.criteria,
            cases=tuple(
                CaseSnapshot(
                    key=CaseKey(measured.agent, measured.eval_set, case.case),
                    digest=case.digest,
                    turns=tuple(ExpectedTurn(turn.user, turn.calls, turn.response) for turn in case.expected) or None,
                )
                for case in measured.cases
            ),
        )
        for measured in result.sets
    )


def _case(key: CaseKey, case: EvalCase, digest: str) -> CaseSnapshot:
    beside = case.model_dump(
        include={"conversation_scenario", "session_input", "final_session_state"}, exclude_none=True
    )
    return CaseSnapshot(
        key=key,
        digest=digest,
        turns=tuple(map(_turn, case.turns)),
        rubrics=_rubrics(case.rubrics or ()),
        setting=_digest(repr(sorted(beside.items()))),
    )


def _turn(turn: Invocation) -> ExpectedTurn:
    asked = turn.user_content.model_dump(exclude_none=True, exclude={"role"})
    return ExpectedTurn(
        asked=_digest(repr(asked)),
        calls=tuple(map(excerpt_call, turn.tool_calls())),
        response=turn.response_text,
        rubrics=_rubrics(turn.rubrics or ()),
    )


def _rubrics(rubrics: Iterable[Rubric]) -> frozenset[str]:
    return frozenset(rubric.rubric_content.text_property or rubric.rubric_id for rubric in rubrics)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
