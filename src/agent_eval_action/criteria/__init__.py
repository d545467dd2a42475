"""The criteria that score cases. Each is a class whose fields are its options, registered in CRITERIA."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from agent_eval_action.config.criteria import CriterionSpec, CustomMetric
from agent_eval_action.criteria.base import Criterion, ExpectedCalls, Relaxation
from agent_eval_action.criteria.custom import CustomCriterion, custom_criterion
from agent_eval_action.diagnostics.reader import did_you_mean, shorten
from agent_eval_action.diagnostics.suggestions import snake_case
from agent_eval_action.diagnostics.validation import issues_of
from agent_eval_action.errors import ConfigError, Problem
from agent_eval_action.registry import Registry
from agent_eval_action.results.run_result import CriterionInfo

__all__ = ["CRITERIA", "build", "criterion_digest", "criterion_info", "expected_calls", "relaxes", "warm_up"]

_BUILT_IN: Final = {
    "tool_trajectory_avg_score": "calls:ToolTrajectoryAvgScore",
    "response_match_score": "answers:ResponseMatchScore",
    "tool_trajectory_score": "adk_rust:ToolTrajectoryScore",
    "response_similarity": "adk_rust:ResponseSimilarity",
    "semantic_match_score": "adk_rust:SemanticMatch",
    "rubric_quality_score": "adk_rust:RubricQuality",
    "safety_score": "adk_rust:SafetyScore",
    "hallucination_score": "adk_rust:HallucinationScore",
    "trajectory_precision": "calls:TrajectoryPrecision",
    "trajectory_recall": "calls:TrajectoryRecall",
    "trajectory_f1": "calls:TrajectoryF1",
    "trajectory_similarity": "calls:TrajectorySimilarity",
    "trajectory_single_tool_use": "calls:TrajectorySingleToolUse",
    "redundant_calls": "calls:RedundantCalls",
    "agent_route": "calls:AgentRoute",
    "final_session_state": "calls:FinalSessionState",
    "recorded_events": "calls:RecordedEvents",
    "answer_exact_match": "answers:AnswerExactMatch",
    "answer_similarity": "answers:AnswerSimilarity",
    "answer_contains": "answers:AnswerContains",
    "answer_pattern": "answers:AnswerPattern",
    "answer_json_schema": "answers:AnswerJsonSchema",
    "tool_call_count_v1": "efficiency:ToolCallCount",
    "inference_call_count_v1": "efficiency:InferenceCallCount",
    "token_usage_v1": "efficiency:TokenUsage",
    "invocation_duration_v1": "efficiency:InvocationDuration",
    "cost_usd_v1": "efficiency:CostUsd",
    "final_response_match_v2": "verdicts:FinalResponseMatch",
    "rubric_based_final_response_quality_v1": "verdicts:FinalResponseQuality",
    "rubric_based_tool_use_quality_v1": "verdicts:ToolUseQuality",
    "rubric_based_multi_turn_trajectory_quality_v1": "verdicts:TrajectoryQuality",
    "hallucinations_v1": "hallucinations:Hallucinations",
    "per_turn_user_simulator_quality_v1": "verdicts:SimulatorQuality",
    "safety_v1": "vertex:Safety",
    "response_evaluation_score": "vertex:ResponseEvaluationScore",
    "multi_turn_task_success_v1": "vertex:TaskSuccess",
    "multi_turn_trajectory_quality_v1": "vertex:ConversationTrajectoryQuality",
    "multi_turn_tool_use_quality_v1": "vertex:ConversationToolUseQuality",
}
"""Module and class of each criterion. They are imported on lookup, because most runs use few."""
_NO_EFFECT: Final = "include_intermediate_responses_in_final"
_CUSTOM_KEYS: Final = (("custom_metrics", "customMetrics"), ("code_config", "codeConfig"))


def _check(name: str, entry: Any) -> str:
    if not (isinstance(entry, type) and issubclass(entry, Criterion)):
        return "it is no subclass of agent_eval_action.criteria.base.Criterion"
    return "" if getattr(entry, "name", None) == name else f"its `name` is not {name}"


CRITERIA: Final[Registry[type[Criterion]]] = Registry(
    "agent_eval.criteria",
    "criterion",
    {name: f"{__name__}.{place}" for name, place in _BUILT_IN.items()},
    _check,
)


def build(specs: Iterable[CriterionSpec]) -> tuple[Criterion, ...]:
    """Build one criterion per entry. Raises ConfigError with the problems of all entries, each at its path and line."""
    built: list[Criterion] = []
    problems: list[Problem] = []
    for spec in specs:
        kind = _kind(spec)
        made = [kind] if isinstance(kind, Problem) else _build_one(spec, kind)
        if isinstance(made, Criterion):
            built.append(made)
        else:
            problems += made
    if problems:
        raise ConfigError("criteria are configured that cannot be scored", problems=tuple(problems))
    return tuple(built)


def _kind(spec: CriterionSpec) -> type[Criterion] | Problem:
    """The class of a criterion. As in ADK, a custom metric replaces a built-in criterion of the same name."""
    if spec.custom is not None:
        return _custom(spec, spec.custom)
    if spec.metric is None:
        if spec.name in CRITERIA:
            return CRITERIA[spec.name]
        hint = did_you_mean(spec.name, CRITERIA) or "a function of yours needs an entry in custom_metrics"
        return spec.problem(f"unknown criterion `{spec.name}`", hint=hint)
    from agent_eval_action.criteria.vertex import eval_metric  # noqa: PLC0415 - asyncio and judges, for few
    from agent_eval_action.llm.providers.google import PREDEFINED, predefined_metric  # noqa: PLC0415 - as above

    name, predefined = spec.name.lower(), predefined_metric(spec.name.lower())
    if spec.metric in ("function", "prompt") and predefined == name:
        return spec.problem(f"{spec.name} is the name of a metric of Vertex AI", hint=f"rename it: my_{spec.name}")
    if spec.metric == "managed" and predefined is None:
        hint = did_you_mean(name, PREDEFINED) or "a metric of your own needs an entry in custom_metrics"
        return spec.problem(f"Vertex AI has no metric `{spec.name}`", hint=hint)
    return eval_metric(spec.name, spec.metric)


def _custom(spec: CriterionSpec, metric: CustomMetric) -> type[Criterion] | Problem:
    """The criterion of a user's function. The first call shows whether the function can be imported."""
    function = metric.code_config.name
    problem = spec.problem(f"{spec.name}: a metric's function is written package.module.function")
    if spec.source is not None:
        spelled = ((top, spec.name, code, "name") for top, code in itertools.product(*_CUSTOM_KEYS))
        place = next((path for path in spelled if spec.source.line(path) is not None), spec.at)
        problem = spec.source.problem(place, problem.message)
    parts = function.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):  # noqa: PLR2004 - a module and a function
        return replace(problem, value=shorten(function), hint='for example "name": "my_agent.metrics.tone"')
    return custom_criterion(spec.name, metric, problem.where)


