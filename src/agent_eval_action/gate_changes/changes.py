"""Detect a change's effect on the rules that judge it, before any agent runs.

In CI runs of a change the base commit's settings and criteria apply, so that no change judges itself. Options that
describe the agent are the change's; their differences are reported.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_eval_action.baseline.history_session import BaseBaseline
from agent_eval_action.config.models import AgentDefaults, AgentSettings, CriterionPolicy, Mode, Policy, Settings
from agent_eval_action.config.option_info import is_looser
from agent_eval_action.config.options import AGENT_ENTRY, AGENT_OPTIONS, JUDGING_OPTIONS
from agent_eval_action.errors import AgentEnvironmentError, AgentEvalError, ConfigError, EvalFileError, Problem
from agent_eval_action.folders import relative
from agent_eval_action.gate_changes.diff import apply_weakenings, match_snapshots, setting_changes, weakenings
from agent_eval_action.gate_changes.snapshot import (
    BaseSnapshot,
    CommandContext,
    case_identities,
    read_base,
    take_snapshot,
)
from agent_eval_action.git.repository import Repository
from agent_eval_action.results.case_matching import CaseMatches, match_cases
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.findings import Finding, FindingCode, Subject, excerpt, finding, text_note
from agent_eval_action.results.run_result import Conditions, CriterionInfo, RunResult
from agent_eval_action.run.base_agents import BaseUnavailable, write_tree
from agent_eval_action.run.loader import unscorable_cases
from agent_eval_action.run.plan import Plan, PlannedSet, planned_digest
from agent_eval_action.run.resources import BaseMetricFunctions, custom_metrics


@dataclass(frozen=True)
class GateChanges:
    """The change under test and its base commit.

    ``own``: the settings as the change has them. ``settings``: those that apply to the run; for a change these are the
    base's, except for options that describe the agent. ``unreadable``: why a change gets no verdict: the base's rules
    cannot be read, and the change's own never replace them.
    """

    own: Settings
    settings: Settings
    base: BaseSnapshot | BaseUnavailable
    context: CommandContext
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> BaseSnapshot | None:
        """The base; None if it cannot be read."""
        return self.base if isinstance(self.base, BaseSnapshot) else None

    @property
    def unreadable(self) -> str:
        """Why nothing can be decided, or ""."""
        if not self.context.event.is_change or isinstance(self.base, BaseSnapshot):
            return ""
        hint = "" if self.base.commit else f" ({self.context.event.clone_hint.format(2)})"
        return f"the rules of the base commit hold for a change, and cannot be read: {self.base.reason}{hint}"

    @property
    def in_force(self) -> BaseSnapshot | None:
        """The base if its rules apply; None if the checkout's own do."""
        return self.known if self.context.event.is_change else None

    @property
    def stored(self) -> BaseBaseline | None:
        """The base commit's stored baseline if the base's rules apply; None: use the checkout's own."""
        base = self.in_force
        return BaseBaseline(base.source.commit, base.snapshot.baseline) if base else None

    def brought_along(self, path: Path) -> bool:
        """Whether the run is for a change that may have written this workspace file; such a file must not judge."""
        return self.in_force is not None and self.in_force.source.brought_along(path)

    def plan_in_force(self, plan: Plan, agents: Sequence[AgentSettings]) -> Plan:
        """The plan with the base's criteria if those apply. Raises ConfigError and EvalFileError."""
        base = self.in_force
        if base is None:
            return plan
        matches = _matches(plan, base)
        refuse_recordings(agents, base, renamed_agents(plan, base, matches))
        return plan_in_force(plan, base, matches, self.settings.policy, self.settings.workspace)

    def settings_for(self, plan: Plan) -> Settings:
        """The settings for deciding about a plan. If the base's rules apply, sets have their modes of the base.

        Renamed sets keep their mode, so that renaming a file cannot move a case to a weaker one.
        """
        base, policy = self.in_force, self.settings.policy
        if base is None or not policy.sets:
            return self.settings
        partners = _partners(plan, base.sets, _matches(plan, base))
        modes: dict[str, Mode] = {}
        for planned in plan.sets:
            then = partners[planned.agent, planned.key]
            mode = policy.sets.get(then.key if then else planned.key, "blocking")
            known = modes.setdefault(planned.key, mode)  # of another agent's set with the same key
            if is_looser(CriterionPolicy, "mode", mode, known):
                modes[planned.key] = mode
        return self.settings.model_copy(update={"policy": policy.model_copy(update={"sets": modes})})

    def agents_on_base(self, plan: Plan, agents: Sequence[AgentSettings]) -> dict[str, AgentSettings]:
        """The base's agents by their current names; renamed agents are matched by their cases."""
        base = self.known
        if base is None:
            return {}
        renamed = renamed_agents(plan, base, _matches(plan, base))
        found = {agent.name: agent_on_base(agent, base.agents, renamed) for agent in agents}
        return {name: then for name, then in found.items() if then is not None}

    def open_functions(self, plan: Plan, agents: Sequence[AgentSettings]) -> BaseMetricFunctions | None:
        """The base's files, if criteria in force name custom functions, whose code must be the base's as well.

        The caller must release the result's ``tree``. Raises AgentEnvironmentError if it cannot be read. Blocks.
        """
        base = self.in_force
        if base is None or not any(in_force for in_force, _ in custom_metrics(plan).values()):
            return None
        commit = replace(base.source, settings=self.settings)
        try:
            tree = write_tree(commit)
        except (OSError, ValueError) as error:
            message = f"the metric functions of the base commit {base.source.commit[:10]} cannot be had: {error}"
            raise AgentEnvironmentError(message) from error
        here, there = self.settings.workspace, tree.workspace
        agents_there = {
            name: then.model_copy(update={"path": there / then.path.relative_to(here), "name": name})
            for name, then in self.agents_on_base(plan, agents).items()
        }
        changed = tuple(function_changes(plan, {agent.name: agent.path for agent in agents}, agents_there, here, there))
        return BaseMetricFunctions(commit, tree, agents_there, changed)

    def apply_to(
        self,
        decision: Decision,
        plan: Plan | None,
        agents: Sequence[AgentSettings],
        functions: BaseMetricFunctions | None = None,
    ) -> Decision:
        """Return the decision with the change's effects on the gate.

        ``plan``: the change's whole suite, None for a narrowed run. ``functions``: the base's, which scored this run.
        """
        found = [*self._findings(plan, agents), *(functions.changed if functions else ())]
        notes = [item for item in found if item.severity == "note"]
        weakened = [item for item in found if item.severity != "note"]
        decision = apply_weakenings(decision, weakened, self.settings.policy.on_weakened)
        return decision.model_copy(update={"notes": (*map(text_note, self.notes), *notes, *decision.notes)})

    def _findings(self, plan: Plan | None, agents: Sequence[AgentSettings]) -> Iterator[Finding]:
        base, is_change = self.known, self.context.event.is_change
        if base is None:
            return
        try:
            head = take_snapshot(self.own, self.context, plan)
        except AgentEvalError as error:
            text = f"what this change does to the rest of the suite is not known: {error.message}"
            yield finding("advisory", FindingCode.TEXT, text=text)
            return
        then = base.snapshot
        if base.chosen_agents_lack:  # a run of selected agents says nothing about agents without cases in it
            matched = {key.agent for key in match_snapshots(then, head).current_key}
            then = replace(then, sets=tuple(item for item in then.sets if item.agent in matched))
        if is_change:
            renamed = match_snapshots(then, head).current_agent
            yield from agent_changes(agents, base.agents, renamed, base.settings.workspace)
        yield from weakenings(then, head, with_merge=is_change)
        if is_change:
            yield from setting_changes(self.own, base.settings)

    def undecided(self, started_at: str, conditions: Conditions) -> RunResult:
        """The inconclusive result of a change whose base cannot be read; nothing was run."""
        reason = finding("inconclusive", FindingCode.TEXT, text=self.unreadable)
        decision = Decision(outcome=Verdict.INCONCLUSIVE, reasons=(reason,))
        under = conditions.model_copy(update={"fail_on": self.context.fail_on})
        return RunResult(started_at=started_at, conditions=under, decision=decision)


