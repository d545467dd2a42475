"""From criteria as configured to criteria that score: every problem of every entry, found at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_snake

from agent_eval_action import __version__
from agent_eval_action.config.specs import CriterionSpec, refusals
from agent_eval_action.criteria.base import Criterion
from agent_eval_action.criteria.planned import PLANNED, CustomOptions
from agent_eval_action.errors import ConfigError, Problem
from agent_eval_action.model.result import CriterionInfo
from agent_eval_action.source import did_you_mean, shorten

_NO_EFFECT = "include_intermediate_responses_in_final"


def build(specs: Iterable[CriterionSpec], classes: Mapping[str, type[Criterion]]) -> tuple[Criterion, ...]:
    """One criterion per entry. Raises ConfigError with every problem at its path and line."""
    built: list[Criterion] = []
    problems: list[Problem] = []
    for spec in specs:
        made = _build_one(spec, classes)
        if isinstance(made, Criterion):
            built.append(made)
        else:
            problems += made
    if problems:
        raise ConfigError("criteria are configured that cannot be scored", problems=tuple(problems))
    return tuple(built)


def criterion_digest(criterion: Criterion) -> str:
    """Names what is measured and how, the threshold apart: scores with the same digest are comparable."""
    said = [criterion.name, criterion.version(), _options(criterion)]
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def criterion_info(criterion: Criterion, source: str = "") -> CriterionInfo:
    """The criterion as results record it; ``source`` says where it is configured (``path:line``)."""
    return CriterionInfo(
        name=criterion.name,
        goal=criterion.goal,
        threshold=criterion.threshold,
        options=_options(criterion),
        digest=criterion_digest(criterion),
        scoring_version=criterion.version(),
        judge=", ".join(criterion.models()),
        source=source,
    )


def _options(criterion: Criterion) -> dict[str, Any]:
    return criterion.model_dump(mode="json", exclude={"threshold"})


def _build_one(spec: CriterionSpec, classes: Mapping[str, type[Criterion]]) -> Criterion | list[Problem]:
    kind = classes.get(spec.name)
    if kind is None:
        return _not_here(spec, classes)
    options, problems = dict(spec.options), []
    if _NO_EFFECT not in kind.model_fields:
        options = {key: value for key, value in options.items() if to_snake(key) != _NO_EFFECT}
        problems = _no_effect(spec)
    made = _validated(kind, options, spec)
    if isinstance(made, list):
        return made + problems
    problems += _threshold(made, spec)
    return problems or made


def _validated(kind: type[BaseModel], options: dict[str, Any], spec: CriterionSpec) -> Any:
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        return [
            spec.problem(f"{spec.name}: {text}", inside=place, **fields)
            for place, text, fields in refusals(error, kind)
        ]


def _threshold(made: Criterion, spec: CriterionSpec) -> list[Problem]:
    low, high = made.scale
    value = made.threshold
    if value is None:
        if made.goal == "minimize":
            return []
        return [spec.problem(f"{spec.name}: `threshold` is required", hint=f"a number from {low:g} to {high:g}")]
    if low <= value <= high and value != float("inf"):  # false for NaN
        return []
    wanted = f"a number from {low:g} to {high:g}" if high != float("inf") else f"a number of at least {low:g}"
    return [
        spec.problem(
            f"{spec.name}: the threshold is no score this criterion can give",
            inside=("threshold",),
            value=shorten(spec.options.get("threshold")),
            hint=wanted,
        )
    ]


def _no_effect(spec: CriterionSpec) -> list[Problem]:
    """ADK lets every criterion carry this option; where it changes nothing, asking for it is a mistake."""
    for key, value in spec.options.items():
        if to_snake(key) == _NO_EFFECT and value is not False:
            return [spec.problem(f"{spec.name}: `{key}` has no effect on this criterion", inside=(key,))]
    return []


def _not_here(spec: CriterionSpec, classes: Mapping[str, type[Criterion]]) -> list[Problem]:
    """Unknown, or known and not in this version: two different things to read."""
    planned = PLANNED.get(spec.name) or (CustomOptions if spec.custom is not None else None)
    if planned is None:
        hint = did_you_mean(spec.name, [*classes, *PLANNED])
        return [
            spec.problem(
                f"unknown criterion `{spec.name}`", hint=hint or "a function of yours needs an entry in custom_metrics"
            )
        ]
    checked = _validated(planned, dict(spec.options), spec)
    what = "a custom metric" if spec.name not in PLANNED else "a criterion of ADK that needs a model"
    known = spec.problem(
        f"{spec.name} is known ({what}), but this version ({__version__}) does not score it",
        hint="remove it from the criteria; this version scores " + ", ".join(classes),
    )
    return [known, *(checked if isinstance(checked, list) else [])]
