"""One object for equal scores: in a large suite most attempts are scored alike, and scores are half of what is kept."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from agent_eval_action.criteria.base import Criterion, Sample, ScoringContext, TurnCriterion
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.run_result import Attempt, CriterionScore, ScoreStatus, TurnScore
from agent_eval_action.run.plan import PlannedAttempt

_DISTINCT: Final = 1_024
"""Scores remembered at most: those that all differ cost nothing beyond."""


_Score = TypeVar("_Score", TurnScore, CriterionScore)


@dataclass
class SharedScores:
    """Remembers the first distinct scores without a judge's words, and gives the same object for an equal one."""

    _turns: dict[tuple[object, ...], TurnScore] = field(default_factory=dict)
    _scores: dict[tuple[object, ...], CriterionScore] = field(default_factory=dict)

    def share(self, score: CriterionScore) -> CriterionScore:
        """An equal score, whose turns may be those of other attempts as well."""
        turns = tuple(self._turn(turn) for turn in score.turns)
        if score.rubrics or score.details:
            return score.model_copy(update={"turns": turns})
        judged = score.criterion, score.digest, score.status, repr(score.score), score.passed, score.reason
        key = (*judged, *map(id, turns))
        known = self._scores.get(key)
        return known or _first(key, score.model_copy(update={"turns": turns}), self._scores)

    def _turn(self, turn: TurnScore) -> TurnScore:
        if turn.votes or turn.rubrics or turn.sentences:
            return turn
        key = turn.turn, turn.status, repr(turn.score), turn.reason, repr(turn.details)
        return _first(key, turn, self._turns)


def _first(key: tuple[object, ...], score: _Score, known: dict[tuple[object, ...], _Score]) -> _Score:
    return known.setdefault(key, score) if len(known) < _DISTINCT else known.get(key, score)


_TRACEBACK_LIMIT = 2_000

_Turns = list[asyncio.Task[TurnScore]]


@dataclass(eq=False)
class AttemptScorer:
    """The scores of one attempt in the making.

    ``heard`` is told of every turn as it arrives, ``forget`` when the attempt is made again from its start;
    ``finish`` gives the attempt with one score per criterion, in the order of the criteria. Scores the
    attempt already has under the same criterion digest are kept (a resumed run). An attempt that failed
    gets no scores: its error speaks for every criterion. ``answered`` is called for every turn.
    """

    planned: PlannedAttempt
    instruments: ScoringContext = field(default_factory=ScoringContext)
    answered: Callable[[], None] = lambda: None
    _judging: dict[str, _Turns] = field(default_factory=dict, init=False)

    def heard(self, turns: Sequence[Invocation]) -> None:
        """The newest of these turns has just been made: what judges turns one by one begins with it."""
        self.answered()
        sample = self._sample(tuple(turns))
        for criterion in self.planned.planned_set.scored_by:
            if isinstance(criterion, TurnCriterion) and _begins(criterion, sample):
                judging = self._judging.setdefault(criterion.name, [])
                judging.append(asyncio.create_task(criterion.score_turn(sample, len(turns) - 1)))

    @property
    def waits(self) -> bool:
        """Whether scoring waits for somebody else: a judge, or a function of the user's."""
        return any(criterion.waits for criterion in self.planned.planned_set.scored_by)

    async def forget(self) -> None:
        """Give up what was begun."""
        tasks = [task for judging in self._judging.values() for task in judging]
        self._judging.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def finish(self, attempt: Attempt) -> Attempt:
        """The attempt, scored."""
        try:
            return await self._finished(attempt)
        finally:
            await self.forget()

    async def _finished(self, attempt: Attempt) -> Attempt:
        if attempt.error is not None:
            return attempt.model_copy(update={"scores": ()})
        digests = {info.name: info.digest for info in self.planned.planned_set.infos}
        kept = {
            score.criterion: score
            for score in attempt.scores
            if score.status is not ScoreStatus.ERROR and score.digest and score.digest == digests.get(score.criterion)
        }
        sample = self._sample(attempt.turns, attempt.final_session_state)
        criteria = self.planned.planned_set.scored_by
        scores = await asyncio.gather(*(self._score(criterion, sample, kept, digests) for criterion in criteria))
        return attempt.model_copy(update={"scores": tuple(scores)})

    def _sample(self, turns: tuple[Invocation, ...], state: dict[str, object] | None = None) -> Sample:
        return Sample(self.planned.case, turns, state, self.planned.key.repeat, self.instruments)

    async def _score(
        self, criterion: Criterion, sample: Sample, kept: Mapping[str, CriterionScore], digests: Mapping[str, str]
    ) -> CriterionScore:
        if (old := kept.get(criterion.name)) is not None and old.score is not None:
            return old.model_copy(update={"passed": criterion.meets(old.score)})
        try:
            score = await self._made(criterion, sample)
        except Exception as error:  # noqa: BLE001 - failing closed: a defect of one criterion is one error, not a lost run
            text = traceback.format_exc()[-_TRACEBACK_LIMIT:]
            score = criterion.no_score(
                ScoreStatus.ERROR, f"{type(error).__name__}: {error}"[:500], details={"traceback": text}
            )
        return score.model_copy(update={"digest": digests.get(criterion.name, "")})

    def _made(self, criterion: Criterion, sample: Sample) -> Awaitable[CriterionScore]:
        """What was judged while the turns came in is used; what was not (a recording, a kept attempt) is judged now."""
        judging = self._judging.get(criterion.name, [])
        if isinstance(criterion, TurnCriterion) and judging and len(judging) == len(sample.actual):
            return _joined(criterion, sample, judging)
        return criterion.score(sample)


def _begins(criterion: TurnCriterion, sample: Sample) -> bool:
    """Whether its turns can be judged as they come. One that raises does so again at the end, where that is a score."""
    try:
        return criterion.refusal(sample) is None
    except Exception:  # noqa: BLE001 - see above
        return False


async def _joined(criterion: TurnCriterion, sample: Sample, judging: _Turns) -> CriterionScore:
    if reason := sample.unmeasurable():
        return criterion.no_score(ScoreStatus.ERROR, reason)
    return await criterion.over_turns(sample, await asyncio.gather(*judging))
