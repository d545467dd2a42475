"""Metrics of Google's agents-cli (``eval_config.yaml``): which run, and what each of them is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError

from agent_eval_action.diagnostics.reader import JsonPath, Source, read_bytes
from agent_eval_action.diagnostics.validation import Issue, issues_of
from agent_eval_action.errors import ConfigError, Problem, Unreadable
from agent_eval_action.results.base import Frozen

MetricKind = Literal["function", "prompt", "computed", "managed"]
"""What scores a metric: a function of the user's, a judge by the user's prompt, arithmetic, or Vertex AI."""

MAX_CODE: Final = 1 << 20
"""Bytes of a criteria file that names functions, and of the code of one."""


def _refuse_rubric_group(_: Any) -> Any:
    raise ValueError("is refused by agents-cli as well; use metric_spec_parameters: {rubric_group_key: ...}")


class _Parameters(Frozen):
    rubric_group_key: str | None = None


class _Metric(Frozen):
    """An entry of ``custom_metrics``. Without a prompt and a function it gives parameters to a metric of Vertex AI."""

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
        """The options of the criterion. ``source``: the code of a function."""
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


@dataclass(frozen=True, slots=True)
class ConfiguredMetric:
    """A metric that runs: its name in results (lower case, as in agents-cli's), its options, its place in the file."""

    name: str
    kind: MetricKind
    options: dict[str, Any] = field(default_factory=dict)
    at: JsonPath = ()


class _EvalConfig(Frozen):
    metrics_to_run: tuple[str, ...] = ()
    custom_metrics: tuple[_Metric, ...] = ()


def is_eval_config(value: Any) -> bool:
    """Whether a criteria file is one of agents-cli."""
    return isinstance(value, Mapping) and "criteria" not in value and "metrics_to_run" in value


def kind_of(name: str) -> MetricKind:
    """What scores a metric that is named without an entry of its own."""
    plain = name.lower()
    return "computed" if plain in {"exact_match", "bleu"} or plain.startswith("rouge") else "managed"


def read_eval_config(source: Source, workspace: Path) -> tuple[list[ConfiguredMetric], list[Issue], list[Problem]]:
    """The metrics that run, what is wrong with the file, and warnings about it."""
    try:
        config = _EvalConfig.model_validate(source.value)
    except ValidationError as error:
        return [], list(issues_of(error, source.value, _EvalConfig)), []
    entries = {metric.name: (number, metric) for number, metric in enumerate(config.custom_metrics)}
    metrics: list[ConfiguredMetric] = []
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
        metrics.append(ConfiguredMetric(name.lower(), metric.kind(), metric.options(code), at))
    return metrics, issues, warnings


def function_files(path: Path, workspace: Path) -> tuple[Path, ...]:
    """The files with the code of a criteria file's metric functions; () where it is no eval_config or cannot be read.

    Entries that do not run count as well: they say as much about what is scored.
    """
    try:
        value = Source.read(path, workspace=workspace, error=ConfigError).value
    except ConfigError:  # reported where the criteria are loaded
        return ()
    entries = value.get("custom_metrics") if is_eval_config(value) else None
    named = [
        entry["custom_function_file"]
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, Mapping) and isinstance(entry.get("custom_function_file"), str)
    ]
    return tuple(Path(os.path.normpath(path.parent / name)) for name in named if "\0" not in name)


def _code_of(metric: _Metric, folder: Path, workspace: Path) -> str:
    """The code of a metric's function, "" of other metrics. Raises ValueError with what is wrong."""
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
