"""Criteria: what a case is scored by. A criterion is a class whose fields are its options, and an entry of CRITERIA."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria.base import Criterion, ExpectedCalls, Relaxation
from agent_eval_action.criteria.custom import CustomCriterion, custom_criterion
from agent_eval_action.criteria.deterministic.efficiency import (
    CostUsd,
    InferenceCallCount,
    InvocationDuration,
    TokenUsage,
    ToolCallCount,
)
from agent_eval_action.criteria.deterministic.text import ResponseMatchScore, tokenizer
from agent_eval_action.criteria.deterministic.trajectory import ToolTrajectoryAvgScore
from agent_eval_action.criteria.judge.hallucinations import Hallucinations
from agent_eval_action.criteria.judge.rubrics import FinalResponseQuality, ToolUseQuality, TrajectoryQuality
from agent_eval_action.criteria.judge.verdicts import FinalResponseMatch, SimulatorQuality
from agent_eval_action.criteria.vertex import (
    ConversationToolUseQuality,
    ConversationTrajectoryQuality,
    ResponseEvaluationScore,
    Safety,
    TaskSuccess,
)
from agent_eval_action.diagnostics.reader import did_you_mean, shorten
from agent_eval_action.diagnostics.validation import issues_of
from agent_eval_action.errors import ConfigError, Problem
from agent_eval_action.registry import Registry
from agent_eval_action.results.run_result import CriterionInfo

__all__ = ["CRITERIA", "build", "criterion_digest", "criterion_info", "expected_calls", "relaxes", "warm_up"]

_BUILT_IN: Final[dict[str, type[Criterion]]] = {
    ToolTrajectoryAvgScore.name: ToolTrajectoryAvgScore,
    ResponseMatchScore.name: ResponseMatchScore,
    ToolCallCount.name: ToolCallCount,
    InferenceCallCount.name: InferenceCallCount,
    TokenUsage.name: TokenUsage,
    InvocationDuration.name: InvocationDuration,
    CostUsd.name: CostUsd,
    FinalResponseMatch.name: FinalResponseMatch,
    FinalResponseQuality.name: FinalResponseQuality,
    ToolUseQuality.name: ToolUseQuality,
    TrajectoryQuality.name: TrajectoryQuality,
    Hallucinations.name: Hallucinations,
    SimulatorQuality.name: SimulatorQuality,
    Safety.name: Safety,
    ResponseEvaluationScore.name: ResponseEvaluationScore,
    TaskSuccess.name: TaskSuccess,
    ConversationTrajectoryQuality.name: ConversationTrajectoryQuality,
    ConversationToolUseQuality.name: ConversationToolUseQuality,
}
_NO_EFFECT: Final = "include_intermediate_responses_in_final"
_CUSTOM_KEYS: Final = (("custom_metrics", "customMetrics"), ("code_config", "codeConfig"))


def _check(name: str, entry: Any) -> str:
    if not (isinstance(entry, type) and issubclass(entry, Criterion)):
        return "it is no subclass of agent_eval_action.criteria.base.Criterion"
    return "" if getattr(entry, "name", None) == name else f"its `name` is not {name}"


CRITERIA: Final = Registry("agent_eval.criteria", "criterion", _BUILT_IN, _check)


def build(specs: Iterable[CriterionSpec]) -> tuple[Criterion, ...]:
    """One criterion per entry. Raises ConfigError with every problem of every entry, at its path and line."""
    built: list[Criterion] = []
    problems: list[Problem] = []
    for spec in specs:
        made = _build_one(spec)
        if isinstance(made, Criterion):
            built.append(made)
        else:
            problems += made
    if problems:
        raise ConfigError("criteria are configured that cannot be scored", problems=tuple(problems))
    return tuple(built)


def _build_one(spec: CriterionSpec) -> Criterion | list[Problem]:
    if spec.custom is not None:  # a custom metric of a name of ADK's takes its place, as in ADK
        kind = _custom(spec)
        if isinstance(kind, Problem):
            return [kind]
    elif spec.name in CRITERIA:
        kind = CRITERIA[spec.name]
    else:
        hint = did_you_mean(spec.name, CRITERIA) or "a function of yours needs an entry in custom_metrics"
        return [spec.problem(f"unknown criterion `{spec.name}`", hint=hint)]
    options = dict(spec.options)
    problems: list[Problem] = []
    if spec.custom is None and _NO_EFFECT not in kind.model_fields:
        # ADK lets every criterion carry this option; where it changes nothing, asking for it is a mistake
        for key in [key for key in options if to_snake(key) == _NO_EFFECT]:
            if options.pop(key) is not False and not problems:
                problems.append(spec.problem(f"{spec.name}: `{key}` has no effect on this criterion", inside=(key,)))
    try:
        made = kind.model_validate(options)
    except ValidationError as error:
        issues = issues_of(error, options, kind)
        refused = [spec.problem(f"{spec.name}: {issue.message}", inside=issue.at, **issue.fields) for issue in issues]
        return refused + problems
    return problems + _threshold(made, spec) or made


def _threshold(made: Criterion, spec: CriterionSpec) -> list[Problem]:
    """What is wrong with the threshold: whether it is missing, or no score of the criterion's scale."""
    low, high = made.scale
    value = made.threshold
    bounded = f"a number from {low:g} to {high:g}"
    if value is None:
        if made.goal == "minimize":
            return []
        hint = bounded if high - low < math.inf else "a number"
        return [spec.problem(f"{spec.name}: `threshold` is required", hint=hint)]
    if low <= value <= high and value != math.inf:  # false for NaN
        return []
    return [
        spec.problem(
            f"{spec.name}: the threshold is no score this criterion can give",
            inside=("threshold",),
            value=shorten(spec.options.get("threshold")),
            hint=bounded if high != math.inf else f"a number of at least {low:g}",
        )
    ]


