"""Why a step is taken, in words for whoever watches the run. Pure."""

from __future__ import annotations

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.gate.evidence import Enough, GateState, PairEvidence, RerunSuspects, RunControl, Step
from agent_eval_action.results.history import weighted_mean
from agent_eval_action.results.pair_scores import exact_mean, meets
from agent_eval_action.results.run_result import CaseKey


def told(step: Step, state: GateState) -> str:
    """Like "3 cases, 4 more runs each: `tool_trajectory_avg_score` of `book_flight` fell from 14/14 to 0/1, …"."""
    if isinstance(step, Enough) or not step.attempts:
        return step.reason if isinstance(step, Enough) else step.why
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
    wanted = {case for case, _ in step.attempts} if not isinstance(step, Enough) else set()
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
