"""A baseline as rows of text for a table. Pure; whoever prints escapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agent_eval_action.results.history import CaseRecord, CriterionRecord, Record
from agent_eval_action.results.trajectory import format_call

_CALLS_SHOWN = 4


class Row(NamedTuple):
    """One pair. ``tool_calls`` are the case's usual ones, in its first row."""

    agent: str
    eval_set: str
    case: str
    criterion: str
    passed: str
    mean: str
    tool_calls: str


def show(record: Record) -> tuple[Row, ...]:
    """Every pair, in the order of the file."""
    return tuple(row for case in record.cases for row in _rows(case))


def records_table(records: Iterable[Record]) -> Iterator[tuple[str, ...]]:
    """A row per run of main: commit, when, cases, attempts, what was withheld and accepted, the version."""
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
            ", ".join(entry.case for entry in record.accepted) or "–",
            record.tool_version,
        )


def _rows(record: CaseRecord) -> list[Row]:
    usual = _usual(record)
    rows: list[Row] = []
    for name, scores in sorted(record.criteria.items()):
        passed = "–" if scores.passed is None else f"{scores.passed} of {scores.n}"
        rows.append(Row(*record.key, name, passed, _mean(scores), "" if rows else usual))
    return rows


def _mean(record: CriterionRecord) -> str:
    scores = [score for score, _ in record.scores]
    low, high = min(scores), max(scores)
    spread = f" ({low:,.2f}–{high:,.2f})" if low != high else ""
    return f"{record.average:,.2f}{spread}"


def _usual(record: CaseRecord) -> str:
    """``roll_die(sides=17) | check_prime(nums=[7])``: turns apart, and how many attempts did so if not all."""
    trajectory = record.trajectory
    if trajectory is None:
        return ""
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
