"""What to run next, given what was measured: suspects again, the control, the suite again, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from agent_eval_action.gate.assess import SUITE_LOOKS, CriterionEvidence, assess
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
from agent_eval_action.gate.suspected import FRESH_LOOKS, SINGLE, STABLE_RUNS
from agent_eval_action.gate.tested import Status
from agent_eval_action.gate.wording import count

IN_DOUBT: Final = 0.2
"""Suspects whose first fresh runs are this unlikely by chance are run more."""
SUITE_IN_DOUBT: Final = (0.35, 0.12, 0.08, 0.05, 0.03)
"""Up to which p the suite is passed again after each pass: a real drop becomes clearer with each."""
STILL_IN_DOUBT: Final = 0.05
WORTH_CONTROL: Final = 0.05
_SETTLED: Final = frozenset({Status.CONFIRMED, Status.ON_MAIN, Status.UNCONTROLLED})
BESIDE: Final = 5
"""Runs of this change made in turn with the control of a suspect; in a stable suite those that are left of three."""


def next_step(state: GateState, rules: Rules) -> Step:
    """The next thing worth running. ``state.closed`` or a rule that is not adaptive: nothing."""
    if state.closed or not rules.adaptive:
        return Enough("nothing more can be run")
    criteria = assess(state, rules).criteria
    limit = rules.limits.of(len({pair.case for pair in state.pairs}))
    for step in _steps(criteria):
        if isinstance(step, Enough):
            return step
        beside = step.beside if isinstance(step, RunControl) else ()
        if sum(times for _, times in (*step.attempts, *beside)) > limit - state.extra:
            return Enough(f"the limit of {count(limit, 'extra run')} is reached before this: {step.why}", limited=True)
        return step
    return Enough("nothing is in doubt")


def _steps(criteria: tuple[CriterionEvidence, ...]) -> Iterable[Step]:
    """What could be done, most needed first: what is plain after the first look is not run to the last."""
    if suspects := _suspects(criteria, _first_look):
        yield suspects
    if control := _control(criteria, _plain):
        yield control
    if any(one.confirmed for one in criteria):
        yield Enough("a regression is confirmed")
    if suspects := _suspects(criteria, _target):
        yield suspects
    if control := _control(criteria, _doubtful):
        yield control
    if any(one.confirmed for one in criteria):
        yield Enough("a regression is confirmed")
    if suite := _suite(criteria):
        yield suite


Target = Callable[[CriterionEvidence, PairEvidence], int]


def _suspects(criteria: Iterable[CriterionEvidence], target: Target) -> RerunSuspects | None:
    wanted: dict[Key, int] = {}
    for one in criteria:
        for pair in one.suspects:
            more = target(one, pair) - (len(pair.attempts) - pair.first)
            if more > 0 and not pair.errors:
                wanted[pair.case] = max(wanted.get(pair.case, 0), more)
    if not wanted:
        return None
    return RerunSuspects(_in_order(wanted), f"{count(len(wanted), 'case')} did worse than on main")


def _first_look(one: CriterionEvidence, pair: PairEvidence) -> int:
    """Fresh runs every suspect gets."""
    if one.stable and one.control and not pair.tried and (one.agreeing(pair) or not one.runs(pair)):
        return 1  # the rest of the three is made in turn with the control
    if one.stable and (one.runs(pair) < STABLE_RUNS or one.agrees(pair) or one.recovered(pair)):
        return STABLE_RUNS
    return FRESH_LOOKS[0][0]


def _target(one: CriterionEvidence, pair: PairEvidence) -> int:
    """Fresh runs a suspect should have: to the next look while it is in doubt."""
    made, first, last = one.runs(pair), FRESH_LOOKS[0][0], FRESH_LOOKS[-1][0]
    if made < first or made >= last or _settled(one, pair):
        return made
    doubt = IN_DOUBT if made == first else STILL_IN_DOUBT
    together = made == first and one.together(control=False).p <= IN_DOUBT * one.share
    if not together and one.raw(pair, control=True) > doubt * one.share:
        return made
    return next(runs for runs, _ in FRESH_LOOKS if runs > made)


def _settled(one: CriterionEvidence, pair: PairEvidence) -> bool:
    """Whether a suspect is sure enough; before its control, as it would stand were that as history is."""
    if pair.control or not one.control:
        return any(test.pair is pair and test.status in _SETTLED for test in one.tests)
    return one.raw(pair, control=False) / one.spent(pair) * len(one.suspects) <= one.alpha * SINGLE


Worth = Callable[[CriterionEvidence], Iterable[PairEvidence]]


def _control(criteria: Iterable[CriterionEvidence], worth: Worth) -> RunControl | None:
    wanted: dict[Key, int] = {}
    beside: dict[Key, int] = {}
    for one in criteria:
        if not one.control:
            continue
        for pair in worth(one):
            _more(wanted, pair, one.needs(pair))
            _more(beside, pair, _beside(one, pair))
        if not one.confirmed and _suite_worth_control(one):
            made = all(pair.beside for pair in one.whole)
            for pair in one.whole:
                _more(wanted, pair, one.passes - made - max(pair.tried, len(pair.control)))
                _more(beside, pair, 0 if pair.beside else 1)
    if not wanted:
        return None
    in_turn = {case: runs for case, runs in beside.items() if case in wanted}
    return RunControl(_in_order(wanted), f"is {count(len(wanted), 'case')} as bad on main?", _in_order(in_turn))


def _more(wanted: dict[Key, int], pair: PairEvidence, runs: int) -> None:
    if runs > 0:
        wanted[pair.case] = max(wanted.get(pair.case, 0), runs)


def _beside(one: CriterionEvidence, pair: PairEvidence) -> int:
    """Runs of this change in turn with a suspect's control, so that what drifts meets both."""
    if one.agreeing(pair):
        return STABLE_RUNS - one.runs(pair)
    return 0 if pair.beside else BESIDE


def _plain(one: CriterionEvidence) -> Iterable[PairEvidence]:
    """Suspects that are as good as confirmed."""
    return (pair for pair in one.suspects if one.agreeing(pair) or (one.runs(pair) and _settled(one, pair)))


def _doubtful(one: CriterionEvidence) -> Iterable[PairEvidence]:
    """Suspects that may be: the control says whether their history was lucky, or short."""
    together = one.together(control=False).p <= WORTH_CONTROL
    return (pair for pair in one.suspects if together or one.raw(pair, control=False) <= WORTH_CONTROL)


def _suite_worth_control(one: CriterionEvidence) -> bool:
    if not one.limited or not one.whole or not one.passes:
        return False
    test = one.suite(one.passes)
    return test.beyond and test.p <= test.level


def _suite(criteria: Iterable[CriterionEvidence]) -> RerunSuite | None:
    wanted: dict[Key, int] = {}
    doubtful = ""
    for one in criteria:
        first = one.first
        if one.stable or not one.limited or not one.passes or one.passes - first + 1 >= len(SUITE_LOOKS):
            continue
        test = one.suite(one.passes, one.suite_controlled)
        if test.p > SUITE_IN_DOUBT[one.passes - first] * one.share:
            continue
        doubtful = doubtful or one.criterion
        for pair in one.whole:
            more = one.passes + 1 - first + pair.first - len(pair.attempts)
            if more > 0:
                wanted[pair.case] = max(wanted.get(pair.case, 0), more)
    return RerunSuite(_in_order(wanted), f"the drop of {doubtful} is in doubt") if wanted else None


def _in_order(wanted: dict[Key, int]) -> Attempts:
    return tuple(sorted(wanted.items()))
