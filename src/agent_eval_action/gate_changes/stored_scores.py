"""The stored baseline, then and now: scores that a change lowers or removes hold the next one to less. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_eval_action.gate.compare import differs
from agent_eval_action.gate_changes.snapshot import Snapshot, case_identities
from agent_eval_action.results.case_matching import CaseIdentity, with_current_names
from agent_eval_action.results.findings import NAMED, RUN, Finding, FindingCode, Subject, case_reference
from agent_eval_action.results.history import Baseline, CriterionRecord, PairName, kept_digest, kept_key, kept_name
from agent_eval_action.results.run_result import Goal

Known = Mapping[PairName, tuple[str, CriterionRecord]]
"""Records of a baseline by pair, each with the digest its case has there."""

_Loss = tuple[float, PairName, dict[str, Any]]
"""How much main's score of a pair lost, and what it was and is."""


def weaker_baseline(base: Snapshot, head: Snapshot) -> Iterator[Finding]:
    """What the change does to the scores stored beside the code, each kind of it in one sentence.

    Only of pairs that main's scores still count for: what an edited case or criterion lost is said as that.
    """
    if base.baseline is None or base.baseline == head.baseline:
        return
    if head.baseline is None:
        pairs = sum(len(record.criteria) for record in base.baseline.records)
        yield Finding(code=FindingCode.BASELINE_REMOVED, severity="advisory", data={"scores": pairs})
        return
    current = [
        CaseIdentity(kept_key(case.key), kept_digest(case.digest), frozenset(map(kept_digest, case.criteria)))
        for case in case_identities(head.sets)
    ]
    before, after = (_known(with_current_names(one, current)) for one in (base.baseline, head.baseline))
    goals = _counting(head, before)
    removed: list[_Loss] = []
    lowered: list[_Loss] = []
    thinned: list[_Loss] = []
    for pair, goal in goals.items():
        digest, then = before[pair]
        there = after.get(pair)
        if there is None or there[0] != digest or there[1].digest != then.digest:
            removed.append((1.0, pair, {}))
            continue
        now = there[1]
        fall = then.average - now.average if goal == "maximize" else now.average - then.average
        if fall > 0 and differs(then.average, now.average):
            lowered.append((fall, pair, {"old": float(then.average), "new": float(now.average)}))
        elif now.n < then.n:
            thinned.append((then.n - now.n, pair, {"old": then.n, "new": now.n}))
    yield from _finding(FindingCode.BASELINE_SCORES_REMOVED, removed)
    yield from _finding(FindingCode.BASELINE_SCORES_LOWERED, lowered)
    yield from _finding(FindingCode.BASELINE_SCORES_THINNED, thinned)


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


def _finding(code: FindingCode, losses: Iterable[_Loss]) -> Iterator[Finding]:
    """One finding about all of them, the largest loss first; about one pair where there is one."""
    worst = sorted(losses, key=lambda loss: (-loss[0], loss[1]))
    if not worst:
        return
    named = [case_reference(*key, criterion=name, **change) for _, (key, name), change in worst[:NAMED]]
    key, name = worst[0][1]
    subject = Subject(**key._asdict(), criterion=name) if len(worst) == 1 else RUN
    data = {"scores": len(worst), "named": named}
    yield Finding(code=code, severity="advisory", subject=subject, data=data)
