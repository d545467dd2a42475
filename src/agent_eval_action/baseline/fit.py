"""Keeps a case within its space: what is least needed for a comparison is shortened first.

In this order: long arguments, the later turns, digits of the scores, distinct scores, criteria.
Every step is a pure function of the record, so that the same run always leaves the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent_eval_action.baseline.layout import record_text, turn_text
from agent_eval_action.model.baseline import (
    CaseRecord,
    CriterionRecord,
    ScoreCount,
    Trajectory,
    rounded,
    short_call,
    weighted_mean,
)

CASE_BYTES: Final = 2048
_DIGITS: Final = 3
_BINS: Final = 4


def fit(record: CaseRecord) -> CaseRecord:
    """The record itself, or what of it fits into ``CASE_BYTES``."""
    steps: tuple[Callable[[CaseRecord], CaseRecord], ...] = (
        _shorten_arguments,
        _leave_out_turns,
        lambda one: _coarsen(one, _fewer_digits),
        lambda one: _coarsen(one, _fewer_scores),
        _omit_criteria,
    )
    for step in steps:
        if size(record) <= CASE_BYTES:
            break
        record = step(record)
    return record


def size(record: CaseRecord) -> int:
    """Bytes of the record in the file, with the comma and newline behind it."""
    return len(record_text(record).encode()) + 2


def _shorten_arguments(record: CaseRecord) -> CaseRecord:
    if record.trajectory is None:
        return record
    turns = tuple(tuple(short_call(call) for call in calls) for calls in record.trajectory.turns)
    return _with_turns(record, turns, 0)


def _leave_out_turns(record: CaseRecord) -> CaseRecord:
    if record.trajectory is None:
        return record
    turns = record.trajectory.turns
    left = CASE_BYTES - size(_with_turns(record, (), len(turns)))
    kept = 0
    for calls in turns:
        left -= len(turn_text(calls).encode()) + len("\n      ,")
        if left < 0:
            break
        kept += 1
    return _with_turns(record, turns[:kept], len(turns) - kept)


def _with_turns(record: CaseRecord, turns: Trajectory, cut: int) -> CaseRecord:
    if record.trajectory is None:
        return record
    return record.model_copy(update={"trajectory": record.trajectory.model_copy(update={"turns": turns, "cut": cut})})


def _coarsen(record: CaseRecord, how: Callable[[CriterionRecord], tuple[ScoreCount, ...]]) -> CaseRecord:
    criteria = {}
    for name, one in record.criteria.items():
        scores = how(one)
        changed = {} if scores == one.scores else {"scores": scores, "mean": rounded(one.average)}
        criteria[name] = one.model_copy(update=changed)
    return record.model_copy(update={"criteria": criteria})


def _fewer_digits(record: CriterionRecord) -> tuple[ScoreCount, ...]:
    counts: dict[float, int] = {}
    for score, count in record.scores:
        rounded = float(f"{score:.{_DIGITS}g}")
        counts[rounded] = counts.get(rounded, 0) + count
    return tuple(sorted(counts.items()))


def _fewer_scores(record: CriterionRecord) -> tuple[ScoreCount, ...]:
    """Neighbouring scores joined into at most ``_BINS``, each at their mean."""
    if len(record.scores) <= _BINS:
        return record.scores
    bins: dict[int, list[ScoreCount]] = {}
    before = 0
    for score, count in sorted(record.scores):
        bins.setdefault(before * _BINS // record.n, []).append((score, count))
        before += count
    joined: dict[float, int] = {}
    for members in bins.values():
        total = sum(count for _, count in members)
        mean = float(f"{weighted_mean(members):.{_DIGITS}g}")
        joined[mean] = joined.get(mean, 0) + total
    return tuple(sorted(joined.items()))


def _omit_criteria(record: CaseRecord) -> CaseRecord:
    """Leave out criteria without a threshold first, then from the end of the alphabet."""
    criteria = dict(record.criteria)
    order = sorted(criteria, key=lambda name: (criteria[name].threshold is not None, [-ord(c) for c in name]))
    while order and size(record) > CASE_BYTES:
        del criteria[order.pop(0)]
        record = record.model_copy(update={"criteria": dict(criteria), "omitted": record.omitted + 1})
    return record
