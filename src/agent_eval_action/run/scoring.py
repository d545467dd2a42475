"""Scoring one attempt with every criterion of its set. A criterion that raises is a score with status error."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping

from agent_eval_action.criteria.base import Criterion, Sample
from agent_eval_action.model.result import Attempt, CriterionScore, ScoreStatus
from agent_eval_action.run.plan import PlannedAttempt

_TRACEBACK_LIMIT = 2_000


async def score_attempt(planned: PlannedAttempt, attempt: Attempt) -> Attempt:
    """The attempt with one score per criterion, in the order of the criteria.

    Scores the attempt already has under the same criterion digest are kept (a resumed run). An attempt
    that failed gets no scores: its error speaks for every criterion.
    """
    if attempt.error is not None:
        return attempt.model_copy(update={"scores": ()})
    digests = {info.name: info.digest for info in planned.planned_set.infos}
    kept = {
        score.criterion: score
        for score in attempt.scores
        if score.status is not ScoreStatus.ERROR and score.digest and score.digest == digests.get(score.criterion)
    }
    sample = Sample(planned.case, attempt.turns, attempt.final_session_state, attempt.repeat)
    scores = await asyncio.gather(*(_score(c, sample, kept, digests) for c in planned.planned_set.criteria))
    return attempt.model_copy(update={"scores": tuple(scores)})


async def _score(
    criterion: Criterion, sample: Sample, kept: Mapping[str, CriterionScore], digests: Mapping[str, str]
) -> CriterionScore:
    if (old := kept.get(criterion.name)) is not None and old.score is not None:
        return old.model_copy(update={"passed": criterion.meets(old.score)})
    try:
        score = await criterion.score(sample)
    except Exception as error:  # noqa: BLE001 - failing closed: a defect of one criterion is one error, not a lost run
        text = traceback.format_exc()[-_TRACEBACK_LIMIT:]
        score = criterion.no_score(
            ScoreStatus.ERROR, f"{type(error).__name__}: {error}"[:500], details={"traceback": text}
        )
    return score.model_copy(update={"digest": digests.get(criterion.name, "")})
