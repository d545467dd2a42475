"""Which pairs of a decided run got worse, so that accepting them lets the change through. Pure."""

from __future__ import annotations

from typing import Final

from agent_eval_action.results.decision import ChangeKind, Decision, PairChange

_TOLERANCE: Final = 1e-9
_FELL: Final = frozenset({ChangeKind.WORSE, ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING})


def worse_pairs(decision: Decision) -> tuple[PairChange, ...]:
    """Every pair that holds the change up because it is worse than main, in the order of the decision.

    These are the pairs that block by evidence, those that a limit kept from being confirmed, and, where a
    criterion blocks over its whole suite, all pairs of that criterion that fell.
    """
    suites = {one.criterion for one in decision.findings if one.effect == "blocks" and one.case is None}
    doubtful = {
        (one.agent, one.eval_set, one.case, one.criterion) for one in decision.findings if one.effect == "inconclusive"
    }
    return tuple(
        pair
        for pair in decision.pairs
        if (pair.blocking and pair.confirmed)
        or (pair.kind in _FELL and (pair.agent, pair.eval_set, pair.case, pair.criterion) in doubtful)
        or (pair.criterion in suites and _fell(pair))
    )


def _fell(pair: PairChange) -> bool:
    if pair.change is None:
        return False
    return (pair.change if pair.goal == "minimize" else -pair.change) > _TOLERANCE
