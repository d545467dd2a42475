"""What a reader must know about the pairs beside their scores, each thing said once and briefly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from agent_eval_action.gate.compare import EDITED, NEW_CASE, NO_BASELINE, NO_CASE, ComparedPair, Comparison
from agent_eval_action.gate.wording import clip, count, listed, number
from agent_eval_action.results.decision import ChangeKind
from agent_eval_action.results.run_result import CaseKey

_LISTED: Final = 5


def pair_notes(comparison: Comparison) -> tuple[str, ...]:
    """Removed and incomparable pairs, moved thresholds, criteria that apply to nothing."""
    return (
        *_removed(comparison.removed),
        *_incomparable(comparison.pairs),
        *_accepted(comparison.pairs),
        *_moved_thresholds(comparison.pairs),
        *_not_applicable(comparison),
    )


def _removed(pairs: Sequence[ComparedPair]) -> Iterable[str]:
    cases = {pair.key for pair in pairs if pair.incomparable == NO_CASE}
    failed = {pair.key for pair in pairs if pair.key in cases and pair.below}
    if cases:
        text = f"{count(len(cases), 'case')} of the baseline {_are(len(cases))} gone from this run: {_names(cases)}"
        if failed:
            text += f"; below a threshold in the baseline: {_names(failed)}"
        yield text
    dropped = Counter(pair.criterion for pair in pairs if pair.key not in cases)
    for criterion, pairs_lost in sorted(dropped.items()):
        below = sum(pair.below for pair in pairs if pair.key not in cases and pair.criterion == criterion)
        text = f"`{clip(criterion, 80)}` is no longer configured for {count(pairs_lost, 'case')} of the baseline"
        yield text + (f", {below} of them below its threshold there" if below else "")


def _incomparable(pairs: Iterable[ComparedPair]) -> Iterable[str]:
    reasons: dict[str, set[CaseKey]] = {}
    criteria: dict[str, set[str]] = {}
    for pair in pairs:
        if pair.incomparable and not pair.accepted and pair.kind is not ChangeKind.NOT_APPLICABLE:
            reasons.setdefault(pair.incomparable, set()).add(pair.key)
            if pair.incomparable not in {NEW_CASE, NO_BASELINE} and not pair.incomparable.startswith(EDITED):
                criteria.setdefault(pair.incomparable, set()).add(pair.criterion)
    if set(reasons) == {NO_BASELINE}:
        return
    for reason, cases in sorted(reasons.items()):
        if named := criteria.get(reason):
            falls = "fall back to their thresholds" if len(named) > 1 else "falls back to its threshold"
            which = listed((f"`{clip(name, 80)}`" for name in sorted(named)), _LISTED)
            yield f"{reason}: {which} {falls} in {count(len(cases), 'case')}: {_names(cases)}"
            continue
        yield f"not compared, judged by thresholds alone: {count(len(cases), 'case')} ({reason}): {_names(cases)}"


def _accepted(pairs: Iterable[ComparedPair]) -> Iterable[str]:
    """Accepted changes: neither main's scores nor a threshold that main met holds for them until the merge."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.accepted:
            name = f"`{clip(pair.key.case, 60)} › {clip(pair.criterion, 60)}`"
            found.setdefault(pair.incomparable, []).append(name)
    for reason, names in sorted(found.items()):
        which = listed(names, _LISTED)
        yield f"{reason}, so main's scores of it do not count, and its history starts anew at the merge: {which}"


def _moved_thresholds(pairs: Iterable[ComparedPair]) -> Iterable[str]:
    moved = Counter(
        (pair.criterion, pair.old_threshold, pair.threshold)
        for pair in pairs
        if pair.change is not None and pair.old_threshold != pair.threshold
    )
    for (criterion, old, new), cases in sorted(moved.items(), key=str):
        then = "none" if old is None else number(old)
        now = "none" if new is None else number(new)
        yield f"`{clip(criterion, 80)}`: threshold {then} → {now} since the baseline, {count(cases, 'case')}"


def _not_applicable(comparison: Comparison) -> Iterable[str]:
    for one in comparison.criteria:
        if all(pair.kind is ChangeKind.NOT_APPLICABLE for pair in one.pairs):
            reason = next((pair.measured.reason for pair in one.pairs if pair.measured and pair.measured.reason), "")
            why = f": {clip(reason, 200)}" if reason else ""
            yield f"`{clip(one.criterion, 80)}` applies to no case of this run{why}"


def _names(cases: Iterable[CaseKey]) -> str:
    return listed((f"`{clip(key.case, 60)}`" for key in sorted(cases)), _LISTED)


def _are(n: int) -> str:
    return "is" if n == 1 else "are"
