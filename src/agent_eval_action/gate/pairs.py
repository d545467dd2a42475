"""Pairs (case x criterion): main's scores, this run's scores, and the change between them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import fmean
from typing import Final, NamedTuple

from agent_eval_action.config.models import MOST_EXTRA_RUNS, MOST_EXTRA_RUNS_PER_CASE, Policy
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.case_matching import measured_identities, with_current_names
from agent_eval_action.results.decision import BaselineInfo, ChangeKind, Stat, Unit
from agent_eval_action.results.findings import Subject
from agent_eval_action.results.history import (
    CaseRecord,
    CriterionRecord,
    History,
    Quarantine,
    ScoreCount,
    TrajectoryRecord,
    kept_digest,
    kept_key,
    kept_name,
    weighted_mean,
)
from agent_eval_action.results.pair_scores import PairScores, measured_pairs, meets, score_stat, shared_stat, unbilled
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CriterionInfo,
    Goal,
    RunResult,
    ScoreStatus,
    collector_paused,
)
from agent_eval_action.stats import Levels, Stratum, counted

TOLERANCE: Final = 1e-9
"""Smaller changes (relative for numbers above one) are floating-point noise."""


class Incomparable(NamedTuple):
    """Why a pair has nothing to compare with: a code, and the text that the history or an acceptance gives."""

    why: str
    text: str = ""


NO_BASELINE = Incomparable("no_baseline")
NO_CASE = Incomparable("case_gone")
NEW_CASE = Incomparable("case_new")
EDITED = Incomparable("case_edited")
_NOT_ON_MAIN = Incomparable("base_not_measured")
_NEW_CRITERION = Incomparable("criterion_new")
_NOT_KEPT = Incomparable("not_kept")
_ACCEPTED: Final = "accepted"


@dataclass(frozen=True, slots=True)
class Pair:
    """A case on a criterion. Scores are on the criterion's own scale.

    ``history``: main's comparable scores, pooled, with their counts; () if there are none. ``attempts``: this run's
    scores in the order of their repeats. The first ``first`` of them are the first pass, the rest are *fresh*: a re-run
    of a case scores all its criteria. ``control``: scores of the base commit's agent in this job, from
    ``control_attempts`` attempts. ``interleaved``: the fresh scores made in turn with the control. ``controllable``:
    whether the base commit has the pair's agent. ``errors``: attempts without a score.

    Simulated pairs lack the other fields. ``measured`` is None exactly for pairs that only main has. ``incomparable``:
    why there is nothing to compare with; None if there is. ``below``: the mean misses the threshold (for a removed
    pair: some attempt missed it). ``accepted``: the change was accepted, so that missing the threshold is intended.
    ``quarantine``: the entry that sets the pair aside.
    """

    key: CaseKey
    criterion: str
    history: tuple[ScoreCount, ...] = ()
    attempts: tuple[float, ...] = ()
    first: int = 1
    control: tuple[float, ...] = ()
    interleaved: tuple[float, ...] = ()
    control_attempts: int = 0
    controllable: bool = True
    goal: Goal = "maximize"
    threshold: float | None = None
    errors: int = 0
    unit: Unit = "score"
    kind: ChangeKind = ChangeKind.SAME
    measured: PairScores | None = None
    baseline: Stat | None = None
    current: Stat | None = None
    below: bool = False
    incomparable: Incomparable | None = None
    old_threshold: float | None = None
    accepted: bool = False
    quarantine: Quarantine | None = None

    @property
    def added(self) -> bool:
        """Whether the change under test adds the eval set or the criterion."""
        return self.measured is not None and self.measured.info.added

    @property
    def past(self) -> Stat:
        """Count, mean and extremes of the history, which must not be empty."""
        return history_stats(self.history)

    @property
    def again(self) -> int:
        """The number of fresh scores."""
        return len(self.attempts) - self.first

    @property
    def control_made(self) -> int:
        """Attempts of the base commit's agent; those without a score are not repeated."""
        return max(self.control_attempts, len(self.control))

    @property
    def binary(self) -> bool:
        """Whether every score on either side is 0 or 1."""
        return is_binary([score for score, _ in self.history], self.attempts, self.control)

    @property
    def subject(self) -> Subject:
        return Subject(**self.key._asdict(), criterion=self.criterion)

    @property
    def left_out(self) -> str:
        """Why the pair was left out of this run; "" if it was not."""
        return self.measured.unmeasured if self.measured else ""

    @property
    def change(self) -> float | None:
        """Current minus baseline mean; None unless both are comparable."""
        if not self.history or self.current is None or self.baseline is None:
            return None
        return self.current.mean - self.baseline.mean

    @property
    def fall(self) -> float:
        """The change in the bad direction; 0 if there is none or it is unknown."""
        change = self.change or 0.0
        return change if self.goal == "minimize" else -change


