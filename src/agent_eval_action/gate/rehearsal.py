"""What a policy would do on a team's own history: agents drawn from main's scores, decided by the gate's own code."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent_eval_action.config.policy import Policy
from agent_eval_action.gate.evidence import CriterionRule, Limits, Rules
from agent_eval_action.gate.simulate import Agent, SimulatedCase, Suite, simulate
from agent_eval_action.model.baseline import ScoreCount, weighted_mean
from agent_eval_action.model.history import History
from agent_eval_action.model.result import Goal

_FIVE: Final = 5
_DROPS: Final = (0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """One change to one criterion's suite, many times. ``runs_per_case`` counts every attempt of either arm."""

    criterion: str
    change: str
    cases: int
    history: int
    blocked: float
    inconclusive: float
    runs_per_case: float


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Every change to every criterion, harmless first; ``left_out`` says why a criterion is not among them."""

    rows: tuple[Rehearsed, ...]
    left_out: tuple[str, ...] = ()


def rehearse(
    history: History, policy: Policy, goals: Mapping[str, Goal], *, runs: int, seed: int, extra_runs: int | None = None
) -> Rehearsal:
    """Simulate ``runs`` runs of each change. A case comes out as main's scores of it did."""
    rows: list[Rehearsed] = []
    left_out: list[str] = []
    for criterion, scores in sorted(_by_criterion(history).items()):
        goal = goals.get(criterion, "maximize")
        rule = policy.for_criterion(criterion, goal)
        why = _why_not(goal, rule.mode, scores)
        if why:
            left_out.append(f"{criterion}: {why}")
            continue
        rules = Rules(
            confidence=policy.confidence,
            min_effect=policy.min_effect,
            criteria={"c0": CriterionRule(rule.max_drop, rule.max_rise)},
            limits=Limits(extra_runs),
        )
        rows += _criterion(criterion, scores, rules, runs, seed)
    return Rehearsal(tuple(rows), tuple(left_out))


def _by_criterion(history: History) -> dict[str, list[tuple[ScoreCount, ...]]]:
    found: dict[str, list[tuple[ScoreCount, ...]]] = defaultdict(list)
    for (_, criterion), pair in sorted(history.pairs.items()):
        if pair.scores:
            found[criterion].append(pair.scores)
    return found


def _why_not(goal: Goal, mode: str, scores: Sequence[tuple[ScoreCount, ...]]) -> str:
    if mode != "blocking":
        return f"its mode is {mode}, so it blocks nothing"
    if goal == "minimize" or any(not 0 <= score <= 1 for pair in scores for score, _ in pair):
        return "only scores from 0 to 1 are simulated"
    return ""


def _criterion(
    criterion: str, scores: Sequence[tuple[ScoreCount, ...]], rules: Rules, runs: int, seed: int
) -> Iterator[Rehearsed]:
    agents = [_agent(pair) for pair in scores]
    history = max(1, round(statistics.median(sum(count for _, count in pair) for pair in scores)))
    for name, change in _changes(agents):
        heads = change(agents)
        cases = tuple(SimulatedCase(base, head) for base, head in zip(agents, heads, strict=True))
        made = list(simulate(Suite(cases, history), rules, runs, seed))
        yield Rehearsed(
            criterion=criterion,
            change=name,
            cases=len(cases),
            history=history,
            blocked=sum(one.blocked for one in made) / runs,
            inconclusive=sum(one.inconclusive for one in made) / runs,
            runs_per_case=statistics.fmean(one.runs for one in made),
        )


def _agent(scores: Sequence[ScoreCount]) -> Agent:
    """A pass rate where every score was 0 or 1, else mean and spread."""
    mean = weighted_mean(scores)
    if all(score in {0.0, 1.0} for score, _ in scores):
        return Agent(mean)
    everything = [score for score, count in scores for _ in range(count)]
    return Agent(mean, statistics.stdev(everything) if len(everything) > 1 else 0.0)


Change = Callable[[Sequence[Agent]], list[Agent]]


def _changes(agents: Sequence[Agent]) -> Iterator[tuple[str, Change]]:
    best = max(range(len(agents)), key=lambda at: agents[at].mean)
    yield "nothing (a harmless change)", list
    yield "its most reliable case always fails", lambda own: _worse(own, {best}, 0.0)
    if len(agents) > _FIVE:
        spread = {at * len(agents) // _FIVE for at in range(_FIVE)}
        yield "five cases lose half", lambda own: _worse(own, spread, 0.5)
    for drop in _DROPS:
        yield f"every case loses {drop:g}", _lower(drop)


def _worse(agents: Sequence[Agent], which: set[int], part: float) -> list[Agent]:
    return [replace(one, mean=one.mean * part) if at in which else one for at, one in enumerate(agents)]


def _lower(drop: float) -> Change:
    return lambda own: [replace(one, mean=max(0.0, one.mean - drop)) for one in own]