def detect_changes(settings: Settings, context: CommandContext) -> GateChanges:
    """Read the base commit's side from git, without running anything.

    Problems there are not raised. Raises ConfigError if the change commits files to the cache that is in force.
    """
    found = read_base(settings, context)
    if isinstance(found, BaseUnavailable):
        broken = found.commit is not None and not context.event.is_change
        return GateChanges(settings, settings, found, context, (found.reason,) if broken else ())
    if not context.event.is_change:
        return GateChanges(settings, settings, found, context, found.notes)
    in_force = settings_in_force(settings, found.settings)
    folder = in_force.cache_dir
    if folder != settings.cache_dir and folder.is_relative_to(settings.workspace):  # its own was checked before
        name, repository = folder.relative_to(settings.workspace), Repository(settings.workspace, context.environ)
        if repository.has_files_in(folder):
            raise ConfigError(f"{name} is in git: what is kept there would judge the change", hint=f"git rm -r {name}")
    commit = found.source.commit[:10]
    differs = f"the rules are those of the base commit {commit}, not those of this change"
    notes = found.notes if in_force == settings else (differs, *found.notes)
    return GateChanges(settings, in_force, found, context, notes)


# --- the settings in force for a change ------------------------------------------------------------


def _matches(plan: Plan, base: BaseSnapshot) -> CaseMatches:
    return match_cases(case_identities(base.snapshot.sets), case_identities(plan.sets))


