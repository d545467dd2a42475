"""Attempts made side by side: each is run, scored as it arrives, written down, collected and told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent_eval_action.criteria.base import Instruments
from agent_eval_action.llm.budget import Amount
from agent_eval_action.llm.slots import Slots
from agent_eval_action.model.result import Attempt, AttemptError
from agent_eval_action.run.arms import Arm
from agent_eval_action.run.collect import Collector
from agent_eval_action.run.events import AttemptFinished, Event
from agent_eval_action.run.execute import Executor
from agent_eval_action.run.plan import PlannedAttempt
from agent_eval_action.run.resume import Earlier
from agent_eval_action.run.scoring import Scoring
from agent_eval_action.run.spending import Spending
from agent_eval_action.run.transcripts import TranscriptWriter


@dataclass(frozen=True, slots=True)
class Bounds:
    """How attempts are made: sessions at once over all arms, and tries after infrastructure errors."""

    concurrency: int = 32
    retries: int = 2


@dataclass
class Crew:
    """Makes attempts of any arm. ``scoring_ready`` is done when the criteria's slow imports are.

    ``instruments``: what the criteria of each agent may use, by the agent's name.
    """

    bounds: Bounds
    scoring_ready: asyncio.Task[None]
    writer: TranscriptWriter
    collector: Collector
    spending: Spending
    emit: Callable[[Event], None]
    kept: Earlier = field(default_factory=Earlier)
    instruments: Mapping[str, Instruments] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._slots = Slots(self.bounds.concurrency)

    async def make(self, attempts: Iterable[PlannedAttempt], arm: Arm) -> None:
        """Make these attempts, or as many as may be paid for.

        A fixed number of workers over one iterator: memory does not grow with the size of the suite.
        """
        bounds, queue = self.bounds, iter(attempts)
        executors = {
            name: Executor(driver, self._slots, bounds.retries, self.emit, llm=self._instruments(name).llm)
            for name, driver in arm.drivers.items()
        }
        async with asyncio.TaskGroup() as group:
            # more workers than sessions: an attempt being scored must not hold a session's place
            for _ in range(bounds.concurrency * 2):
                group.create_task(self._worker(queue, arm, executors))

    def _instruments(self, agent: str) -> Instruments:
        return self.instruments.get(agent, Instruments())

    async def _worker(self, queue: Iterator[PlannedAttempt], arm: Arm, executors: dict[str, Executor]) -> None:
        for planned in queue:
            attempt = self.kept.get(planned.key, arm.commit)
            scoring = Scoring(planned, self._instruments(planned.key.agent))
            if attempt is None:
                attempt = await self._paid(planned, arm, executors, scoring)
                if attempt is None:
                    return
            await asyncio.shield(self.scoring_ready)
            mine = attempt.model_copy(update={"purpose": planned.purpose, "commit": arm.commit})
            scored = await scoring.finish(mine)
            self.writer.append(scored)
            self.collector.add(scored)
            self.emit(AttemptFinished(scored))

    async def _paid(
        self, planned: PlannedAttempt, arm: Arm, executors: dict[str, Executor], scoring: Scoring
    ) -> Attempt | None:
        """The attempt, with every try of it counted; None: a limit is met. Answers of a recording cost nothing."""
        started = await asyncio.shield(arm.starts[planned.key.agent])
        if isinstance(started, AttemptError):
            return _not_started(planned, started)
        executor = executors[planned.key.agent]
        if planned.key.agent in arm.fixed:
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
