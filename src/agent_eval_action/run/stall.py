"""Progress of a run, and how long there has been none: a model that refuses every call must not be asked for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agent_eval_action.llm.base import LlmError, LlmReply
from agent_eval_action.model.result import Attempt, ErrorKind, ScoreStatus

STALL_SECONDS: Final = 300.0
_SLACK_SECONDS: Final = 60.0
_WAITED_FOR: Final = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE})
"""Attempts that end so were not answered: their number bounds nothing, since each may take minutes."""


def stall_seconds(configured: float | None, longest_answer: float) -> float:
    """The bound of a run. ``longest_answer``: seconds that one turn or one call may take."""
    return configured if configured is not None else max(STALL_SECONDS, longest_answer + _SLACK_SECONDS)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Progress:
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
