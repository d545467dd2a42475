"""What got better than main, by the same kind of test as what got worse, in the other direction. Pure.

It decides nothing and no run is spent on it: the attempts that there are, are the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent_eval_action.gate.evidence import GateState, Grid, Key, PairEvidence, Rules, known, mean
from agent_eval_action.stats import Stratum, holm, lower_than_reference

_PAIRS, _MEAN = 0.5, 0.5
"""How a criterion's error is split over its pairs and its mean."""
_STABLE_REPEATS: Final = 30


@dataclass(frozen=True, slots=True)
class Improvement:
    """What of one criterion is better beyond chance. ``mean``: by how much its mean over the cases is, if it is."""

    criterion: str
    cases: frozenset[Key] = frozenset()
    mean: float | None = None
    p: float = 1.0


def improvements(state: GateState, rules: Rules) -> tuple[Improvement, ...]:
    """Of every criterion with history, sorted by name. The error is split over the criteria as for what got worse."""
    groups: dict[str, list[PairEvidence]] = {}
    for pair in state.pairs:
        if pair.history and pair.attempts and not pair.errors:
            groups.setdefault(pair.criterion, []).append(pair)
    alpha = (1 - rules.confidence) / max(1, len(groups))
    return tuple(_improvement(name, groups[name], alpha, rules.min_effect) for name in sorted(groups))


def _improvement(name: str, pairs: Sequence[PairEvidence], alpha: float, least: float) -> Improvement:
    grid = Grid.of(pairs, pairs[0].goal)
    sign = -1 if grid.minimize else 1
    # what a suspect has beyond the first pass was asked for because that was bad: it is no evidence of a rise
    rises = [sign * (mean(pair.attempts[: pair.first]) - known(pair.history).mean) for pair in pairs]
    strata = [_stratum(grid, pair) for pair in pairs]
    own = [lower_than_reference([stratum]) if up > 0 else 1.0 for stratum, up in zip(strata, rises, strict=True)]
    adjusted = holm(own)
    steady = _never_differed(pairs)
    better = frozenset(
        pair.case
        for pair, rise, p in zip(pairs, rises, adjusted, strict=True)
        if rise > 0 and (grid.minimize or rise >= least) and (steady or p <= alpha * _PAIRS)
    )
    rise = sum(rises) / len(rises)
    p = lower_than_reference(strata) if rise > 0 else 1.0
    return Improvement(name, better, rise if p <= alpha * _MEAN else None, p)


def _stratum(grid: Grid, pair: PairEvidence) -> Stratum:
    """The two sides changed over: whether main's scores are lower than this run's."""
    return Stratum(grid.levels(pair.attempts[: pair.first]), grid.counted(pair.history))


def _never_differed(pairs: Sequence[PairEvidence]) -> bool:
    """Whether main's agent never differed in at least thirty repeated attempts: then any other score is a change."""
    histories = [known(pair.history) for pair in pairs]
    repeated = sum(history.n - 1 for history in histories)
    return repeated >= _STABLE_REPEATS and all(history.constant for history in histories)
