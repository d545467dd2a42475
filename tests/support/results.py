"""Run results in few words, for tests of what is made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_eval_action.results.decision import CallBrief, TurnBrief
from agent_eval_action.results.run_result import (
    AttemptError,
    AttemptSummary,
    CaseResult,
    Conditions,
    CriterionInfo,
    CriterionScore,
    ErrorKind,
    RunResult,
    RunStatus,
    ScoreStatus,
    SetResult,
)

QUALITY = "quality"
CONFIGURED = "evals/test_config.json:3"

Score = float | str | None
"""A score; a text is the reason of a scoring error; None means not applicable."""


def info(name: str = QUALITY, threshold: float | None = 0.5, **fields: Any) -> CriterionInfo:
    return CriterionInfo(
        **{"name": name, "threshold": threshold, "digest": f"of {name}", "source": CONFIGURED} | fields
    )


def scored(name: str, score: Score, reason: str = "") -> CriterionScore:
    if score is None:
        return CriterionScore(criterion=name, status=ScoreStatus.NOT_APPLICABLE, reason=reason or "no reference")
    if isinstance(score, str):
        return CriterionScore(criterion=name, status=ScoreStatus.ERROR, reason=score)
    return CriterionScore(criterion=name, status=ScoreStatus.SCORED, score=score, reason=reason)


def calls(*named: tuple[str, dict[str, Any]]) -> TurnBrief:
    return TurnBrief(calls=tuple(CallBrief(name=name, args=args) for name, args in named))


def attempt(scores: Mapping[str, Score], *turns: TurnBrief, reason: str = "", repeat: int = 0) -> AttemptSummary:
    made = tuple(scored(name, score, reason) for name, score in scores.items())
    return AttemptSummary(repeat=repeat, scores=made, turns=turns)


def broken(kind: ErrorKind = ErrorKind.TIMEOUT, message: str = "no answer in 60 s", repeat: int = 0) -> AttemptSummary:
    return AttemptSummary(repeat=repeat, error=AttemptError(kind=kind, message=message))


def case(name: str, *attempts: AttemptSummary, digest: str = "", expected: Sequence[TurnBrief] = ()) -> CaseResult:
    return CaseResult(case=name, digest=digest or f"case {name}", attempts=attempts, expected=tuple(expected))


def simple(name: str, *scores: Score, criterion: str = QUALITY) -> CaseResult:
    """A case with one attempt per score."""
    return case(name, *(attempt({criterion: score}, repeat=n) for n, score in enumerate(scores)))


def eval_set(
    *cases: CaseResult, criteria: Sequence[CriterionInfo] = (), agent: str = "bot", name: str = "set"
) -> SetResult:
    return SetResult(
        agent=agent, eval_set=name, path=f"{name}.json", criteria=tuple(criteria) or (info(),), cases=cases
    )


def run_of(*sets: SetResult, status: RunStatus = RunStatus.COMPLETE, **conditions: Any) -> RunResult:
    given = {"tool_version": "0.1.0", "commit": "c0ffee", "adaptive": conditions.get("repeats", 1) == 1, **conditions}
    return RunResult(started_at="2026-11-20T12:00:00+00:00", status=status, conditions=Conditions(**given), sets=sets)


def run(*cases: CaseResult, criteria: Sequence[CriterionInfo] = (), **conditions: Any) -> RunResult:
    """A complete run of one set."""
    return run_of(eval_set(*cases, criteria=criteria), **conditions)
