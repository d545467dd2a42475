"""What became of every pair since the baseline, and of every criterion over the pairs both sides have. Pure.

Nothing here knows a policy: what a change means for the verdict is ``decide``'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple

from agent_eval_action.config.models import Policy
from agent_eval_action.gate.evidence import CriterionRule, EvidenceRules, GateState, PairEvidence, RerunLimits
from agent_eval_action.results.base import StoreKind
from agent_eval_action.results.case_matching import measured_identities, with_current_names
from agent_eval_action.results.decision import BaselineInfo, ChangeKind, Stat, Unit
from agent_eval_action.results.history import (
    CaseRecord,
    CriterionRecord,
    History,
    Record,
    ScoreCount,
    TrajectoryRecord,
    kept_digest,
    kept_key,
    kept_name,
)
from agent_eval_action.results.pair_scores import PairScores, measured_pairs, meets, unbilled
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CaseKey,
    CriterionInfo,
    Goal,
    RunResult,
    ScoreStatus,
    collector_paused,
)

TOLERANCE = 1e-9
"""Changes up to here (relative for numbers beyond one) are noise of floating point, not of the agent."""

_STATS_SHARED: Final = 4096


class Incomparable(NamedTuple):
    """Why there is nothing to compare a pair with: a code, and what the history or an acceptance says of it."""

    why: str
    text: str = ""


NO_BASELINE = Incomparable("no_baseline")
NO_CASE = Incomparable("case_gone")
NEW_CASE = Incomparable("case_new")
NOT_ON_MAIN = Incomparable("base_not_measured")
EDITED = Incomparable("case_edited")
NEW_CRITERION = Incomparable("criterion_new")
NO_CRITERION = Incomparable("criterion_gone")
CHANGED_CRITERION = Incomparable("criterion_changed")
NOT_KEPT = Incomparable("not_kept")


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """A pair, then and now. ``change`` is current minus baseline, None unless both are comparable.

    ``below``: its mean over the repeats misses the threshold (of a removed pair: some attempt missed it).
    ``incomparable`` says why there is nothing to compare with; None when there is.
    ``measured`` is None exactly for removed pairs. ``history``: the baseline's scores where they are comparable.
    ``accepted``: its change was accepted, so that missing the threshold newly is intended.
    """

    key: CaseKey
    criterion: str
    goal: Goal
    threshold: float | None
    kind: ChangeKind
    unit: Unit = "score"
    measured: PairScores | None = None
    baseline: Stat | None = None
    current: Stat | None = None
    change: float | None = None
    below: bool = False
    incomparable: Incomparable | None = None
    old_threshold: float | None = None
    history: tuple[ScoreCount, ...] = ()
    accepted: bool = False

    @property
    def added(self) -> bool:
        """Whether the change under test adds the set or the criterion."""
        return self.measured is not None and self.measured.info.added


@dataclass(frozen=True, slots=True)
class ComparedCriterion:
    """A criterion over all its pairs. ``baseline`` and ``paired`` are means over comparable pairs only."""

    criterion: str
    goal: Goal
    pairs: tuple[ComparedPair, ...]
    current: float | None
    baseline: float | None
    paired: float | None
    compared: int

    @property
    def change(self) -> float | None:
        """Paired mean minus baseline mean."""
        return None if self.paired is None or self.baseline is None else self.paired - self.baseline


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything ``decide`` needs. Pairs and criteria are sorted by name.

    ``own_thresholds``: criteria whose threshold somebody configured (not ADK's default).
    ``trajectories``: what the baseline's agent called, by case of this run. ``stored`` is the baseline with the names
    cases have now, ``history`` what it was pooled from, where it was.
    """

    pairs: tuple[ComparedPair, ...]
    criteria: tuple[ComparedCriterion, ...]
    removed: tuple[ComparedPair, ...] = ()
    baseline: BaselineInfo | None = None
    own_thresholds: frozenset[str] = frozenset()
    trajectories: Mapping[CaseKey, TrajectoryRecord] = field(default_factory=dict)
    unmeasured: Mapping[CaseKey, str] = field(default_factory=dict)
    stored: Record | None = None
    history: History | None = None

    @property
    def store(self) -> StoreKind:
        """What keeps, or would keep, the baseline."""
        return self.history.store if self.history else "file"