def settings_in_force(own: Settings, base: Settings) -> Settings:
    """The settings in force for a change: each option says whether the base's or the change's value applies."""

    def of_base(agent: AgentDefaults) -> dict[str, Any]:
        return {option.name: getattr(agent, option.name) for option in AGENT_OPTIONS if option.of_base}

    agents = []
    for agent in own.agents:
        then = agent_on_base(agent, base.agents)
        agents.append(agent.model_copy(update=of_base(then)) if then else agent)
    return own.model_copy(
        update={
            **{option.field[0]: getattr(base, option.field[0]) for option in JUDGING_OPTIONS},
            "redact": tuple(dict.fromkeys((*base.redact, *own.redact))),
            "agents": tuple(agents),
            "agent_defaults": own.agent_defaults.model_copy(update=of_base(base.agent_defaults)),
        }
    )


def agent_on_base(
    agent: AgentSettings, base: Sequence[AgentSettings], renamed: Mapping[str, str] | None = None
) -> AgentSettings | None:
    """The base's version of an agent: by name, by folder, or by its cases (``renamed``: new names by old)."""
    by_name = [then for then in base if then.name == agent.name]
    by_folder = [then for then in base if then.path == agent.path]
    by_cases = [then for then in base if (renamed or {}).get(then.name) == agent.name]
    return next(iter((*by_name, *by_folder, *by_cases)), None)


def refuse_recordings(agents: Iterable[AgentSettings], base: BaseSnapshot, renamed: Mapping[str, str]) -> None:
    """Raise ConfigError if a recording would replace an agent that runs live on the base."""
    workspace, commit, problems = base.settings.workspace, base.source.commit[:10], []
    for agent in agents:
        then = agent_on_base(agent, base.agents, renamed) if agent.driver == "recorded" else None
        if then is not None and then.driver != "recorded":
            text = (
                f"the agent {agent.name} would be replayed from `{_as_text(agent.recording, workspace)}`, and on the "
                f"base commit {commit} it runs: a recording is no answer of the agent to be merged"
            )
            hint = "remove recording: from the configuration of this change"
            problems.append(Problem(base.settings.config or workspace, text, hint=hint))
    if problems:
        raise ConfigError("a change cannot be judged by a recording", problems=problems)


def _as_text(value: object, workspace: Path) -> str:
    """A path relative to the workspace; for a virtual environment its folder, even if its interpreter is configured."""
    if isinstance(value, tuple):
        return shlex.join(value)
    if not isinstance(value, Path):
        return "" if value is None else str(value)
    path = value.parent.parent if value.parts[-2:] == ("bin", "python") else value
    return relative(path, workspace)


