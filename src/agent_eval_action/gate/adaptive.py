"""What to run next, given everything measured so far: suspects again, the control, the suite again, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent_eval_action.gate.assess import (
    FRESH_LOOKS,
    SINGLE,
    STABLE_RUNS,
    SUITE_LOOKS,
    CriterionEvidence,
    Status,
    assess,
)
from agent_eval_action.gate.evidence import (
    Attempts,
    Enough,
    GateState,
    Key,
    PairEvidence,
    RerunSuite,
    RerunSuspects,
    Rules,
    RunControl,
    Step,
)
from agent_eval_action.gate.wording import count

IN_DOUBT: Final = 0.2
"""Suspects whose first fresh runs are this unlikely by chance are run more."""
SUITE_IN_DOUBT: Final = 0.3
WORTH_CONTROL: Final = 0.05
CONTROL_RUNS: Final = 8


def next_step(state: GateState, rules: Rules) -> Step:
    """The next thing worth running. ``state.closed`` or a rule that is not adaptive: nothing."""
    if state.closed or not rules.adaptive:
        return Enough("nothing more can be run")
    criteria = assess(state, rules).criteria
    left = rules.limits.of(len({pair.case for pair in state.pairs})) - state.extra
    for step in _steps(criteria):
        if isinstance(step, Enough):
            return step
        if sum(times for _, times in step.attempts) > left:
            return Enough(f"the limit of extra runs is reached before this: {step.why}", limited=True)
        return step
    return Enough("nothing is in doubt")


def _steps(criteria: tuple[CriterionEvidence, ...]) -> Iterable[Step]:
    if suspects := _suspects(criteria):
        yield suspects
    if control := _control(criteria):
        yield control
    if any(one.confirmed for one in criteria):
        yield Enough("a regression is confirmed")
    if suite := _suite(criteria):
        yield suite


def _suspects(criteria: Iterable[CriterionEvidence]) -> RerunSuspects | None:
    wanted: dict[Key, int] = {}
    for one in criteria:
        for pair in one.suspects:
            more = _target(one, pair) - (len(pair.attempts) - pair.first)
            if more > 0 and not pair.errors:
                wanted[pair.case] = max(wanted.get(pair.case, 0), more)
    if not wanted:
        return None
    return RerunSuspects(_in_order(wanted), f"{count(len(wanted), 'case')} did worse than on main")


def _target(one: CriterionEvidence, pair: PairEvidence) -> int:
    """Fresh runs a suspect should have by now."""
    made = len(pair.attempts) - pair.first
    if one.stable:
        if made < STABLE_RUNS or one.agrees(pair) or one.recovered(pair):
            return STABLE_RUNS
        return FRESH_LOOKS[-1][0]
    first, last = FRESH_LOOKS[0][0], FRESH_LOOKS[-1][0]
    if one.runs < first:
        return first
    if one.runs >= last or not _in_doubt(one) or _strong(one):
        return one.runs
    return last


def _in_doubt(one: CriterionEvidence) -> bool:
    return one.together(False).p <= IN_DOUBT or any(one.raw(pair, False) <= IN_DOUBT for pair in one.suspects)


def _strong(one: CriterionEvidence) -> bool:
    """Whether the first look is enough: as it stands, or as it would stand if the control agreed with history."""
    if one.controlled:
        return one.confirmed
    level = one.alpha * SINGLE * one.spent
    return min(one.adjusted(False), default=1.0) <= level


def _control(criteria: Iterable[CriterionEvidence]) -> RunControl | None:
    wanted: dict[Key, int] = {}
    for one in criteria:
        if not one.control:
            continue
        for pair in one.suspects if _worth_control(one) else ():
            if not pair.control:
                wanted[pair.case] = STABLE_RUNS if one.stable and one.agrees(pair) else CONTROL_RUNS
        if not one.confirmed and _suite_worth_control(one):
            for pair in one.whole:
                if len(pair.control) < one.passes:
                    wanted[pair.case] = max(wanted.get(pair.case, 0), one.passes - len(pair.control))
    if not wanted:
        return None
    return RunControl(_in_order(wanted), f"is {count(len(wanted), 'case')} as bad on main?")


def _worth_control(one: CriterionEvidence) -> bool:
    if any(one.agrees(pair) for pair in one.suspects):
        return True
    if not one.runs or (one.runs < FRESH_LOOKS[-1][0] and not _strong(one)):
        return False
    return one.together(False).p <= WORTH_CONTROL or any(one.raw(pair, False) <= WORTH_CONTROL for pair in one.suspects)


def _suite_worth_control(one: CriterionEvidence) -> bool:
    if not one.limited or not one.whole or not one.passes:
        return False
    test = one.suite(one.passes)
    return test.beyond and test.p <= test.level


def _suite(criteria: Iterable[CriterionEvidence]) -> RerunSuite | None:
    wanted: dict[Key, int] = {}
    doubtful = ""
    for one in criteria:
        first = max((pair.first for pair in one.whole), default=1)
        if one.stable or not one.limited or not one.passes or one.passes - first + 1 >= len(SUITE_LOOKS):
            continue
        test = one.suite(one.passes, one.suite_controlled)
        if test.p > SUITE_IN_DOUBT:
            continue
        doubtful = doubtful or one.criterion
        for pair in one.whole:
            more = one.passes + 1 - len(pair.attempts)
            if more > 0:
                wanted[pair.case] = max(wanted.get(pair.case, 0), more)
    return RerunSuite(_in_order(wanted), f"the drop of {doubtful} is in doubt") if wanted else None


def _in_order(wanted: dict[Key, int]) -> Attempts:
    return tuple(sorted(wanted.items()))
