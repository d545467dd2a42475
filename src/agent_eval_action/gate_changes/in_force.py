"""What is in force on an event of a change: the base commit's settings and criteria, and the change's agents.

Each difference in what describes an agent is named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from agent_eval_action.config.agents import relative_name
from agent_eval_action.config.models import AgentSettings, Policy, Settings
from agent_eval_action.errors import ConfigError, EvalFileError, Problem
from agent_eval_action.gate_changes.base import BaseSnapshot
from agent_eval_action.gate_changes.rules import OF_THE_CHANGE
from agent_eval_action.results.case_matching import CaseMatches
from agent_eval_action.results.findings import Finding, FindingCode, Subject, excerpt
from agent_eval_action.results.run_result import CriterionInfo
from agent_eval_action.run.loader import unscorable_cases
from agent_eval_action.run.plan import Plan, PlannedSet, planned_digest
from agent_eval_action.run.resources import custom_metrics

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def settings_in_force(own: Settings, base: Settings) -> Settings:
    """The settings of a change that asks to be merged: the base's, with what describes the change's agents.

    The time a turn may take is the base's.
    """
    judging = {name: getattr(base, name) for name in Settings.model_fields if name not in OF_THE_CHANGE}
    agents = []
    for agent in own.agents:
        then = agent_on_base(agent, base.agents)
        agents.append(agent.model_copy(update={"timeout_s": then.timeout_s}) if then else agent)
    return own.model_copy(
        update={
            **judging,
            "redact": tuple(dict.fromkeys((*base.redact, *own.redact))),
            "agents": tuple(agents),
            "agent_defaults": own.agent_defaults.model_copy(update={"timeout_s": base.agent_defaults.timeout_s}),
        }
    )


def agent_on_base(
    agent: AgentSettings, base: Iterable[AgentSettings], renamed: Mapping[str, str] = _NONE
) -> AgentSettings | None:
    """The base's agent that this one is: by name, by folder, or by its cases (``renamed``: new names by old)."""
    agents = list(base)
    by_name = [then for then in agents if then.name == agent.name]
    by_folder = [then for then in agents if then.path == agent.path]
    by_cases = [then for then in agents if renamed.get(then.name) == agent.name]
    return next(iter((*by_name, *by_folder, *by_cases)), None)


def refuse_recordings(agents: Iterable[AgentSettings], base: BaseSnapshot, renamed: Mapping[str, str]) -> None:
    """Raise ConfigError where a recording would stand in for an agent that runs live on the base."""
    workspace = base.settings.workspace
    problems = [
        Problem(
            base.settings.config or workspace,
            f"the agent {agent.name} would be replayed from `{_place(agent.recording, workspace)}`, and on the base "
            f"commit {base.commit[:10]} it runs: a recording is no answer of the agent to be merged",
            hint="remove recording: from the configuration of this change",
        )
        for agent in agents
        if agent.driver == "recorded"
        and (then := agent_on_base(agent, base.agents, renamed)) is not None
        and then.driver != "recorded"
    ]
    if problems:
        raise ConfigError("a change cannot be judged by a recording", problems=problems)


def _place(value: object, workspace: Path) -> str:
    """A path from the workspace; of a virtual environment its folder, whichever of both was configured."""
    if not isinstance(value, Path):
        return "" if value is None else str(value)
    path = value.parent.parent if value.parts[-2:] == ("bin", "python") else value
    return relative_name(path, workspace) if path.is_relative_to(workspace) else str(path)


def plan_in_force(plan: Plan, base: BaseSnapshot, matches: CaseMatches, policy: Policy, workspace: Path) -> Plan:
    """The plan of the change with the base's criteria and simulated users.

    A set or a criterion that only the change has is kept as the change has it and marked as added: it is measured
    and blocks nothing. Raises EvalFileError for cases that a criterion of the base can never score.
    """
    partners = _partners(plan, base.sets, matches)
    problems: list[Problem] = []
    sets = []
    for planned in plan.sets:
        then = partners[planned.agent, planned.key]
        if then is not None:
            cases = (item.case for item in planned.cases)
            problems += unscorable_cases(cases, then.criteria, workspace / planned.path)
            sets.append(_as_on_base(planned, then))
        elif policy.new_cases == "block":  # new cases have to meet thresholds whatever file they stand in
            sets.append(planned)
        else:
            sets.append(replace(planned, infos=_added(planned.infos)))
    if problems:
        text = f"the eval files do not fit the criteria of the base commit {base.commit[:10]}, which hold here"
        raise EvalFileError(text, problems=problems)
    return replace(plan, sets=tuple(sets))