def plan_in_force(plan: Plan, base: BaseSnapshot, matches: CaseMatches, policy: Policy, workspace: Path) -> Plan:
    """The change's plan with the base's criteria and simulated users.

    Sets and criteria that only the change has stay, marked as added: they are measured but block nothing. Raises
    EvalFileError for cases that a criterion of the base can never score.
    """
    partners = _partners(plan, base.sets, matches)
    problems: list[Problem] = []
    sets = []
    for planned in plan.sets:
        then = partners[planned.agent, planned.key]
        if then is None:
            # new cases must meet thresholds whichever file holds them
            added = planned if policy.new_cases == "block" else replace(planned, infos=_mark_added(planned.infos))
            sets.append(added)
            continue
        problems += unscorable_cases((item.case for item in planned.cases), then.criteria, workspace / planned.path)
        known, cases = {info.name for info in then.infos}, planned.cases
        if planned.simulator != then.simulator:
            cases = tuple(replace(item, digest=planned_digest(item.case, then.simulator)) for item in cases)
        both = zip(planned.criteria, planned.infos, strict=True)
        new = [(criterion, info) for criterion, info in both if info.name not in known]
        criteria = (*then.criteria, *(criterion for criterion, _ in new))
        infos = (*then.infos, *_mark_added(info for _, info in new))
        sets.append(replace(planned, cases=cases, criteria=criteria, infos=infos, simulator=then.simulator))
    if problems:
        text = f"the eval files do not fit the criteria of the base commit {base.source.commit[:10]}, which hold here"
        raise EvalFileError(text, problems=problems)
    return replace(plan, sets=tuple(sets))


def renamed_agents(plan: Plan, base: BaseSnapshot, matches: CaseMatches) -> dict[str, str]:
    """The current names of the base's agents: by their cases, else by their eval files."""
    partners = _partners(plan, base.sets, matches)
    by_file = {then.agent: agent for (agent, _), then in partners.items() if then is not None}
    return {**by_file, **matches.current_agent}


def _partners(plan: Plan, sets: Iterable[PlannedSet], matches: CaseMatches) -> dict[tuple[str, str], PlannedSet | None]:
    """The base's set for each set of the plan: the one with most of its cases, else of its name, else of its file."""
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


def _mark_added(infos: Iterable[CriterionInfo]) -> tuple[CriterionInfo, ...]:
    return tuple(info.model_copy(update={"added": True}) for info in infos)


def agent_changes(
    agents: Sequence[AgentSettings], base: Sequence[AgentSettings], renamed: Mapping[str, str], workspace: Path
) -> Iterator[Finding]:
    """Every difference in what describes an agent that the base has too. ``renamed``: new names by old."""

    def texts(value: object) -> Mapping[str, str | None]:
        return value if isinstance(value, Mapping) else {"": _as_text(value, workspace)}

    def shown(of_field: Mapping[str, str | None], variable: str) -> dict[str, str]:
        text = of_field.get(variable)
        if text is None:
            return {"state": "job" if variable in of_field else "unset"}
        return {"text": excerpt(text, 80)}

    for agent in agents:
        then = agent_on_base(agent, base, renamed)
        for field in (option.name for option in AGENT_ENTRY.values() if option.info.describes_agent and then):
            old, new = texts(getattr(then, field)), texts(getattr(agent, field))
            for name in sorted(old.keys() | new.keys()):
                if (name in old, old.get(name)) != (name in new, new.get(name)):
                    which = {"field": field, **({"variable": name} if name else {})}
                    data = {**which, "old": shown(old, name), "new": shown(new, name)}
                    yield finding("advisory", FindingCode.AGENT_CHANGED, Subject(agent=agent.name), **data)


def function_changes(
    plan: Plan, folders: Mapping[str, Path], then: Mapping[str, AgentSettings], here: Path, there: Path
) -> Iterator[Finding]:
    """Files of metric functions in force that the change edits or removes. ``folders``: the change's agents'."""
    for agent, (in_force, _) in custom_metrics(plan).items():
        for function in sorted(in_force) if agent in then else ():
            old = _module_file(function, then[agent].path, there)
            new = _module_file(function, folders[agent], here)
            if old is not None and (new is None or old.read_bytes() != new.read_bytes()):
                file = old.relative_to(there).as_posix()
                data = {"function": function, "file": file, "removed": new is None, "with_merge": True}
                yield finding("advisory", FindingCode.METRIC_CHANGED, Subject(agent=agent), **data)


def _module_file(function: str, folder: Path, workspace: Path) -> Path | None:
    """The file of the function's module, searched as an import would: beside the agent, in its folder, then above.

    None for a function whose code is an option of its criterion: there the option shows the change.
    """
    *parts, last = function.split(".")
    if not parts or not last.isidentifier():
        return None
    module = Path(*parts)
    for parent in (folder.parent, folder, *folder.parents):
        for name in (module.with_suffix(".py"), module / "__init__.py"):
            file = parent / name
            inside = parent.is_relative_to(workspace) and file.resolve().is_relative_to(workspace.resolve())
            if inside and file.is_file():
                return file
    return None