@collector_paused()
def compare(
    baseline: Record | None,
    result: RunResult,
    *,
    path: str = "",
    history: History | None = None,
    unmeasured: Mapping[CaseKey, str] | None = None,
) -> Comparison:
    """Compare a run with a baseline. ``path`` names the baseline in reports.

    ``history`` is what the baseline was pooled from: it knows in words why scores of a pair do not count.
    ``unmeasured``: cases that main has and whose baseline could not be measured, with the reason.

    Without a baseline (or with one that holds no case) every pair is *failing* or *passing* by its
    threshold alone.
    """
    if baseline and history is None:  # a history has its cases under their current names already
        baseline = with_current_names(baseline, measured_identities(result))
    known = {record.key: record for record in baseline.cases} if baseline else {}
    # where the history of every pair starts anew there are records without a score that counts
    any_baseline = bool(known or (history and history.pooled))
    pairs = sorted(
        (_compare_pair(pair, known.get(kept_key(pair.key)), any_baseline, history) for pair in measured_pairs(result)),
        key=lambda pair: (pair.key, pair.criterion),
    )
    unmeasured = unmeasured or {}
    pairs = [replace(pair, incomparable=NOT_ON_MAIN) if pair.key in unmeasured else pair for pair in pairs]
    return Comparison(
        pairs=tuple(pairs),
        criteria=criteria_of(pairs),
        removed=_removed(known, result),
        baseline=_info(baseline, path) if baseline and any_baseline else None,
        own_thresholds=frozenset(
            info.name
            for one_set in result.sets
            for info in one_set.criteria
            if info.threshold is not None and info.source != "default"
        ),
        trajectories=_trajectories(known, result),
        unmeasured=unmeasured,
        stored=baseline,
        history=history,
    )


def differs(before: float, after: float) -> bool:
    """Whether two scores differ by more than floating point explains."""
    return abs(after - before) > TOLERANCE * max(1.0, abs(before), abs(after))


def mean_of(values: Iterable[float]) -> float | None:
    """Mean of means; None of nothing. The same in any order."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else None


def _known_reason(
    history: History | None, pair: PairScores, record: CaseRecord | None
) -> tuple[Incomparable | None, bool]:
    """Why the scores of a pair do not count, as its history knows it, and whether its change was accepted."""
    if history is None:
        return None, False
    reason = history.acceptance(pair.key, pair.info.name)
    if reason is not None:
        return Incomparable("accepted", reason), True
    past = history.pairs.get((kept_key(pair.key), kept_name(pair.info.name)))
    if past is None or not past.incomparable:
        return None, False
    edited = record is not None and record.digest != kept_digest(pair.case.digest)
    return Incomparable(EDITED.why if edited else "history", past.incomparable), False


def _compare_pair(
    pair: PairScores, record: CaseRecord | None, any_baseline: bool, history: History | None = None
) -> ComparedPair:
    info = pair.info
    old = record.criteria.get(kept_name(info.name)) if record else None
    before, current = _baseline_stat(old), _current_stat(pair)
    why_not = why_incomparable(pair.case.digest, info, record) if any_baseline else NO_BASELINE
    known_why, accepted = _known_reason(history, pair, record)
    if any_baseline and known_why:
        why_not = known_why
    kind = _kind_alone(why_not)
    comparable = before is not None and why_not is None
    below = current is not None and info.threshold is not None and not meets(current.mean, info.threshold, info.goal)
    if current is None:
        kind = ChangeKind.ERROR if pair.errors else ChangeKind.NOT_APPLICABLE
    elif before is not None and comparable:
        kind = _change_kind(before.mean, current.mean, below, info)
    elif below:
        kind = ChangeKind.FAILING
    return ComparedPair(
        key=pair.key,
        criterion=info.name,
        goal=info.goal,
        unit=info.unit,
        threshold=info.threshold,
        kind=kind,
        measured=pair,
        baseline=before,
        current=current,
        change=current.mean - before.mean if comparable and current and before else None,
        below=below,
        incomparable=why_not,
        old_threshold=old.threshold if old and not why_not else info.threshold,
        history=old.scores if old and comparable else (),
        accepted=any_baseline and accepted,
    )


def why_incomparable(case_digest: str, info: CriterionInfo, record: CaseRecord | None) -> Incomparable | None:
    """Why a record's scores do not count for a pair; None where they do. The loop and the verdict both go by this."""
    if record is None:
        return NEW_CASE
    if record.digest != kept_digest(case_digest):
        return EDITED
    old = record.criteria.get(kept_name(info.name))
    if old is None:
        return NOT_KEPT if record.omitted else NEW_CRITERION
    return None if old.digest == kept_digest(info.digest) else CHANGED_CRITERION


