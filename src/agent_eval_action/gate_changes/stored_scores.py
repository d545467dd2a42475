"""The stored baseline, then and now: scores that a change lowers or removes hold the next one to less. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from agent_eval_action.gate.compare import differs
from agent_eval_action.gate.wording import SENTENCE, clip, count, listed, numbers
from agent_eval_action.gate_changes.snapshot import Snapshot, case_identities
from agent_eval_action.results.case_matching import CaseIdentity, with_current_names
from agent_eval_action.results.decision import Finding
from agent_eval_action.results.history import Baseline, CriterionRecord, PairName, kept_digest, kept_key, kept_name
from agent_eval_action.results.run_result import Goal

_NAMED: Final = 5

Known = Mapping[PairName, tuple[str, CriterionRecord]]
"""Records of a baseline by pair, each with the digest its case has there."""


def weaker_baseline(base: Snapshot, head: Snapshot) -> Iterator[Finding]:
    """What the change does to the scores stored beside the code, each kind of it in one sentence.

    Only of pairs that main's scores still count for: what an edited case or criterion lost is said as that.
    """
    if base.baseline is None or base.baseline == head.baseline:
        return
    if head.baseline is None:
        pairs = sum(len(record.criteria) for record in base.baseline.records)
        text = f"the stored baseline was removed, or cannot be read any more: {count(pairs, 'score')} of main are lost"
        yield _said(text, ())
        return
    current = [
        CaseIdentity(kept_key(case.key), kept_digest(case.digest), frozenset(map(kept_digest, case.criteria)))
        for case in case_identities(head.sets)
    ]
    before, after = (_known(with_current_names(one, current)) for one in (base.baseline, head.baseline))
    goals = _counting(head, before)
    removed, lowered, thinned = [], [], []
    for pair, goal in goals.items():
        digest, then = before[pair]
        there = after.get(pair)
        if there is None or there[0] != digest or there[1].digest != then.digest:
            removed.append((1.0, pair, ""))
            continue
        now = there[1]
        fall = then.average - now.average if goal == "maximize" else now.average - then.average
        if fall > 0 and differs(then.average, now.average):
            old, new = numbers(then.average, now.average)
            lowered.append((fall, pair, f" {old} → {new}"))
        elif now.n < then.n:
            thinned.append((then.n - now.n, pair, f" {then.n} → {now.n}"))
    yield from _told(removed, "the stored baseline loses {}")
    yield from _told(lowered, "the stored baseline is loosened for {}")
    yield from _told(thinned, "the stored baseline rests on fewer attempts for {}")


def _counting(head: Snapshot, before: Known) -> dict[PairName, Goal]:
    """The pairs of the base's baseline that its scores count for in the suite as it is now."""
    found: dict[PairName, Goal] = {}
    for one in head.sets:
        for case in one.cases:
            for info in one.criteria:
                pair = kept_key(case.key), kept_name(info.name)
                digest, then = before.get(pair, ("", None))
                if then and digest == kept_digest(case.digest) and then.digest == kept_digest(info.digest):
                    found[pair] = info.goal
    return found


def _known(baseline: Baseline) -> dict[PairName, tuple[str, CriterionRecord]]:
    return {
        (record.key, name): (record.digest, one) for record in baseline.records for name, one in record.criteria.items()
    }


def _told(found: Iterable[tuple[float, PairName, str]], text: str) -> Iterator[Finding]:
    worst = sorted(found, key=lambda item: (-item[0], item[1]))
    if not worst:
        return
    names = listed((f"`{clip(key.case, 60)} › {clip(name, 60)}`{how}" for _, (key, name), how in worst), _NAMED)
    yield _said(f"{text.format(count(len(worst), 'score'))}: {names}", [pair for _, pair, _ in worst])


def _said(text: str, pairs: Iterable[PairName]) -> Finding:
    """About one case where it is about one alone."""
    own = list(pairs)
    about = {**own[0][0]._asdict(), "criterion": own[0][1]} if len(own) == 1 else {}
    return Finding(effect="advisory", reason=clip(text, SENTENCE), **about)