def renamed_agents(plan: Plan, base: BaseSnapshot, matches: CaseMatches) -> dict[str, str]:
    """What agents of the base are called now: by their cases, else by their eval files."""
    partners = _partners(plan, base.sets, matches)
    by_file = {then.agent: agent for (agent, _), then in partners.items() if then is not None}
    return {**by_file, **matches.current_agent}


def _as_on_base(planned: PlannedSet, then: PlannedSet) -> PlannedSet:
    known = {info.name for info in then.infos}
    both = zip(planned.criteria, planned.infos, strict=True)
    added = [(criterion, info) for criterion, info in both if info.name not in known]
    cases = planned.cases
    if planned.simulator != then.simulator:
        cases = tuple(replace(item, digest=planned_digest(item.case, then.simulator)) for item in cases)
    return replace(
        planned,
        cases=cases,
        criteria=(*then.criteria, *(criterion for criterion, _ in added)),
        infos=(*then.infos, *_added(info for _, info in added)),
        simulator=then.simulator,
    )


def _partners(plan: Plan, sets: Iterable[PlannedSet], matches: CaseMatches) -> dict[tuple[str, str], PlannedSet | None]:
    """The base's set for each of the plan: the one most of its cases come from, else of its name, else of its file."""
    by_name = {(then.agent, then.key): then for then in sets}
    by_path = {then.path: then for then in sorted(sets, key=lambda then: then.agent)}
    origins: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
    for old, new in matches.current_key.items():
        origins[new[:2]][old[:2]] += 1
    found: dict[tuple[str, str], PlannedSet | None] = {}
    for planned in plan.sets:
        name = planned.agent, planned.key
        counts = origins[name]
        most = min(counts, key=lambda key: (-counts[key], key != name, key), default=name)
        found[name] = by_name.get(most) or by_name.get(name) or by_path.get(planned.path)
    return found


def _added(infos: Iterable[CriterionInfo]) -> tuple[CriterionInfo, ...]:
    return tuple(info.model_copy(update={"added": True}) for info in infos)


def agent_changes(
    agents: Sequence[AgentSettings], base: Sequence[AgentSettings], renamed: Mapping[str, str], workspace: Path
) -> tuple[Finding, ...]:
    """Every difference in what describes an agent that the base has too. ``renamed``: new names by old."""
    return tuple(
        Finding(code=FindingCode.AGENT_CHANGED, severity="advisory", subject=Subject(agent=agent.name), data=data)
        for agent in agents
        if (then := agent_on_base(agent, base, renamed)) is not None
        for data in _agent_differences(then, agent, workspace)
    )


def _agent_differences(then: AgentSettings, now: AgentSettings, workspace: Path) -> Iterator[dict[str, Any]]:
    for field in ("name", "path", "driver", "recording", "python"):
        old, new = (_place(getattr(agent, field), workspace) for agent in (then, now))
        if old != new:
            yield {"field": field, "old": {"text": excerpt(old, 80)}, "new": {"text": excerpt(new, 80)}}
    for field in ("env", "install_env"):
        old_env, new_env = getattr(then, field), getattr(now, field)
        for name in sorted(old_env.keys() | new_env.keys()):
            before, after = (_variable(env, name) for env in (old_env, new_env))
            if before != after:
                yield {"field": field, "variable": name, "old": before, "new": after}


def _variable(env: Mapping[str, str | None], name: str) -> dict[str, str]:
    """The value of a variable, or its state where it has none of its own."""
    if name not in env:
        return {"state": "unset"}
    value = env[name]
    return {"state": "job"} if value is None else {"text": excerpt(value, 80)}


def function_changes(
    plan: Plan, folders: Mapping[str, Path], then: Mapping[str, AgentSettings], here: Path, there: Path
) -> Iterator[Finding]:
    """Files of metric functions in force that the change edits or removes. ``folders``: of the change's agents."""
    for agent, (in_force, _) in custom_metrics(plan).items():
        for function in sorted(in_force) if agent in then else ():
            old = _module_file(function, then[agent].path, there)
            new = _module_file(function, folders[agent], here)
            if old is not None and (new is None or old.read_bytes() != new.read_bytes()):
                file = old.relative_to(there).as_posix()
                data = {"function": function, "file": file, "removed": new is None, "with_merge": True}
                subject = Subject(agent=agent)
                yield Finding(code=FindingCode.METRIC_CHANGED, severity="advisory", subject=subject, data=data)


def _module_file(function: str, folder: Path, workspace: Path) -> Path | None:
    """The file of the function's module: where it would be imported from beside the agent, in it or above it."""
    module = Path(*function.split(".")[:-1])
    for parent in (folder.parent, folder, *folder.parents):
        for name in (module.with_suffix(".py"), module / "__init__.py"):
            file = parent / name
            inside = parent.is_relative_to(workspace) and file.resolve().is_relative_to(workspace.resolve())
            if inside and file.is_file():
                return file
    return None
