"""Make attempts: hold a conversation each, retry after infrastructure errors, score, and store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

from agent_eval_action.agents.base import (
    AgentDriver,
    AgentSession,
    ConversationEnd,
    ConversationUser,
    FixedUser,
    SessionRequest,
)
from agent_eval_action.agents.recorded import RecordedSession, RecordedUser
from agent_eval_action.agents.simulator import SimulatedUser
from agent_eval_action.criteria.base import Criterion, Sample, ScoringContext, TurnCriterion
from agent_eval_action.llm.budget import Meter, Spend, agent_calls
from agent_eval_action.llm.client import Llm, LlmError, LlmReply
from agent_eval_action.llm.rate_limit import AdaptiveSemaphore
from agent_eval_action.results.evalset import DatasetCase, Invocation, ReplayCase, SessionInput
from agent_eval_action.results.run_result import (
    INFRASTRUCTURE,
    AgentConditions,
    ArmName,
    Attempt,
    AttemptError,
    CriterionScore,
    Durations,
    EndReason,
    ErrorKind,
    Provenance,
    ScoreStatus,
    TurnScore,
    Usage,
)
from agent_eval_action.results.transcripts import TranscriptWriter
from agent_eval_action.run.base_agents import AgentGroup
from agent_eval_action.run.collector import ResultCollector
from agent_eval_action.run.events import AttemptFinished, AttemptRetried, AttemptStarted, Event, Notice
from agent_eval_action.run.plan import PlannedAttempt
from agent_eval_action.run.resume import PreviousAttempts

STALL_SECONDS: Final = 300.0
_STALL_MARGIN_S: Final = 60.0
_UNANSWERED: Final = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE})
_DEFAULT_SESSION: Final = SessionInput(app_name="agent_eval", user_id="test_user_id")
"""The user is ADK's own default, so that user-scoped state in eval files keeps its meaning."""
_BACKOFF_S: Final = {ErrorKind.RATE_LIMITED: 2.0, ErrorKind.UNAVAILABLE: 1.0}
_LONGEST_BACKOFF_S: Final = 30.0
_SOLO_SESSIONS: Final = 2
"""Simultaneous single-session workers per agent; they show whether an attempt or its neighbour kills the worker."""
_SCORING_PER_SESSION: Final = 16
"""Attempts per session that may wait for their judges. This limits memory, not speed."""

_TRACEBACK_LIMIT: Final = 2_000
_MESSAGE_LIMIT: Final = 500

_T = TypeVar("_T")


def stall_timeout(configured: float | None, longest_answer: float) -> float:
    """Return the seconds a run may go without an answer. ``longest_answer``: the seconds one turn or call may take."""
    return configured if configured is not None else max(STALL_SECONDS, longest_answer + _STALL_MARGIN_S)


@dataclass
class StallDetector:
    """Tracks the time since a turn, a model call or a scored attempt was last answered.

    ``problem``: the newest message received instead of an answer.
    """

    problem: str = ""
    _last: float | None = field(default=None, init=False)

    @cached_property
    def _now(self) -> Callable[[], float]:
        return asyncio.get_running_loop().time  # looking up the loop takes longer than everything else done per turn

    def record_progress(self) -> None:
        self._last, self.problem = self._now(), ""

    def observe_reply(self, reply: LlmReply | LlmError) -> None:
        """Record the reply of a judge's or simulated user's model."""
        if isinstance(reply, LlmError):
            self.problem = reply.message
        else:
            self.record_progress()

    def observe_attempt(self, attempt: Attempt) -> None:
        """Record a finished attempt. It is no progress if it was not answered or its judges did not score it.

        Counting such attempts would limit nothing, since each may take minutes.
        """
        error = attempt.error
        if error is not None and error.kind in _UNANSWERED:
            self.problem = f"{error.kind}: {error.message}"
        elif not any(score.status is ScoreStatus.ERROR for score in attempt.scores):
            self.record_progress()

    async def wait_for_stall(self, seconds: float, *, excused: Callable[[], bool]) -> str:
        """Wait until there has been no progress for ``seconds``; return the reason.

        ``excused`` returns whether the run is waiting for something with a time limit of its own.
        """
        self._last = self._now()
        while True:
            left = self._last + seconds - self._now()
            if left > 0:
                await asyncio.sleep(left)
            elif excused():
                self._last = self._now()
            else:
                last = f"; the last message was: {' '.join(self.problem.split())}" if self.problem else ""
                return f"nothing was answered for {seconds:g} s (stall_timeout){last}"


