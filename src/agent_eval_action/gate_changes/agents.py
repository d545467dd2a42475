"""What describes an agent, before and after: it is the change's own, and each difference is named. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent_eval_action.config.agents import relative_name
from agent_eval_action.config.models import AgentSettings
from agent_eval_action.errors import ConfigError, Problem
from agent_eval_action.gate_changes.base import BaseSnapshot
from agent_eval_action.gate_changes.rules import counterpart
from agent_eval_action.results.findings import Finding, FindingCode, Subject, excerpt
from agent_eval_action.run.plan import Plan
from agent_eval_action.run.resources import custom_metrics

_FIELDS: Final = ("path", "driver", "recording", "python")
_BIN_PYTHON: Final = ("bin", "python")


def agent_on_base(agent: AgentSettings, base: BaseSnapshot, renamed: Mapping[str, str]) -> AgentSettings | None:
    """The base's agent that this one is: of its name, its folder, or its cases (``renamed``: new names by old)."""
    found = counterpart(agent, base.agents)
    if found is not None:
        return found
    return next((then for then in base.agents if renamed.get(then.name) == agent.name), None)


def refuse_recordings(agents: Iterable[AgentSettings], base: BaseSnapshot, renamed: Mapping[str, str]) -> None:
    """Raise ConfigError where a recording would stand in for an agent that runs live on the base."""
    problems = [
        Problem(
            base.settings.config or base.settings.workspace,
            f"the agent {agent.name} would be replayed from `{_place(agent.recording, base.settings.workspace)}`, and "
            f"on the base commit {base.commit[:10]} it runs: a recording is no answer of the agent to be merged",
            hint="remove recording: from the configuration of this change",
        )
        for agent in agents
        if agent.driver == "recorded"
        and (then := agent_on_base(agent, base, renamed)) is not None
        and then.driver != "recorded"
    ]
    if problems:
        raise ConfigError("a change cannot be judged by a recording", problems=problems)


def agent_changes(
    agents: Sequence[AgentSettings], base: BaseSnapshot, renamed: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Every difference in what describes an agent that the base has too."""
    return tuple(
        Finding(code=FindingCode.AGENT_CHANGED, severity="advisory", subject=Subject(agent=agent.name), data=data)
        for agent in agents
        if (then := agent_on_base(agent, base, renamed)) is not None
        for data in _differences(then, agent, base.settings.workspace)
    )


def function_changes(
    plan: Plan, folders: Mapping[str, Path], then: Mapping[str, AgentSettings], here: Path, there: Path
) -> Iterator[Finding]:
    """Files of metric functions in force that the change edits or removes. ``folders``: of the change's agents."""
    for agent, (in_force, _) in custom_metrics(plan).items():
        if agent not in then:
            continue
        for function in sorted(in_force):
            old = _module_file(function, then[agent].path, there)
            new = _module_file(function, folders[agent], here)
            if old is not None and (new is None or old.read_bytes() != new.read_bytes()):
                where = old.relative_to(there).as_posix()
                data = {"function": function, "file": where, "removed": new is None, "with_merge": True}
                subject = Subject(agent=agent)
                yield Finding(code=FindingCode.METRIC_CHANGED, severity="advisory", subject=subject, data=data)


def _module_file(function: str, folder: Path, workspace: Path) -> Path | None:
    """The file of the function's module: where it would be imported from beside the agent, in it or above it."""
    module = Path(*function.split(".")[:-1])
    for place in (folder.parent, folder, *folder.parents):
        for name in (module.with_suffix(".py"), module / "__init__.py"):
            file = place / name
            inside = place.is_relative_to(workspace) and file.resolve().is_relative_to(workspace.resolve())
            if inside and file.is_file():
                return file
    return None


def _differences(then: AgentSettings, now: AgentSettings, workspace: Path) -> Iterator[dict[str, Any]]:
    if then.name != now.name:
        yield {"field": "name", "old": {"text": excerpt(then.name, 80)}, "new": {"text": excerpt(now.name, 80)}}
    for field in _FIELDS:
        old, new = (_place(getattr(agent, field), workspace) for agent in (then, now))
        if old != new:
            yield {"field": field, "old": {"text": excerpt(old, 80)}, "new": {"text": excerpt(new, 80)}}
    for field in ("env", "install_env"):
        old_env, new_env = getattr(then, field), getattr(now, field)
        for name in sorted(old_env.keys() | new_env.keys()):
            before, after = (_variable(env, name) for env in (old_env, new_env))
            if before != after:
                yield {"field": field, "variable": name, "old": before, "new": after}


def _place(value: object, workspace: Path) -> str:
    """A path from the workspace; of a virtual environment its folder, whichever of both was configured."""
    if not isinstance(value, Path):
        return "" if value is None else str(value)
    path = value.parent.parent if value.parts[-2:] == _BIN_PYTHON else value
    return relative_name(path, workspace) if path.is_relative_to(workspace) else str(path)


def _variable(env: Mapping[str, str | None], name: str) -> dict[str, str]:
    """The value of a variable, or its state where it has none of its own."""
    if name not in env:
        return {"state": "unset"}
    value = env[name]
    return {"state": "job"} if value is None else {"text": excerpt(value, 80)}
