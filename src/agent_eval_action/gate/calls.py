"""Which tool call changed: against the baseline's trajectory, and against the expected one."""

from __future__ import annotations

from typing import Final

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.gate.compare import ComparedPair
from agent_eval_action.results.history import Trajectory, TrajectoryRecord, short_call, trajectory_digest
from agent_eval_action.results.pair_scores import modal_trajectory
from agent_eval_action.results.trajectory import CallDifference, call_key, diff_calls, explain, format_call

_TRAJECTORY: Final = "tool_trajectory_avg_score"


def call_detail(pair: ComparedPair, then: TrajectoryRecord | None) -> str:
    """What the criterion says of the worst attempt, and the tool call that differs from the baseline's; "" if nothing.

    Taken from the worst attempts: theirs is the score that needs explaining.
    """
    if pair.measured is None:
        return ""
    said = pair.measured.reason
    modal = modal_trajectory(pair.measured.worst)
    now = modal[0] if modal else None
    if now is None:
        return said
    expected = tuple(turn.calls for turn in pair.measured.case.expected)
    if not said and pair.criterion == _TRAJECTORY and expected:
        said = against_expected(expected, now)
    if then is None or (pair.criterion == _TRAJECTORY and then.digest == trajectory_digest(expected)):
        return said  # the baseline did what is expected: saying it twice helps nobody
    changed = against_baseline(then, now)
    return "; ".join(part for part in (said, f"tool calls changed: {changed}" if changed else "") if part)


def against_expected(expected: Trajectory, now: Trajectory) -> str:
    """The first difference from the expected calls; "" when there is none."""
    for turn, (want, got) in enumerate(zip(expected, now, strict=False), 1):
        if found := diff_calls(want, got):
            return f"turn {turn} {explain(found[0])}"
    return ""


def against_baseline(then: TrajectoryRecord, now: Trajectory) -> str:
    """The first difference from the baseline's calls; "" when there is none."""
    if then.digest == trajectory_digest(now):
        return ""
    for turn, (old, new) in enumerate(zip(then.turns, now, strict=False), 1):
        known = {call_key(call) for call in old}
        # a call the baseline has only in short is compared in short
        same_form = tuple(call if call_key(call) in known else short_call(call) for call in new)
        if found := diff_calls(old, same_form):
            return f"turn {turn} {_changed(found[0])}"
    turns = len(then.turns) + then.cut
    if turns != len(now):
        return f"{plural(turns, 'turn')} in the baseline, {len(now)} now"
    return f"after turn {len(then.turns)}, of which the baseline keeps no more than a digest"


def _changed(found: CallDifference) -> str:
    if found.expected is None:
        return f"{format_call(found.actual)} is new" if found.actual else "differs"
    if found.actual is None:
        return f"{format_call(found.expected)} is no longer called"
    if found.kind == "moved":
        return f"{format_call(found.expected)} comes in another place"
    before, after = format_call(found.expected), format_call(found.actual)
    return f"{before} → {after}" if before != after else f"{before} with other arguments"
