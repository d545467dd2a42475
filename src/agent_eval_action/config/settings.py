"""Settings: defaults < agent-eval.yaml < INPUT_* < flags, merged once; the environment is a parameter."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr

from agent_eval_action.config.assignment import AgentDefaults, AgentSettings, roster
from agent_eval_action.config.loader import (
    Given,
    Layer,
    config_base,
    file_layer,
    find_config,
    find_workspace,
    flag_layer,
    input_layer,
)
from agent_eval_action.config.options import BY_NAME, OPTIONS
from agent_eval_action.config.policy import FailOn, Policy
from agent_eval_action.config.types import EvalPattern, Where
from agent_eval_action.diagnostics.reader import did_you_mean
from agent_eval_action.errors import ConfigError, Problem
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.base import Frozen

__all__ = ["AgentDefaults", "AgentSettings", "Resolved", "Settings", "resolve"]


class Settings(Frozen):
    """Everything that is configured, once. Paths are absolute, times are seconds.

    ``agents`` is empty when none is configured: ``discovery`` finds them and gives each
    ``agent_defaults``. ``only_agents`` are names that a flag or an input asked for.
    ``evals`` are the run's eval files, () when they are to be discovered.
    ``config`` is the file that was read, None without one. ``start`` is where discovery looks: the
    folder that the file speaks for, without a file the current one.
    """

    workspace: Path
    start: Path
    config: Path | None = None
    agents: tuple[AgentSettings, ...] = ()
    only_agents: tuple[str, ...] = ()
    agent_defaults: AgentDefaults = AgentDefaults()
    evals: tuple[EvalPattern, ...] = ()
    baseline: Path
    baseline_store: Literal["auto", "file", "branch", "rerun"] = "auto"
    baseline_branch: str = "agent-eval-data"
    baseline_remote: str = "origin"
    baseline_runs: int = 20
    baseline_max_age: int = 30
    out: Path
    cache_dir: Path
    repeats: int = 1
    concurrency: int = 32
    max_time: float = 2700.0
    stall_timeout: float | None = None
    retries: int = 2
    reruns: Literal["auto", "on", "off"] = "auto"
    max_extra_runs: int | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    llm_concurrency: int = 96
    llm_requests_per_minute: dict[str, int] = Field(default_factory=dict)
    llm_tokens_per_minute: dict[str, int] = Field(default_factory=dict)
    llm_timeout_s: float = 60.0
    llm_retry_deadline: float = 120.0
    llm_cache: bool = True
    llm_prices: dict[str, dict[str, float]] = Field(default_factory=dict)
    llm_openai_base_url: str | None = None
    comment: Literal["update", "recreate", "changes", "off"] = "update"
    comment_detail: Literal["full", "scores"] = "full"
    comment_key: str | None = None
    redact: tuple[str, ...] = ()
    github_token: SecretStr | None = None
    ca_bundle: Path | None = None
    case: tuple[str, ...] = ()
    resume: Path | None = None
    allow_pull_request_target: bool = False
    strict: bool = False
    fail_on: FailOn = "inconclusive"
    policy: Policy = Policy()

    @property
    def adaptive(self) -> bool:
        """Whether what is in doubt is run again."""
        return self.reruns == "on" or (self.reruns == "auto" and self.repeats == 1)

    def output_folder(self, path: Path) -> OutputFolder:
        """A folder we write to, below which no link of the workspace is followed."""
        return OutputFolder.at(path, self.workspace)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, what to say about them, and where each given one came from.

    ``origins`` has an entry for every option somebody gave (its label is like ``INPUT_FAIL-ON``,
    ``agent-eval.yaml:4`` or ``--max-drop``); the rest are defaults.
    """

    settings: Settings
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    origins: Mapping[str, Where] = field(default_factory=dict)

    def refuse_unknown_rules(self, known: Collection[str]) -> None:
        """Raise ConfigError when ``gate.criteria`` names a criterion there is none of: its rules would hold nobody.

        ``known`` are the names of all criteria, which are a layer above.
        """
        where = self.origins.get("gate_criteria")
        problems = [
            where.problem(f"gate.criteria: there is no criterion {name}", hint=did_you_mean(name, known))
            for name in self.settings.policy.criteria
            if where and name not in known
        ]
        if problems:
            raise ConfigError("the configuration cannot be used", problems=tuple(problems))


