"""The scores of a run by pair (a case on a criterion), for the code that compares, decides or stores them."""

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
    """The scores of one pair in ascending order. ``errors``: the number of attempts that lack a score.

    ``not_applicable``: the number of attempts that the criterion does not apply to. ``reason``: the criterion's reason
    for the worst score, or why it does not apply. ``error``: why attempts lack a score. ``answered``: the agent
    answered in every attempt, so that errors are the criterion's. ``worst``: the attempts with the worst score.
    ``unmeasured``: why the run left the pair out, so that it has neither scores nor errors; "" if it did not.
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
        """The mean of the scores; None without any."""
        return exact_mean(self.scores) if self.scores else None

    @property
    def passed(self) -> int | None:
        """The number of scores that meet the threshold; None without a threshold."""
        if self.info.threshold is None:
            return None
        return sum(meets(score, self.info.threshold, self.info.goal) for score in self.scores)


def score_stat(scores: Sequence[float], threshold: float | None, goal: Goal) -> Stat | None:
    """Return the statistics of scores; None without any. ``threshold`` None: ``passed`` is None."""
    if not scores:
        return None
    passed = None if threshold is None else sum(meets(score, threshold, goal) for score in scores)
    return shared_stat(len(scores), exact_mean(scores), passed, min(scores), max(scores))


@lru_cache(maxsize=4096)
def shared_stat(n: int, mean: float, passed: int | None, low: float, high: float) -> Stat:
    """Return the same object for equal values, which saves memory: most pairs of a large suite have one of few."""
    return Stat(n=n, mean=mean, passed=passed, low=low, high=high)


def measured_pairs(result: RunResult) -> Iterator[PairScores]:
    """Yield every case with every criterion of its set, in the result's order."""
    for measured in result.sets:
        for key, case in measured.keyed_cases():
            yield from _pairs_of_case(key, case, measured.criteria)


def meets(score: float, threshold: float, goal: Goal) -> bool:
    """Whether a score meets a threshold. ADK compares them in the same way."""
    return score <= threshold if goal == "minimize" else score >= threshold


def exact_mean(scores: Sequence[float]) -> float:
    """Return the mean, which does not depend on the order of the scores; see ``weighted_mean``."""
    return scores[0] if len(scores) == 1 else weighted_mean([(score, 1) for score in scores])


def modal_trajectory(attempts: Iterable[AttemptSummary]) -> tuple[Trajectory, int, int] | None:
    """Return the most frequent tool calls of the answered attempts, the number that made them, and the number of all.

    In a tie the smallest digest wins, so that the order of the attempts does not matter. None: no attempt was answered.
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
    """Whether an attempt has no tool call, no text and no billed token, so that it is no answer of the agent."""
    usage = attempt.usage
    if usage.total_tokens or usage.input_tokens or usage.output_tokens or usage.model_calls <= 0:
        return False
    return bool(attempt.turns) and all(not turn.calls and not turn.response for turn in attempt.turns)


_NO_SCORE: Final = "the criterion gave no score"


def _reason_without_scores(attempt: AttemptSummary) -> str:
    """Return why an attempt has no score on any criterion, "" if it may have one."""
    if attempt.error is not None:
        return f"{attempt.error.kind.value}: {attempt.error.message}"
    silent = unbilled(attempt)
    return "the agent answered nothing and called no tool, and no token was billed" if silent else ""


def _pairs_of_case(key: CaseKey, case: CaseResult, infos: Sequence[CriterionInfo]) -> Iterator[PairScores]:
    made = [
        (one, _reason_without_scores(one), {score.criterion: score for score in one.scores}) for one in case.attempts
    ]
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
        worst = _worst_of(scored, info.goal)
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


def _worst_of(scored: list[tuple[float, str, AttemptSummary]], goal: Goal) -> list[tuple[float, str, AttemptSummary]]:
    if len(scored) <= 1:
        return scored
    scores = [score for score, _, _ in scored]
    worst = max(scores) if goal == "minimize" else min(scores)
    return [item for item in scored if item[0] == worst]


def _most_common(texts: Sequence[str]) -> str:
    """Return the most frequent text, the alphabetically first in a tie; the order does not matter."""
    if len(texts) <= 1:
        return texts[0] if texts else ""
    counted = Counter(texts)
    return min(counted, key=lambda text: (-counted[text], text))
