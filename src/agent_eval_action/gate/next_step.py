"""What to run next, given what was measured: the control, suspects again, the suite again, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.gate.assess import (
    CONTROL_RUNS,
    FRESH_LOOKS,
    IN_DOUBT,
    SMALL_CONTROL,
    STABLE_RUNS,
    SUITE_LOOKS,
    CriterionEvidence,
    Status,
    assess,
)
from agent_eval_action.gate.evidence import (
    Attempts,
    EvidenceRules,
    GateState,
    Key,
    PairEvidence,
    RerunSuite,
    RerunSuspects,
    RunControl,
    Step,
    Stop,
    history_stats,
    mean,
)
from agent_eval_action.results.history import weighted_mean
from agent_eval_action.results.pair_scores import exact_mean, meets
from agent_eval_action.results.run_result import CaseKey

FIRST_DOUBT: Final = 0.2
"""Suspects whose first fresh runs are this unlikely by chance are run more."""
SUITE_IN_DOUBT: Final = (0.35, 0.12, 0.08, 0.05, 0.03)
"""Up to which p the suite is passed again after each pass: a real drop becomes clearer with each."""
BESIDE: Final = 5
"""Runs of this change made in turn with a whole control of a suspect, so that what drifts meets both."""
SMALL_BESIDE: Final = 3
"""The same in turn with a small control."""
SHORT_HISTORY: Final = 2
"""A history of at most so many times the fresh runs tells less than the control would."""
_DECIDED: Final = frozenset({Status.CONFIRMED, Status.ON_MAIN, Status.UNCONTROLLED})


def next_step(state: GateState, rules: EvidenceRules) -> Step:
    """The next thing worth running. ``state.closed`` or a rule that is not adaptive: nothing."""
    if state.closed or not rules.adaptive:
        return Stop("nothing more can be run")
    # where main itself collapsed, no run of either agent tells what the change does
    criteria = tuple(found for found in assess(state, rules).criteria if found.main_collapse is None)
    limit = rules.limits.for_cases(len({pair.case for pair in state.pairs}))
    room = limit - state.extra
    for step in _steps(criteria):
        if isinstance(step, Stop) or _cost(step) <= room - _reserve(step, criteria):
            return step
        if (smaller := _worst_first(step, criteria, room)) is not None:
            return smaller
        return Stop(f"the limit of {plural(limit, 'extra run')} is reached before this: {step.why}", limited=True)
    return Stop("nothing is in doubt")


def _steps(criteria: tuple[CriterionEvidence, ...]) -> list[Step]:
    """What could be done, most needed first: what is plain after the first look is not run to the last."""
    confirmed = any(criterion.confirmed for criterion in criteria)
    large = any(criterion.plain_fall and criterion.confirmed for criterion in criteria)
    enough = Stop("a regression is confirmed")
    steps = (
        _slice_control(criteria),
        enough if large else None,
        _suspects(criteria, _first_look),
        _control(criteria, _plain),
        enough if confirmed else None,
        _control(criteria, _short_of_history),
        _suspects(criteria, _target),
        _control(criteria, _doubtful),
        _suite(criteria),
    )
    return [step for step in steps if step is not None]


# --- limits ---------------------------------------------------------------------------------------


def _cost(step: RerunSuspects | RerunSuite | RunControl) -> int:
    beside = step.beside if isinstance(step, RunControl) else ()
    return sum(times for _, times in (*step.attempts, *beside))


def _reserve(step: Step, criteria: Iterable[CriterionEvidence]) -> int:
    """What the control of suspects will need after their re-runs: without it they would decide nothing."""
    if not isinstance(step, RerunSuspects):
        return 0
    costs = _control_costs(criteria)
    return sum(costs.get(case, 0) for case, _ in step.attempts)


def _control_costs(criteria: Iterable[CriterionEvidence]) -> dict[Key, int]:
    """The least the control of each suspect costs, both arms together, where none of it is made."""
    found: dict[Key, int] = {}
    for criterion in criteria:
        least = STABLE_RUNS + STABLE_RUNS - 1 if criterion.stable else SMALL_CONTROL + SMALL_BESIDE
        for pair in criterion.suspects if criterion.control else ():
            if pair.controllable and not pair.tried:
                found[pair.case] = max(found.get(pair.case, 0), least)
    return found


def _worst_first(
    step: RerunSuspects | RerunSuite | RunControl, criteria: tuple[CriterionEvidence, ...], room: int
) -> Step | None:
    """As much of a step as there is room for: the cases that fell furthest, each with what its control needs."""
    if isinstance(step, RerunSuite):
        return None
    beside = dict(step.beside) if isinstance(step, RunControl) else {}
    falls = _falls(criteria)
    costs = _control_costs(criteria) if isinstance(step, RerunSuspects) else {}
    chosen: dict[Key, int] = {}
    for case, runs in sorted(step.attempts, key=lambda item: (-falls.get(item[0], 0.0), item)):
        needed = runs + beside.get(case, 0) + costs.get(case, 0)
        if needed > room:
            break
        room -= needed
        chosen[case] = runs
    if not chosen:
        return None
    if isinstance(step, RunControl):
        in_turn = {case: runs for case, runs in beside.items() if case in chosen}
        return replace(step, attempts=_in_order(chosen), beside=_in_order(in_turn))
    return replace(step, attempts=_in_order(chosen))


def _falls(criteria: Iterable[CriterionEvidence]) -> dict[Key, float]:
    """How far each suspect fell, over everything measured of it."""
    found: dict[Key, float] = {}
    for criterion in criteria:
        for pair in criterion.suspects:
            fall = history_stats(pair.history).mean - mean(pair.attempts)
            found[pair.case] = max(found.get(pair.case, 0.0), fall)
    return found


# --- suspects again -------------------------------------------------------------------------------

Target = Callable[[CriterionEvidence, PairEvidence], int]


def _suspects(criteria: Iterable[CriterionEvidence], target: Target) -> RerunSuspects | None:
    wanted: dict[Key, int] = {}
    for criterion in criteria:
        for pair in criterion.suspects:
            more = target(criterion, pair) - (len(pair.attempts) - pair.first)
            if more > 0 and not pair.errors:
                wanted[pair.case] = max(wanted.get(pair.case, 0), more)
    if not wanted:
        return None
    return RerunSuspects(_in_order(wanted), f"{plural(len(wanted), 'case')} did worse than on main")


def _first_look(criterion: CriterionEvidence, pair: PairEvidence) -> int:
    """Fresh runs every suspect gets."""
    if (
        criterion.stable
        and criterion.control
        and pair.controllable
        and not pair.tried
        and (criterion.agreeing(pair) or not criterion.runs(pair))
    ):
        return 1  # the rest of the three is made in turn with the control
    if criterion.stable and (criterion.runs(pair) < STABLE_RUNS or criterion.agrees(pair) or criterion.recovered(pair)):
        return STABLE_RUNS
    return FRESH_LOOKS[0][0]


def _target(criterion: CriterionEvidence, pair: PairEvidence) -> int:
    """Fresh runs a suspect should have: to the next look while it is in doubt."""
    made, first, last = criterion.runs(pair), FRESH_LOOKS[0][0], FRESH_LOOKS[-1][0]
    if made < first or made >= last or _decided(criterion, pair):
        return made
    doubt = FIRST_DOUBT if made == first else IN_DOUBT
    together = made == first and criterion.together(control=False).p <= FIRST_DOUBT * criterion.share
    if not together and criterion.raw(pair, control=True) > doubt * criterion.share:
        return made
    return next(runs for runs, _ in FRESH_LOOKS if runs > made)


def _decided(criterion: CriterionEvidence, pair: PairEvidence) -> bool:
    """Whether a suspect is sure enough; before its control, as it would stand were that as history is."""
    if pair.control or not criterion.control or not pair.controllable:
        return any(test.pair is pair and test.status in _DECIDED for test in criterion.tests)
    return criterion.settled(pair, control=False)


# --- the control ----------------------------------------------------------------------------------

Worth = Callable[[CriterionEvidence], Iterable[PairEvidence]]


def _slice_control(criteria: Iterable[CriterionEvidence]) -> RunControl | None:
    """Where nearly everything fell: a slice of the suite on both arms says whether that is the change."""
    wanted: dict[Key, int] = {}
    beside: dict[Key, int] = {}
    for criterion in criteria:
        if not criterion.plain_fall or criterion.confirmed:
            continue
        for pair in _next_slice(criterion):
            _more(wanted, pair, 1 - max(pair.tried, len(pair.control)))
            _more(beside, pair, 0 if pair.beside else 1)
    return _run_control(wanted, beside)


def _next_slice(criterion: CriterionEvidence) -> tuple[PairEvidence, ...]:
    """The first slice that was not made; none where the slice before it shows main to be as bad."""
    for size in criterion.slices:
        test = criterion.slice_test(size)
        if test is None:
            chosen = criterion.slice_of(size)
            missing = [pair for pair in chosen if not pair.tried]
            return chosen if missing else ()
        if not test.beyond and criterion.collapse_of(size) is None:
            return ()
    return ()


def _control(criteria: Iterable[CriterionEvidence], worth: Worth) -> RunControl | None:
    wanted: dict[Key, int] = {}
    beside: dict[Key, int] = {}
    for criterion in criteria:
        if not criterion.control:
            continue
        for pair in worth(criterion):
            runs = criterion.needs(pair)
            _more(wanted, pair, runs)
            if runs:
                _more(beside, pair, _interleaved_runs(criterion, pair))
        if not criterion.confirmed and _suite_worth_control(criterion):
            made = all(pair.beside for pair in criterion.whole)
            for pair in (pair for pair in criterion.whole if pair.controllable):
                _more(wanted, pair, criterion.passes - made - max(pair.tried, len(pair.control)))
                _more(beside, pair, 0 if pair.beside else 1)
    return _run_control(wanted, beside)


def _run_control(wanted: dict[Key, int], beside: dict[Key, int]) -> RunControl | None:
    if not wanted:
        return None
    in_turn = {case: runs for case, runs in beside.items() if case in wanted}
    return RunControl(_in_order(wanted), f"is {plural(len(wanted), 'case')} as bad on main?", _in_order(in_turn))


def _more(wanted: dict[Key, int], pair: PairEvidence, runs: int) -> None:
    if runs > 0:
        wanted[pair.case] = max(wanted.get(pair.case, 0), runs)


def _interleaved_runs(criterion: CriterionEvidence, pair: PairEvidence) -> int:
    """Runs of this change in turn with a suspect's control, so that what drifts meets both."""
    if criterion.agreeing(pair):
        return STABLE_RUNS - criterion.runs(pair)
    whole = criterion.needs(pair) + max(pair.tried, len(pair.control)) >= CONTROL_RUNS
    return (BESIDE if whole else SMALL_BESIDE) - len(pair.beside)


