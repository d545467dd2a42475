"""Records as rows of text for a table. Pure; the caller escapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent_eval_action.results.history import Record, TrajectoryRecord
from agent_eval_action.results.trajectory import format_call

_CALLS_SHOWN = 4


def show(record: Record) -> Iterator[tuple[str, ...]]:
    """A row per pair: agent, set, case, criterion, passed, mean, and in a case's first row its usual tool calls."""
    for case in record.cases:
        calls = _usual_calls(case.trajectory) if case.trajectory else ""
        for name, kept in sorted(case.criteria.items()):
            passed = "–" if kept.passed is None else f"{kept.passed} of {kept.n}"
            scores = [score for score, _ in kept.scores]
            low, high = min(scores), max(scores)
            spread = f" ({low:,.2f}–{high:,.2f})" if low != high else ""
            yield (*case.key, name, passed, f"{kept.average:,.2f}{spread}", calls)
            calls = ""


def records_table(records: Iterable[Record]) -> Iterator[tuple[str, ...]]:
    """A row per run of main: commit, when, cases, attempts, withheld pairs, version, accepted changes."""
    for record in records:
        attempts = max((scores.n for case in record.cases for scores in case.criteria.values()), default=0)
        regressed = sum(pair.why == "regressed" for pair in record.withheld)
        unmeasured = len(record.withheld) - regressed
        withheld = [f"{regressed} regressed"] * bool(regressed) + [f"{unmeasured} unmeasured"] * bool(unmeasured)
        yield (
            (record.commit or "–")[:10],
            record.created_at,
            f"{len(record.cases):,}" + ("" if record.whole else " (some)"),
            f"{attempts} a case",
            ", ".join(withheld) or "–",
            record.tool_version,
            ", ".join(entry.case for entry in record.accepted) or "–",
        )


def _usual_calls(trajectory: TrajectoryRecord) -> str:
    """``roll_die(sides=17) | check_prime(nums=[7])``: turns apart, and how many attempts did so if not all."""
    left = _CALLS_SHOWN
    turns: list[str] = []
    for calls in trajectory.turns:
        turns.append(", ".join(format_call(call) for call in calls[:left]) or "–")
        left -= len(calls)
        if left <= 0:
            break
    more = len(turns) < len(trajectory.turns) + trajectory.cut or left < 0
    share = "" if trajectory.seen == trajectory.attempts else f" ({trajectory.seen} of {trajectory.attempts} attempts)"
    return " | ".join(turns) + (" …" if more else "") + share