def stored_history(baseline: Record | None) -> Callable[[PairScores], tuple[ScoreCount, ...]]:
    """The comparable scores that a stored baseline has of a pair; () where there are none."""
    known = {record.key: record for record in baseline.cases} if baseline else {}

    def scores(pair: PairScores) -> tuple[ScoreCount, ...]:
        record = known.get(kept_key(pair.key))
        if record is None or why_incomparable(pair.case.digest, pair.info, record) is not None:
            return ()
        return record.criteria[kept_name(pair.info.name)].scores

    return scores


def _kind_alone(why_not: Incomparable | None) -> ChangeKind:
    """The kind of a pair that meets its threshold and cannot be compared."""
    if why_not is None:
        return ChangeKind.SAME
    if why_not == NO_BASELINE:
        return ChangeKind.PASSING
    return ChangeKind.NEW if why_not in {NEW_CASE, NOT_KEPT, NEW_CRITERION} else ChangeKind.CHANGED


def _change_kind(before: float, current: float, below: bool, info: CriterionInfo) -> ChangeKind:
    """Both sides are held to today's threshold: a threshold that moved is no change of the agent's."""
    if not differs(before, current):
        return ChangeKind.STILL_FAILING if below else ChangeKind.SAME
    threshold = info.threshold
    # what the baseline keeps is rounded: at the threshold means that it was met
    was_below = threshold is not None and not meets(before, threshold, info.goal) and differs(before, threshold)
    if below:
        return ChangeKind.STILL_FAILING if was_below else ChangeKind.NEWLY_FAILING
    if was_below:
        return ChangeKind.FIXED
    return ChangeKind.BETTER if (current > before) == (info.goal == "maximize") else ChangeKind.WORSE


@lru_cache(maxsize=_STATS_SHARED)
def _stat(n: int, mean: float, passed: int | None, low: float, high: float) -> Stat:
    """Equal ones are the same object: most pairs of a large suite have one of few."""
    return Stat(n=n, mean=mean, passed=passed, low=low, high=high)


def _baseline_stat(old: CriterionRecord | None) -> Stat | None:
    if old is None:
        return None
    scores = [score for score, _ in old.scores]
    return _stat(n=old.n, mean=old.average, passed=old.passed, low=min(scores), high=max(scores))


def _current_stat(pair: PairScores) -> Stat | None:
    mean = pair.mean
    if mean is None:
        return None
    return _stat(n=len(pair.scores), mean=mean, passed=pair.passed, low=pair.scores[0], high=pair.scores[-1])


def criteria_of(pairs: Iterable[ComparedPair]) -> tuple[ComparedCriterion, ...]:
    """Means per criterion over these pairs, sorted by name."""
    by_name: dict[str, list[ComparedPair]] = {}
    for pair in pairs:
        by_name.setdefault(pair.criterion, []).append(pair)
    return tuple(_criterion(name, tuple(by_name[name])) for name in sorted(by_name))


def _criterion(name: str, pairs: tuple[ComparedPair, ...]) -> ComparedCriterion:
    both = [
        (pair.baseline.mean, pair.current.mean)
        for pair in pairs
        if pair.change is not None and pair.baseline and pair.current
    ]
    return ComparedCriterion(
        criterion=name,
        goal=pairs[0].goal,
        pairs=pairs,
        current=mean_of(pair.current.mean for pair in pairs if pair.current),
        baseline=mean_of(before for before, _ in both),
        paired=mean_of(after for _, after in both),
        compared=len(both),
    )