@dataclass(eq=False)
class AttemptScorer:
    """Scores one attempt, if possible turn by turn during the conversation.

    ``on_answer`` is called for every turn that arrives.
    """

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
            if not criterion.waits or not isinstance(criterion, TurnCriterion):
                continue
            with contextlib.suppress(Exception):  # if `refuse` raises, it raises again at the end, as an error score
                if criterion.refuse(sample) is None:
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
        planned_set = self.planned.planned_set
        previous = {score.criterion: score for score in attempt.scores}
        sample = self._sample(attempt.turns, attempt.final_session_state)
        scoring = [self._score(criterion, sample, previous.get(criterion.name)) for criterion in planned_set.scored_by]
        try:
            # use tasks only if scoring waits: starting a task takes as long as scoring
            scores = await asyncio.gather(*scoring) if planned_set.waits else [await score for score in scoring]
        finally:
            await self.reset()
        digests = planned_set.digests
        marked = (score.model_copy(update={"digest": digests.get(score.criterion, "")}) for score in scores)
        return attempt.model_copy(update={"scores": tuple(marked)})

    def _sample(self, turns: tuple[Invocation, ...], state: dict[str, object] | None = None) -> Sample:
        return Sample(self.planned.case, turns, state, self.planned.key.repeat, self.context)

    async def _score(self, criterion: Criterion, sample: Sample, previous: CriterionScore | None) -> CriterionScore:
        digest = self.planned.planned_set.digests.get(criterion.name)
        if previous is not None and previous.score is not None and previous.digest == digest:
            return previous.model_copy(update={"passed": criterion.meets(previous.score)})
        turns = self._turn_scores.get(criterion.name, ())
        try:
            # a recording or a resumed attempt has no scores from its conversation
            if not turns or not isinstance(criterion, TurnCriterion) or len(turns) != len(sample.actual):
                return await criterion.score(sample)
            if reason := sample.unmeasurable(by_events=criterion.by_events):
                return criterion.no_score(ScoreStatus.ERROR, reason)
            return await criterion.aggregate(sample, await asyncio.gather(*turns))
        except Exception as error:  # noqa: BLE001 - fail closed: a criterion's defect is one error, not a lost run
            reason = f"{type(error).__name__}: {error}"[:_MESSAGE_LIMIT]
            details = {"traceback": traceback.format_exc()[-_TRACEBACK_LIMIT:]}
            return criterion.no_score(ScoreStatus.ERROR, reason, details=details)


@dataclass
class _Conversation:
    """A conversation so far. ``throttled``: model calls that were rate-limited and repeated."""

    turns: list[Invocation] = field(default_factory=list)
    ended: EndReason = ""
    error: AttemptError | None = None
    throttled: int = 0
    final_state: dict[str, Any] | None = None

    async def converse(self, session: AgentSession, user: ConversationUser, scorer: AttemptScorer) -> None:
        """Let user and agent take turns until the user is finished or something fails."""
        while self.error is None:
            message = await user.next(self.turns)
            if isinstance(message, ConversationEnd):
                self.ended = "" if message.reason == "said_all" else message.reason
                return
            turn = message if isinstance(message, AttemptError) else await session.turn(message)
            if isinstance(turn, AttemptError):
                self.error = turn.model_copy(update={"turn": len(self.turns)})
            else:
                self.turns.append(turn.invocation)
                self.throttled += turn.throttled
                scorer.on_turn(self.turns)

    def attempt(self, planned: PlannedAttempt, tries: int = 1) -> Attempt:
        """Return the conversation as an attempt without scores."""
        turns = tuple(self.turns)
        return Attempt(
            **planned.key._asdict(),
            case_digest=planned.planned_case.digest,
            turns=turns,
            final_session_state=self.final_state,
            ended=self.ended,
            error=self.error,
            usage=Usage.of_turns(turns),
            durations=Durations.of_turns(turns),
            tries=tries,
        )