def _custom(spec: CriterionSpec) -> type[Criterion] | Problem:
    """The criterion of a function of the user's; whether it can be imported shows its first call."""
    assert spec.custom is not None  # noqa: S101 - asked by the caller
    function = spec.custom.code_config.name
    problem = spec.problem(f"{spec.name}: a metric's function is written package.module.function")
    if spec.source is not None:
        spelled = ((top, spec.name, code, "name") for top, code in itertools.product(*_CUSTOM_KEYS))
        place = next((path for path in spelled if spec.source.line(path) is not None), spec.at)
        problem = spec.source.problem(place, problem.message)
    parts = function.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):  # noqa: PLR2004 - a module and a function
        return replace(problem, value=shorten(function), hint='for example "name": "my_agent.metrics.tone"')
    return custom_criterion(spec.name, spec.custom, problem.where)


def criterion_digest(criterion: Criterion) -> str:
    """Names what is measured and how, the threshold apart: scores with the same digest are comparable."""
    measured = [criterion.name, criterion.version(), _options(criterion)]
    text = json.dumps(measured, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def criterion_info(criterion: Criterion, source: str = "", line: int | None = None) -> CriterionInfo:
    """The criterion as results record it; ``source`` and ``line`` say where it is configured."""
    low, high = (end if math.isfinite(end) else None for end in criterion.scale)
    return CriterionInfo(
        name=criterion.name,
        goal=criterion.goal,
        unit=criterion.unit,
        low=low,
        high=high,
        threshold=criterion.threshold,
        options=_options(criterion),
        digest=criterion_digest(criterion),
        scoring_version=criterion.version(),
        judge=", ".join(criterion.models()),
        source=source,
        line=line,
    )


def _options(criterion: Criterion) -> dict[str, Any]:
    return criterion.model_dump(mode="json", exclude={"threshold"})


def relaxes(old: CriterionInfo, new: CriterionInfo) -> tuple[Relaxation, ...]:
    """The options of a criterion that ask for less in ``new``, as the criterion itself knows it."""
    return CRITERIA.get(new.name, CustomCriterion).relaxes(old, new)


def expected_calls(info: CriterionInfo) -> ExpectedCalls:
    """How a criterion compares tool calls with those a case expects."""
    return CRITERIA.get(info.name, CustomCriterion).expected_calls(info)


def warm_up() -> None:
    """Import now what scoring needs later: for a thread, while the agent starts."""
    tokenizer()