def resolve(
    *, flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, files: bool = True, may_lack: bool = False
) -> Resolved:
    """Merge the layers. ``flags`` is keyed by option name; None is a flag nobody typed.

    ``files`` False: no agent-eval.yaml is looked for, as where a stranger could have laid one. ``may_lack``:
    agents without their folder are left out, as in an earlier commit that does not have it yet.

    Raises ConfigError with every problem of the file, the inputs and the flags at once.
    """
    here = cwd.resolve()
    workspace = find_workspace(here, environ)
    typed = flag_layer(flags, environ, here)
    inputs = input_layer(environ, workspace)
    over = {**inputs.given, **typed.given}
    named = over.get("config")
    wanted = named.value if named else None
    config = find_config(wanted, named.where.label if named else "", here, workspace) if files or named else None
    file = file_layer(config, workspace, environ) if config else Layer()
    chosen = typed.agents if "agent" in typed.given else inputs.agents
    agents = roster(file.agents, chosen, file.given, over, workspace, may_lack=may_lack)
    problems = [*file.problems, *inputs.problems, *typed.problems, *agents.problems, *_outside(file, workspace)]
    if problems:
        raise ConfigError("the configuration cannot be used", problems=tuple(problems))
    given = {**file.given, **over}
    if "strict" in given and given["strict"].value:
        strict = {option.name: Given(option.strict, given["strict"].where) for option in OPTIONS if option.strict}
        given = {**strict, **given}
    settings = Settings(
        workspace=workspace,
        start=config_base(config, workspace) if config else here,
        config=config,
        agents=agents.agents,
        only_agents=tuple(agent.name for agent in agents.agents) if "agent" in over else (),
        agent_defaults=agents.defaults,
        policy=_policy(given, (file, inputs, typed)),
        **_plain_values(given, workspace),
    )
    origins = {name: value.where for name, value in given.items()}
    note = f"configuration: {config.relative_to(workspace)}" if config and config.is_relative_to(workspace) else None
    notes = (note or (f"configuration: {config}" if config else "no configuration file: defaults"),)
    return Resolved(settings, notes, (*file.warnings, *inputs.warnings), origins)


_PLACED = ("baseline", "out", "cache_dir")
_PLAIN_RULES = tuple(name for name in Policy.model_fields if name not in {"criteria", "sets"})
_ELSEWHERE = ("config", "agent", *_PLAIN_RULES, "gate_criteria", "gate_sets")


def _plain_values(given: Mapping[str, Given], workspace: Path) -> dict[str, Any]:
    """The fields of Settings that are an option's value as it is; Settings' own defaults for the rest."""
    names = [o.name for o in OPTIONS if (o.scope != "agent" or o.name == "evals") and o.name not in _ELSEWHERE]
    values: dict[str, Any] = {o.name: workspace / o.default for o in OPTIONS if o.name in _PLACED}
    values |= {name: given[name].value for name in names if name in given}
    return values | {name: _absolute(values[name]) for name in _PLACED}


def _absolute(path: Path) -> Path:
    """Without ``..``, which would mean something else behind a link."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() follows links


def _outside(file: Layer, workspace: Path) -> Iterator[Problem]:
    """What the file places outside of the workspace: only whoever starts the run may, by a flag or an input."""
    for name in _PLACED:
        given = file.given.get(name)
        if given is not None and not _absolute(given.value).is_relative_to(workspace):
            option = BY_NAME[name]
            message = f"{option.key} must stay inside the workspace {workspace}"
            hint = f"a place elsewhere is named by the flag {option.flag} or the input {option.input}"
            yield given.where.problem(message, value=str(given.value), hint=hint)


def _policy(given: Mapping[str, Given], layers: tuple[Layer, ...]) -> Policy:
    """The general rules, and over them the rules of single criteria, which layers change rule by rule."""
    policy = Policy(**{name: given[name].value for name in _PLAIN_RULES if name in given})
    sets = {name: mode for layer in layers if (own := layer.given.get("gate_sets")) for name, mode in own.value.items()}
    rules: dict[str, dict[str, Any]] = {}
    for layer in layers:
        own = layer.given.get("gate_criteria")
        for criterion, changes in own.value.items() if own else ():
            rules.setdefault(criterion, {}).update(changes)
    criteria = {name: policy.inherited(name).model_copy(update=rules[name]) for name in sorted(rules)}
    return policy.model_copy(update={"criteria": criteria, "sets": dict(sorted(sets.items()))})
