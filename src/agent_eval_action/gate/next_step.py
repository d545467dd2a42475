"""Choose the next runs: the control, the suspects, the suite, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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
from agent_eval_action.gate.pairs import GateRules, GateState, Pair, history_stats, mean
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.history import weighted_mean
from agent_eval_action.results.pair_scores import exact_mean, meets

FIRST_DOUBT: Final = 0.2
"""Suspects are run further if their first fresh runs have at most this p."""
SUITE_IN_DOUBT: Final = (0.35, 0.12, 0.08, 0.05, 0.03)
"""The suite is passed again while its p is at most this, per pass: a real drop becomes clearer with each."""
INTERLEAVED_RUNS: Final = 5
"""Runs of this change interleaved with a suspect's whole control, so that drift affects both sides equally."""
SMALL_INTERLEAVED_RUNS: Final = 3
"""The same with a small control."""
SHORT_HISTORY: Final = 2
"""A history of at most this many times the fresh runs tells less than the control would."""
_DECIDED: Final = frozenset({Status.CONFIRMED, Status.ON_MAIN, Status.UNCONTROLLED})

Attempts = tuple[tuple[CaseKey, int], ...]
"""Cases in order, with the number of *further* attempts of each."""


@dataclass(frozen=True, slots=True)
class RerunSuspects:
    """Run these cases again: they scored worse than on main. ``why`` is for the progress display."""

    attempts: Attempts
    why: str


@dataclass(frozen=True, slots=True)
class RerunSuite:
    """Pass the suite again: its drop is in doubt. Cases that were already run again need fewer attempts."""

    attempts: Attempts
    why: str


@dataclass(frozen=True, slots=True)
class RunControl:
    """Run these cases on the base commit's agent, interleaved with ``interleaved`` runs of this change's agent.

    Drift of a model or a service then affects both sides equally. ``errors_answer``: the question is whether the base's
    agent answers at all, so that an error counts as an answer and does not end the control.
    """

    attempts: Attempts
    why: str
    interleaved: Attempts = ()
    errors_answer: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more would change the verdict, or (``limited``) a limit forbids the runs that would."""

    reason: str
    limited: bool = False


Run = RerunSuspects | RerunSuite | RunControl
Step = Run | Stop
_Criteria = Iterable[CriterionEvidence]


def next_step(state: GateState, rules: GateRules) -> Step:
    """The next runs that are worth making; none unless the rules are adaptive."""
    if not rules.adaptive:
        return Stop("nothing more can be run")
    # if main itself collapsed, no run of either agent shows the effect of the change
    criteria = [found for found in assess(state, rules).values() if found.main_collapse is None]
    limit = rules.limit(len({pair.key for pair in state.pairs}))
    room = limit - state.extra
    for step in _steps(criteria):
        if step is None:
            continue
        if isinstance(step, Stop):
            return step
        interleaved = step.interleaved if isinstance(step, RunControl) else ()
        # without its control a suspect decides nothing
        reserve = _control_costs(criteria) if isinstance(step, RerunSuspects) else {}
        cost = sum(runs for _, runs in (*step.attempts, *interleaved))
        if cost <= room - sum(reserve.get(case, 0) for case, _ in step.attempts):
            return step
        smaller = None if isinstance(step, RerunSuite) else _worst_first(step, criteria, reserve, room)
        return smaller or Stop(
            f"the limit of {plural(limit, 'extra run')} is reached before this: {step.why}", limited=True
        )
    return Stop("nothing is in doubt")


def _steps(criteria: _Criteria) -> Iterable[Step | None]:
    """Possible steps, most useful first: a suspect that the first look decides is not run to the last."""
    enough = Stop("a regression is confirmed")
    yield _slice_control(criteria)
    yield enough if any(criterion.fell_far and criterion.confirmed for criterion in criteria) else None
    yield _suspects(criteria, _first_look)
    yield _control(criteria, _as_good_as_decided)
    yield enough if any(criterion.confirmed for criterion in criteria) else None
    yield _control(criteria, _short_of_history)
    yield _suspects(criteria, _next_look)
    yield _control(criteria, _in_doubt)
    yield _suite(criteria)


# --- limits ---------------------------------------------------------------------------------------


def _control_costs(criteria: _Criteria) -> dict[CaseKey, int]:
    """The least cost of each suspect's control on both sides, for suspects that have none yet."""
    found: dict[CaseKey, int] = {}
    for criterion in criteria:
        least = STABLE_RUNS + STABLE_RUNS - 1 if criterion.stable else SMALL_CONTROL + SMALL_INTERLEAVED_RUNS
        for pair in criterion.suspects if criterion.control else ():
            if pair.controllable and not pair.control_attempts:
                _raise_to(found, pair, least)
    return found


