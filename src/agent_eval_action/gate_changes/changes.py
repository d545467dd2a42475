"""What a change does to the rules that judge it: found before any agent runs, reported first.

On an event of a change the base commit's rules hold, so that no change judges itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_eval_action.baseline.lookup import BaseBaseline
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.errors import AgentEnvironmentError, AgentEvalError, ConfigError
from agent_eval_action.gate_changes.base import BaseSnapshot, CommandContext, Discover, read_base, take_snapshot
from agent_eval_action.gate_changes.diff import apply_weakenings, match_snapshots, only_matched_agents, weakenings
from agent_eval_action.gate_changes.in_force import (
    agent_changes,
    agent_on_base,
    function_changes,
    plan_in_force,
    refuse_recordings,
    renamed_agents,
    settings_in_force,
)
from agent_eval_action.gate_changes.rules import setting_changes
from agent_eval_action.gate_changes.snapshot import case_identities, identities_of_plan
from agent_eval_action.git.repository import Repository
from agent_eval_action.results.case_matching import CaseMatches, match_cases
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.findings import Finding, FindingCode, text_note
from agent_eval_action.results.history import Accepted
from agent_eval_action.results.run_result import Conditions, RunResult
from agent_eval_action.run.base_agents import BaseUnavailable, write_tree
from agent_eval_action.run.plan import Plan
from agent_eval_action.run.resources import BaseMetricFunctions, custom_metrics


@dataclass(frozen=True)
class GateChanges:
    """The change under test beside its base commit.

    ``own`` are the settings as the change has them, ``settings`` those that the run is made and decided by: on an
    event of a change they are the base's, except for what describes the agent. ``unreadable`` says why there is no
    verdict on such an event: the base's rules cannot be read, and the change's own are never taken instead.
    """

    own: Settings
    settings: Settings
    base: BaseSnapshot | BaseUnavailable
    context: CommandContext
    notes: tuple[str, ...] = ()

    @property
    def unreadable(self) -> str:
        """Why nothing can be decided; "" where it can."""
        if not self.context.is_change or isinstance(self.base, BaseSnapshot):
            return ""
        hint = "" if self.base.commit else " (actions/checkout: fetch-depth: 2)"
        return f"the rules of the base commit hold for a change, and cannot be read: {self.base.reason}{hint}"

    @property
    def accepted(self) -> tuple[Accepted, ...]:
        """Changes of the agent that the base commit has accepted already."""
        return self.base.snapshot.accepted if isinstance(self.base, BaseSnapshot) else ()

    @property
    def base_eval_files(self) -> tuple[str, ...]:
        """Eval files of the base commit, from the workspace."""
        sets = self.base.snapshot.sets if isinstance(self.base, BaseSnapshot) else ()
        return tuple(dict.fromkeys(item.path for item in sets))

    @property
    def in_force(self) -> BaseSnapshot | None:
        """The base where its rules hold; None where the checkout's own do."""
        return self.base if self.context.is_change and isinstance(self.base, BaseSnapshot) else None

    @property
    def stored(self) -> BaseBaseline | None:
        """What the base commit has stored, where its rules hold; None: the checkout's own holds."""
        base = self.in_force
        return BaseBaseline(base.commit, base.snapshot.baseline) if base else None

    def brought_along(self, path: Path) -> bool:
        """Whether a file of the workspace is the change's own, on an event of a change; it must not judge."""
        return self.in_force is not None and self.in_force.source.brought_along(path)

    def plan_in_force(self, plan: Plan, agents: Sequence[AgentSettings]) -> Plan:
        """The plan with the base's criteria, where those hold. Raises ConfigError and EvalFileError."""
        base = self.in_force
        if base is None:
            return plan
        matches = self._matches(base, plan)
        refuse_recordings(agents, base, renamed_agents(plan, base, matches))
        return plan_in_force(plan, base, matches, self.settings.policy, self.settings.workspace)

    def agents_on_base(self, plan: Plan, agents: Sequence[AgentSettings]) -> dict[str, AgentSettings]:
        """The base's agents by what they are called now: a renamed one is known by its cases."""
        base = self.base
        if isinstance(base, BaseUnavailable):
            return {}
        renamed = renamed_agents(plan, base, self._matches(base, plan))
        found = {agent.name: agent_on_base(agent, base.agents, renamed) for agent in agents}
        return {name: then for name, then in found.items() if then is not None}

    @staticmethod
    def _matches(base: BaseSnapshot, plan: Plan) -> CaseMatches:
        return match_cases(case_identities(base.snapshot.sets), identities_of_plan(plan))

    def open_functions(self, plan: Plan, agents: Sequence[AgentSettings]) -> BaseMetricFunctions | None:
        """The base's files, where criteria in force name functions of the user's: their bodies are the base's too.

        The answer's ``tree`` must be released. Raises AgentEnvironmentError where they cannot be had. Blocks.
        """
        base = self.in_force
        if base is None or not any(in_force for in_force, _ in custom_metrics(plan).values()):
            return None
        commit = replace(base.source, settings=self.settings)
        try:
            tree = write_tree(commit)
        except (OSError, ValueError) as error:
            message = f"the metric functions of the base commit {base.commit[:10]} cannot be had: {error}"
            raise AgentEnvironmentError(message) from error
        here, there = self.settings.workspace, tree.workspace
        agents_there = {
            name: then.model_copy(update={"path": there / then.path.relative_to(here), "name": name})
            for name, then in self.agents_on_base(plan, agents).items()
        }
        changed = tuple(function_changes(plan, {agent.name: agent.path for agent in agents}, agents_there, here, there))
        return BaseMetricFunctions(commit, tree, agents_there, changed)

    def weakened(
        self, plan: Plan | None, agents: Sequence[AgentSettings]
    ) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
        """Every weakening, and notes. ``plan``: of the whole suite as the change has it, None for a narrowed run."""
        base = self.base
        if isinstance(base, BaseUnavailable):
            return (), ()
        try:
            head = take_snapshot(self.own, self.context, plan)
        except AgentEvalError as error:
            text = f"what this change does to the rest of the suite is not known: {error.message}"
            return (), (text_note(text),)
        then = only_matched_agents(base.snapshot, head) if base.chosen_agents_lack else base.snapshot
        found = weakenings(then, head, with_merge=self.context.is_change)
        if not self.context.is_change:
            return found, ()
        others, notes = setting_changes(self.own, base.settings)
        renamed = match_snapshots(then, head).current_agent
        described = agent_changes(agents, base.agents, renamed, base.settings.workspace)
        return (*described, *found, *others), notes

    def apply_to(
        self,
        decision: Decision,
        plan: Plan | None,
        agents: Sequence[AgentSettings],
        functions: BaseMetricFunctions | None = None,
    ) -> Decision:
        """Return the decision with what the change does to the gate. ``plan`` as ``weakened`` takes it.

        ``functions``: those of the base that scored this run.
        """
        found, notes = self.weakened(plan, agents)
        found = (*found, *(functions.changed if functions else ()))
        decision = apply_weakenings(decision, found, self.settings.policy.on_weakened)
        return decision.model_copy(update={"notes": (*map(text_note, self.notes), *notes, *decision.notes)})

    def undecided(self, started_at: str, conditions: Conditions) -> RunResult:
        """The result of a change whose base cannot be read: nothing was run, and it is no pass."""
        reason = Finding(code=FindingCode.TEXT, severity="inconclusive", data={"text": self.unreadable})
        decision = Decision(outcome=Verdict.INCONCLUSIVE, reasons=(reason,))
        under = conditions.model_copy(update={"fail_on": self.context.fail_on})
        return RunResult(started_at=started_at, conditions=under, decision=decision)


