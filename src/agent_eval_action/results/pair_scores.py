"""A run result seen pair by pair: plain scores and counts, for the code that compares, decides or stores them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import Stat
from agent_eval_action.results.history import Calls, Trajectory, trajectory_digest, weighted_mean
from agent_eval_action.results.run_result import AttemptSummary, CaseResult, CriterionInfo, Goal, RunResult, ScoreStatus


@dataclass(frozen=True, slots=True)
class PairScores:
    """One pair. ``scores`` are sorted; ``errors`` are attempts that should have a score and have none.

    ``reason`` is what the criterion said of the worst attempt (or why it does not apply), ``error`` why
    attempts have no score, ``answered`` whether the agent answered in every attempt (then an error is the
    criterion's own). ``worst`` are the attempts with the worst score. ``unmeasured`` says why it was left
    out of this run, "" where it was not: then there is neither a score nor an error.
    """

    key: CaseKey
    info: CriterionInfo
    case: CaseResult
    scores: tuple[float, ...]
    errors: int
    not_applicable: int
    reason: str = ""
    error: str = ""
    answered: bool = True
    worst: tuple[AttemptSummary, ...] = ()
    unmeasured: str = ""

    @property
    def mean(self) -> float | None:
        """Mean over the attempts; None without a score."""
        return exact_mean(self.scores) if self.scores else None

    @property
    def passed(self) -> int | None:
        """Attempts that met the threshold; None without one."""
        if self.info.threshold is None:
            return None
        return sum(meets(score, self.info.threshold, self.info.goal) for score in self.scores)


def score_stat(scores: Sequence[float], threshold: float | None, goal: Goal) -> Stat | None:
    """Count, mean, passes and extremes of scores; None of none."""
    if not scores:
        return None
    passed = None if threshold is None else sum(meets(score, threshold, goal) for score in scores)
    return shared_stat(len(scores), exact_mean(scores), passed, min(scores), max(scores))


@lru_cache(maxsize=4096)
def shared_stat(n: int, mean: float, passed: int | None, low: float, high: float) -> Stat:
    """Equal ones are the same object: most pairs of a large suite have one of few."""
    return Stat(n=n, mean=mean, passed=passed, low=low, high=high)


def measured_pairs(result: RunResult) -> Iterator[PairScores]:
    """Every case with every criterion of its set, in the result's order."""
    for measured in result.sets:
        for key, case in measured.keyed_cases():
            yield from _of_case(key, case, measured.criteria)


def meets(score: float, threshold: float, goal: Goal) -> bool:
    """Whether a score meets a threshold, exactly as ADK compares them."""
    return score <= threshold if goal == "minimize" else score >= threshold


def exact_mean(scores: Sequence[float]) -> float:
    """The mean, rounded once: the same in any order."""
    return scores[0] if len(scores) == 1 else weighted_mean([(score, 1) for score in scores])


def modal_trajectory(attempts: Iterable[AttemptSummary]) -> tuple[Trajectory, int, int] | None:
    """The tool calls most of the answered attempts made, how many made them, of how many.

    Ties go to the smaller digest: whatever the order of the attempts, the same one is taken.
    """
    answered = [attempt for attempt in attempts if attempt.error is None]
    if len(answered) == 1:
        return tuple(turn.calls for turn in answered[0].turns), 1, 1
    found: Counter[str] = Counter()
    turns: dict[str, Trajectory] = {}
    for attempt in answered:
        calls: tuple[Calls, ...] = tuple(turn.calls for turn in attempt.turns)
        digest = trajectory_digest(calls)
        found[digest] += 1
        turns[digest] = calls
    if not found:
        return None
    digest, seen = min(found.items(), key=lambda item: (-item[1], item[0]))
    return turns[digest], seen, found.total()


def unbilled(attempt: AttemptSummary) -> bool:
    """Whether nothing came back at all: no call, no text, and no token billed. That is no answer of the agent's."""
    usage = attempt.usage
    if usage.total_tokens or usage.input_tokens or usage.output_tokens or usage.model_calls <= 0:
        return False
    return bool(attempt.turns) and all(not turn.calls and not turn.response for turn in attempt.turns)


_NO_SCORE: Final = "the criterion gave no score"


def _failure(attempt: AttemptSummary) -> str:
    """Why an attempt has no score on any criterion; "" where it may have one."""
    if attempt.error is not None:
        return f"{attempt.error.kind.value}: {attempt.error.message}"
    silent = unbilled(attempt)
    return "the agent answered nothing and called no tool, and no token was billed" if silent else ""


def _of_case(key: CaseKey, case: CaseResult, infos: Sequence[CriterionInfo]) -> Iterator[PairScores]:
    made = [(one, _failure(one), {score.criterion: score for score in one.scores}) for one in case.attempts]
    answered = bool(made) and all(attempt.error is None for attempt in case.attempts)
    for info in infos:
        unmeasured = case.unmeasured or info.unmeasured
        scored: list[tuple[float, str, AttemptSummary]] = []
        skipped = [unmeasured] if unmeasured else []
        errors = [] if unmeasured or made else ["no attempt was made"]
        for attempt, failure, scores in () if unmeasured else made:
            score = scores.get(info.name)
            if failure or score is None:
                errors.append(failure or _NO_SCORE)
            elif score.status is ScoreStatus.NOT_APPLICABLE:
                skipped.append(score.reason)
            elif score.status is ScoreStatus.SCORED and score.score is not None and math.isfinite(score.score):
                scored.append((score.score, score.reason, attempt))
            else:
                errors.append(score.reason or _NO_SCORE)
        worst = _worst(scored, info.goal)
        yield PairScores(
            key=key,
            info=info,
            case=case,
            scores=tuple(sorted([score for score, _, _ in scored])),
            errors=len(errors),
            not_applicable=len(skipped),
            reason=_most_common([reason for _, reason, _ in worst] or skipped),
            error=_most_common(errors),
            answered=answered,
            worst=tuple([attempt for _, _, attempt in worst]),
            unmeasured=unmeasured,
        )


def _worst(scored: list[tuple[float, str, AttemptSummary]], goal: Goal) -> list[tuple[float, str, AttemptSummary]]:
    if len(scored) <= 1:
        return scored
    scores = [score for score, _, _ in scored]
    worst = max(scores) if goal == "minimize" else min(scores)
    return [item for item in scored if item[0] == worst]


def _most_common(texts: Sequence[str]) -> str:
    """The commonest text, ties alphabetically: the order of the attempts must not show."""
    if len(texts) <= 1:
        return texts[0] if texts else ""
    counted = Counter(texts)
    return min(counted, key=lambda text: (-counted[text], text))
