"""Detect changes that no longer start, or raise where the base commit's agent answers. Pure.

An error has no score, so the tests of scores cannot see it. The base commit's agent therefore runs in the same
job, interleaved with the change's: docs/statistics.md has the test and its level.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.gate.next_step import Run
from agent_eval_action.gate.pairs import GateRules
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.run_result import AttemptError, AttemptSummary, ErrorKind, RunResult
from agent_eval_action.stats import Stratum, lower_than_reference, passes

NOT_STARTED: Final = frozenset({ErrorKind.ENVIRONMENT, ErrorKind.IMPORT})
RAISED: Final = frozenset(
    {
        ErrorKind.EXCEPTION,
        ErrorKind.DIED,
        ErrorKind.BLOCKED,
        ErrorKind.TIMEOUT,
        ErrorKind.OUTPUT,
        ErrorKind.PROTOCOL,
        ErrorKind.NOT_ASKED,
    }
)
"""Errors that code can cause, unlike a refusing or unreachable model, missing credentials, and limits."""

LEVEL: Final = 0.001
"""The chance per run of blocking an agent that raises no more often than main's."""
CASES: Final = 10
START_CASES: Final = 3
_RUNS: Final = ((10, 1, 1), (7, 1, 2), (5, 1, 3), (4, 2, 2), (3, 2, 4), (2, 3, 4), (1, 5, 8))
"""Number of broken cases, then fresh and base runs of each: p < LEVEL if all fail here and none on the base."""


@dataclass(frozen=True, slots=True)
class BrokenCase:
    """A case whose whole first pass failed because of the agent's code."""

    key: CaseKey
    error: AttemptError
    fresh: tuple[bool, ...]  # whether each further attempt of this change's agent succeeded
    base: tuple[bool, ...]  # the same for the base commit's agent
    made: int  # further attempts, including those that failed for other reasons
    asked: int  # attempts of the base commit's agent, including those

    @property
    def starts(self) -> bool:
        """Whether the agent started."""
        return self.error.kind not in NOT_STARTED

    @property
    def may_differ(self) -> bool:
        """Whether all re-runs so far failed here and none on the base."""
        return not any(self.fresh) and all(self.base)

    @property
    def differs(self) -> bool:
        """``may_differ``, after re-runs on both sides."""
        return self.may_differ and bool(self.fresh and self.base)


def broken_code(result: RunResult) -> tuple[BrokenCase, ...]:
    """The cases that the change's code breaks, sorted. Cases that fail in the same way are confirmed together."""
    cases = _failing_cases(result)
    working = {case.key.agent for case in cases if not case.starts and any(case.base)}
    strata = [
        Stratum(passes(sum(case.base), len(case.base)), passes(sum(case.fresh), len(case.fresh)))
        for case in cases
        if case.starts and case.base and case.fresh
    ]
    sure = bool(strata) and lower_than_reference(strata) <= LEVEL
    return tuple(case for case in cases if (sure and case.differs if case.starts else case.key.agent in working))


def next_check(result: RunResult, rules: GateRules, *, control: bool, without: Collection[CaseKey] = ()) -> Run | None:
    """The runs still needed to tell broken code from an outage; None if none are needed or allowed.

    ``control``: whether the base commit's agent can be run. ``without``: cases that cannot block.
    """
    if not control:
        return None
    without_base = result.base.unavailable_agents if result.base else {}
    cases = [
        case
        for case in _failing_cases(result)
        if rules.policy.sets.get(case.key.eval_set, "blocking") == "blocking"
        and case.key.agent not in without_base
        and case.key not in without
    ]
    base: dict[CaseKey, int] = {}
    here: dict[CaseKey, int] = {}
    for agent in {case.key.agent for case in cases if not case.starts}:
        own = [case for case in cases if case.key.agent == agent and not case.starts]
        if not any(case.asked for case in own):
            base.update((case.key, 1) for case in own[:START_CASES])
    # cases that main raises in too, or that were answered after all, leave their runs to the others
    differing = [case for case in cases if case.starts and case.may_differ]
    fresh, asked = next(((fresh, base) for least, fresh, base in _RUNS if len(differing) >= least), (0, 0))
    for case in differing[:CASES]:
        base[case.key] = asked - case.asked
        here[case.key] = fresh - case.made
    wanted, interleaved = (tuple(sorted((key, n) for key, n in runs.items() if n > 0)) for runs in (base, here))
    total = sum(runs for _, runs in (*wanted, *interleaved))
    if not wanted or total > rules.limit(result.totals.cases) - result.totals.extra - result.totals.control:
        return None
    raising = sum(case.starts for case in cases)
    why = f"does the base commit's agent answer the {plural(raising, 'case')} that this change's fails in?"
    why = why if raising else "does the base commit's agent start?"
    return Run("control", wanted, why, interleaved, errors_answer=True)


def _failing_cases(result: RunResult) -> list[BrokenCase]:
    """The cases in which every attempt of the first pass failed because of the agent's code, sorted."""
    started = {
        key.agent
        for key, case in result.keyed_cases()
        for attempt in case.attempts
        if attempt.error is None or attempt.error.kind in RAISED
    }
    found: list[BrokenCase] = []
    for key, case in result.keyed_cases():
        kinds = RAISED if key.agent in started else NOT_STARTED
        first = [attempt.error for attempt in case.attempts if attempt.purpose == "first"]
        errors = [error for error in first if error is not None and error.kind in kinds]
        if first and len(errors) == len(first) and not case.unmeasured:
            again = [attempt for attempt in case.attempts if attempt.purpose != "first"]
            answered = _successes(again), _successes(case.control)
            found.append(BrokenCase(key, errors[0], *answered, len(again), len(case.control)))
    return sorted(found, key=lambda case: case.key)


def _successes(attempts: Iterable[AttemptSummary]) -> tuple[bool, ...]:
    """Whether each attempt succeeded; attempts that failed for other reasons than code are left out."""
    errors = (attempt.error for attempt in attempts)
    return tuple(error is None for error in errors if error is None or error.kind in NOT_STARTED | RAISED)
