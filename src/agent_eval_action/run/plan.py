"""The plan of a run: its attempts in a stable order, and the models that it needs, before any money is spent."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.agents.simulator import simulator_digest
from agent_eval_action.baseline.pooling import Suite
from agent_eval_action.baseline.records import definition
from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.criteria.base import Criterion, Sample, TurnCriterion
from agent_eval_action.errors import ConfigError, CredentialsError, Problem
from agent_eval_action.formats import case_digest
from agent_eval_action.llm.budget import SIMULATED_USER, Estimate, Prices
from agent_eval_action.llm.credentials import EXTRA, missing
from agent_eval_action.llm.providers import check_options, unknown_model
from agent_eval_action.results.base import CaseKey, json_digest, text_digest
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.results.history import kept_digest, kept_key, kept_name
from agent_eval_action.results.run_result import ArmName, AttemptKey, CriterionInfo, Purpose, ScoreStatus

if TYPE_CHECKING:
    from agent_eval_action.criteria.judge import JudgedCriterion

NOT_MEASURED: Final = "not measured: no credentials on this pull request"
_UNBOUNDED_TURNS: Final = 20  # assumed for a conversation of unlimited length

MissingCredentials = Mapping[str, str]
"""Models that cannot be called, each with a sentence about what it needs."""


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

    def with_unmeasured(self, criteria: Container[tuple[str, str, str]], cases: Container[CaseKey]) -> Plan:
        """The plan with these criteria (agent, set and name of each) and cases marked as not measured."""
        sets = []
        for planned in self.sets:
            infos = (
                info.model_copy(update={"unmeasured": NOT_MEASURED})
                if (planned.agent, planned.key, info.name) in criteria
                else info
                for info in planned.infos
            )
            items = (
                replace(item, unmeasured=NOT_MEASURED) if planned.case_key(item) in cases else item
                for item in planned.cases
            )
            sets.append(replace(planned, infos=tuple(infos), cases=tuple(items)))
        return replace(self, sets=tuple(sets)) if criteria or cases else self

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


@dataclass(frozen=True, slots=True)
class ModelRequirement:
    """A model that the plan needs. ``purpose``: a criterion, or the simulated user; ``source``: its file."""

    purpose: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


def model_requirements(plan: Plan, recorded: Collection[str] = ()) -> tuple[ModelRequirement, ...]:
    """Return every model that the plan needs, once for each purpose and source.

    ``recorded``: names of agents that are recordings, whose users are not simulated.
    """
    found: list[ModelRequirement] = []
    for planned in plan.sets:
        for criterion, info in zip(planned.criteria, planned.infos, strict=True):
            judged = _as_judged(criterion)
            own = judged.judge_model_options.judge_model_config if judged else None
            models = () if info.unmeasured else criterion.models()
            found += (ModelRequirement(criterion.name, model, own or {}, info.source) for model in models)
        if planned.agent not in recorded and any(item.case.conversation_scenario for item in planned.run):
            user = planned.simulator
            found.append(ModelRequirement(SIMULATED_USER, user.model, user.model_configuration or {}, planned.path))
    return tuple(required for number, required in enumerate(found) if required not in found[:number])


def _as_judged(criterion: Criterion) -> JudgedCriterion | None:
    if not criterion.models():
        return None
    from agent_eval_action.criteria.judge import JudgedCriterion  # noqa: PLC0415 - most runs have no judges

    return criterion if isinstance(criterion, JudgedCriterion) else None


def check_models(
    required: Sequence[ModelRequirement], environ: Mapping[str, str], openai_url: str = "", *, may_lack: bool = False
) -> dict[str, str]:
    """Return the models that lack credentials, each with a sentence; without ``may_lack`` they are an error.

    Raises ConfigError with every model whose name or options are wrong, CredentialsError for missing credentials.
    """
    reasons = [unknown_model(model.model) or check_options(model.model, model.options) for model in required]
    if problems := _problems(required, reasons):
        raise ConfigError("a model is configured that cannot be asked", problems=problems)
    reasons = [missing(model.model, environ, openai_base_url=openai_url) for model in required]
    if not may_lack and (problems := _problems(required, reasons)):
        raise CredentialsError("a model that is needed cannot be asked here, so nothing was run", problems=problems)
    pairs = sorted(zip((model.model for model in required), reasons, strict=True))
    return {model: reason for model, reason in pairs if reason and EXTRA not in reason}


def _problems(required: Iterable[ModelRequirement], reasons: Iterable[str]) -> tuple[Problem, ...]:
    return tuple(
        Problem(Path(model.source or "criteria"), f"{model.purpose}: {reason}")
        for model, reason in zip(required, reasons, strict=True)
        if reason
    )


def mark_unmeasured(plan: Plan, lacking: MissingCredentials, recorded: Collection[str] = ()) -> Plan:
    """Return the plan with everything that needs these models marked as not measured. Pure.

    ``recorded``: names of agents that are recordings, whose users are not simulated.
    """
    criteria = {
        (planned.agent, planned.key, criterion.name)
        for planned in plan.sets
        for criterion in planned.criteria
        if lacking.keys() & set(criterion.models())
    }
    cases = {
        planned.case_key(item)
        for planned in plan.sets
        if planned.agent not in recorded and planned.simulator.model in lacking
        for item in planned.cases
        if item.case.conversation_scenario  # the user cannot be simulated
    }
    return plan.with_unmeasured(criteria, cases)


def estimate_plan(plan: Plan, prices: Prices, recorded: Collection[str] = ()) -> Estimate:
    """Estimate the first pass's calls to judges and simulated users. ``recorded`` as above."""
    estimate = Estimate(prices)
    for planned in plan.sets:
        for criterion in planned.scored_by:
            cases = [item.case for item in planned.run if criterion.models() and applies(criterion, item.case)]
            by_turn = isinstance(criterion, TurnCriterion)
            questions = plan.repeats * (sum(_turns(case, planned) for case in cases) if by_turn else len(cases))
            samples = 1
            if judged := _as_judged(criterion):
                questions *= judged.calls
                samples = judged.judge_model_options.num_samples if judged.sampled else 1
            for model in criterion.models() if questions else ():
                estimate.add(model, questions, samples)
        scenarios = [item.case for item in planned.run if item.case.conversation_scenario]
        if scenarios and planned.agent not in recorded:
            turns = sum(_turns(case, planned) for case in scenarios)
            estimate.add(planned.simulator.model, plan.repeats * turns)
    return estimate


def _turns(case: EvalCase, planned: PlannedSet) -> int:
    """Return the turns of a fixed conversation, or the most that a simulated user may take."""
    if case.conversation is not None:
        return len(case.conversation)
    most = planned.simulator.max_allowed_invocations
    return most if most > 0 else _UNBOUNDED_TURNS
