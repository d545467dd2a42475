"""Making one attempt: a session, its turns, and bounded retries of what was not the agent's answer."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent_eval_action.agents.base import AgentDriver, AgentSession, SessionRequest
from agent_eval_action.agents.user import Ended, User
from agent_eval_action.llm.base import Llm
from agent_eval_action.llm.slots import Place, Slots
from agent_eval_action.model.evalset import Invocation
from agent_eval_action.model.result import (
    INFRASTRUCTURE,
    Attempt,
    AttemptError,
    Durations,
    EndReason,
    ErrorKind,
    Usage,
)
from agent_eval_action.run.events import AttemptRetried, AttemptStarted, Event
from agent_eval_action.run.plan import PlannedAttempt
from agent_eval_action.run.users import user_of

_DEFAULT_APP = "agent_eval"
_DEFAULT_USER = "test_user_id"  # ADK's own default, so that user-scoped state in eval files keeps its meaning
_BACKOFF_S = {ErrorKind.RATE_LIMITED: 2.0, ErrorKind.UNAVAILABLE: 1.0}
_LONGEST_BACKOFF_S = 30.0


class Listener(Protocol):
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
    slots: Slots
    retries: int
    emit: Callable[[Event], None]
    lonely: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    llm: Llm | None = None

    async def make(
        self, planned: PlannedAttempt, listener: Listener, tried: Callable[[Attempt], None] = lambda _: None
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

    async def _once(self, planned: PlannedAttempt, listener: Listener, *, alone: bool, tries: int) -> Attempt:
        async with self.lonely if alone else contextlib.nullcontext(), self.slots.place() as place:
            talk = _Talk()
            attempt = await self._converse(planned, listener, talk, alone=alone, tries=tries)
            self._tell(place, attempt, talk.throttled)
            return attempt

    def _tell(self, place: Place, attempt: Attempt, throttled: int) -> None:
        """Shrink the sessions when this one was mostly turned away: the odd refusal is the worker's pace at work."""
        error = attempt.error
        failed = error is not None and error.kind is ErrorKind.RATE_LIMITED
        if failed or throttled > attempt.usage.model_calls:
            self.slots.refused(place)
        else:
            self.slots.went_well()

    async def _converse(
        self, planned: PlannedAttempt, listener: Listener, talk: _Talk, *, alone: bool, tries: int
    ) -> Attempt:
        self.emit(AttemptStarted(planned.key))
        opened = await self.driver.open(_request(planned, alone=alone))
        if isinstance(opened, AttemptError):
            talk.error = opened
            return _attempt(planned, talk, None, tries)
        state = None
        try:
            await _hold(opened, user_of(planned, opened, self.llm), talk, listener)
        finally:
            end = await opened.close()
        if isinstance(end, AttemptError):
            talk.error = talk.error or end
        else:
            state = end.final_state
        return _attempt(planned, talk, state, tries)


@dataclass
class _Talk:
    """A conversation as far as it came."""

    turns: list[Invocation] = field(default_factory=list)
    ended: EndReason = ""
    error: AttemptError | None = None
    throttled: int = 0  # calls of models that were refused for asking too much, and made again


async def _hold(session: AgentSession, user: User, talk: _Talk, listener: Listener) -> None:
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


def _attempt(planned: PlannedAttempt, talk: _Talk, state: dict[str, object] | None, tries: int) -> Attempt:
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
        usage=usage_of(turns),
        durations=durations_of(turns),
        tries=tries,
    )


def usage_of(turns: tuple[Invocation, ...]) -> Usage:
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


def durations_of(turns: tuple[Invocation, ...]) -> Durations:
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