def _removed(known: Mapping[CaseKey, CaseRecord], result: RunResult) -> tuple[ComparedPair, ...]:
    """Pairs of the baseline that this run could have had and has not. A narrowed run has left cases out on purpose."""
    configured = {
        kept_key(CaseKey(one.agent, one.eval_set, case.case)): {kept_name(info.name) for info in one.criteria}
        for one in result.sets
        for case in one.cases
    }
    gone: list[ComparedPair] = []
    for key, record in sorted(known.items()):
        if key not in configured and not result.conditions.covers(key.agent):
            continue
        for name, old in sorted(record.criteria.items()):
            if name not in configured.get(key, ()):
                why = NO_CRITERION if key in configured else NO_CASE
                gone.append(_gone(key, name, old, why))
    return tuple(gone)


def _gone(key: CaseKey, criterion: str, old: CriterionRecord, why: Incomparable) -> ComparedPair:
    failed = old.passed is not None and old.passed < old.n
    return ComparedPair(
        key=key,
        criterion=criterion,
        goal="maximize",
        threshold=old.threshold,
        kind=ChangeKind.REMOVED,
        baseline=_baseline_stat(old),
        below=failed,
        incomparable=why,
        old_threshold=old.threshold,
    )


def _info(baseline: Record, path: str) -> BaselineInfo:
    return BaselineInfo(path=path, commit=baseline.commit, created_at=baseline.created_at, repeats=baseline.repeats)


def _trajectories(known: Mapping[CaseKey, CaseRecord], result: RunResult) -> dict[CaseKey, TrajectoryRecord]:
    """Also of removed cases: by the baseline's key there, by this run's where the case is in the run."""
    names = {
        kept_key(key): key
        for key in (CaseKey(one.agent, one.eval_set, case.case) for one in result.sets for case in one.cases)
    }
    return {names.get(key, key): record.trajectory for key, record in known.items() if record.trajectory}


Scores = Callable[[PairScores], tuple[ScoreCount, ...]]
"""The comparable scores main has of a pair; () where there are none."""


def state_of(result: RunResult, history: Scores, policy: Policy, *, control: bool, closed: bool = False) -> GateState:
    """Everything measured so far. ``control``: whether the base commit's agent can be run."""
    without_base = result.base.unavailable_agents if result.base else {}
    return GateState(
        pairs=tuple(
            replace(_pair(pair, history(pair), policy), controllable=pair.key.agent not in without_base)
            for pair in measured_pairs(result)
        ),
        control=control,
        extra=result.totals.extra + result.totals.control,
        closed=closed,
    )


def rules_of(policy: Policy, result: RunResult, *, extra_runs: int | None = None) -> EvidenceRules:
    """The policy as the loop and the verdict read it: whether runs are made again is recorded in the result."""
    goals = {info.name: info.goal for one in result.sets for info in one.criteria}
    own = {name: policy.for_criterion(name, goal) for name, goal in goals.items()}
    return EvidenceRules(
        confidence=policy.confidence,
        min_effect=policy.min_effect,
        criteria={name: CriterionRule(rule.max_drop, rule.max_rise) for name, rule in own.items()},
        limits=RerunLimits(extra_runs),
        adaptive=result.conditions.adaptive,
    )


def _pair(pair: PairScores, history: tuple[ScoreCount, ...], policy: Policy) -> PairEvidence:
    info = pair.info
    first = [one for one in pair.case.attempts if one.purpose == "first"]
    fresh = [one for one in pair.case.attempts if one.purpose != "first"]
    before = tuple(_scores(first, info.name))
    return PairEvidence(
        case=pair.key,
        criterion=info.name,
        history=history,
        attempts=(*before, *_scores(fresh, info.name)),
        first=max(1, len(before)),
        control=tuple(_scores(pair.case.control, info.name)),
        beside=tuple(_scores([one for one in fresh if one.purpose == "control"], info.name)),
        tried=len(pair.case.control),
        goal=info.goal,
        threshold=info.threshold,
        blocking=not info.added and policy.mode_of(info.name, info.goal, pair.key.eval_set) == "blocking",
        errors=pair.errors,
    )


def _scores(attempts: Iterable[AttemptSummary], criterion: str) -> Iterable[float]:
    for attempt in attempts:
        if unbilled(attempt):
            continue
        for score in attempt.scores:
            if score.criterion == criterion and score.status is ScoreStatus.SCORED and score.score is not None:
                yield score.score