def _worst_first(
    step: RerunSuspects | RunControl, criteria: _Criteria, reserve: Mapping[CaseKey, int], room: int
) -> Step | None:
    """The part of a step that fits into ``room``: the cases that fell furthest, each with the cost of its control."""
    interleaved = dict(step.interleaved) if isinstance(step, RunControl) else {}
    falls: dict[CaseKey, float] = {}
    for criterion in criteria:
        for pair in criterion.suspects:
            fall = history_stats(pair.history).mean - mean(pair.attempts)
            falls[pair.key] = max(falls.get(pair.key, 0.0), fall)
    chosen: dict[CaseKey, int] = {}
    for case, runs in sorted(step.attempts, key=lambda item: (-falls.get(item[0], 0.0), item)):
        needed = runs + interleaved.get(case, 0) + reserve.get(case, 0)
        if needed > room:
            break
        room -= needed
        chosen[case] = runs
    if not chosen:
        return None
    if isinstance(step, RunControl):
        step = replace(
            step, interleaved=_in_order({case: runs for case, runs in interleaved.items() if case in chosen})
        )
    return replace(step, attempts=_in_order(chosen))


# --- suspects again -------------------------------------------------------------------------------


def _suspects(criteria: _Criteria, target: Callable[[CriterionEvidence, Pair], int]) -> RerunSuspects | None:
    wanted: dict[CaseKey, int] = {}
    for criterion in criteria:
        for pair in criterion.suspects:
            more = target(criterion, pair) - (len(pair.attempts) - pair.first)
            _raise_to(wanted, pair, 0 if pair.errors else more)
    return RerunSuspects(_in_order(wanted), f"{plural(len(wanted), 'case')} did worse than on main") if wanted else None


def _first_look(criterion: CriterionEvidence, pair: Pair) -> int:
    """The number of fresh runs that every suspect gets."""
    runs, worse = criterion.runs(pair), criterion.worse_each_time(pair)
    if (
        criterion.stable
        and (worse or not runs)
        and criterion.control
        and pair.controllable
        and not pair.control_attempts
    ):
        return 1  # the rest of the three is interleaved with the control
    if criterion.stable and (runs < STABLE_RUNS or worse or criterion.recovered(pair)):
        return STABLE_RUNS
    return FRESH_LOOKS[0][0]


def _next_look(criterion: CriterionEvidence, pair: Pair) -> int:
    """The number of fresh runs a suspect should have: up to the next look while it is in doubt."""
    made, first, last = criterion.runs(pair), FRESH_LOOKS[0][0], FRESH_LOOKS[-1][0]
    if made < first or made >= last or _is_decided(criterion, pair):
        return made
    doubt = FIRST_DOUBT if made == first else IN_DOUBT
    together = made == first and criterion.together(control=False).p <= FIRST_DOUBT * criterion.share
    if not together and criterion.p_of(pair, control=True) > doubt * criterion.share:
        return made
    return next(runs for runs, _ in FRESH_LOOKS if runs > made)