def _plain(criterion: CriterionEvidence) -> Iterable[PairEvidence]:
    """Suspects that are as good as confirmed."""
    return (
        pair
        for pair in criterion.suspects
        if criterion.agreeing(pair) or (criterion.runs(pair) and _as_good_as_decided(criterion, pair))
    )


def _as_good_as_decided(criterion: CriterionEvidence, pair: PairEvidence) -> bool:
    """By history alone, also while a small control left doubts: then the rest of it is made."""
    return _decided(criterion, pair) or (bool(pair.control) and criterion.settled(pair, control=False))


def _short_of_history(criterion: CriterionEvidence) -> Iterable[PairEvidence]:
    """Suspects in doubt for want of history more than of runs: the control tells more than as many re-runs."""
    for pair in criterion.suspects:
        runs = criterion.runs(pair)
        short = runs and history_stats(pair.history).n <= SHORT_HISTORY * runs
        if short and criterion.raw(pair, control=False) <= IN_DOUBT:
            yield pair


def _doubtful(criterion: CriterionEvidence) -> Iterable[PairEvidence]:
    """Suspects that may be: the control says whether their history was lucky, or short."""
    together = criterion.together(control=False).p <= IN_DOUBT
    return (pair for pair in criterion.suspects if together or criterion.raw(pair, control=False) <= IN_DOUBT)


