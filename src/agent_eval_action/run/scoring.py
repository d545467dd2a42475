"""Score an attempt, if possible turn by turn during the conversation; equal scores share memory."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from agent_eval_action.criteria.base import Criterion, Sample, ScoringContext, TurnCriterion
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.run_result import Attempt, CriterionScore, ScoreStatus, TurnScore
from agent_eval_action.run.plan import PlannedAttempt

_MAX_SHARED: Final = 1_024
"""The most distinct scores to remember, which bounds the memory if all scores differ."""
_TRACEBACK_LIMIT: Final = 2_000
_MESSAGE_LIMIT: Final = 500

_Score = TypeVar("_Score", TurnScore, CriterionScore)


@dataclass
class SharedScores:
    """Returns one object for equal scores, as most are in a large suite. Does not share scores with a judge's text."""

    _turns: dict[tuple[object, ...], TurnScore] = field(default_factory=dict)
    _scores: dict[tuple[object, ...], CriterionScore] = field(default_factory=dict)

    def share(self, score: CriterionScore) -> CriterionScore:
        """Return an equal score, whose turns may belong to other attempts."""
        turns = tuple(self._turn(turn) for turn in score.turns)
        if score.rubrics or score.details:
            return score.model_copy(update={"turns": turns})
        # by repr, because 1 == 1.0 == True, but they are written differently
        values = score.criterion, score.digest, score.status, repr(score.score), score.passed, score.reason
        key = (*values, *map(id, turns))
        return self._scores.get(key) or _first(key, score.model_copy(update={"turns": turns}), self._scores)

    def _turn(self, turn: TurnScore) -> TurnScore:
        if turn.votes or turn.rubrics or turn.sentences:
            return turn
        return _first((turn.turn, turn.status, repr(turn.score), turn.reason, repr(turn.details)), turn, self._turns)


def _first(key: tuple[object, ...], score: _Score, known: dict[tuple[object, ...], _Score]) -> _Score:
    return known.setdefault(key, score) if len(known) < _MAX_SHARED else known.get(key, score)


@dataclass(eq=False)
class AttemptScorer:
    """Scores one attempt. ``on_answer`` is called for every turn that arrives."""

    planned: PlannedAttempt
    context: ScoringContext = field(default_factory=ScoringContext)
    on_answer: Callable[[], None] = lambda: None
    _turn_scores: dict[str, list[asyncio.Task[TurnScore]]] = field(default_factory=dict, init=False)

    def on_turn(self, turns: Sequence[Invocation]) -> None:
        """Start scoring the newest of these turns by the criteria that score single turns."""
        self.on_answer()
        if not self.planned.planned_set.waits:
            return
        sample = self._sample(tuple(turns))
        for criterion in self.planned.planned_set.scored_by:
            if criterion.waits and isinstance(criterion, TurnCriterion) and _applies(criterion, sample):
                tasks = self._turn_scores.setdefault(criterion.name, [])
                tasks.append(asyncio.create_task(criterion.score_turn(sample, len(turns) - 1)))

    async def reset(self) -> None:
        """Cancel the scoring of turns: the attempt is retried, or its scores are not needed."""
        if not self._turn_scores:
            return
        tasks = [task for turn_tasks in self._turn_scores.values() for task in turn_tasks]
        self._turn_scores.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def finish(self, attempt: Attempt) -> Attempt:
        """Return the attempt with one score per criterion, in the order of the criteria; none if the attempt failed.

        Scores that it already has (when resumed) are kept if the criterion's digest is unchanged.
        """
        if attempt.error is not None:
            await self.reset()
            return attempt.model_copy(update={"scores": ()})
        digests = self.planned.planned_set.digests
        previous = {
            score.criterion: score
            for score in attempt.scores
            if score.score is not None and score.digest and score.digest == digests.get(score.criterion)
        }
        sample = self._sample(attempt.turns, attempt.final_session_state)
        planned_set = self.planned.planned_set
        scoring = [self._score(criterion, sample, previous) for criterion in planned_set.scored_by]
        try:
            # use tasks only if scoring waits: starting a task takes as long as scoring
            scores = await asyncio.gather(*scoring) if planned_set.waits else [await score for score in scoring]
        finally:
            await self.reset()
        marked = (score.model_copy(update={"digest": digests.get(score.criterion, "")}) for score in scores)
        return attempt.model_copy(update={"scores": tuple(marked)})

    def _sample(self, turns: tuple[Invocation, ...], state: dict[str, object] | None = None) -> Sample:
        return Sample(self.planned.case, turns, state, self.planned.key.repeat, self.context)

    async def _score(
        self, criterion: Criterion, sample: Sample, previous: Mapping[str, CriterionScore]
    ) -> CriterionScore:
        kept = previous.get(criterion.name)
        if kept is not None and kept.score is not None:
            return kept.model_copy(update={"passed": criterion.meets(kept.score)})
        try:
            return await self._new_score(criterion, sample)
        except Exception as error:  # noqa: BLE001 - fail closed: a criterion's defect is one error, not a lost run
            reason = f"{type(error).__name__}: {error}"[:_MESSAGE_LIMIT]
            details = {"traceback": traceback.format_exc()[-_TRACEBACK_LIMIT:]}
            return criterion.no_score(ScoreStatus.ERROR, reason, details=details)

    async def _new_score(self, criterion: Criterion, sample: Sample) -> CriterionScore:
        """Use the turn scores from the conversation, if any: a recording or a resumed attempt has none."""
        tasks = self._turn_scores.get(criterion.name)
        if not tasks or not isinstance(criterion, TurnCriterion) or len(tasks) != len(sample.actual):
            return await criterion.score(sample)
        if reason := sample.unmeasurable(by_events=criterion.by_events):
            return criterion.no_score(ScoreStatus.ERROR, reason)
        return await criterion.aggregate(sample, await asyncio.gather(*tasks))


def _applies(criterion: TurnCriterion, sample: Sample) -> bool:
    """Whether the criterion can score single turns. If it raises, it raises again at the end, as an error score."""
    try:
        return criterion.refuse(sample) is None
    except Exception:  # noqa: BLE001 - see above
        return False
