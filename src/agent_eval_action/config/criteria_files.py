"""Read criteria files of ADK, agents-cli (eval_config.yaml), ADK-Rust and trpc-agent.

Criteria of other tools are translated into ours. If none measures the same, it is refused at its line, with the
nearest one as a hint.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from agent_eval_action.config.criteria import (
    CriterionSpec,
    CustomMetric,
    MetricKind,
    UserSimulatorConfig,
    parse_criteria,
    set_values,
)
from agent_eval_action.diagnostics.foreign_files import is_trpc_metrics
from agent_eval_action.diagnostics.reader import JsonPath, Source, read_bytes, shorten
from agent_eval_action.diagnostics.suggestions import snake_case
from agent_eval_action.diagnostics.validation import Issue, issues_of, locate
from agent_eval_action.errors import ConfigError, Problem, Unreadable
from agent_eval_action.results.base import AdkModel, Frozen

MAX_CODE: Final = 1 << 20
"""Maximum bytes of a criteria file that names functions, and of a function's code."""


def _refuse_rubric_group(_: Any) -> Any:
    raise ValueError("is refused by agents-cli as well; use metric_spec_parameters: {rubric_group_key: ...}")


class _Parameters(Frozen):
    rubric_group_key: str | None = None


class _Metric(Frozen):
    """An entry of ``custom_metrics``. Without prompt and function it sets parameters of a Vertex AI metric."""

    name: str = Field(min_length=1)
    description: str | None = None
    prompt_template: str | None = Field(default=None, min_length=1)
    judge_model: str | None = Field(default=None, min_length=1)
    judge_model_sampling_count: int = Field(default=4, ge=1, le=32)
    judge_model_system_instruction: str | None = None
    judge_model_generation_config: dict[str, Any] | None = None
    custom_function: str | None = None
    custom_function_file: str | None = None
    execution: Literal["local", "remote"] = "local"
    metric_spec_parameters: _Parameters | None = None
    rubric_group_name: Annotated[Any, BeforeValidator(_refuse_rubric_group)] = None

    def kind(self) -> MetricKind:
        if self.custom_function is not None or self.custom_function_file is not None:
            return "function"
        return "prompt" if self.prompt_template is not None else kind_of(self.name)

    def options(self, source: str) -> dict[str, Any]:
        """The options of the criterion. ``source``: the function's code."""
        kind = self.kind()
        if kind == "function":
            return {"source": source}
        if kind != "prompt":
            key = self.metric_spec_parameters.rubric_group_key if self.metric_spec_parameters else None
            return {"rubric_group_key": key} if key else {}
        judge = {"judge_model": self.judge_model, "judge_model_config": self.judge_model_generation_config}
        options = {name: value for name, value in judge.items() if value is not None}
        return {
            "prompt_template": self.prompt_template,
            "judge_model_options": {**options, "num_samples": self.judge_model_sampling_count},
            **({"system_instruction": text} if (text := self.judge_model_system_instruction) else {}),
        }


Reading = tuple[list[CriterionSpec], list[Issue], list[Problem]]
"""The metrics of a file that run, what is wrong with it, and warnings."""


# --- agents-cli ------------------------------------------------------------------------------------


class _EvalConfig(Frozen):
    metrics_to_run: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    custom_metrics: tuple[_Metric, ...] = ()


def _is_eval_config(value: Any) -> bool:
    return isinstance(value, Mapping) and "criteria" not in value and "metrics_to_run" in value


def kind_of(name: str) -> MetricKind:
    """What scores a metric that has no entry in ``custom_metrics``."""
    plain = name.lower()
    return "computed" if plain in {"exact_match", "bleu"} or plain.startswith("rouge") else "managed"