def _suite_worth_control(criterion: CriterionEvidence) -> bool:
    if not criterion.limited or not criterion.whole or not criterion.passes:
        return False
    test = criterion.suite(criterion.passes)
    return test.beyond and test.p <= test.level


def _suite(criteria: Iterable[CriterionEvidence]) -> RerunSuite | None:
    wanted: dict[Key, int] = {}
    doubtful = ""
    for criterion in criteria:
        first, passes = criterion.first, criterion.passes
        if criterion.stable or not criterion.limited or not passes or passes - first + 1 >= len(SUITE_LOOKS):
            continue
        test = criterion.suite(passes, criterion.suite_controlled)
        if test.p > SUITE_IN_DOUBT[passes - first] * criterion.share:
            continue
        doubtful = doubtful or criterion.criterion
        for pair in criterion.whole:
            more = passes + 1 - first + pair.first - len(pair.attempts)
            if more > 0:
                wanted[pair.case] = max(wanted.get(pair.case, 0), more)
    return RerunSuite(_in_order(wanted), f"the drop of {doubtful} is in doubt") if wanted else None


def _in_order(wanted: dict[Key, int]) -> Attempts:
    return tuple(sorted(wanted.items()))


def describe_step(step: Step, state: GateState) -> str:
    """Like "3 cases, 4 more runs each: `tool_trajectory_avg_score` of `book_flight` fell from 14/14 to 0/1, …"."""
    if isinstance(step, Stop) or not step.attempts:
        return step.reason if isinstance(step, Stop) else step.why
    times = [more for _, more in step.attempts]
    if isinstance(step, RunControl):
        return _controlled(step, _worst(step, state))
    each = plural(times[0], "more run") if len(set(times)) == 1 else f"{min(times)} to {max(times)} more runs"
    cases = plural(len(step.attempts), "suspect" if isinstance(step, RerunSuspects) else "case")
    worst = _worst(step, state)
    if worst is None or not isinstance(step, RerunSuspects):
        return f"{cases}, {each} each: {step.why}"
    more = f", and {plural(len(step.attempts) - 1, 'other')}" if len(step.attempts) > 1 else ""
    return f"{cases}, {each} each: {_fell(worst)}{more}"


