"""From criteria as configured to criteria that score: every problem of every entry, found at once."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_snake

from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria import custom
from agent_eval_action.criteria.base import Criterion
from agent_eval_action.diagnostics.reader import did_you_mean, shorten
from agent_eval_action.diagnostics.validation import issues_of
from agent_eval_action.errors import ConfigError, Problem
from agent_eval_action.results.run_result import CriterionInfo

_NO_EFFECT = "include_intermediate_responses_in_final"
_CUSTOM_KEYS = (("custom_metrics", "customMetrics"), ("code_config", "codeConfig"))


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
    measured = [criterion.name, criterion.version(), _options(criterion)]
    text = json.dumps(measured, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def criterion_info(criterion: Criterion, source: str = "", line: int | None = None) -> CriterionInfo:
    """The criterion as results record it; ``source`` and ``line`` say where it is configured."""
    return CriterionInfo(
        name=criterion.name,
        goal=criterion.goal,
        unit=criterion.unit,
        low=_finite(criterion.scale[0]),
        high=_finite(criterion.scale[1]),
        threshold=criterion.threshold,
        options=_options(criterion),
        digest=criterion_digest(criterion),
        scoring_version=criterion.version(),
        judge=", ".join(criterion.models()),
        source=source,
        line=line,
    )


def _finite(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _options(criterion: Criterion) -> dict[str, Any]:
    return criterion.model_dump(mode="json", exclude={"threshold"})


def _build_one(spec: CriterionSpec, classes: Mapping[str, type[Criterion]]) -> Criterion | list[Problem]:
    # A custom metric of a name of ADK's takes its place, as in ADK.
    kind = _custom(spec) if spec.custom is not None else classes.get(spec.name)
    if kind is None:
        hint = did_you_mean(spec.name, classes) or "a function of yours needs an entry in custom_metrics"
        return [spec.problem(f"unknown criterion `{spec.name}`", hint=hint)]
    if isinstance(kind, Problem):
        return [kind]
    options, problems = dict(spec.options), []
    if spec.custom is None and _NO_EFFECT not in kind.model_fields:
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
            spec.problem(f"{spec.name}: {issue.message}", inside=issue.at, **issue.fields)
            for issue in issues_of(error, options, kind)
        ]


def _threshold(made: Criterion, spec: CriterionSpec) -> list[Problem]:
    low, high = made.scale
    value = made.threshold
    if value is None:
        if made.goal == "minimize":
            return []
        hint = f"a number from {low:g} to {high:g}" if high - low < float("inf") else "a number"
        return [spec.problem(f"{spec.name}: `threshold` is required", hint=hint)]
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


def _custom(spec: CriterionSpec) -> type[Criterion] | Problem:
    """The criterion of a function of the user's; whether it can be imported shows its first call."""
    assert spec.custom is not None  # noqa: S101 - asked by the caller
    name = spec.custom.code_config.name
    problem = _in_custom_metrics(spec)
    if not custom.is_function_path(name):
        return replace(problem, value=shorten(name), hint='for example "name": "my_agent.metrics.tone"')
    return custom.custom_criterion(spec.name, spec.custom, problem.where)


def _in_custom_metrics(spec: CriterionSpec) -> Problem:
    """The place of the function's name in its file."""
    message = f"{spec.name}: a metric's function is written package.module.function"
    if spec.source is None:
        return spec.problem(message)
    spelled = [(top, spec.name, code, "name") for top, code in itertools.product(*_CUSTOM_KEYS)]
    found = next((path for path in spelled if spec.source.line(path) is not None), spec.at)
    return spec.source.problem(found, message)
