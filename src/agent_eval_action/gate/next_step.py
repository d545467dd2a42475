"""Choose the next runs: the control, the suspects, the suite, or nothing; find code that the change broke. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final, Literal

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.gate.assess import (
    CONTROL_RUNS,
    FRESH_LOOKS,
    IN_DOUBT,
    SMALL_CONTROL,
    STABLE_RUNS,
    CriterionEvidence,
    Status,
    assess,
)
from agent_eval_action.gate.pairs import GateRules, GateState, Pair
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.results.run_result import AttemptError, AttemptSummary, ErrorKind, RunResult
from agent_eval_action.stats import Stratum, lower_than_reference, passes

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
class Run:
    """Further attempts; ``why`` is for the progress display.

    ``rerun``: of cases that scored worse than on main. ``suite``: of every case, because the drop of the mean is in
    doubt. ``control``: of the base commit's agent, interleaved with ``interleaved`` attempts of this change's, so that
    drift of a model or a service affects both sides equally. ``errors_answer``: the question is whether the base's
    agent answers at all, so that an error counts as an answer and does not end the control.
    """

    purpose: Literal["rerun", "suite", "control"]
    attempts: Attempts
    why: str
    interleaved: Attempts = ()
    errors_answer: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more would change the verdict, or (``limited``) a limit forbids the runs that would."""

    reason: str
    limited: bool = False


Step = Run | Stop
_Criteria = Sequence[CriterionEvidence]


def next_step(state: GateState, rules: GateRules) -> Step:
    """The next runs that are worth making; none unless the rules are adaptive."""
    if not rules.adaptive:
        return Stop("nothing more can be run")
    # if main itself collapsed, no run of either agent shows the effect of the change
    criteria = [found for found in assess(state, rules).values() if found.main_collapse is None]
    limit = rules.limit(len({pair.key for pair in state.pairs}))
    for step in _steps(criteria):
        if isinstance(step, Stop):
            return step
        if step is not None:
            reason = f"the limit of {plural(limit, 'extra run')} is reached before this: {step.why}"
            return _within(limit - state.extra, step, criteria) or Stop(reason, limited=True)
    return Stop("nothing is in doubt")


def _steps(criteria: _Criteria) -> Iterator[Step | None]:
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


def _within(room: int, step: Run, criteria: _Criteria) -> Run | None:
    """The step, or the part of it that fits into ``room``: the cases that fell furthest. None if nothing fits."""
    # without its control a suspect decides nothing
    reserve = _control_costs(criteria) if step.purpose == "rerun" else {}
    interleaved = dict(step.interleaved)
    costs = {case: runs + interleaved.get(case, 0) + reserve.get(case, 0) for case, runs in step.attempts}
    if sum(costs.values()) <= room:
        return step
    if step.purpose == "suite":
        return None
    falls: dict[CaseKey, float] = {}
    for pair in (pair for criterion in criteria for pair in criterion.suspects):
        falls[pair.key] = max(falls.get(pair.key, 0.0), _fall(pair))
    chosen: set[CaseKey] = set()
    for case in sorted(costs, key=lambda case: (-falls.get(case, 0.0), case)):
        room -= costs[case]
        if room < 0:
            break
        chosen.add(case)
    attempts, in_turn = (
        tuple((case, runs) for case, runs in every if case in chosen) for every in (step.attempts, step.interleaved)
    )
    return replace(step, attempts=attempts, interleaved=in_turn) if chosen else None


def _control_costs(criteria: _Criteria) -> dict[CaseKey, int]:
    """The least cost of each suspect's control on both sides, for suspects that have none yet."""
    return dict(
        _most(
            (pair.key, 2 * STABLE_RUNS - 1 if criterion.stable else SMALL_CONTROL + SMALL_INTERLEAVED_RUNS)
            for criterion in criteria
            for pair in criterion.suspects
            if criterion.awaits_control(pair)
        )
    )


def _most(wanted: Iterable[tuple[CaseKey, int]]) -> Attempts:
    """Every case of which some criterion wants runs, with the most that one wants."""
    found: dict[CaseKey, int] = {}
    for case, runs in wanted:
        found[case] = max(found.get(case, 0), runs)
    return tuple(sorted((case, runs) for case, runs in found.items() if runs > 0))


