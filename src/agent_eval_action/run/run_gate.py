"""The gate of one run: its next steps and its verdict, from the same rules, history and accepted changes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agent_eval_action.baseline.records import baseline_of, unmeasured_on_base, without_accepted, without_control
from agent_eval_action.config.models import Settings
from agent_eval_action.gate import Comparison, compare, decide
from agent_eval_action.gate.next_step import Run, Step, Stop, broken_code, describe_step, next_check, next_step
from agent_eval_action.gate.pairs import GateRules, GateState
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import Decision
from agent_eval_action.results.history import History
from agent_eval_action.results.run_result import AttemptSummary, CaseResult, ErrorKind, RunResult
from agent_eval_action.run.plan import NOT_MEASURED

_MEASURED_BASE: Final = "the base commit, run beside"


@dataclass(frozen=True)
class RunGate:
    """Applies the pure code of the gate to one run.

    ``adaptive``: cases that got worse are run again. ``may_lack_credentials``: cases that lack credentials are left
    out. ``withheld``: why the CI system gave the run no secrets. ``missing``: the credentials that models lack.
    """

    settings: Settings
    history: History = field(default_factory=History)
    adaptive: bool = False
    may_lack_credentials: bool = False
    withheld: str = ""
    missing: tuple[str, ...] = ()
    _last: list[tuple[RunResult, Comparison]] = field(default_factory=list, init=False)

    @property
    def asks_base_for_withheld(self) -> bool:
        """Whether a case that lacks credentials is excused only if the base commit's agent lacks them too."""
        return self.may_lack_credentials and bool(self.withheld)

    def next_step(self, result: RunResult, *, control: bool) -> Step:
        """Return what to run next. ``control``: whether the base commit's agent can be run."""
        if control and self.asks_base_for_withheld and (cases := _cases_to_ask_on_base(result)):
            why = f"whether main's agent answers without credentials what this change's does not ({len(cases):,} cases)"
            return Run("control", tuple((case, 1) for case in cases), why)
        if not self.adaptive:
            return Stop("nothing is run again")
        result = self.without_unanswered(result)
        compared, comparison = self._compare(result)
        state = GateState(comparison.pairs, control, comparison.extra)
        rules = GateRules(self.settings.policy, self.settings.max_extra_runs, compared.conditions.adaptive)
        step = next_step(state, rules)
        if not isinstance(step, Stop):
            return replace(step, why=describe_step(step, state))
        return next_check(result, rules, control=control, without=comparison.cases_set_aside) or step

    def without_unanswered(self, result: RunResult) -> RunResult:
        """Return the result with cases that lack credentials marked as not measured."""
        return _mark_unanswered(result, self.withheld, self.missing) if self.may_lack_credentials else result

    def decide(self, result: RunResult) -> Decision:
        """Return the decision on a result marked by ``without_unanswered``."""
        compared, comparison = self._compare(result)
        self._last.clear()  # this is the last comparison, and the reports need the memory
        # from all attempts, including the base commit's
        return decide(comparison, compared, self.settings.policy, broken_code(result))

    def _compare(self, result: RunResult) -> tuple[RunResult, Comparison]:
        """Return the run, and its comparison with the stored history or with the base agent's scores in this run."""
        if self.settings.baseline.store != "rerun":
            if not self._last or not _same_measurements(self._last[0][0], result):
                self._last[:] = [(result, compare(self.history, result))]
            return result, self._last[0][1]
        record = without_accepted(baseline_of(result), self.history.pending)
        history = replace(self.history, pooled=record if record and record.cases else None, source=_MEASURED_BASE)
        compared = without_control(result)
        return compared, compare(history, compared, unmeasured=unmeasured_on_base(result))


def _same_measurements(before: RunResult, now: RunResult) -> bool:
    """Whether nothing was measured in between, so that the last step and the verdict can share one comparison."""
    same_sets = len(before.sets) == len(now.sets) and all(map(operator.is_, before.sets, now.sets))
    return same_sets and before.base == now.base and before.conditions == now.conditions


def _cases_to_ask_on_base(result: RunResult) -> tuple[CaseKey, ...]:
    """Return cases unanswered for lack of credentials that the base commit's agent has not been tried on.

    The change's agent alone cannot excuse a case: it could claim this for exactly the cases that got worse.
    """
    known = {*result.base.lacking, *result.base.unavailable_agents} if result.base else set()
    return tuple(
        key
        for key, case in result.keyed_cases()
        if key.agent not in known and not case.control and _missing_message(case.attempts)
    )


def _mark_unanswered(result: RunResult, withheld: str, missing: Iterable[str]) -> RunResult:
    """Return the result with cases that the agent could not answer for lack of credentials marked as not measured.

    A case with any answered attempt stays: it had credentials. ``withheld``: why CI gave the run no secrets, "" if it
    gave them; if set, a case is left out only if the base commit's agent could not answer it either. ``missing``: the
    credentials that the judges' models lack. Pure.
    """
    reasons = {id(case): _missing_message(case.attempts) for eval_set in result.sets for case in eval_set.cases}
    messages = tuple(dict.fromkeys(filter(None, (*missing, *reasons.values()))))
    if not messages:
        return result
    conditions = result.conditions.model_copy(update={"withheld": withheld, "lacking": messages})
    sets = []
    for eval_set in result.sets:
        excused = not withheld or (result.base is not None and eval_set.agent in result.base.lacking)
        cases = (_excuse(case, excused=excused) if reasons[id(case)] else case for case in eval_set.cases)
        sets.append(eval_set.model_copy(update={"cases": tuple(cases)}))
    return result.model_copy(update={"sets": tuple(sets), "conditions": conditions})


def _excuse(case: CaseResult, *, excused: bool) -> CaseResult:
    """Return a case without an answer as not measured if main's agent lacks credentials too, else as an error."""
    if excused or _missing_message(case.control):
        return case.model_copy(update={"unmeasured": NOT_MEASURED, "attempts": (), "control": ()})
    kind, words = ErrorKind.CREDENTIALS, "it is not known whether main's agent needs credentials here"
    if any(attempt.error is None for attempt in case.control):
        kind, words = ErrorKind.EXCEPTION, "main's agent answers this without credentials, this change's says"
    errors = [(attempt, attempt.error) for attempt in case.attempts if attempt.error is not None]
    attempts = (
        attempt.model_copy(
            update={"error": error.model_copy(update={"kind": kind, "message": f"{words}: {error.message}"})}
        )
        for attempt, error in errors
    )
    return case.model_copy(update={"attempts": tuple(attempts)})


def _missing_message(attempts: Sequence[AttemptSummary]) -> str:
    """Return the missing credentials if all attempts failed for lack of them; else ""."""
    errors = [attempt.error for attempt in attempts]
    lacking = [error.message for error in errors if error is not None and error.kind is ErrorKind.CREDENTIALS]
    return lacking[0] if lacking and len(lacking) == len(errors) else ""
