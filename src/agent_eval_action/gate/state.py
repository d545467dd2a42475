"""From a run and its history to the plain numbers the loop and the verdict are decided on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from agent_eval_action.config.models import Policy
from agent_eval_action.gate.evidence import CriterionRule, GateState, Limits, PairEvidence, Rules
from agent_eval_action.results.history import ScoreCount
from agent_eval_action.results.pair_scores import Measured, measured_pairs, unbilled
from agent_eval_action.results.run_result import AttemptSummary, RunResult, ScoreStatus

Scores = Callable[[Measured], tuple[ScoreCount, ...]]
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


def rules_of(policy: Policy, result: RunResult, *, extra_runs: int | None = None) -> Rules:
    """The policy as the loop and the verdict read it: whether runs are made again is recorded in the result."""
    goals = {info.name: info.goal for one in result.sets for info in one.criteria}
    own = {name: policy.for_criterion(name, goal) for name, goal in goals.items()}
    return Rules(
        confidence=policy.confidence,
        min_effect=policy.min_effect,
        criteria={name: CriterionRule(rule.max_drop, rule.max_rise) for name, rule in own.items()},
        limits=Limits(extra_runs),
        adaptive=result.conditions.adaptive,
    )


def _pair(pair: Measured, history: tuple[ScoreCount, ...], policy: Policy) -> PairEvidence:
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