# --- suspects again -------------------------------------------------------------------------------


def _suspects(criteria: _Criteria, target: Callable[[CriterionEvidence, Pair], int]) -> Run | None:
    wanted = _most(
        (pair.key, target(criterion, pair) - pair.again)
        for criterion in criteria
        for pair in criterion.suspects
        if not pair.errors
    )
    return Run("rerun", wanted, f"{plural(len(wanted), 'case')} did worse than on main") if wanted else None


def _first_look(criterion: CriterionEvidence, pair: Pair) -> int:
    """The number of fresh runs that every suspect gets."""
    runs, worse = criterion.runs(pair), criterion.worse_each_time(pair)
    if criterion.stable and (worse or not runs) and criterion.awaits_control(pair):
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

_Wanted = Iterator[tuple[Pair, int, int]]
"""Pairs with their runs on the base, and those of this change interleaved with them."""


def _slice_control(criteria: _Criteria) -> Run | None:
    """If nearly everything fell, run a slice of the suite on both sides to see whether the change is the cause."""
    return _run_control(
        (pair, 1 - pair.control_made, 1 - len(pair.interleaved))
        for criterion in criteria
        if criterion.fell_far and not criterion.confirmed
        for pair in _next_slice(criterion)
    )


def _next_slice(criterion: CriterionEvidence) -> tuple[Pair, ...]:
    """The first slice not run yet; () if the slice before it shows main to be as bad."""
    for size in criterion.slices:
        test = criterion.slice_test(size)
        if test is None:
            chosen = criterion.shuffled[:size]
            return () if all(pair.control_attempts for pair in chosen) else chosen
        if not test.beyond and criterion.collapse_of(size) is None:
            return ()
    return ()


def _control(criteria: _Criteria, is_due: Callable[[CriterionEvidence, Pair], bool]) -> Run | None:
    """The control of the suspects that are due, and of the whole suite if its mean would block."""

    def wanted(criterion: CriterionEvidence) -> _Wanted:
        for pair in criterion.suspects:
            if is_due(criterion, pair) and (runs := criterion.missing_control(pair)):
                yield pair, runs, _interleaved_runs(criterion, pair, runs)
        if not criterion.confirmed and criterion.can_fall and criterion.suite(criterion.again).sure:
            made = all(pair.interleaved for pair in criterion.complete)
            runs = max(pair.first for pair in criterion.complete) + criterion.again - made
            for pair in criterion.complete:
                if pair.controllable:
                    yield pair, runs - pair.control_made, 1 - len(pair.interleaved)

    return _run_control(item for criterion in criteria if criterion.control for item in wanted(criterion))


def _run_control(wanted: _Wanted) -> Run | None:
    pairs = list(wanted)
    attempts = _most((pair.key, runs) for pair, runs, _ in pairs)
    if not attempts:
        return None
    cases = dict(attempts)
    interleaved = _most((pair.key, runs) for pair, _, runs in pairs if pair.key in cases)
    return Run("control", attempts, f"checking {plural(len(attempts), 'case')} on main", interleaved)


def _interleaved_runs(criterion: CriterionEvidence, pair: Pair, missing: int) -> int:
    if criterion.worse_each_time(pair):
        return STABLE_RUNS - criterion.runs(pair)
    whole = missing + pair.control_made >= CONTROL_RUNS
    return (INTERLEAVED_RUNS if whole else SMALL_INTERLEAVED_RUNS) - len(pair.interleaved)


def _as_good_as_decided(criterion: CriterionEvidence, pair: Pair) -> bool:
    """Whether history alone decides a suspect. If a small control left doubts, the rest of it is run."""
    if not criterion.runs(pair) or criterion.worse_each_time(pair):
        return criterion.worse_each_time(pair)
    return _is_decided(criterion, pair) or (bool(pair.control) and criterion.is_sure(pair, control=False))


def _short_of_history(criterion: CriterionEvidence, pair: Pair) -> bool:
    """Whether a suspect is in doubt because of a short history: the control then tells more than further re-runs."""
    runs = criterion.runs(pair)
    short = runs > 0 and pair.past.n <= SHORT_HISTORY * runs
    return short and criterion.p_of(pair, control=False) <= IN_DOUBT


