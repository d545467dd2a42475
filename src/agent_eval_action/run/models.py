"""The models that a plan needs: their names, credentials and number of calls, before any money is spent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.criteria.base import Criterion, TurnCriterion
from agent_eval_action.errors import ConfigError, CredentialsError, Problem
from agent_eval_action.llm.budget import SIMULATED_USER
from agent_eval_action.llm.credentials import EXTRA, missing
from agent_eval_action.llm.pricing import Estimate, Prices
from agent_eval_action.llm.providers import check_options, unknown_model
from agent_eval_action.results.evalset import EvalCase
from agent_eval_action.run.plan import Plan, PlannedSet, applies

if TYPE_CHECKING:
    from agent_eval_action.criteria.judge import JudgedCriterion

NOT_MEASURED: Final = "not measured: no credentials on this pull request"
_UNBOUNDED_TURNS: Final = 20  # assumed for a conversation of unlimited length

MissingCredentials = Mapping[str, str]
"""Models that cannot be called, each with a sentence about what it needs."""


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
    sets = []
    for planned in plan.sets if lacking else ():
        infos = tuple(
            info.model_copy(update={"unmeasured": NOT_MEASURED}) if lacking.keys() & set(criterion.models()) else info
            for criterion, info in zip(planned.criteria, planned.infos, strict=True)
        )
        cases = planned.cases
        if planned.agent not in recorded and planned.simulator.model in lacking:  # the user cannot be simulated
            cases = tuple(
                replace(item, unmeasured=NOT_MEASURED) if item.case.conversation_scenario else item for item in cases
            )
        sets.append(replace(planned, infos=infos, cases=cases))
    return replace(plan, sets=tuple(sets)) if lacking else plan


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