def _is_decided(criterion: CriterionEvidence, pair: Pair) -> bool:
    """Whether a suspect is decided; before its control, whether it would be if the control matched the history."""
    if pair.control or not criterion.control or not pair.controllable:
        return criterion.tests[pair.key].status in _DECIDED
    return criterion.is_sure(pair, control=False)


# --- the control ----------------------------------------------------------------------------------


def _slice_control(criteria: _Criteria) -> RunControl | None:
    """If nearly everything fell, run a slice of the suite on both sides to see whether the change is the cause."""
    wanted: dict[CaseKey, int] = {}
    interleaved: dict[CaseKey, int] = {}
    for criterion in criteria:
        if criterion.fell_far and not criterion.confirmed:
            for pair in _next_slice(criterion):
                _raise_to(wanted, pair, 1 - max(pair.control_attempts, len(pair.control)))
                _raise_to(interleaved, pair, 0 if pair.interleaved else 1)
    return _run_control(wanted, interleaved)


def _next_slice(criterion: CriterionEvidence) -> tuple[Pair, ...]:
    """The first slice not run yet; () if the slice before it shows main to be as bad."""
    for size in criterion.slices:
        test = criterion.slice_test(size)
        if test is None:
            chosen = criterion.slice_of(size)
            return () if all(pair.control_attempts for pair in chosen) else chosen
        if not test.beyond and criterion.collapse_of(size) is None:
            return ()
    return ()


def _control(criteria: _Criteria, is_due: Callable[[CriterionEvidence, Pair], bool]) -> RunControl | None:
    """The control of the suspects that are due, and of the whole suite if its mean would block."""
    wanted: dict[CaseKey, int] = {}
    interleaved: dict[CaseKey, int] = {}
    for criterion in criteria:
        if not criterion.control:
            continue
        for pair in criterion.suspects:
            if is_due(criterion, pair) and (runs := criterion.missing_control(pair)):
                _raise_to(wanted, pair, runs)
                _raise_to(interleaved, pair, _interleaved_runs(criterion, pair))
        if not criterion.confirmed and criterion.has_limit and criterion.complete and criterion.passes:
            made = all(pair.interleaved for pair in criterion.complete)
            for pair in criterion.complete if criterion.suite(criterion.passes).sure else ():
                if pair.controllable:
                    _raise_to(wanted, pair, criterion.passes - made - max(pair.control_attempts, len(pair.control)))
                    _raise_to(interleaved, pair, 0 if pair.interleaved else 1)
    return _run_control(wanted, interleaved)


def _run_control(wanted: dict[CaseKey, int], interleaved: dict[CaseKey, int]) -> RunControl | None:
    if not wanted:
        return None
    in_turn = {case: runs for case, runs in interleaved.items() if case in wanted}
    return RunControl(_in_order(wanted), f"checking {plural(len(wanted), 'case')} on main", _in_order(in_turn))


def _interleaved_runs(criterion: CriterionEvidence, pair: Pair) -> int:
    if criterion.worse_each_time(pair):
        return STABLE_RUNS - criterion.runs(pair)
    whole = criterion.missing_control(pair) + max(pair.control_attempts, len(pair.control)) >= CONTROL_RUNS
    return (INTERLEAVED_RUNS if whole else SMALL_INTERLEAVED_RUNS) - len(pair.interleaved)


def _as_good_as_decided(criterion: CriterionEvidence, pair: Pair) -> bool:
    """Whether history alone decides a suspect. If a small control left doubts, the rest of it is run."""
    if not criterion.runs(pair) or criterion.worse_each_time(pair):
        return criterion.worse_each_time(pair)
    return _is_decided(criterion, pair) or (bool(pair.control) and criterion.is_sure(pair, control=False))


def _short_of_history(criterion: CriterionEvidence, pair: Pair) -> bool:
    """Whether a suspect is in doubt because of a short history: the control then tells more than further re-runs."""
    runs = criterion.runs(pair)
    short = runs > 0 and history_stats(pair.history).n <= SHORT_HISTORY * runs
    return short and criterion.p_of(pair, control=False) <= IN_DOUBT