def _in_doubt(criterion: CriterionEvidence, pair: Pair) -> bool:
    """Whether a suspect may be worse: the control shows whether its history was lucky, or short."""
    return criterion.p_of(pair, control=False) <= IN_DOUBT or criterion.together(control=False).p <= IN_DOUBT


def _suite(criteria: _Criteria) -> Run | None:
    doubtful = [
        criterion
        for criterion in criteria
        if criterion.can_fall
        and not criterion.stable
        and criterion.again < len(SUITE_IN_DOUBT)
        and criterion.suite(criterion.again, control=True).p <= SUITE_IN_DOUBT[criterion.again] * criterion.share
    ]
    wanted = _most(
        (pair.key, criterion.again + 1 - pair.again) for criterion in doubtful for pair in criterion.complete
    )
    return Run("suite", wanted, f"the drop of {doubtful[0].criterion} is in doubt") if wanted else None


# --- text for the progress display ----------------------------------------------------------------


def describe_step(step: Step, state: GateState) -> str:
    """Like "3 cases, 4 more runs each: `tool_trajectory_avg_score` of `book_flight` fell from 14/14 to 0/1, …"."""
    if isinstance(step, Stop):
        return step.reason
    wanted = {case for case, _ in step.attempts}
    fell = [pair for pair in state.pairs if pair.key in wanted and pair.history and pair.attempts and _fall(pair) > 0]
    worst = min(fell, key=lambda pair: (-_fall(pair), pair.criterion, str(pair.key)), default=None)
    others = f", and {plural(len(step.attempts) - 1, 'other')}" if len(step.attempts) > 1 else ""
    example = f"{_describe_fall(worst)}{others}" if worst else ""
    times = [more for _, more in step.attempts]
    if step.purpose == "control":
        here = sum(runs for _, runs in step.interleaved)
        runs = f"{plural(sum(times), 'run')} there{f' in turn with {here} here' if here else ''}"
        return f"{step.why}, {runs}{f': {example}' if example else ''}"
    each = plural(times[0], "more run") if len(set(times)) == 1 else f"{min(times)} to {max(times)} more runs"
    if step.purpose == "suite":
        return f"{plural(len(times), 'case')}, {each} each: {step.why}"
    return f"{plural(len(times), 'suspect')}, {each} each: {example or step.why}"


def _fall(pair: Pair) -> float:
    down = pair.past.mean - fmean(pair.attempts)
    return -down if pair.goal == "minimize" else down


def _describe_fall(pair: Pair) -> str:
    before, now = f"{pair.past.mean:.2f}", f"{fmean(pair.attempts):.2f}"
    if (limit := pair.threshold) is not None:
        runs = sum(times for _, times in pair.history)
        past = sum(times for score, times in pair.history if meets(score, limit, pair.goal))
        met = sum(meets(score, limit, pair.goal) for score in pair.attempts)
        if past * len(pair.attempts) != met * runs:  # otherwise the scores moved without crossing the threshold
            before, now = f"{past}/{runs}", f"{met}/{len(pair.attempts)}"
    moved = "rose" if pair.goal == "minimize" else "fell"
    return f"{pair.criterion} of {pair.key.case} {moved} from {before} to {now}"


# --- code that no longer starts, or raises where the base commit's agent answers ------------------
#
# An error has no score, so the tests of scores cannot see it. The base commit's agent therefore runs in the same job,
# interleaved with the change's: docs/statistics.md has the test and its level.

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
    base: list[tuple[CaseKey, int]] = []
    for agent in {case.key.agent for case in cases if not case.starts}:
        own = [case for case in cases if case.key.agent == agent and not case.starts]
        if not any(case.asked for case in own):
            base += [(case.key, 1) for case in own[:START_CASES]]
    # cases that main raises in too, or that were answered after all, leave their runs to the others
    differing = [case for case in cases if case.starts and case.may_differ]
    fresh, asked = next(((fresh, base) for least, fresh, base in _RUNS if len(differing) >= least), (0, 0))
    wanted = _most((*base, *((case.key, asked - case.asked) for case in differing[:CASES])))
    interleaved = _most((case.key, fresh - case.made) for case in differing[:CASES])
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
