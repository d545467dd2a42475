"""What a change does to what judges it: looked at before any agent runs, said first, and never its own judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_eval_action.baseline import accept
from agent_eval_action.baseline.file import FileStore
from agent_eval_action.baseline.place import Stored
from agent_eval_action.config.settings import Settings
from agent_eval_action.errors import AgentEvalError, ResultsError
from agent_eval_action.gate_changes.base import (
    BaseSnapshot,
    CommandContext,
    Discover,
    read_base,
    rules_in_force,
    take_snapshot,
)
from agent_eval_action.gate_changes.diff import apply_weakenings, weakenings
from agent_eval_action.model.baseline import Baseline
from agent_eval_action.model.decision import Finding
from agent_eval_action.model.history import Accepted
from agent_eval_action.model.result import RunResult
from agent_eval_action.run.arms import NoBase
from agent_eval_action.run.plan import Plan


@dataclass(frozen=True)
class GateChanges:
    """The change under test beside what it is made to.

    ``settings`` are those the run is decided by: the base's rules where a change asks to be merged.
    """

    own: Settings
    settings: Settings
    found: BaseSnapshot | NoBase
    context: CommandContext
    notes: tuple[str, ...] = ()

    @property
    def stored(self) -> Stored | None:
        """What the base commit has stored, where a change asks to be merged; None: the checkout's own holds."""
        if not self.context.merging or isinstance(self.found, NoBase) or self.found.snapshot is None:
            return None
        return Stored(self.found.commit, self.found.snapshot.baseline)

    @property
    def base_eval_files(self) -> tuple[str, ...]:
        """Eval files of the base commit, from the workspace."""
        if isinstance(self.found, NoBase) or self.found.snapshot is None:
            return ()
        return tuple(dict.fromkeys(one.path for one in self.found.snapshot.sets))

    def weakened(self, plan: Plan | None) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
        """Every weakening, and notes. ``plan``: of the whole suite, None for a run that was narrowed."""
        if isinstance(self.found, NoBase) or self.found.snapshot is None:
            return (), ()
        try:
            head = take_snapshot(self.own, self.context, plan)
        except AgentEvalError as error:
            return (), (f"what this change does to the rest of the suite is not known: {error.message}",)
        return weakenings(self.found.snapshot, head), ()

    def apply_to(self, result: RunResult, plan: Plan | None) -> RunResult:
        """The decided result with what the change does to the gate."""
        if result.decision is None:
            return result
        found, notes = self.weakened(plan)
        decision = apply_weakenings(result.decision, found, self.settings.policy.on_weakened)
        decision = decision.model_copy(update={"notes": (*self.notes, *notes, *decision.notes)})
        return result.model_copy(update={"decision": decision})


def detect_changes(
    settings: Settings,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    discover: Discover,
    *,
    base: str | None,
) -> GateChanges:
    """Read the side of the commit ``base`` out of git; nothing is run. Never raises for what is wrong there."""
    context = CommandContext(flags, environ, cwd, discover, base, _accepted, _baseline)
    found = read_base(settings, context)
    ruled, notes = rules_in_force(settings, found, context)
    said = found.notes if isinstance(found, BaseSnapshot) else ()
    return GateChanges(settings, ruled, found, context, (*notes, *said))


def _accepted(settings: Settings) -> tuple[Accepted, ...]:
    path = settings.workspace / accept.ACCEPT
    return tuple(entry.accepted for entry in accept.read(path, workspace=settings.workspace))


def _baseline(settings: Settings) -> Baseline | None:
    """What is stored beside the code; a file that cannot be read holds nothing to anything."""
    try:
        return FileStore(settings.baseline, settings.workspace).read()
    except ResultsError:
        return None
