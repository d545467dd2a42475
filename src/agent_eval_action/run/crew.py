"""Attempts made side by side: each is run, scored as it arrives, written down, collected and told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent_eval_action.criteria.base import Instruments
from agent_eval_action.llm.budget import Amount
from agent_eval_action.llm.slots import Slots
from agent_eval_action.model.result import ArmName, Attempt, AttemptError, MadeWith
from agent_eval_action.run.arms import Arm
from agent_eval_action.run.collect import Collector
from agent_eval_action.run.events import AttemptFinished, Event, Notice
from agent_eval_action.run.execute import Executor
from agent_eval_action.run.made_with import environment_of
from agent_eval_action.run.plan import PlannedAttempt
from agent_eval_action.run.resume import Earlier
from agent_eval_action.run.scoring import Scoring
from agent_eval_action.run.spending import Spending
from agent_eval_action.run.stall import Progress
from agent_eval_action.run.transcripts import TranscriptWriter

_JUDGED_AT_ONCE: Final = 16
"""Times the sessions: attempts that may wait for their judges while others are made. Bounds memory, not speed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How attempts are made: sessions at once over all arms, and tries after infrastructure errors."""

    concurrency: int = 32
    retries: int = 2


@dataclass
class Crew:
    """Makes attempts of any arm. ``scoring_ready`` is done when the criteria's slow imports are.

    ``instruments``: what the criteria of each agent may use, by the agent's name. ``redact``: takes secrets out of
    what is kept, once it is scored.
    """

    bounds: Bounds
    scoring_ready: asyncio.Task[None]
    writer: TranscriptWriter
    collector: Collector
    spending: Spending
    emit: Callable[[Event], None]
    kept: Earlier = field(default_factory=Earlier)
    instruments: Mapping[str, Instruments] = field(default_factory=dict)
    redact: Callable[[Attempt], Attempt] = field(default=lambda attempt: attempt)
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self._other_environments: set[str] = set()
        self._slots = Slots(self.bounds.concurrency)

    async def make(self, attempts: Iterable[PlannedAttempt], *arms: Arm) -> None:
        """Make these attempts in this order, each on the arm its key names, or as many as may be paid for.

        A fixed number of workers over one iterator: memory does not grow with the size of the suite.
        """
        concurrency, queue = self.bounds.concurrency, iter(attempts)
        crews = {arm.name: _Crewed(arm, self._executors(arm)) for arm in arms}
        begun: set[Scoring] = set()
        try:
            async with asyncio.TaskGroup() as group:
                shift = _Shift(crews, group, asyncio.Semaphore(concurrency * _JUDGED_AT_ONCE), begun)
                # more workers than sessions: an attempt being scored must not hold a session's place
                for _ in range(concurrency * 2):
                    group.create_task(self._worker(queue, shift))
        finally:
            # Cut off, turns that were heard are still with their judges, who would be asked, and paid, for nothing.
            await asyncio.gather(*(scoring.forget() for scoring in begun))

    def _executors(self, arm: Arm) -> dict[str, Executor]:
        retries = self.bounds.retries
        return {
            name: Executor(driver, self._slots, retries, self.emit, llm=self._instruments(name).llm)
            for name, driver in arm.drivers.items()
        }

    def _instruments(self, agent: str) -> Instruments:
        return self.instruments.get(agent, Instruments())

    async def _worker(self, queue: Iterator[PlannedAttempt], shift: _Shift) -> None:
        for planned in queue:
            crewed = shift.crews[planned.key.arm]
            made_with = await self._made_with(planned, crewed.arm)
            attempt = self._kept(planned, crewed.arm, made_with)
            scoring = Scoring(planned, self._instruments(planned.key.agent), self.progress.made)
            shift.begun.add(scoring)
            if attempt is None:
                attempt = await self._paid(planned, crewed, scoring)
                if attempt is None:  # nothing is made any more, but what is kept is still to come
                    shift.begun.discard(scoring)
                    continue
            await asyncio.shield(self.scoring_ready)
            mine = attempt.model_copy(
                update={"purpose": planned.purpose, "commit": crewed.arm.commit, "made_with": made_with}
            )
            if scoring.waits:
                await shift.judging.acquire()
                shift.group.create_task(self._judged(scoring, mine, shift))
            else:
                self._keep(await scoring.finish(mine), planned)
                shift.begun.discard(scoring)

    async def _made_with(self, planned: PlannedAttempt, arm: Arm) -> MadeWith:
        """What an attempt is made with now, as soon as its agent has started; without an environment if it does not."""
        known = self.kept.expected.get(planned.key.agent)
        if known is None:
            return MadeWith()
        started = await asyncio.shield(arm.starts[planned.key.agent])
        environment = "" if isinstance(started, AttemptError) else environment_of(started)
        return known.model_copy(update={"environment": environment, **({"code": ""} if arm.commit else {})})

    def _kept(self, planned: PlannedAttempt, arm: Arm, made_with: MadeWith) -> Attempt | None:
        """The attempt as an earlier run has it, unless that agent ran in another environment."""
        attempt = self.kept.get(planned.key, arm.commit)
        if attempt is None or attempt.made_with.environment == made_with.environment:
            return attempt
        agent = planned.key.agent
        if made_with.environment and agent not in self._other_environments:  # why it does not start is said already
            self._other_environments.add(agent)
            text = f"{agent}: attempts of the earlier run are not kept, for the agent's environment is another one now"
            self.emit(Notice(text, level="warning"))
        return None

    async def _judged(self, scoring: Scoring, attempt: Attempt, shift: _Shift) -> None:
        """Wait for judges beside the workers: the next attempt is made meanwhile."""
        try:
            self._keep(await scoring.finish(attempt), scoring.planned)
        except asyncio.CancelledError:
            self.writer.append(attempt)  # its answers are paid for: a resumed run asks its judges alone
            raise
        finally:
            shift.begun.discard(scoring)
            shift.judging.release()

    def _keep(self, scored: Attempt, planned: PlannedAttempt) -> None:
        scored = self.redact(scored)
        self.writer.append(scored)
        self.collector.add(scored, planned.planned_case)
        self.progress.observe_attempt(scored)
        self.emit(AttemptFinished(scored))

    async def _paid(self, planned: PlannedAttempt, crewed: _Crewed, scoring: Scoring) -> Attempt | None:
        """The attempt, with every try of it counted; None: a limit is met. Answers of a recording cost nothing."""
        started = await asyncio.shield(crewed.arm.starts[planned.key.agent])
        if isinstance(started, AttemptError):
            return _not_started(planned, started)
        executor = crewed.executors[planned.key.agent]
        if planned.key.agent in crewed.arm.fixed:
            return await executor.make(planned, scoring)
        estimate = await self.spending.begin(len(planned.case.turns))
        if estimate is None:
            return None
        model = started.models[0] if len(started.models) == 1 else ""
        spent = Amount()

        def count(made: Attempt) -> None:
            nonlocal spent
            spent += self.spending.count(made, model)

        try:
            return await executor.make(planned, scoring, count)
        finally:
            self.spending.end(estimate, spent)


@dataclass(frozen=True, slots=True)
class _Crewed:
    arm: Arm
    executors: dict[str, Executor]


@dataclass(frozen=True, slots=True)
class _Shift:
    """What the workers of one call share: who makes attempts, places to wait for judges, and what is not scored yet."""

    crews: Mapping[ArmName, _Crewed]
    group: asyncio.TaskGroup
    judging: asyncio.Semaphore
    begun: set[Scoring]


def in_turn(one: Sequence[PlannedAttempt], other: Sequence[PlannedAttempt]) -> list[PlannedAttempt]:
    """Both in one queue, each spread evenly over all of it; of equally many those of ``one`` come first."""
    placed = [((n + 0.5) / len(one), 0, planned) for n, planned in enumerate(one)]
    placed += [((n + 0.5) / len(other), 1, planned) for n, planned in enumerate(other)]
    return [planned for _, _, planned in sorted(placed, key=lambda item: item[:2])]


def _not_started(planned: PlannedAttempt, error: AttemptError) -> Attempt:
    key = planned.key
    return Attempt(
        agent=key.agent,
        eval_set=key.eval_set,
        case=key.case,
        repeat=key.repeat,
        arm=key.arm,
        case_digest=planned.digest,
        error=error,
    )