@lru_cache(maxsize=50_000)
def history_stats(history: tuple[ScoreCount, ...]) -> Stat:
    """Count, mean and extremes of a history."""
    scores, times = zip(*history, strict=True)
    return Stat(n=sum(times), mean=weighted_mean(history), low=min(scores), high=max(scores))


@dataclass(frozen=True, slots=True)
class GateState:
    """Everything measured so far.

    ``control``: whether the base commit's agent can be run. ``extra``: attempts beyond the first pass, including those
    of the base.
    """

    pairs: tuple[Pair, ...]
    control: bool = False
    extra: int = 0


@dataclass(frozen=True, slots=True)
class GateRules:
    """The policy for the adaptive loop and the verdict.

    ``extra_runs``: most attempts beyond the first pass in the whole run; None: the default of ``max_extra_runs``.
    ``adaptive``: suspects are run again; otherwise every attempt is evidence and every pair is tested.
    """

    policy: Policy = field(default_factory=Policy)
    extra_runs: int | None = None
    adaptive: bool = True

    def limit(self, cases: int) -> int:
        return MOST_EXTRA_RUNS_PER_CASE * cases + MOST_EXTRA_RUNS if self.extra_runs is None else self.extra_runs


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run compared with main. Pairs are sorted by name.

    ``trajectories``: the baseline agent's calls, by case of this run. ``unmeasured``: cases whose baseline this run
    should have measured but could not, with the reason. ``history``: main's, with the cases' current names. ``extra``
    as in ``GateState``. ``quarantined``: pairs set aside, which ``pairs`` omits. ``overdue``: expired quarantines that
    cover pairs of this run.
    """

    pairs: tuple[Pair, ...]
    removed: tuple[Pair, ...] = ()
    quarantined: tuple[Pair, ...] = ()
    overdue: tuple[Quarantine, ...] = ()
    baseline: BaselineInfo | None = None
    trajectories: Mapping[CaseKey, TrajectoryRecord] = field(default_factory=dict)
    unmeasured: Mapping[CaseKey, str] = field(default_factory=dict)
    history: History = field(default_factory=History)
    extra: int = 0

    @property
    def cases_set_aside(self) -> frozenset[CaseKey]:
        """The cases whose pairs are all quarantined."""
        return frozenset(pair.key for pair in self.quarantined) - {pair.key for pair in self.pairs}


@collector_paused()
def compare(history: History, result: RunResult, *, unmeasured: Mapping[CaseKey, str] | None = None) -> Comparison:
    """Compare a run with main.

    ``unmeasured``: main's cases whose baseline could not be measured, with the reason.

    Without a record of main every pair is *failing* or *passing* by its threshold alone.
    """
    main = history.pooled
    if main and not history.pairs:  # a history that was not pooled for this suite has the cases' old names
        main = with_current_names(main, measured_identities(result))
        history = replace(history, pooled=main)
    known = {case.key: case for case in main.cases} if main else {}
    unmeasured = unmeasured or {}
    without_base = result.base.unavailable_agents if result.base else {}
    pairs = [
        _pair(
            scores,
            known.get(kept_key(scores.key)),
            _why_incomparable(scores, known.get(kept_key(scores.key)), history) if main else NO_BASELINE,
            controllable=scores.key.agent not in without_base,
        )
        for scores in measured_pairs(result)
    ]
    pairs = [replace(pair, incomparable=_NOT_ON_MAIN) if pair.key in unmeasured else pair for pair in pairs]
    pairs.sort(key=lambda pair: (pair.key, pair.criterion))
    if history.quarantines:
        pairs = [replace(pair, quarantine=_quarantine_of(history.quarantines, pair)) for pair in pairs]
    names, info = dict[CaseKey, CaseKey](), None
    if main:
        names = {kept_key(key): key for key, _ in result.keyed_cases()}
        commit, created_at = main.commit, main.created_at
        info = BaselineInfo(path=history.source, commit=commit, created_at=created_at, repeats=main.repeats)
    return Comparison(
        pairs=tuple(pair for pair in pairs if pair.quarantine is None),
        quarantined=tuple(pair for pair in pairs if pair.quarantine is not None),
        overdue=tuple(entry for entry in history.overdue if any(_quarantine_of([entry], pair) for pair in pairs)),
        removed=tuple(_removed(known, result)),
        baseline=info,
        # including removed cases, under the baseline's key
        trajectories={names.get(key, key): record.trajectory for key, record in known.items() if record.trajectory},
        unmeasured=unmeasured,
        history=history,
        extra=result.totals.extra + result.totals.control,
    )


def _quarantine_of(entries: Iterable[Quarantine], pair: Pair) -> Quarantine | None:
    key, criterion = kept_key(pair.key), kept_name(pair.criterion)
    return next((entry for entry in entries if entry.covers(key, criterion)), None)


def comparable_record(
    case_digest: str, info: CriterionInfo, record: CaseRecord | None
) -> CriterionRecord | Incomparable:
    """A record's scores that count for a pair, or why none do. The only place that decides this."""
    if record is None:
        return NEW_CASE
    if record.digest != kept_digest(case_digest):
        return EDITED
    old = record.criteria.get(kept_name(info.name))
    if old is None:
        return _NOT_KEPT if record.omitted else _NEW_CRITERION
    return old if old.digest == kept_digest(info.digest) else Incomparable("criterion_changed")