def _build_one(spec: CriterionSpec, kind: type[Criterion]) -> Criterion | list[Problem]:
    options = dict(spec.options)
    problems: list[Problem] = []
    if spec.custom is None and _NO_EFFECT not in kind.model_fields:
        # ADK accepts this option on every criterion; setting it where it has no effect is a mistake
        for key in [key for key in options if snake_case(key) == _NO_EFFECT]:
            if options.pop(key) is not False and not problems:
                problems.append(spec.problem(f"{spec.name}: `{key}` has no effect on this criterion", inside=(key,)))
    try:
        made = kind.model_validate(options)
    except ValidationError as error:
        issues = issues_of(error, options, kind)
        refused = [spec.problem(f"{spec.name}: {issue.message}", inside=issue.at, **issue.fields) for issue in issues]
        return refused + problems
    (low, high), value = made.scale, made.threshold
    bounded = f"a number from {low:g} to {high:g}"
    if value is None and made.needs_threshold and made.goal == "maximize":
        hint = bounded if high - low < math.inf else "a number"
        problems.append(spec.problem(f"{spec.name}: `threshold` is required", hint=hint))
    elif value is not None and not (low <= value <= high and value != math.inf):  # true for NaN
        problems.append(
            spec.problem(
                f"{spec.name}: the threshold is no score this criterion can give",
                inside=("threshold",),
                value=shorten(spec.options.get("threshold")),
                hint=bounded if high != math.inf else f"a number of at least {low:g}",
            )
        )
    return problems or made


def criterion_digest(criterion: Criterion) -> str:
    """Digest of name, version and options, without the threshold: scores with the same digest are comparable."""
    measured = [criterion.name, criterion.version(), _options(criterion)]
    text = json.dumps(measured, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def criterion_info(criterion: Criterion, source: str = "", line: int | None = None) -> CriterionInfo:
    """Describe the criterion for results; ``source`` and ``line`` say where it is configured."""
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
    """The options that are more lenient in ``new``, as judged by the criterion's class."""
    return CRITERIA.get(new.name, CustomCriterion).relaxes(old, new)


def expected_calls(info: CriterionInfo) -> ExpectedCalls:
    """How a criterion compares tool calls with the expected ones."""
    return CRITERIA.get(info.name, CustomCriterion).expected_calls(info)


def warm_up() -> None:
    """Import what scoring will need; call it in a thread while the agent starts."""
    from agent_eval_action.criteria.answers import tokenizer  # noqa: PLC0415 - see _BUILT_IN

    tokenizer()