def detect_changes(
    settings: Settings,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    discover: Discover,
    *,
    base: str | None,
    is_change: bool,
) -> GateChanges:
    """Read the side of the commit ``base`` out of git; nothing is run.

    Never raises for what is wrong there. Raises ConfigError where the change fills the cache that is in force.
    """
    context = CommandContext(flags, environ, cwd, discover, base, is_change)
    found = read_base(settings, context)
    if isinstance(found, BaseUnavailable):
        broken = found.commit is not None and not context.is_change
        return GateChanges(settings, settings, found, context, (found.reason,) if broken else ())
    if not context.is_change:
        return GateChanges(settings, settings, found, context, found.notes)
    in_force = settings_in_force(settings, found.settings)
    _refuse_kept_files(settings, in_force, environ)
    return GateChanges(settings, in_force, found, context, (*_notes(found, settings, in_force), *found.notes))


def _refuse_kept_files(own: Settings, in_force: Settings, environ: Mapping[str, str]) -> None:
    """Raise ConfigError where the change brings along what is read from the cache, which lies where main has it."""
    folder = in_force.cache_dir
    if folder == own.cache_dir or not folder.is_relative_to(own.workspace):  # looked at before the run
        return
    if Repository(own.workspace, environ).has_files_in(folder):
        name = folder.relative_to(own.workspace)
        raise ConfigError(f"{name} is in git: what is kept there would judge the change", hint=f"git rm -r {name}")


def _notes(base: BaseSnapshot, own: Settings, in_force: Settings) -> tuple[str, ...]:
    if in_force == own:
        return ()
    return (f"the rules are those of the base commit {base.commit[:10]}, not the ones this change brings along",)