def differs(before: float, after: float) -> bool:
    """Whether two scores differ by more than floating-point noise."""
    return abs(after - before) > TOLERANCE * max(1.0, abs(before), abs(after))


def mean_of(values: Iterable[float]) -> float | None:
    """The mean; None if there are no values. Independent of their order."""
    numbers = list(values)
    return fmean(numbers) if numbers else None


def _why_incomparable(pair: PairScores, record: CaseRecord | None, history: History) -> Incomparable | None:
    """Why main's scores of a pair do not count, in the history's words if it has some; None if they do."""
    old = comparable_record(pair.case.digest, pair.info, record)
    if (reason := history.acceptance(pair.key, pair.info.name)) is not None:
        return Incomparable(_ACCEPTED, reason)
    past = history.pairs.get((kept_key(pair.key), kept_name(pair.info.name)))
    if past is not None and past.incomparable:
        return Incomparable(EDITED.why if old == EDITED else "history", past.incomparable)
    return old if isinstance(old, Incomparable) else None


def _pair(scores: PairScores, record: CaseRecord | None, why_not: Incomparable | None, *, controllable: bool) -> Pair:
    info = scores.info
    old = record.criteria.get(kept_name(info.name)) if record else None
    first = [attempt for attempt in scores.case.attempts if attempt.purpose == "first"]
    fresh = [attempt for attempt in scores.case.attempts if attempt.purpose != "first"]
    before = _scores_of(first, info.name)
    current = score_stat(scores.scores, info.threshold, info.goal)
    missed = current is not None and info.threshold is not None and not meets(current.mean, info.threshold, info.goal)
    return Pair(
        key=scores.key,
        criterion=info.name,
        history=old.scores if old and why_not is None and current else (),
        attempts=(*before, *_scores_of(fresh, info.name)),
        first=max(1, len(before)),
        control=_scores_of(scores.case.control, info.name),
        interleaved=_scores_of([attempt for attempt in fresh if attempt.purpose == "control"], info.name),
        control_attempts=len(scores.case.control),
        controllable=controllable,
        goal=info.goal,
        threshold=info.threshold,
        errors=scores.errors,
        unit=info.unit,
        kind=_kind(scores, None if why_not else old, why_not, below=missed),
        measured=scores,
        baseline=_baseline_stat(old) if old else None,
        current=current,
        below=missed,
        incomparable=why_not,
        old_threshold=old.threshold if old and not why_not else info.threshold,
        accepted=why_not is not None and why_not.why == _ACCEPTED,
    )


def _scores_of(attempts: Sequence[AttemptSummary], criterion: str) -> tuple[float, ...]:
    return tuple(
        score.score
        for attempt in attempts
        if not unbilled(attempt)
        for score in attempt.scores
        if score.criterion == criterion and score.status is ScoreStatus.SCORED and score.score is not None
    )


def _kind(scores: PairScores, old: CriterionRecord | None, why_not: Incomparable | None, *, below: bool) -> ChangeKind:
    if (mean := scores.mean) is None:
        return ChangeKind.ERROR if scores.errors else ChangeKind.NOT_APPLICABLE
    if old is not None:
        return _change_kind(old.average, mean, scores.info, below=below)
    if below or why_not == NO_BASELINE:
        return ChangeKind.FAILING if below else ChangeKind.PASSING
    return ChangeKind.NEW if why_not in {NEW_CASE, _NOT_KEPT, _NEW_CRITERION} else ChangeKind.CHANGED


