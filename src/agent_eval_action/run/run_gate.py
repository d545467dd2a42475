"""The gate of one run: what to run next, and the verdict, by the same rules, history and accepted changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.measured_base import baseline_of, unmeasured_on_base, without_accepted, without_control
from agent_eval_action.config.models import Settings
from agent_eval_action.gate import compare, decide
from agent_eval_action.gate.broken_code import BrokenCode, broken_code, next_check
from agent_eval_action.gate.evidence import RunControl, Step, Stop
from agent_eval_action.gate.next_step import describe_step, next_step
from agent_eval_action.gate.pairs import rules_of, state_of, stored_history
from agent_eval_action.results.decision import Decision
from agent_eval_action.results.history import History, Record
from agent_eval_action.results.run_result import CaseKey, RunResult
from agent_eval_action.run.loader import relative
from agent_eval_action.run.missing_credentials import MissingCredentials, cases_to_ask_on_base, mark_unanswered

_MEASURED_BASE: Final = Path("the base commit, run beside")


@dataclass(frozen=True)
class RunGate:
    """Asks the pure code of the gate about one run. ``history`` None: there is nothing to compare with yet.

    ``adaptive``: what got worse is run again. ``may_lack_credentials``: cases that cannot be asked for want of
    credentials are left out; ``withheld`` says why the CI system gave the run no secrets, and ``missing`` which
    models cannot be asked.
    """

    settings: Settings
    history: History | None = None
    adaptive: bool = False
    may_lack_credentials: bool = False
    withheld: str = ""
    missing: MissingCredentials = field(default_factory=dict)

    @property
    def asks_base_for_withheld(self) -> bool:
        """Whether a case that lacks credentials is excused only if the base commit's agent lacks them too."""
        return self.may_lack_credentials and bool(self.withheld)

    def next_step(self, result: RunResult, *, control: bool) -> Step:
        """Return what to run next. ``control``: whether the base commit's agent can be run."""
        if control and self.asks_base_for_withheld and (cases := cases_to_ask_on_base(result)):
            why = f"whether main's agent answers without credentials what this change's does not ({len(cases):,} cases)"
            return RunControl(tuple((case, 1) for case in cases), why)
        if not self.adaptive:
            return Stop("nothing is run again")
        result, policy = self.without_unanswered(result), self.settings.policy
        compared, baseline = self._operands(result)
        state = state_of(compared, stored_history(baseline), policy, control=control)
        rules = rules_of(policy, compared, extra_runs=self.settings.max_extra_runs)
        step = next_step(state, rules)
        if not isinstance(step, Stop):
            return replace(step, why=describe_step(step, state))
        return next_check(result, policy, control=control, limits=rules.limits) or step

    def without_unanswered(self, result: RunResult) -> RunResult:
        """Return the result with what could not be asked for want of credentials marked as not measured."""
        return mark_unanswered(result, self.withheld, self.missing) if self.may_lack_credentials else result

    def decide(self, result: RunResult) -> Decision:
        """Return the decision on a result that ``without_unanswered`` has marked."""
        compared, baseline = self._operands(result)
        rerun = self.settings.baseline.store == "rerun"
        stored = Path(self.history.source) if self.history is not None else self.settings.baseline.path
        return decide_result(
            compared,
            baseline,
            self.settings,
            _MEASURED_BASE if rerun else stored,
            history=self.history,
            broken=broken_code(result),  # of all attempts, those of the base commit's agent included
            unmeasured=unmeasured_on_base(result) if rerun else None,
        )

    def _operands(self, result: RunResult) -> tuple[RunResult, Record | None]:
        """Return the run and what it is compared with: what is stored, or what the base commit's agent scored now."""
        if self.settings.baseline.store != "rerun":
            return result, self.history.pooled if self.history is not None else None
        accepted = self.history.pending if self.history is not None else ()
        return without_control(result), without_accepted(baseline_of(result), accepted)


def decide_result(
    result: RunResult,
    baseline: Record | None,
    settings: Settings,
    source: Path,
    *,
    history: History | None = None,
    broken: BrokenCode | None = None,
    unmeasured: Mapping[CaseKey, str] | None = None,
) -> Decision:
    """Compare a result with a baseline and decide. ``source``: where the baseline is from, as reports show it.

    ``unmeasured``: cases whose baseline this run was to measure and could not, with the reason.
    """
    path = relative(source, settings.workspace)
    comparison = compare(baseline, result, path=path, history=history, unmeasured=unmeasured)
    return decide(comparison, result, settings.policy, broken)
