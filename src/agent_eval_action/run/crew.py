"""Attempts made side by side: each is run, scored as it arrives, written down, collected and told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent_eval_action.model.result import ArmName, Attempt, AttemptError
from agent_eval_action.run.arms import Arm
from agent_eval_action.run.collect import Collector
from agent_eval_action.run.events import AttemptFinished, Event
from agent_eval_action.run.execute import Executor
from agent_eval_action.run.plan import PlannedAttempt
from agent_eval_action.run.resume import Earlier
from agent_eval_action.run.scoring import score_attempt
from agent_eval_action.run.spending import Spending
from agent_eval_action.run.transcripts import TranscriptWriter


@dataclass(frozen=True, slots=True)
class Bounds:
    """How attempts are made: sessions at once over all arms, and tries after infrastructure errors."""

    concurrency: int = 32
    retries: int = 2


@dataclass
class Crew:
    """Makes attempts of any arm. ``scoring_ready`` is done when the criteria's slow imports are."""

    bounds: Bounds
    scoring_ready: asyncio.Task[None]
    writer: TranscriptWriter
    collector: Collector
    spending: Spending
    emit: Callable[[Event], None]
    kept: Earlier = field(default_factory=Earlier)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.bounds.concurrency)

    async def make(self, attempts: Iterable[PlannedAttempt], *arms: Arm) -> None:
        """Make these attempts in this order, each on the arm its key names, or as many as may be paid for.

        A fixed number of workers over one iterator: memory does not grow with the size of the suite.
        """
        bounds, queue = self.bounds, iter(attempts)
        crews = {arm.name: _Crewed(arm, self._executors(arm)) for arm in arms}
        async with asyncio.TaskGroup() as group:
            # more workers than sessions: an attempt being scored must not hold a session's place
            for _ in range(bounds.concurrency * 2):
                group.create_task(self._worker(queue, crews))

    def _executors(self, arm: Arm) -> dict[str, Executor]:
        retries = self.bounds.retries
        return {name: Executor(driver, self._slots, retries, self.emit) for name, driver in arm.drivers.items()}

    async def _worker(self, queue: Iterator[PlannedAttempt], crews: Mapping[ArmName, _Crewed]) -> None:
        for planned in queue:
            arm, executors = crews[planned.key.arm].arm, crews[planned.key.arm].executors
            attempt = self.kept.get(planned.key, arm.commit)
            if attempt is None:
                if self.spending.met():
                    return
                attempt = await _made(planned, arm, executors)
                self.spending.add(attempt)
            await asyncio.shield(self.scoring_ready)
            mine = attempt.model_copy(update={"purpose": planned.purpose, "commit": arm.commit})
            scored = await score_attempt(planned, mine)
            self.writer.append(scored)
            self.collector.add(scored)
            self.emit(AttemptFinished(scored))


@dataclass(frozen=True, slots=True)
class _Crewed:
    arm: Arm
    executors: dict[str, Executor]


def in_turn(one: Sequence[PlannedAttempt], other: Sequence[PlannedAttempt]) -> list[PlannedAttempt]:
    """Both in one queue, each spread evenly over all of it; of equally many those of ``one`` come first."""
    placed = [((n + 0.5) / len(one), 0, planned) for n, planned in enumerate(one)]
    placed += [((n + 0.5) / len(other), 1, planned) for n, planned in enumerate(other)]
    return [planned for _, _, planned in sorted(placed, key=lambda item: item[:2])]


async def _made(planned: PlannedAttempt, arm: Arm, executors: dict[str, Executor]) -> Attempt:
    key = planned.key
    started = await asyncio.shield(arm.starts[key.agent])
    if not isinstance(started, AttemptError):
        return await executors[key.agent].make(planned)
    return Attempt(
        agent=key.agent,
        eval_set=key.eval_set,
        case=key.case,
        repeat=key.repeat,
        arm=key.arm,
        case_digest=planned.digest,
        error=started,
    )