def _in_doubt(criterion: CriterionEvidence, pair: Pair) -> bool:
    """Whether a suspect may be worse: the control shows whether its history was lucky, or short."""
    return criterion.p_of(pair, control=False) <= IN_DOUBT or criterion.together(control=False).p <= IN_DOUBT


def _suite(criteria: _Criteria) -> RerunSuite | None:
    wanted: dict[CaseKey, int] = {}
    doubtful = ""
    for criterion in criteria:
        first, passes = criterion.first, criterion.passes
        if criterion.stable or not criterion.has_limit or not passes or passes - first + 1 >= len(SUITE_LOOKS):
            continue
        test = criterion.suite(passes, control=criterion.suite_controlled)
        if test.p > SUITE_IN_DOUBT[passes - first] * criterion.share:
            continue
        doubtful = doubtful or criterion.criterion
        for pair in criterion.complete:
            _raise_to(wanted, pair, passes + 1 - first + pair.first - len(pair.attempts))
    return RerunSuite(_in_order(wanted), f"the drop of {doubtful} is in doubt") if wanted else None


def _raise_to(wanted: dict[CaseKey, int], pair: Pair, runs: int) -> None:
    if runs > 0:
        wanted[pair.key] = max(wanted.get(pair.key, 0), runs)


def _in_order(wanted: Mapping[CaseKey, int]) -> Attempts:
    return tuple(sorted(wanted.items()))


# --- text for the progress display ----------------------------------------------------------------


def describe_step(step: Step, state: GateState) -> str:
    """Like "3 cases, 4 more runs each: `tool_trajectory_avg_score` of `book_flight` fell from 14/14 to 0/1, …"."""
    if isinstance(step, Stop) or not step.attempts:
        return step.reason if isinstance(step, Stop) else step.why
    wanted = {case for case, _ in step.attempts}
    fell = [pair for pair in state.pairs if pair.key in wanted and pair.history and pair.attempts and _fall(pair) > 0]
    worst = min(fell, key=lambda pair: (-_fall(pair), pair.criterion, str(pair.key)), default=None)
    others = f", and {plural(len(step.attempts) - 1, 'other')}" if len(step.attempts) > 1 else ""
    example = f"{_describe_fall(worst)}{others}" if worst else ""
    times = [more for _, more in step.attempts]
    if isinstance(step, RunControl):
        here = sum(runs for _, runs in step.interleaved)
        runs = f"{plural(sum(times), 'run')} there{f' in turn with {here} here' if here else ''}"
        return f"{step.why}, {runs}{f': {example}' if example else ''}"
    each = plural(times[0], "more run") if len(set(times)) == 1 else f"{min(times)} to {max(times)} more runs"
    suspects = isinstance(step, RerunSuspects)
    cases = plural(len(step.attempts), "suspect" if suspects else "case")
    return f"{cases}, {each} each: {example if suspects and example else step.why}"


def _fall(pair: Pair) -> float:
    down = weighted_mean(pair.history) - exact_mean(pair.attempts)
    return -down if pair.goal == "minimize" else down


def _describe_fall(pair: Pair) -> str:
    before, now = f"{weighted_mean(pair.history):.2f}", f"{exact_mean(pair.attempts):.2f}"
    if (limit := pair.threshold) is not None:
        runs = sum(times for _, times in pair.history)
        past = sum(times for score, times in pair.history if meets(score, limit, pair.goal))
        met = sum(meets(score, limit, pair.goal) for score in pair.attempts)
        if past * len(pair.attempts) != met * runs:  # otherwise the scores moved without crossing the threshold
            before, now = f"{past}/{runs}", f"{met}/{len(pair.attempts)}"
    moved = "rose" if pair.goal == "minimize" else "fell"
    return f"{pair.criterion} of {pair.key.case} {moved} from {before} to {now}"