def _read_eval_config(source: Source, workspace: Path) -> Reading:
    try:
        config = _EvalConfig.model_validate(source.value)
    except ValidationError as error:
        return [], list(issues_of(error, source.value, _EvalConfig)), []
    entries = {metric.name: (number, metric) for number, metric in enumerate(config.custom_metrics)}
    metrics: list[CriterionSpec] = []
    issues = [] if config.metrics_to_run else [Issue("metrics_to_run is empty, so there is nothing to measure")]
    warnings: list[Problem] = []
    for number, name in enumerate(dict.fromkeys(config.metrics_to_run)):
        index, metric = entries.get(name, (None, _Metric(name=name)))
        at: JsonPath = ("metrics_to_run", number) if index is None else ("custom_metrics", index)
        try:
            code = _code_of(metric, source.path.parent, workspace)
        except ValueError as error:
            issues.append(Issue(f"{name}: {error}", at))
            continue
        if metric.execution == "remote":
            message = f"{name} runs in the agent's interpreter, not in Google's sandbox"
            warnings.append(source.problem((*at, "execution"), message, severity="warning"))
        metrics.append(CriterionSpec(name.lower(), metric.options(code), at, source, metric=metric.kind()))
    return metrics, issues, warnings


def function_files(path: Path, workspace: Path) -> tuple[Path, ...]:
    """The code files of an eval_config's metric functions; () for other criteria files and unreadable ones.

    Includes entries that do not run.
    """
    try:
        value = Source.read(path, workspace=workspace, error=ConfigError).value
    except ConfigError:  # reported where the criteria are loaded
        return ()
    entries = value.get("custom_metrics") if _is_eval_config(value) else None
    named = [
        entry["custom_function_file"]
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, Mapping) and isinstance(entry.get("custom_function_file"), str)
    ]
    return tuple(Path(os.path.normpath(path.parent / name)) for name in named if "\0" not in name)


