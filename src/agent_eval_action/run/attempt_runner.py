"""Progress of a run, and how long there has been none: a model that refuses every call must not be asked for ever."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from agent_eval_action.agents.base import AgentDriver, AgentSession, SessionRequest
from agent_eval_action.agents.user import Ended, User
from agent_eval_action.criteria.base import ScoringContext
from agent_eval_action.llm.budget import Meter, Spend, agent_calls
from agent_eval_action.llm.client import Llm, LlmError, LlmReply
from agent_eval_action.llm.rate_limit import AdaptiveSemaphore
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.run_result import (
    INFRASTRUCTURE,
    ArmName,
    Attempt,
    AttemptError,
    Durations,
    EndReason,
    ErrorKind,
    Provenance,
    ScoreStatus,
    Usage,
)
from agent_eval_action.results.transcripts import TranscriptWriter
from agent_eval_action.run.base_agents import AgentGroup
from agent_eval_action.run.collector import ResultCollector
from agent_eval_action.run.events import AttemptFinished, AttemptRetried, AttemptStarted, Event, Notice
from agent_eval_action.run.plan import PlannedAttempt
from agent_eval_action.run.resources import make_user
from agent_eval_action.run.resume import PreviousAttempts, environment_digest
from agent_eval_action.run.scoring import AttemptScorer

STALL_SECONDS: Final = 300.0
_SLACK_SECONDS: Final = 60.0
_WAITED_FOR: Final = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE})
"""Attempts that end so were not answered: their number bounds nothing, since each may take minutes."""


def stall_timeout(configured: float | None, longest_answer: float) -> float:
    """The bound of a run. ``longest_answer``: seconds that one turn or one call may take."""
    return configured if configured is not None else max(STALL_SECONDS, longest_answer + _SLACK_SECONDS)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class StallDetector:
    """When something was last answered: a turn, a call of a model, an attempt with all of its scores.

    ``problem`` is what was said last instead of an answer, "" when nothing was.
    """

    clock: Callable[[], float] = _loop_time
    problem: str = ""
    _last: float | None = field(default=None, init=False)

    def made(self) -> None:
        """Something was answered."""
        self._last, self.problem = self.clock(), ""

    def observe_reply(self, reply: LlmReply | LlmError) -> None:
        """A model that judges or plays a user answered, or did not."""
        if isinstance(reply, LlmError):
            self.problem = reply.message
        else:
            self.made()

    def observe_attempt(self, attempt: Attempt) -> None:
        """An attempt is finished; scores that a judge did not give are no progress."""
        error = attempt.error
        if error is not None and error.kind in _WAITED_FOR:
            self.problem = f"{error.kind}: {error.message}"
        elif not any(score.status is ScoreStatus.ERROR for score in attempt.scores):
            self.made()

    async def stalled(self, seconds: float, *, excused: Callable[[], bool]) -> str:
        """Return why, once there has been no progress for so many seconds.

        ``excused`` says whether what is awaited at that moment has a bound of its own.
        """
        self._last = self.clock()
        while True:
            left = self._last + seconds - self.clock()
            if left > 0:
                await asyncio.sleep(left)
            elif excused():
                self._last = self.clock()
            else:
                return _reason(seconds, self.problem)


def _reason(seconds: float, problem: str) -> str:
    last = f"; the last thing said was: {' '.join(problem.split())}" if problem else ""
    return f"nothing was answered for {seconds:g} s (stall_timeout){last}"


@dataclass
class AttemptBudget:
    """The attempts' side of the run's meter, which judges count on as well.

    An attempt is expected to come to what the attempts before it came to; the first ones to a call a turn.
    """

    meter: Meter = field(default_factory=Meter)
    _made: int = 0
    _total: Spend = field(default_factory=Spend)

    async def begin(self, turns: int) -> Spend | None:
        """Set aside what an attempt may take; None: a limit is met, nothing more is made. ``end`` must follow."""
        made, total = self._made, self._total
        estimate = Spend(max(1, turns))
        if made:
            estimate = Spend(max(1, -(-total.calls // made)), total.tokens // made, total.usd / made)
        return None if await self.meter.reserve(estimate) else estimate

    def end(self, estimate: Spend, spent: Spend) -> None:
        """The attempt is made."""
        self._made += 1
        self._total += spent
        self.meter.settle(estimate, spent)

    def count(self, attempt: Attempt, model: str = "") -> Spend:
        """Count one try of an attempt, also one that failed. ``model``: of calls that do not say theirs."""
        return self.meter.agent(agent_calls(attempt.turns), model)

    def met(self) -> str:
        """The limit that is met, in words; "" while there is none."""
        return self.meter.met()


_DEFAULT_APP = "agent_eval"
_DEFAULT_USER = "test_user_id"  # ADK's own default, so that user-scoped state in eval files keeps its meaning
_BACKOFF_S = {ErrorKind.RATE_LIMITED: 2.0, ErrorKind.UNAVAILABLE: 1.0}
_LONGEST_BACKOFF_S = 30.0


class TurnObserver(Protocol):
    """Who wants turns as they arrive, before the conversation is over."""

    def heard(self, turns: Sequence[Invocation]) -> None:
        """The newest of these turns has just been made."""
        ...

    async def forget(self) -> None:
        """The attempt is made again from its start."""
        ...


@dataclass(frozen=True)
class Executor:
    """Makes attempts with one driver.

    ``slots`` are the sessions open at once, fewer after sessions met a model that is asked too much;
    ``lonely`` bounds the single-session workers that tell a culprit from its neighbours. ``llm`` plays
    simulated users.
    """

    driver: AgentDriver
    slots: AdaptiveSemaphore
    retries: int
    emit: Callable[[Event], None]
    lonely: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    llm: Llm | None = None

    async def make(
        self, planned: PlannedAttempt, listener: TurnObserver, tried: Callable[[Attempt], None] = lambda _: None
    ) -> Attempt:
        """The attempt with its turns, or with the error that is left after the retries; not scored yet.

        ``tried`` is told of every try, of those made again too: they cost as well.
        """
        alone = False
        tries = 0
        while True:
            tries += 1
            attempt = await self._once(planned, listener, alone=alone, tries=tries)
            tried(attempt)
            error = attempt.error
            if error is None or error.kind not in INFRASTRUCTURE or tries > self.retries:
                return attempt
            if error.kind is ErrorKind.DIED:
                if alone:  # it died with nobody else in its worker: it is the culprit
                    return attempt
                alone = True
            self.emit(AttemptRetried(planned.key, error, tries))
            await listener.forget()
            await asyncio.sleep(_backoff(error.kind, tries))

    async def _once(self, planned: PlannedAttempt, listener: TurnObserver, *, alone: bool, tries: int) -> Attempt:
        async with self.lonely if alone else contextlib.nullcontext(), self.slots.permit() as permit:
            talk = _Conversation()
            attempt = await self._converse(planned, listener, talk, alone=alone, tries=tries)
            self._adapt_sessions(permit, attempt, talk.throttled)
            return attempt

    def _adapt_sessions(self, permit: int, attempt: Attempt, throttled: int) -> None:
        """Shrink the sessions when this one was mostly refused: the odd refusal is the worker learning the rate."""
        error = attempt.error
        failed = error is not None and error.kind is ErrorKind.RATE_LIMITED
        if failed or throttled > attempt.usage.model_calls:
            self.slots.refused(permit)
        else:
            self.slots.succeeded()

    async def _converse(
        self, planned: PlannedAttempt, listener: TurnObserver, talk: _Conversation, *, alone: bool, tries: int
    ) -> Attempt:
        self.emit(AttemptStarted(planned.key))
        opened = await self.driver.open(_request(planned, alone=alone))
        if isinstance(opened, AttemptError):
            talk.error = opened
            return _attempt(planned, talk, None, tries)
        state = None
        try:
            await _converse(opened, make_user(planned, opened, self.llm), talk, listener)
        finally:
            end = await opened.close()
        if isinstance(end, AttemptError):
            talk.error = talk.error or end
        else:
            state = end.final_state
        return _attempt(planned, talk, state, tries)


@dataclass
class _Conversation:
    """A conversation as far as it came."""

    turns: list[Invocation] = field(default_factory=list)
    ended: EndReason = ""
    error: AttemptError | None = None
    throttled: int = 0  # calls of models that were refused for asking too much, and made again


async def _converse(session: AgentSession, user: User, talk: _Conversation, listener: TurnObserver) -> None:
    """User and agent in turns, until the user has no more to say or there is an error."""
    while talk.error is None:
        said = await user.next(talk.turns)
        if isinstance(said, Ended):
            talk.ended = "" if said.reason == "said_all" else said.reason
            return
        done = said if isinstance(said, AttemptError) else await session.turn(said)
        if isinstance(done, AttemptError):
            talk.error = done.model_copy(update={"turn": len(talk.turns)})
        else:
            talk.turns.append(done.invocation)
            talk.throttled += done.throttled
            listener.heard(talk.turns)


def _request(planned: PlannedAttempt, *, alone: bool) -> SessionRequest:
    given = planned.case.session_input
    return SessionRequest(
        app_name=given.app_name if given else _DEFAULT_APP,
        user_id=given.user_id if given else _DEFAULT_USER,
        session_id=given.session_id if given else None,
        state=dict(given.state) if given else {},
        alone=alone,
        label=f"{planned.key.case_key} #{planned.key.repeat + 1}",
        key=planned.key,
    )


def _attempt(planned: PlannedAttempt, talk: _Conversation, state: dict[str, object] | None, tries: int) -> Attempt:
    key, turns = planned.key, tuple(talk.turns)
    return Attempt(
        agent=key.agent,
        eval_set=key.eval_set,
        case=key.case,
        repeat=key.repeat,
        arm=key.arm,
        case_digest=planned.digest,
        turns=turns,
        final_session_state=state,
        ended=talk.ended,
        error=talk.error,
        usage=sum_usage(turns),
        durations=sum_durations(turns),
        tries=tries,
    )


def sum_usage(turns: tuple[Invocation, ...]) -> Usage:
    """Tokens and calls summed over the events of all turns; a model event without a report is counted as such."""
    total = Usage()
    for turn in turns:
        total += Usage(tool_calls=len(turn.tool_calls()))
        for event in getattr(turn.intermediate_data, "invocation_events", ()):
            if event.usage_metadata is None:
                if event.model_version is not None:
                    total += Usage(model_calls=1, calls_without_usage=1)
                continue
            report = event.usage_metadata
            total += Usage(
                model_calls=1,
                input_tokens=_count(report, "prompt_token_count"),
                output_tokens=_count(report, "candidates_token_count"),
                total_tokens=_count(report, "total_token_count"),
                calls_without_usage=int(_count(report, "total_token_count") is None),
            )
    return total


def _count(report: dict[str, object], name: str) -> int | None:
    value = report.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def sum_durations(turns: tuple[Invocation, ...]) -> Durations:
    """Seconds summed over the turns that were measured."""
    return Durations(
        total=_sum([turn.duration for turn in turns]),
        model=_sum([turn.model_duration for turn in turns]),
        tool=_sum([turn.tool_duration for turn in turns]),
    )


def _sum(values: list[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return round(sum(measured), 6) if measured else None


def _backoff(kind: ErrorKind, tries: int) -> float:
    base = _BACKOFF_S.get(kind, 0.0)
    wait: float = min(_LONGEST_BACKOFF_S, base * 2.0 ** (tries - 1))
    return wait * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret


_JUDGED_AT_ONCE: Final = 16
"""Times the sessions: attempts that may wait for their judges while others are made. Bounds memory, not speed."""


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """How attempts are made: sessions at once over all arms, and tries after infrastructure errors."""

    concurrency: int = 32
    retries: int = 2


@dataclass
class AttemptRunner:
    """Makes attempts of any arm. ``scoring_ready`` is done when the criteria's slow imports are.

    ``instruments``: what the criteria of each agent may use, by the agent's name. ``redact``: takes secrets out of
    what is kept, once it is scored.
    """

    bounds: AttemptLimits
    scoring_ready: asyncio.Task[None]
    writer: TranscriptWriter
    collector: ResultCollector
    spending: AttemptBudget
    emit: Callable[[Event], None]
    kept: PreviousAttempts = field(default_factory=PreviousAttempts)
    instruments: Mapping[str, ScoringContext] = field(default_factory=dict)
    redact: Callable[[Attempt], Attempt] = field(default=lambda attempt: attempt)
    progress: StallDetector = field(default_factory=StallDetector)

    def __post_init__(self) -> None:
        self._other_environments: set[str] = set()
        self._slots = AdaptiveSemaphore(self.bounds.concurrency)

    async def make(self, attempts: Iterable[PlannedAttempt], *arms: AgentGroup) -> None:
        """Make these attempts in this order, each on the arm its key names, or as many as may be paid for.

        A fixed number of workers over one iterator: memory does not grow with the size of the suite.
        """
        concurrency, queue = self.bounds.concurrency, iter(attempts)
        crews = {arm.name: _Crewed(arm, self._executors(arm)) for arm in arms}
        begun: set[AttemptScorer] = set()
        try:
            async with asyncio.TaskGroup() as group:
                shift = _Shift(crews, group, asyncio.Semaphore(concurrency * _JUDGED_AT_ONCE), begun)
                # more workers than sessions: an attempt being scored must not hold a session's place
                for _ in range(concurrency * 2):
                    group.create_task(self._worker(queue, shift))
        finally:
            # Cut off, turns that were heard are still with their judges, who would be asked, and paid, for nothing.
            await asyncio.gather(*(scoring.forget() for scoring in begun))

    def _executors(self, arm: AgentGroup) -> dict[str, Executor]:
        retries = self.bounds.retries
        return {
            name: Executor(driver, self._slots, retries, self.emit, llm=self._instruments(name).llm)
            for name, driver in arm.drivers.items()
        }

    def _instruments(self, agent: str) -> ScoringContext:
        return self.instruments.get(agent, ScoringContext())

    async def _worker(self, queue: Iterator[PlannedAttempt], shift: _Shift) -> None:
        for planned in queue:
            crewed = shift.crews[planned.key.arm]
            made_with = await self._made_with(planned, crewed.arm)
            attempt = self._kept(planned, crewed.arm, made_with)
            scoring = AttemptScorer(planned, self._instruments(planned.key.agent), self.progress.made)
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

    async def _made_with(self, planned: PlannedAttempt, arm: AgentGroup) -> Provenance:
        """What an attempt is made with now, as soon as its agent has started; without an environment if it does not."""
        known = self.kept.expected.get(planned.key.agent)
        if known is None:
            return Provenance()
        started = await asyncio.shield(arm.starts[planned.key.agent])
        environment = "" if isinstance(started, AttemptError) else environment_digest(started)
        return known.model_copy(update={"environment": environment, **({"code": ""} if arm.commit else {})})

    def _kept(self, planned: PlannedAttempt, arm: AgentGroup, made_with: Provenance) -> Attempt | None:
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

    async def _judged(self, scoring: AttemptScorer, attempt: Attempt, shift: _Shift) -> None:
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

    async def _paid(self, planned: PlannedAttempt, crewed: _Crewed, scoring: AttemptScorer) -> Attempt | None:
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
        spent = Spend()

        def count(made: Attempt) -> None:
            nonlocal spent
            spent += self.spending.count(made, model)

        try:
            return await executor.make(planned, scoring, count)
        finally:
            self.spending.end(estimate, spent)


@dataclass(frozen=True, slots=True)
class _Crewed:
    arm: AgentGroup
    executors: dict[str, Executor]


@dataclass(frozen=True, slots=True)
class _Shift:
    """What the workers of one call share: who makes attempts, places to wait for judges, and what is not scored yet."""

    crews: Mapping[ArmName, _Crewed]
    group: asyncio.TaskGroup
    judging: asyncio.Semaphore
    begun: set[AttemptScorer]


def interleave(one: Sequence[PlannedAttempt], other: Sequence[PlannedAttempt]) -> list[PlannedAttempt]:
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