def _change_kind(before: float, current: float, info: CriterionInfo, *, below: bool) -> ChangeKind:
    """Judge both sides by today's threshold: moving a threshold does not change the agent."""
    threshold = info.threshold
    if not differs(before, current):
        return ChangeKind.STILL_FAILING if below else ChangeKind.SAME
    # the baseline keeps rounded scores: one at the threshold met it
    was_below = threshold is not None and not meets(before, threshold, info.goal) and differs(before, threshold)
    if below:
        return ChangeKind.STILL_FAILING if was_below else ChangeKind.NEWLY_FAILING
    if was_below:
        return ChangeKind.FIXED
    return ChangeKind.BETTER if (current > before) == (info.goal == "maximize") else ChangeKind.WORSE


def _baseline_stat(old: CriterionRecord) -> Stat:
    past = history_stats(old.scores)
    return shared_stat(old.n, old.average, old.passed, past.low, past.high)


def _removed(known: Mapping[CaseKey, CaseRecord], result: RunResult) -> Iterable[Pair]:
    """Pairs of the baseline that this run lacks, except cases that a narrowed run left out on purpose."""
    configured: dict[CaseKey, set[str]] = {}
    for measured in result.sets if known else ():
        criteria = {kept_name(info.name) for info in measured.criteria}
        configured |= {kept_key(key): criteria for key, _ in measured.keyed_cases()}
    for key, record in sorted(known.items()):
        if key not in configured and not result.conditions.covers(key.agent):
            continue
        for name, old in sorted(record.criteria.items()):
            if name not in configured.get(key, ()):
                yield Pair(
                    key=key,
                    criterion=name,
                    threshold=old.threshold,
                    kind=ChangeKind.REMOVED,
                    baseline=_baseline_stat(old),
                    below=old.passed is not None and old.passed < old.n,
                    incomparable=Incomparable("criterion_gone") if key in configured else NO_CASE,
                    old_threshold=old.threshold,
                )


# --- scores as whole numbers for the exact tests, higher always better ------------------------------

_STEPS: Final = 50
_BEYOND: Final = 2 * _STEPS


def is_binary(*scores: Sequence[float]) -> bool:
    """Whether every score is 0 or 1."""
    return all(score in {0.0, 1.0} for some in scores for score in some)


@dataclass(frozen=True, slots=True)
class ScoreGrid:
    """The mapping of a criterion's scores to whole numbers.

    ``binary``: every score is 0 or 1. Otherwise the scale of the history has fifty steps; where lower is better, a
    step is two per cent (a ratio). Scores far outside main's range are clipped to the edge. Only the history
    determines the scale, so that a worse score can never coarsen the grid.
    """

    binary: bool
    step: float
    low: int
    high: int
    minimize: bool = False

    @classmethod
    def for_pairs(cls, pairs: Sequence[Pair]) -> ScoreGrid:
        minimize = any(pair.goal == "minimize" for pair in pairs[:1])
        if not minimize and all(pair.binary for pair in pairs):
            return cls(True, 1.0, 0, 1)
        seen = [pair.past for pair in pairs]
        low, high = min(past.low for past in seen), max(past.high for past in seen)
        step = 1 / _STEPS if minimize else _scale(max(abs(low), abs(high))) / _STEPS
        unbounded = cls(False, step, 0, 0, minimize)
        ends = sorted((unbounded._unclamped_level(low), unbounded._unclamped_level(high)))
        return cls(False, step, ends[0] - _BEYOND, ends[1] + _BEYOND, minimize)

    def _unclamped_level(self, score: float) -> int:
        return round((-math.log1p(max(score, 0.0)) if self.minimize else score) / self.step)

    def level(self, score: float) -> int:
        return min(self.high, max(self.low, self._unclamped_level(score)))

    def stratum(self, reference: tuple[ScoreCount, ...], current: tuple[float, ...]) -> Stratum:
        """A case's scores for the exact tests."""
        return _stratum(self, reference, current)


@lru_cache(maxsize=50_000)
def _stratum(grid: ScoreGrid, reference: tuple[ScoreCount, ...], current: tuple[float, ...]) -> Stratum:
    sides = (merged((grid.level(score), times) for score, times in side) for side in (reference, counted(current)))
    return Stratum(*sides)


def _scale(highest: float) -> float:
    """The next round number (1, 2, 5, 10, …) at or above ``highest``; at least 1."""
    if highest <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next((power * part for part in (1, 2, 5) if power * part >= highest), power * 10)


def merged(counts: Iterable[tuple[int, int]], floor: int | None = None) -> Levels:
    """Counts summed by level; levels below ``floor`` are raised to it."""
    found: Counter[int] = Counter()
    for level, times in counts:
        found[level if floor is None else max(level, floor)] += times
    return tuple(sorted(found.items()))