def _controlled(step: RunControl, worst: PairEvidence | None) -> str:
    """Like "is 1 case as bad on main? 3 runs there in turn with 2 here: `quality` of `a` fell from 14/14 to 0/2"."""
    here = sum(runs for _, runs in step.beside)
    runs = f"{plural(sum(runs for _, runs in step.attempts), 'run')} there" + (
        f" in turn with {here} here" if here else ""
    )
    fell = "" if worst is None else f": {_fell(worst)}"
    more = f", and {plural(len(step.attempts) - 1, 'other')}" if worst is not None and len(step.attempts) > 1 else ""
    return f"{step.why} {runs}{fell}{more}"


def _worst(step: RerunSuspects | RunControl | Step, state: GateState) -> PairEvidence | None:
    """The pair that fell furthest, of the cases a step is about."""
    wanted = {case for case, _ in step.attempts} if not isinstance(step, Stop) else set()
    fell = [pair for pair in state.pairs if pair.case in wanted and pair.history and pair.attempts and _drop(pair) > 0]
    return min(fell, key=lambda pair: (-_drop(pair), pair.criterion, str(pair.case)), default=None)


def _drop(pair: PairEvidence) -> float:
    down = weighted_mean(pair.history) - exact_mean(pair.attempts)
    return -down if pair.goal == "minimize" else down


def _fell(pair: PairEvidence) -> str:
    name = pair.case.case if isinstance(pair.case, CaseKey) else str(pair.case)
    before, now = f"{weighted_mean(pair.history):.2f}", f"{exact_mean(pair.attempts):.2f}"
    if (limit := pair.threshold) is not None:
        runs = sum(times for _, times in pair.history)
        past = sum(times for score, times in pair.history if meets(score, limit, pair.goal))
        met = sum(meets(score, limit, pair.goal) for score in pair.attempts)
        if past * len(pair.attempts) != met * runs:  # else the scores moved on one side of the threshold
            before, now = f"{past}/{runs}", f"{met}/{len(pair.attempts)}"
    moved = "rose" if pair.goal == "minimize" else "fell"
    return f"{pair.criterion} of {name} {moved} from {before} to {now}"