def _code_of(metric: _Metric, folder: Path, workspace: Path) -> str:
    """The code of a metric's function, "" for other metrics. Raises ValueError with what is wrong."""
    named, code = metric.custom_function_file, metric.custom_function or ""
    if named is not None and metric.custom_function is not None:
        raise ValueError("give either custom_function or custom_function_file, not both")
    if named is not None:
        try:
            code = read_bytes(folder / named, workspace, MAX_CODE).decode()
        except (Unreadable, UnicodeDecodeError) as error:
            raise ValueError(f"custom_function_file {named} cannot be read: {error}") from None
    try:
        compile(code, f"<{metric.name}>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        place = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ValueError(f"its function is no Python{place}: {error.args[0]}") from None
    return code


# --- ADK-Rust (crate adk-eval): thresholds by criterion, options under keys of their own -----------

_RUST_OPTIONS: Final = {
    "tool_trajectory_score": "tool_trajectory_config",
    "response_similarity": "response_match_config",
    "semantic_match_score": "semantic_match_config",
    "rubric_quality_score": "rubric_config",
    "safety_score": "",
    "hallucination_score": "",
}
"""The key of each criterion's options."""
_RUST_JUDGED: Final = frozenset({"semantic_match_score", "rubric_quality_score", "safety_score", "hallucination_score"})


def _is_adk_rust(value: Any) -> bool:
    return isinstance(value, Mapping) and "criteria" not in value and bool(_RUST_OPTIONS.keys() & value.keys())


def _read_adk_rust(source: Source, _: Path) -> Reading:
    """Read ADK-Rust's criteria. Unknown keys, which ADK-Rust ignores, are refused."""
    data: Mapping[str, Any] = source.value
    configs: dict[str, Any] = {key: data[key] for key in _RUST_OPTIONS.values() if data.get(key) is not None}
    issues = [
        Issue("must be an object", (key,), shorten(value))
        for key, value in configs.items()
        if not isinstance(value, Mapping)
    ]
    issues += [
        Issue(f"ADK-Rust has no criterion `{key}` that it scores", (key,), shorten(value))
        for key, value in data.items()
        if key not in {*_RUST_OPTIONS, *_RUST_OPTIONS.values()} and value not in (None, [])
    ]
    if issues:
        return [], issues, []
    named = configs.get("semantic_match_config", {}).get("judge_model")
    metrics = []
    for name, key in _RUST_OPTIONS.items():
        if data.get(name) is None:
            continue
        options = {option: value for option, value in configs.get(key, {}).items() if value is not None}
        options.pop("judge_model", None)
        if name in _RUST_JUDGED and named is not None:  # ADK-Rust has one judge for all criteria, named there
            options["judge_model_options"] = {"judge_model": named, "num_samples": 1}
        metrics.append(CriterionSpec(name, {**options, "threshold": data[name]}, (name,), source))
    return metrics, [] if metrics else [Issue("no criteria, so there is nothing to measure")], []


# --- trpc-agent-go (a list) and trpc-agent-python (under metrics) ----------------------------------

METRICS_SUFFIX: Final = ".metrics.json"
"""Suffix of trpc-agent-go's criteria file, ``<name>.metrics.json`` beside ``<name>.evalset.json``."""

Options = dict[str, Any]

_JUDGED: Final = {
    "llm_final_response": "final_response_match_v2",
    "llm_hallucinations": "hallucinations_v1",
    "llm_rubric_response": "rubric_based_final_response_quality_v1",
    "llm_rubric_knowledge_recall": "rubric_based_tool_use_quality_v1",
}
_NEAREST: Final = {
    "llm_rubric_critic": "rubric_based_final_response_quality_v1 (its judge does not see the reference)",
    "llm_judge_template": "semantic_match_score with `custom_prompt`, or a `prompt_template` of an eval_config",
}
_MATCH_TYPES: Final = {  # by (order_sensitive, subset_matching)
    (True, False): "EXACT",
    (True, True): "IN_ORDER",
    (False, True): "ANY_ORDER",
    (False, False): "UNORDERED",
}
_GENERATION: Final = {"max_tokens": "max_output_tokens", "stream": None}
_LONGEST_NAME: Final = 80
_LONGEST_COUNT: Final = 1000  # RE2's limit on repetitions


class _RefusedError(Exception):
    """A part of a metric that cannot be measured the same way, its path, and the nearest criterion as a hint."""

    def __init__(self, at: JsonPath, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.at, self.hint = at, hint


def _read_trpc_metrics(source: Source, _: Path) -> Reading:
    """Read trpc-agent's metrics, with warnings about what is not compared or not read."""
    metrics: dict[str, CriterionSpec] = {}
    issues: list[Issue] = []
    noted: dict[str, JsonPath] = {}
    is_named = isinstance(source.value, Mapping)
    root: JsonPath = ("metrics",) if is_named else ()
    for number, entry in enumerate(source.value["metrics"] if is_named else source.value):
        at = (*root, number)
        name = _get(entry, "metric_name")
        if not isinstance(name, str):
            issues.append(Issue("a metric is an object with a name", at, shorten(entry)))
            continue
        name = name if name.isidentifier() and len(name) <= _LONGEST_NAME else shorten(name)
        notes: list[str] = []
        try:
            made = dict(_criteria(entry, notes.append))
        except _RefusedError as refused:
            message = f"{name}: {refused}"
            issues.append(Issue(message, (*at, *refused.at), hint=refused.hint))
            continue
        noted = dict.fromkeys(notes, at) | noted
        if twice := next((name for name in made if name in metrics), None):
            message = f"{name}: a second `{twice}`, of which a set has one"
            issues.append(Issue(message, at, hint="put it beside another eval set"))
        metrics |= {name: CriterionSpec(name, options, at, source) for name, options in made.items()}
    runs = source.value.get("num_runs") if is_named else None
    if runs not in (None, 1):
        noted[f"num_runs is not read; `repeats: {runs}` in agent-eval.yaml says it"] = ("num_runs",)
    warnings = [source.problem(place, message, severity="warning") for message, place in noted.items()]
    return list(metrics.values()), issues, warnings


def _get(value: Any, name: str, default: Any = None) -> Any:
    """A field by its snake_case name, spelled in snake_case or camelCase."""
    fields = value.items() if isinstance(value, Mapping) else ()
    return next((item for key, item in fields if snake_case(key) == name and item is not None), default)


def _require(value: Any, *known: str, at: JsonPath) -> None:
    """Refuse a value that is not an object or has keys that are not understood."""
    if not isinstance(value, Mapping):
        raise _RefusedError(at, "must be an object", shorten(value))
    for key, item in value.items():
        if snake_case(key) not in known and item not in (None, False, {}, []):
            raise _RefusedError(
                (*at, key), f"{shorten(key)} is not compared in this version", "write the criterion in test_config.json"
            )


def _match_strategy(value: Any, *known: str, at: JsonPath) -> Any:
    """The match strategy of a comparison; refuses keys other than that and ``known``."""
    _require(value, "match_strategy", "match", *known, at=at)
    return _get(value, "match_strategy") or _get(value, "match", "exact")


def _criteria(metric: Mapping[str, Any], note: Callable[[str], Any]) -> Iterator[tuple[str, Options]]:
    """The criteria that a metric translates to, with their options."""
    kind = _get(metric, "evaluator_name") or _get(metric, "metric_name")
    criterion, limit = _get(metric, "criterion", {}), _get(metric, "threshold")
    threshold = {} if limit is None else {"threshold": limit}
    at: JsonPath = ("criterion",)
    if kind == "tool_trajectory_avg_score":
        key, rules = _inner(criterion, "tool_trajectory")
        yield kind, threshold | _trajectory(rules, (*at, key), note)
    elif kind == "final_response_avg_score":
        key, rules = _inner(criterion, "final_response")
        for name, options in _texts(rules, (*at, key)):
            yield name, threshold | options
    elif isinstance(kind, str) and kind in _JUDGED:
        key, judged = _inner(criterion, "llm_judge")
        _require(judged, "judge_model", "rubrics", "knowledge_tool_names", at=(*at, key))
        if kind == "llm_rubric_knowledge_recall":
            note("the judge of llm_rubric_knowledge_recall sees every tool call with its result")
        rubrics = {"rubrics": _rubrics(judged, (*at, key))} if "rubric" in kind else {}
        yield _JUDGED[kind], threshold | _judge(_get(judged, "judge_model", {}), (*at, key), note) | rubrics
    else:
        nearest = _NEAREST.get(str(kind)) or "a function of yours in `custom_metrics` of a test_config.json"
        raise _RefusedError((), "is not measured in this version", f"the nearest is {nearest}")


def _inner(criterion: Any, name: str) -> tuple[str, Mapping[str, Any]]:
    """The metric's only criterion, with its key as written."""
    _require(criterion, name, at=("criterion",))
    key = next((key for key in criterion if snake_case(key) == name), name)
    return key, criterion.get(key) or {}


def _trajectory(rules: Mapping[str, Any], at: JsonPath, note: Callable[[str], Any]) -> Options:
    names = ("order_sensitive", "subset_matching", "default_strategy", "default", "tool_strategy")
    _require(rules, *names, at=at)
    match_type = _MATCH_TYPES[bool(_get(rules, "order_sensitive")), bool(_get(rules, "subset_matching"))]
    default = _get(rules, "default_strategy") or _get(rules, "default")
    arguments: dict[str, Options] = {}
    by_tool = _get(rules, "tool_strategy", {})
    if not isinstance(by_tool, Mapping):
        raise _RefusedError(at, "must be an object", shorten(by_tool))
    for tool, strategy in {"*": default, **by_tool}.items():
        if strategy is not None:
            place = at if tool == "*" else (*at, next(k for k in rules if snake_case(k) == "tool_strategy"), tool)
            _require(strategy, "name", "arguments", "result", at=place)
            if (how := _match_strategy(_get(strategy, "name", {}), at=(*place, "name"))) != "exact":
                raise _RefusedError((*place, "name"), f"names of tools are compared exactly, not by {shorten(how)}")
            arguments[tool] = _argument_rule(_get(strategy, "arguments"), (*place, "arguments"))
        if strategy is None or ((result := _get(strategy, "result")) and not _get(result, "ignore")):
            note("the results of tool calls are not compared, only the calls")
    return {"match_type": match_type, **({"arguments": arguments} if any(arguments.values()) else {})}


def _argument_rule(strategy: Any, at: JsonPath) -> Options:
    """How a tool's arguments are compared; without a strategy they are ignored."""
    if strategy is None or _get(strategy, "ignore"):
        return {"ignore": ["*"]}
    if (how := _match_strategy(strategy, "ignore_tree", "only_tree", "number_tolerance", at=at)) != "exact":
        raise _RefusedError(
            at, f"arguments are compared exactly, not by {shorten(how)}", "write `arguments` of the criterion"
        )
    rule = {
        "ignore": list(_places(_get(strategy, "ignore_tree", {}))),
        "only": list(_places(_get(strategy, "only_tree", {}))),
        "tolerance": _get(strategy, "number_tolerance", 0),
    }
    return {key: value for key, value in rule.items() if value}


def _places(tree: Any, above: str = "") -> Iterator[str]:
    """The paths that a tree of keys marks as true, like ``address.zip``."""
    for key, inner in tree.items() if isinstance(tree, Mapping) else ():
        if inner is True:
            yield above + key
        else:
            yield from _places(inner, f"{above}{key}.")


def _texts(rules: Mapping[str, Any], at: JsonPath) -> Iterator[tuple[str, Options]]:
    """The criteria for an answer's text: comparison with the reference, and length."""
    for other in ("rouge", "json"):
        if _get(rules, other):
            nearest = "response_match_score, the ROUGE-1 F-measure" if other == "rouge" else "answer_pattern"
            raise _RefusedError((*at, other), f"`{other}` is not measured in this version", f"the nearest is {nearest}")
    _require(rules, "text", at=at)
    text, place = _get(rules, "text", {}), (*at, "text")
    how = _match_strategy(text, "case_insensitive", "ignore", "length", at=place)
    options = {"ignore_case": True} if _get(text, "case_insensitive") else {}
    if how == "regex":
        raise _RefusedError(place, "patterns in the references are not read", "the nearest is answer_pattern")
    if how not in ("exact", "contains", "skip"):
        raise _RefusedError(place, f"there is no way to compare texts by {shorten(how)}", "exact, contains or skip")
    if how != "skip" and not _get(text, "ignore"):
        yield "answer_exact_match" if how == "exact" else "answer_contains", options
    if length := _get(text, "length"):
        yield "answer_pattern", {"pattern": _length_pattern(length, (*place, "length"))}


def _length_pattern(length: Any, at: JsonPath) -> str:
    low, high = _get(length, "min") or 1, _get(length, "max")  # an empty text is not an answer
    counts = [low] if high is None else [low, high]
    if not all(isinstance(count, int) and 0 <= count <= _LONGEST_COUNT for count in counts):
        raise _RefusedError(at, f"lengths are compared up to {_LONGEST_COUNT} characters", "leave it out")
    return rf"(?s)\A.{{{low},{'' if high is None else high}}}\z"


def _judge(model: Any, at: JsonPath, note: Callable[[str], Any]) -> Options:
    """The judge's options. Its address and key are never read from a file; the gate's configuration sets them."""
    if not isinstance(model, Mapping) or not model:
        return {}
    options: Options = {}
    named, provider = str(_get(model, "model_name", "")), _get(model, "provider_name", "openai")
    if _get(model, "base_url") or _get(model, "api_key"):
        note("a judge's address and key are not read from the file: set OPENAI_BASE_URL and OPENAI_API_KEY")
    if "${" in f"{named}{provider}":
        note("the name of a judge model is in a variable, which is not read: the default model is asked")
    elif named:
        options["judge_model"] = f"{provider}/{named}" if provider == "openai" else named
    if samples := _get(model, "num_samples"):
        options["num_samples"] = samples
    generation = _get(model, "generation_config", {})
    _require(generation, *map(snake_case, generation if isinstance(generation, Mapping) else ()), at=at)
    given = {snake_case(key): value for key, value in generation.items()}
    config = {_GENERATION.get(key, key): value for key, value in given.items() if _GENERATION.get(key, key)}
    return {"judge_model_options": options | ({"judge_model_config": config} if config else {})}


def _rubrics(judged: Mapping[str, Any], at: JsonPath) -> list[Options]:
    """The metric's rubrics in ADK's form; none if the cases have them."""
    rubrics = _get(judged, "rubrics", [])
    if not isinstance(rubrics, list) or not all(isinstance(rubric, Mapping) for rubric in rubrics):
        raise _RefusedError((*at, "rubrics"), "must be a list of rubrics")
    return [
        {
            "rubric_id": str(_get(rubric, "id", number)),
            "rubric_content": {"text_property": _get(_get(rubric, "content"), "text")},
            "description": _get(rubric, "description"),
            "type": _get(rubric, "type"),
        }
        for number, rubric in enumerate(rubrics, 1)
    ]


_FOREIGN: Final = (
    (_is_eval_config, _read_eval_config),
    (_is_adk_rust, _read_adk_rust),
    (is_trpc_metrics, _read_trpc_metrics),
)
"""For each other tool: how to recognise its files, and how to read them."""


# --- every file of criteria ------------------------------------------------------------------------


def _refuse_live_mode(value: Any) -> None:
    """Live mode changes how the agent is driven, so a run without it would measure something else."""
    if value is not None:
        raise ValueError("live (bidirectional streaming) mode is known, but not in this version")


class _BesideCriteria(AdkModel):
    """The keys of a test_config.json besides its criteria."""

    criteria: None = None
    custom_metrics: dict[str, CustomMetric] = Field(default_factory=dict)
    user_simulator_config: UserSimulatorConfig | None = None
    live_model_config: Annotated[Any, AfterValidator(_refuse_live_mode)] = None


@dataclass(frozen=True, slots=True)
class CriteriaConfig:
    """A criteria file as read. Its shape is checked; ``criteria.build`` checks names and options of criteria."""

    specs: tuple[CriterionSpec, ...]
    user_simulator_config: UserSimulatorConfig | None = None
    warnings: tuple[Problem, ...] = ()


def load_criteria_file(path: Path, *, workspace: Path) -> CriteriaConfig:
    """Read a test_config.json or a criteria file of agents-cli, ADK-Rust or trpc-agent (JSON, or YAML by suffix).

    Raises ConfigError with all problems of the file.
    """
    source = Source.read(path, workspace=workspace, error=ConfigError)
    data, beside = source.value, _BesideCriteria()
    issues: list[Issue] = []
    specs: tuple[CriterionSpec, ...] = ()
    warnings = list(source.warnings)
    reads = next((reads for recognises, reads in _FOREIGN if recognises(data)), None)
    if reads:
        found, issues, noted = reads(source, workspace)
        specs = tuple(found)
        warnings += noted
    elif not isinstance(data, Mapping):
        issues = [Issue("a criteria config is a mapping with the key criteria", value=shorten(data))]
    else:
        others = {key: value for key, value in data.items() if key not in ("criteria", "$schema")}
        try:
            beside = _BesideCriteria.model_validate(set_values(others))
        except ValidationError as error:
            issues += issues_of(error, data, _BesideCriteria)
        specs, wrong = parse_criteria(data.get("criteria"), source=source, custom_metrics=beside.custom_metrics)
        issues += [replace(issue, at=("criteria", *issue.at)) for issue in wrong]
    if issues:
        problems = [source.problem(issue.at, issue.message, **issue.fields) for issue in issues]
        raise ConfigError(f"{path} is not a criteria config that can be used", problems=problems)
    for name in beside.custom_metrics.keys() - {spec.name for spec in specs}:
        message = f"custom metric {name} is not in criteria, so it never runs"
        warnings.append(source.problem(locate(data, ("custom_metrics", name)), message, severity="warning"))
    return CriteriaConfig(specs, beside.user_simulator_config, tuple(warnings))
