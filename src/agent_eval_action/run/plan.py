"""The attempts of a run: every case of every set, once per repeat, in a stable order."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from agent_eval_action.agents.simulator import simulator_digest
from agent_eval_action.baseline.pooling import Suite
from agent_eval_action.baseline.records import definition
from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.criteria.base import Criterion, Sample
from agent_eval_action.formats import case_digest
from agent_eval_action.results.base import CaseKey, json_digest, text_digest
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.results.history import kept_digest, kept_key, kept_name
from agent_eval_action.results.run_result import ArmName, AttemptKey, CriterionInfo, Purpose, ScoreStatus


def planned_digest(case: EvalCase, simulator: UserSimulatorConfig) -> str:
    """Return the case's digest, including the simulated user if it has one: another user leads another conversation."""
    digest = case_digest(case)
    if case.conversation_scenario is None:
        return digest
    user = simulator_digest(case.conversation_scenario, simulator)
    return text_digest(f"{digest} {user}")


def applies(criterion: Criterion, case: EvalCase) -> bool:
    """Whether the criterion can score this kind of case: for example one with a simulated user has no reference."""
    refused = criterion.refuse(Sample(case, ()))
    return refused is None or refused.status is not ScoreStatus.NOT_APPLICABLE


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """One case with the digest of its definition. ``unmeasured``: why it is not run, "" if it is."""

    case: EvalCase
    digest: str
    unmeasured: str = ""


@dataclass(frozen=True)
class PlannedSet:
    """One eval set for one agent. ``path`` is relative to the workspace, with forward slashes.

    ``simulator``: the user of cases with a scenario.
    """

    agent: str
    key: str
    path: str
    cases: tuple[PlannedCase, ...]
    criteria: tuple[Criterion, ...]
    infos: tuple[CriterionInfo, ...]
    simulator: UserSimulatorConfig = field(default_factory=UserSimulatorConfig)

    @cached_property
    def scored_by(self) -> tuple[Criterion, ...]:
        """The criteria that this run applies."""
        return tuple(
            criterion for criterion, info in zip(self.criteria, self.infos, strict=True) if not info.unmeasured
        )

    @cached_property
    def waits(self) -> bool:
        """Whether scoring waits for a judge or a custom metric function."""
        return any(criterion.waits for criterion in self.scored_by)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The digests of the criteria by name."""
        return {info.name: info.digest for info in self.infos}

    def case_key(self, item: PlannedCase) -> CaseKey:
        return CaseKey(self.agent, self.key, item.case.eval_id)

    @property
    def run(self) -> tuple[PlannedCase, ...]:
        return tuple(item for item in self.cases if not item.unmeasured)


@dataclass(frozen=True, slots=True)
class PlannedAttempt:
    """One repeat of one case, and its purpose."""

    key: AttemptKey
    planned_case: PlannedCase
    planned_set: PlannedSet
    purpose: Purpose = "first"

    @property
    def case(self) -> EvalCase:
        return self.planned_case.case


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole run."""

    sets: tuple[PlannedSet, ...]
    repeats: int = 1

    @property
    def cases(self) -> int:
        return sum(len(planned.cases) for planned in self.sets)

    def agents_scored_by_events(self) -> frozenset[str]:
        """The agents with a criterion that uses tool calls or other events."""
        return frozenset(each.agent for each in self.sets if any(criterion.by_events for criterion in each.criteria))

    def digests(self) -> Iterator[tuple[CaseKey, str]]:
        """Every case with the digest of its definition."""
        return ((planned.case_key(item), item.digest) for planned in self.sets for item in planned.cases)

    def digest(self) -> str:
        """The digest of everything that determines the measurements: cases, criteria, users, repeats."""
        sets = [
            [planned.agent, planned.key, planned.path, [[info.name, info.digest] for info in planned.infos]]
            + [[item.case.eval_id, item.digest] for item in planned.cases]
            for planned in self.sets
        ]
        return json_digest([self.repeats, sets])

    def part(self, cases: Container[CaseKey], repeats: int | None = None) -> Plan:
        """The plan with only these cases."""
        sets = (
            replace(planned, cases=tuple(item for item in planned.cases if planned.case_key(item) in cases))
            for planned in self.sets
        )
        return Plan(tuple(planned for planned in sets if planned.cases), self.repeats if repeats is None else repeats)

    def attempts(self) -> Iterator[PlannedAttempt]:
        """Every attempt, pass by pass, so that a run cut short has covered as many cases as possible."""
        for repeat in range(self.repeats):
            for planned in self.sets:
                for item in planned.run:
                    yield PlannedAttempt(AttemptKey(*planned.case_key(item), repeat), item, planned)

    def further(
        self, repeats: Mapping[CaseKey, range], purpose: Purpose, arm: ArmName = "head"
    ) -> Iterator[PlannedAttempt]:
        """These repeats of each case, one of every case before the second of any."""
        for number in range(max(map(len, repeats.values()), default=0)):
            for planned in self.sets:
                for item in planned.run:
                    case = planned.case_key(item)
                    if number < len(wanted := repeats.get(case, range(0))):
                        yield PlannedAttempt(AttemptKey(*case, wanted[number], arm), item, planned, purpose)

    def suite(self, skipped: Iterable[str] = ()) -> Suite:
        """The definitions for pooling the history. ``skipped``: agents that exist but are left out of this run."""
        infos = {kept_digest(info.digest): info for planned in self.sets for info in planned.infos}
        cases: dict[CaseKey, tuple[str, Mapping[str, str]]] = {}
        for planned in self.sets:
            digests = {kept_name(info.name): kept_digest(info.digest) for info in planned.infos}
            for item in planned.cases:
                cases[kept_key(planned.case_key(item))] = (kept_digest(item.digest), digests)
        return Suite(cases, {digest: definition(info) for digest, info in infos.items()}, frozenset(skipped))