@dataclass
class AttemptRunner:
    """Makes attempts of any agent group.

    ``scoring_ready`` ends when the slow imports of criteria are done. ``meter`` counts attempts and judges together.
    ``contexts``: the resources of each agent's criteria, by the agent's name. ``redact`` removes secrets from a scored
    attempt before anything of it is stored or shown. ``concurrency``: simultaneous sessions over all agents.
    ``retries``: retries after infrastructure errors.
    """

    scoring_ready: asyncio.Task[None]
    writer: TranscriptWriter
    collector: ResultCollector
    meter: Meter
    emit: Callable[[Event], None]
    previous: PreviousAttempts = field(default_factory=PreviousAttempts)
    contexts: Mapping[str, ScoringContext] = field(default_factory=lambda: defaultdict(ScoringContext))
    redact: Callable[[Attempt], Attempt] = lambda attempt: attempt
    stall: StallDetector = field(default_factory=StallDetector)
    concurrency: int = 32
    retries: int = 2

    def __post_init__(self) -> None:
        self._sessions = AdaptiveSemaphore(self.concurrency)
        self._solo = defaultdict[tuple[ArmName, str], asyncio.Semaphore](lambda: asyncio.Semaphore(_SOLO_SESSIONS))
        self._scoring = asyncio.Semaphore(self.concurrency * _SCORING_PER_SESSION)
        self._changed_environments: set[str] = set()
        self._charged, self._spent = 0, Spend()  # attempts of agents that were charged, and their cost

    async def make(self, attempts: Iterable[PlannedAttempt], *groups: AgentGroup) -> None:
        """Make these attempts in order, each by the group in its key, as far as the budget allows.

        A fixed number of workers share one iterator, so that memory does not grow with the suite.
        """
        queue, by_name = iter(attempts), {group.name: group for group in groups}
        scorers: set[AttemptScorer] = set()  # of attempts that are not scored yet
        try:
            async with asyncio.TaskGroup() as tasks:
                # more workers than sessions: scoring an attempt must not occupy a session
                for _ in range(self.concurrency * 2):
                    tasks.create_task(self._work(queue, by_name, tasks, scorers))
        finally:
            # otherwise an interrupted run would still pay for judging turns of attempts that it drops
            await asyncio.gather(*(scorer.reset() for scorer in scorers))

    async def _work(
        self,
        queue: Iterator[PlannedAttempt],
        groups: Mapping[ArmName, AgentGroup],
        tasks: asyncio.TaskGroup,
        scorers: set[AttemptScorer],
    ) -> None:
        provenances: dict[tuple[ArmName, str], Provenance] = {}
        for planned in queue:
            agent, group = planned.key.agent, groups[planned.key.arm]
            started = await _result(group.starts[agent])
            provenance = provenances.get((planned.key.arm, agent))
            if provenance is None:
                provenance = self.previous.provenance_now(agent, started, commit=group.commit)
                provenances[planned.key.arm, agent] = provenance
            attempt = self._previous_attempt(planned, group, provenance)
            scorer = AttemptScorer(planned, self.contexts[agent], self.stall.record_progress)
            scorers.add(scorer)
            if attempt is None:
                attempt = await self._make_within_budget(planned, group, started, scorer)
            if attempt is None:  # the budget is used up, but attempts of the earlier run may still follow
                scorers.discard(scorer)
                continue
            await _result(self.scoring_ready)
            marks = {"purpose": planned.purpose, "commit": group.commit, "provenance": provenance}
            attempt = attempt.model_copy(update=marks)
            if planned.planned_set.waits:  # score beside the workers, which continue with the next attempts
                await self._scoring.acquire()
                tasks.create_task(self._score_aside(scorer, attempt, scorers))
            else:
                self._keep(await scorer.finish(attempt), planned)
                scorers.discard(scorer)

    def _previous_attempt(self, planned: PlannedAttempt, group: AgentGroup, now: Provenance) -> Attempt | None:
        """Return the attempt from an earlier run, unless its agent ran in another environment."""
        attempt = self.previous.get(planned.key, group.commit)
        if attempt is None or attempt.provenance.environment == now.environment:
            return attempt
        agent = planned.key.agent
        if now.environment and agent not in self._changed_environments:  # else its start has failed, as reported
            self._changed_environments.add(agent)
            text = f"{agent}: attempts of the earlier run are not kept, because the agent's environment changed"
            self.emit(Notice(text, level="warning"))
        return None

    async def _score_aside(self, scorer: AttemptScorer, attempt: Attempt, scorers: set[AttemptScorer]) -> None:
        try:
            self._keep(await scorer.finish(attempt), scorer.planned)
        except asyncio.CancelledError:
            self.writer.append(attempt)  # its answers are paid for: a resumed run only asks the judges
            raise
        finally:
            scorers.discard(scorer)
            self._scoring.release()

    def _keep(self, scored: Attempt, planned: PlannedAttempt) -> None:
        scored = self.redact(scored)
        self.writer.append(scored)
        self.collector.add(scored, planned.planned_case)
        self.stall.observe_attempt(scored)
        self.emit(AttemptFinished(scored))

    async def _make_within_budget(
        self,
        planned: PlannedAttempt,
        group: AgentGroup,
        started: AgentConditions | AttemptError,
        scorer: AttemptScorer,
    ) -> Attempt | None:
        """Make an attempt and charge every try of it. None: a limit is reached. Recorded answers cost nothing."""
        if isinstance(planned.case, DatasetCase) and planned.case.recorded:
            conversation = _Conversation(turns=list(planned.case.recorded))
            for number in range(len(conversation.turns)):
                scorer.on_turn(conversation.turns[: number + 1])
            return conversation.attempt(planned)
        if isinstance(started, AttemptError):
            return _Conversation(error=started).attempt(planned)
        driver = group.drivers[planned.key.agent]
        if planned.key.agent in group.replay_only or isinstance(planned.case, ReplayCase):
            return await self._retry(planned, driver, scorer, lambda _: None)
        # estimated at the average so far, the first attempts at one model call per turn
        estimate, count, so_far = Spend(max(1, len(planned.case.turns))), self._charged, self._spent
        if count:
            estimate = Spend(max(1, -(-so_far.calls // count)), so_far.tokens // count, so_far.usd / count)
        if await self.meter.reserve(estimate):
            return None
        model = started.models[0] if len(started.models) == 1 else ""
        spent = Spend()

        def charge(attempt: Attempt) -> None:
            nonlocal spent
            spent += self.meter.count_agent(agent_calls(attempt.turns), model)

        try:
            return await self._retry(planned, driver, scorer, charge)
        finally:
            self._charged += 1
            self._spent += spent
            self.meter.settle(estimate, spent)

    async def _retry(
        self, planned: PlannedAttempt, driver: AgentDriver, scorer: AttemptScorer, charge: Callable[[Attempt], None]
    ) -> Attempt:
        """Return the unscored attempt, with its turns or with the error that remains after the retries."""
        alone = False
        for tries in itertools.count(1):
            conversation = await self._try_once(planned, driver, scorer, alone=alone)
            attempt = conversation.attempt(planned, tries)
            charge(attempt)
            error = attempt.error
            if error is None or error.kind not in INFRASTRUCTURE or tries > self.retries:
                break
            if error.kind is ErrorKind.DIED:
                if alone:  # nothing else ran in its worker, so this attempt killed it
                    break
                alone = True
            self.emit(AttemptRetried(planned.key, error, tries))
            await scorer.reset()
            wait = min(_LONGEST_BACKOFF_S, _BACKOFF_S.get(error.kind, 0.0) * 2.0 ** (tries - 1))
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
        return attempt

    async def _try_once(
        self, planned: PlannedAttempt, driver: AgentDriver, scorer: AttemptScorer, *, alone: bool
    ) -> _Conversation:
        solo = self._solo[planned.key.arm, planned.key.agent] if alone else contextlib.nullcontext()
        async with solo, self._sessions.permit() as permit:
            self.emit(AttemptStarted(planned.key))
            conversation = _Conversation()
            begin = planned.case.session_input or _DEFAULT_SESSION
            history = planned.case.history if isinstance(planned.case, DatasetCase) else ()
            names = begin.app_name, begin.user_id, begin.session_id
            messages = tuple(turn.user_content for turn in planned.case.turns)
            replay = planned.case.replay if isinstance(planned.case, ReplayCase) else None
            session = await driver.open(
                SessionRequest(*names, dict(begin.state), alone, planned.key, history, messages, replay=replay)
            )
            if isinstance(session, AttemptError):
                conversation.error = session
            else:
                user = _user(planned, session, self.contexts[planned.key.agent].llm)
                try:
                    await conversation.converse(session, user, scorer)
                finally:
                    end = await session.close()
                if isinstance(end, AttemptError):
                    conversation.error = conversation.error or end
                else:
                    conversation.final_state = end.final_state
            refused = conversation.error is not None and conversation.error.kind is ErrorKind.RATE_LIMITED
            # one refusal is the worker's own rate control at work; if most calls are refused, sessions are too many
            throttled = conversation.throttled  # nearly always 0, which saves searching the turns
            if refused or (throttled and throttled > Usage.of_turns(tuple(conversation.turns)).model_calls):
                self._sessions.refused(permit)
            else:
                self._sessions.succeeded()
            return conversation


async def _result(task: asyncio.Task[_T]) -> _T:
    """Await a task that others await too: cancelling this waiter does not cancel the task."""
    return task.result() if task.done() else await asyncio.shield(task)


def interleave(first: Sequence[PlannedAttempt], second: Sequence[PlannedAttempt]) -> list[PlannedAttempt]:
    """Return both in one queue, each spread evenly over it; in a tie ``first`` goes first."""
    placed = [((n + 0.5) / len(first), 0, planned) for n, planned in enumerate(first)]
    placed += [((n + 0.5) / len(second), 1, planned) for n, planned in enumerate(second)]
    return [planned for _, _, planned in sorted(placed, key=lambda item: item[:2])]


def _user(planned: PlannedAttempt, session: AgentSession, llm: Llm | None) -> ConversationUser:
    """Return the case's user, or the user of its recording."""
    scenario = planned.case.conversation_scenario
    if scenario is None:
        return FixedUser(tuple(turn.user_content for turn in planned.case.turns))
    if isinstance(session, RecordedSession):
        return RecordedUser(session.attempt, scenario.starting_prompt)
    return SimulatedUser(llm, scenario, planned.planned_set.simulator, planned.key.repeat)
