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
from agent_eval_action.gate.weakening import weakenings, with_weakenings
from agent_eval_action.model.baseline import Baseline
from agent_eval_action.model.decision import Finding
from agent_eval_action.model.history import Accepted
from agent_eval_action.model.result import RunResult
from agent_eval_action.run.arms import NoBase
from agent_eval_action.run.before import Before, Discover, Invocation, before, in_force, yardstick
from agent_eval_action.run.plan import Plan


@dataclass(frozen=True)
class Change:
    """The change under test beside what it is made to.

    ``settings`` are those the run is decided by: the base's rules where a change asks to be merged.
    """

    own: Settings
    settings: Settings
    found: Before | NoBase
    invocation: Invocation
    notes: tuple[str, ...] = ()

    @property
    def stored(self) -> Stored | None:
        """What the base commit has stored, where a change asks to be merged; None: the checkout's own holds."""
        if not self.invocation.merging or isinstance(self.found, NoBase) or self.found.yardstick is None:
            return None
        return Stored(self.found.commit, self.found.yardstick.baseline)

    def weakened(self, plan: Plan | None) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
        """Every weakening, and notes. ``plan``: of the whole suite, None for a run that was narrowed."""
        if isinstance(self.found, NoBase) or self.found.yardstick is None:
            return (), ()
        try:
            head = yardstick(self.own, self.invocation, plan)
        except AgentEvalError as error:
            return (), (f"what this change does to the rest of the suite is not known: {error.message}",)
        return weakenings(self.found.yardstick, head), ()

    def judged(self, result: RunResult, plan: Plan | None) -> RunResult:
        """The decided result with what the change does to the gate."""
        if result.decision is None:
            return result
        found, notes = self.weakened(plan)
        decision = with_weakenings(result.decision, found, self.settings.policy.on_weakened)
        decision = decision.model_copy(update={"notes": (*self.notes, *notes, *decision.notes)})
        return result.model_copy(update={"decision": decision})


def look(
    settings: Settings,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    discover: Discover,
    *,
    base: str | None,
) -> Change:
    """Read the side of the commit ``base`` out of git; nothing is run. Never raises for what is wrong there."""
    invocation = Invocation(flags, environ, cwd, discover, base, _accepted, _baseline)
    found = before(settings, invocation)
    ruled, notes = in_force(settings, found, invocation)
    said = found.notes if isinstance(found, Before) else ()
    return Change(settings, ruled, found, invocation, (*notes, *said))


def _accepted(settings: Settings) -> tuple[Accepted, ...]:
    path = settings.workspace / accept.ACCEPT
    return tuple(entry.accepted for entry in accept.read(path, workspace=settings.workspace))


def _baseline(settings: Settings) -> Baseline | None:
    """What is stored beside the code; a file that cannot be read holds nothing to anything."""
    try:
        return FileStore(settings.baseline, settings.workspace).read()
    except ResultsError:
        return None
