"""Which attempts a run makes: every case of every set, once per repeat, in a stable order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agent_eval_action.config.adk_config import UserSimulatorConfig
from agent_eval_action.criteria.base import Criterion
from agent_eval_action.model.evalset import EvalCase
from agent_eval_action.model.result import ArmName, AttemptKey, CaseKey, CriterionInfo, Purpose


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """One case with the digest of its definition. ``unmeasured`` says why it is not run, "" where it is."""

    case: EvalCase
    digest: str
    unmeasured: str = ""


@dataclass(frozen=True, slots=True)
class PlannedSet:
    """One eval set against one agent. ``path`` is relative to the workspace, with forward slashes.

    ``simulator``: who plays the user where a case has a scenario.
    """

    agent: str
    key: str
    path: str
    cases: tuple[PlannedCase, ...]
    criteria: tuple[Criterion, ...]
    infos: tuple[CriterionInfo, ...]
    simulator: UserSimulatorConfig = field(default_factory=UserSimulatorConfig)

    @property
    def scored_by(self) -> tuple[Criterion, ...]:
        """The criteria that are applied: all but those this run leaves out."""
        return tuple(one for one, info in zip(self.criteria, self.infos, strict=True) if not info.unmeasured)

    @property
    def run(self) -> tuple[PlannedCase, ...]:
        """The cases that are run."""
        return tuple(item for item in self.cases if not item.unmeasured)


@dataclass(frozen=True, slots=True)
class PlannedAttempt:
    """One repeat of one case, and what it is made for."""

    key: AttemptKey
    case: EvalCase
    digest: str
    planned_set: PlannedSet
    purpose: Purpose = "first"


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole run."""

    sets: tuple[PlannedSet, ...]
    repeats: int = 1

    @property
    def cases(self) -> int:
        """How many cases there are over all sets."""
        return sum(len(planned.cases) for planned in self.sets)

    def digests(self) -> Iterator[tuple[CaseKey, str]]:
        """Every case with the digest of its definition."""
        for planned in self.sets:
            for item in planned.cases:
                yield CaseKey(planned.agent, planned.key, item.case.eval_id), item.digest

    def attempts(self) -> Iterator[PlannedAttempt]:
        """Every attempt, a whole pass before the next repeat: a run cut short has seen every case it could."""
        for repeat in range(self.repeats):
            for planned in self.sets:
                for item in planned.run:
                    key = AttemptKey(planned.agent, planned.key, item.case.eval_id, repeat)
                    yield PlannedAttempt(key, item.case, item.digest, planned)

    def further(
        self, cases: Mapping[CaseKey, int], count: int, purpose: Purpose, arm: ArmName = "head"
    ) -> Iterator[PlannedAttempt]:
        """``count`` more attempts of each of ``cases``, numbered on from its value; a pass over all before the next."""
        for more in range(count):
            for planned in self.sets:
                for item in planned.run:
                    key = AttemptKey(planned.agent, planned.key, item.case.eval_id, 0, arm)
                    start = cases.get(key.case_key)
                    if start is not None:
                        yield PlannedAttempt(
                            key._replace(repeat=start + more), item.case, item.digest, planned, purpose
                        )
