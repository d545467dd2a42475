"""What became of a suspect, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent_eval_action.gate.assess import Status, SuspectTest
from agent_eval_action.gate.evidence import PairEvidence, known, mean
from agent_eval_action.gate.evidence_index import interval_of
from agent_eval_action.gate.wording import count, number, numbers
from agent_eval_action.results.history import ScoreCount

_AFTER: Final = {
    Status.CONFIRMED: "",
    Status.WITH_SUITE: ": part of what the whole criterion lost",
    Status.WITH_MAIN: ": part of what main's agent lost as well",
    Status.CLEARED: ": flaky, not worse than on main",
    Status.OPEN: ": too few runs to tell it from chance",
    Status.UNCONTROLLED: ": not confirmed, the base commit's agent was not run for comparison",
}


def describe_suspect(test: SuspectTest) -> str:
    """``passed 14 of 14 times on main and 0 of 6 here``, or the means where scores are graded."""
    pair = test.pair
    # what chose a suspect is said only where nothing better is known
    scores = test.fresh or pair.attempts
    here = "here" if test.fresh else "in the first pass here"
    interval = interval_of(pair, scores)
    ends = [number(end) for end in interval] if interval and test.fresh else []
    spread = f" (change {ends[0]} to {ends[1]}, 95 %)" if len(set(ends)) > 1 else ""
    if _plain(pair):
        then, now = _times(pair.history), _times([(score, 1) for score in scores])
        words = f"passed {then} times on main and {now} {here}"
        control = f"; the base commit's agent passed {_times([(s, 1) for s in pair.control])} just now"
    else:
        past = known(pair.history)
        then, now = numbers(past.mean, mean(scores))
        words = f"was {then} over {count(past.n, 'run')} of main and {now} over {len(scores)} {here}"
        control = f"; the base commit's agent had {number(mean(pair.control))} just now" if pair.control else ""
    if not pair.control:
        control = ""
    if test.status is Status.ON_MAIN:
        return f"{words}{control}: already broken on main"
    return f"{words}{spread}{control}{_AFTER[test.status]}"


def describe_rate(test: SuspectTest) -> str:
    """``3 of 5``, or the mean where scores are graded: how a suspect did when it was run again."""
    scores = [(score, 1) for score in test.fresh]
    return _times(scores) if _plain(test.pair) else f"{number(mean(test.fresh))} over {count(len(scores), 'run')}"


def _plain(pair: PairEvidence) -> bool:
    seen = (*(score for score, _ in pair.history), *pair.attempts, *pair.control)
    return all(score in {0.0, 1.0} for score in seen)


def _times(scores: Sequence[ScoreCount]) -> str:
    passed = sum(times for score, times in scores if score == 1.0)
    return f"{passed} of {sum(times for _, times in scores)}"
