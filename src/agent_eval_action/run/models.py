"""The models that judge and play users in a run: what they lack is said before anything is spent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_eval_action.criteria.judged.base import JudgedCriterion
from agent_eval_action.errors import ConfigError, CredentialsError, Problem
from agent_eval_action.llm.budget import SIMULATED_USER
from agent_eval_action.llm.credentials import EXTRA, missing
from agent_eval_action.llm.providers import check_options, refusal
from agent_eval_action.run.plan import Plan, PlannedSet


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model that something of the plan will ask. ``purpose``: a criterion, or the simulated user."""

    purpose: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


def wanted_of(plan: Plan, recorded: Collection[str] = ()) -> tuple[Wanted, ...]:
    """Every model the plan will ask, once for each purpose and place that asks it.

    ``recorded``: names of agents that are recordings, whose users are asked nothing.
    """
    found: list[Wanted] = []
    for one in plan.sets:
        found += [wanted for wanted in _of_set(one, played=one.agent not in recorded) if wanted not in found]
    return tuple(found)


def _of_set(one: PlannedSet, *, played: bool) -> Iterator[Wanted]:
    for criterion, info in zip(one.criteria, one.infos, strict=True):
        if info.unmeasured:
            continue
        own = isinstance(criterion, JudgedCriterion) and criterion.judge_model_options.judge_model_config
        for model in criterion.models():
            yield Wanted(criterion.name, model, own or {}, info.source)
    if played and any(item.has_scenario for item in one.run):
        yield Wanted(SIMULATED_USER, one.simulator.model, one.simulator.model_configuration or {}, one.path)


def refuse_unusable(wanted: Iterable[Wanted], environ: Mapping[str, str], *, openai_base_url: str = "") -> None:
    """Say of every model why it cannot be asked, before anything is spent.

    Raises ConfigError for a name or an option that is wrong, CredentialsError for what is not set.
    """
    asked = tuple(wanted)
    refuse_wrong(asked)
    if lacking := _problems((one, missing(one.model, environ, openai_base_url=openai_base_url)) for one in asked):
        raise CredentialsError("a model that is needed cannot be asked here, so nothing was run", problems=lacking)


def refuse_wrong(wanted: Iterable[Wanted]) -> None:
    """Say of every model why it can be asked nowhere. Raises ConfigError for a name or an option that is wrong."""
    if wrong := _problems((one, refusal(one.model) or check_options(one.model, one.options)) for one in wanted):
        raise ConfigError("a model is configured that cannot be asked", problems=wrong)


def lacking_of(wanted: Iterable[Wanted], environ: Mapping[str, str], *, openai_base_url: str = "") -> dict[str, str]:
    """The models that cannot be asked here, and what each wants: one sentence a model."""
    models = sorted({one.model for one in wanted})
    said = {model: missing(model, environ, openai_base_url=openai_base_url) for model in models}
    return {model: sentence for model, sentence in said.items() if sentence and EXTRA not in sentence}


def _problems(found: Iterable[tuple[Wanted, str]]) -> tuple[Problem, ...]:
    return tuple(Problem(Path(one.source or "criteria"), f"{one.purpose}: {why}") for one, why in found if why)
