"""The first plugin in ADK's list: records what models get, times models and tools, writes no state."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextvars import ContextVar
from typing import Any

from agent_eval_worker_errors import kind_of, retry_after
from agent_eval_worker_rate import LONGEST_WAIT_S, RateEstimator, backoff, seconds
from agent_eval_worker_turn import Turn

RATE_LIMITED = "rate_limited"
MAX_ATTEMPTS = 5
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0


class RateLimitRetries:
    """Retries calls that a model refused with 429, whatever client it has.

    Shared by all sessions of a worker, since their calls of one model share its rate limit. ``waits_s``: how many
    seconds a refused call may wait in all. The turn counts refusals; the waits are not part of its time.
    """

    def __init__(self, waits_s: float) -> None:
        self._waits_s = waits_s
        self._models: dict[str, tuple[RateEstimator, asyncio.Lock]] = {}

    async def start_call(self, turn: Turn, agent: str, request: Any) -> None:
        """Wait until a call may start, and note its start."""
        rate, in_order = self._rate_of(request)
        with turn.wait():
            async with in_order:
                while wait := rate.wait(time.monotonic()):  # noqa: ASYNC110 - nothing sets an event: the wait is known
                    await asyncio.sleep(wait)
                start = rate.start(time.monotonic())
        turn.model_asked(agent, request, start)

    def record_failure(self, turn: Turn, agent: str, request: Any, error: BaseException) -> None:
        """Note a failed call; count a refusal, and lower the rate."""
        start = turn.model_ended(agent)
        if start is not None and kind_of(error) == RATE_LIMITED:
            turn.throttled += 1
            self._rate_of(request)[0].refused(start, time.monotonic(), seconds(retry_after(error)))

    def _rate_of(self, request: Any) -> tuple[RateEstimator, asyncio.Lock]:
        new = RateEstimator(min(self._waits_s, LONGEST_WAIT_S)), asyncio.Lock()
        return self._models.setdefault(str(request.model or ""), new)

    async def retry(self, turn: Turn, agent: str, model: Any, request: Any, error: BaseException) -> Any:
        """Retry a refused call; return its answer, or None if it fails otherwise or stays refused."""
        tries, deadline = 0, time.monotonic() + self._waits_s
        while model is not None and kind_of(error) == RATE_LIMITED:
            wait = backoff(tries, seconds(retry_after(error)))
            if time.monotonic() + wait > deadline:
                return None
            with turn.wait():
                await asyncio.sleep(wait)
            await self.start_call(turn, agent, request)
            try:
                async with contextlib.aclosing(model.generate_content_async(request, stream=False)) as stream:
                    parts = [part async for part in stream]
            except Exception as failed:  # noqa: BLE001 - any client's; if it is not a refusal, the first error is raised
                self.record_failure(turn, agent, request, failed)
                tries, error = tries + 1, failed
            else:
                return parts[-1] if parts else None
        return None


call_made_in: ContextVar[str | None] = ContextVar("call_made_in", default=None)
"""The id of the tool call in which the code runs; concurrent calls have a context each."""


class Recorder:
    """The plugin of the session ``session_id``; ``turn`` is the turn in progress.

    ``rate_limit_retries``: a RateLimitRetries, or a recording that answers instead of models.
    """

    def __init__(self, retry_options: Any, rate_limit_retries: Any, **options: Any) -> None:
        super().__init__(**options)
        self.turn = Turn()
        self.session_id = ""
        self._inner_sessions: dict[str, str | None] = {}
        self._retry_options = retry_options
        self._rate_limit_retries = rate_limit_retries

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        await self._rate_limit_retries.start_call(self.turn, callback_context.agent_name, llm_request)
        if self._retry_options is not None and not _has_own_retries(_model_of(callback_context)):
            _set_retries(llm_request, self._retry_options)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        self.turn.model_answered(callback_context.agent_name, llm_response)

    async def on_model_error_callback(self, *, callback_context: Any, llm_request: Any, error: Any) -> Any:
        agent, model = callback_context.agent_name, _model_of(callback_context)
        self._rate_limit_retries.record_failure(self.turn, agent, llm_request, error)
        if _has_own_retries(model):
            return None  # the agent's author has decided how often
        return await self._rate_limit_retries.retry(self.turn, agent, model, llm_request, error)

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
        self.turn.tool_called(tool_context, tool.name)
        call_made_in.set(tool_context.function_call_id)

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> None:
        self.turn.tool_ended(tool_context)

    async def on_tool_error_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, error: Any) -> None:
        self.turn.tool_ended(tool_context)

    async def on_event_callback(self, *, invocation_context: Any, event: Any) -> None:
        # AgentTool passes its plugins to a runner of its own, which has a session of its own.
        session = invocation_context.session.id
        if session != self.session_id:
            # Its first event comes before it has called a tool itself.
            self.turn.inner_event(event, self._inner_sessions.setdefault(session, call_made_in.get()))


def make_plugin_class() -> Any:
    """Return the plugin's class, once google-adk is importable."""
    from google.adk.plugins.base_plugin import BasePlugin

    class RecorderPlugin(Recorder, BasePlugin):  # type: ignore[misc] # google-adk is not installed with us
        def __init__(self, retry_options: Any, rate_limit_retries: Any) -> None:
            super().__init__(retry_options, rate_limit_retries, name="agent_eval_recorder")

    return RecorderPlugin


def _set_retries(request: Any, options: Any) -> None:
    from google.genai import types

    config = request.config = request.config or types.GenerateContentConfig()
    config.http_options = config.http_options or types.HttpOptions()
    config.http_options.retry_options = config.http_options.retry_options or options


def make_retry_options(timeout_s: float) -> Any:
    """Return retries for server errors (from 1 s, doubling), as many as fit into half a turn's timeout.

    Longer waits would turn every outage into a timeout, which nobody retries. 429 is not included: the plugin retries
    such calls, for every client, at the accepted rate; with ADK's own seven attempts from 5 s on, all sessions would
    wait and come back at the same moment.
    """
    from google.genai import types

    if not hasattr(types, "HttpRetryOptions"):
        return None
    attempts, waited, delay = 1, 0.0, FIRST_DELAY_S
    while attempts < MAX_ATTEMPTS and waited + delay <= timeout_s / 2:
        attempts, waited, delay = attempts + 1, waited + delay, min(delay * 2, LONGEST_DELAY_S)
    return types.HttpRetryOptions(
        attempts=attempts,
        initial_delay=FIRST_DELAY_S,
        max_delay=LONGEST_DELAY_S,
        exp_base=2.0,
        http_status_codes=[408, 500, 502, 503, 504],
    )


def _has_own_retries(model: Any) -> bool:
    return getattr(model, "retry_options", None) is not None


def _model_of(callback_context: Any) -> Any:
    context: Any = getattr(callback_context, "_invocation_context", None)
    try:
        return context.agent.canonical_model
    except Exception:  # noqa: BLE001 - agents of other kinds have no model
        return None
