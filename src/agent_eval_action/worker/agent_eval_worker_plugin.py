"""The plugin that is first in ADK's list: keeps what the model got, times models and tools, writes no state."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from agent_eval_worker_errors import kind_of, retry_after
from agent_eval_worker_rate import LONGEST_WAIT_S, RateEstimator, Start, backoff, seconds

Interval = tuple[float, float]
RATE_LIMITED = "rate_limited"
MAX_ATTEMPTS = 5
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0
MAX_SPANS = 500  # of a turn, in the order in which they ended
SHORTEST_WAIT_S = 0.01


class TurnSpan(NamedTuple):
    """A model call, a tool call or a wait for a model's rate; times are monotonic seconds.

    ``tokens`` are those sent and received, None where the model did not report them.
    """

    kind: str
    name: str
    start: float
    end: float
    tokens: tuple[int | None, int | None] = (None, None)


def union_seconds(intervals: list[Interval]) -> float:
    """Seconds covered by (start, end) pairs, overlap counted once."""
    total, counted_to = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > counted_to:
            total += end - max(start, counted_to)
            counted_to = end
    return total


class Turn:
    """A turn being made: what its callbacks saw, and how much time is charged to it."""

    def __init__(self, task: asyncio.Task[Any] | None = None) -> None:
        self.task = task
        self.started = time.monotonic()
        self.charged = 0.0
        self.timed_out_at: float | None = None
        self.timed_out_doing = ""
        self.answered = False
        self.details: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, Any] = {}
        self.spans: list[TurnSpan] = []
        self.open_model: dict[str, list[Start]] = {}
        self.open_tool: dict[int, tuple[float, str]] = {}
        self.throttled = 0
        self.waiting = 0

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """A wait for the model's rate: neither the model's time nor the turn's."""
        self.waiting += 1
        start = time.monotonic()
        try:
            yield
        finally:
            self.waiting -= 1
            if (end := time.monotonic()) - start >= SHORTEST_WAIT_S:
                self.spans.append(TurnSpan("wait", "", start, end))

    @property
    def idle(self) -> bool:
        """Whether nothing is done but waiting for the model's rate: such time is not charged."""
        return self.waiting > 0 and not self.open_tool and not any(self.open_model.values())

    def time_out(self, now: float) -> None:
        """Cancel the turn. What it waits for is noted before: then it waits for nothing."""
        self.timed_out_at, doing = now, self.doing()
        self.timed_out_doing = f"under way: {doing}" if doing else ""
        if self.task is not None:
            self.task.cancel()

    def durations(self) -> tuple[float, float]:
        """Seconds (model, tool): a tool's time without the model calls made inside it."""
        model = [(span.start, span.end) for span in self.spans if span.kind == "model"]
        tool = [(span.start, span.end) for span in self.spans if span.kind == "tool"]
        seconds = union_seconds(model)
        return seconds, union_seconds(model + tool) - seconds

    def timeline(self) -> list[list[Any]]:
        """The spans as the frame has them: kind, name, start and duration in seconds of the turn, tokens in and out."""
        return [
            [span.kind, span.name, span.start - self.started, span.end - span.start, *span.tokens]
            for span in self.spans[:MAX_SPANS]
        ]

    def doing(self) -> str:
        """What is under way, for the message of a turn that took too long."""
        now = time.monotonic()
        if self.idle:
            return "waiting to ask a model that answers 429"
        tools = [f"tool `{name}` for {now - start:.1f} s" for start, name in self.open_tool.values()]
        models = [f"the model of `{name}` for {now - s[-1].time:.1f} s" for name, s in self.open_model.items() if s]
        return ", ".join(tools or models)

    def model_asked(self, agent: str, request: Any, start: Start) -> None:
        if agent not in self.details:
            self.requests[agent] = request
        self.open_model.setdefault(agent, []).append(start)

    def model_answered(self, agent: str, response: Any) -> None:
        """A model call ends; one of many chunks does not end it."""
        # Read now, not before: later callbacks change the request on its way to the model.
        request = self.requests.pop(agent, None)
        if request is not None:
            self.details[agent] = details_of(request)
        if not response.partial:
            self.model_ended(agent, _tokens(getattr(response, "usage_metadata", None)))

    def model_ended(self, agent: str, tokens: tuple[int | None, int | None] = (None, None)) -> Start | None:
        """The start of the call. Concurrent calls of one agent may be paired crosswise: the union is the same."""
        start = starts.pop() if (starts := self.open_model.get(agent)) else None
        if start is not None:
            self.spans.append(TurnSpan("model", agent, start.time, time.monotonic(), tokens))
        return start

    def tool_called(self, context: Any, name: str) -> None:
        self.open_tool[id(context)] = (time.monotonic(), name)

    def tool_ended(self, context: Any) -> None:
        if opened := self.open_tool.pop(id(context), None):
            self.spans.append(TurnSpan("tool", opened[1], opened[0], time.monotonic()))


class RateLimitRetries:
    """Repeats calls that a model refused for asking too much (429), whatever client it has.

    Shared by all sessions of a worker, whose calls of one model share its rate. ``waits_s``: how long a refused call
    may wait for its answer, in all. The turn counts refusals; waiting is no time of the turn.
    """

    def __init__(self, waits_s: float) -> None:
        self._waits_s = waits_s
        self._models: dict[str, tuple[RateEstimator, asyncio.Lock]] = {}

    async def start_call(self, turn: Turn, agent: str, request: Any) -> None:
        """Wait until a call may start, and begin it."""
        rate, in_order = self._rate_of(request)
        with turn.wait():
            async with in_order:
                while wait := rate.wait(time.monotonic()):  # noqa: ASYNC110 - nothing sets an event: the wait is known
                    await asyncio.sleep(wait)
                start = rate.start(time.monotonic())
        turn.model_asked(agent, request, start)

    def record_failure(self, turn: Turn, agent: str, request: Any, error: BaseException) -> None:
        """A call failed: a refusal is counted, and teaches the rate."""
        start = turn.model_ended(agent)
        if start is not None and kind_of(error) == RATE_LIMITED:
            turn.throttled += 1
            self._rate_of(request)[0].refused(start, time.monotonic(), seconds(retry_after(error)))

    def _rate_of(self, request: Any) -> tuple[RateEstimator, asyncio.Lock]:
        new = RateEstimator(min(self._waits_s, LONGEST_WAIT_S)), asyncio.Lock()
        return self._models.setdefault(str(request.model or ""), new)

    async def retry(self, turn: Turn, agent: str, model: Any, request: Any, error: BaseException) -> Any:
        """The answer to a refused call after all; None: it failed otherwise, or stays refused."""
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
            except Exception as failed:  # noqa: BLE001 - any client's; the first error is raised when this is no refusal
                self.record_failure(turn, agent, request, failed)
                tries, error = tries + 1, failed
            else:
                return parts[-1] if parts else None
        return None


def make_plugin_class() -> Any:
    """The class, made once google-adk is importable."""
    from google.adk.plugins.base_plugin import BasePlugin

    class RecorderPlugin(BasePlugin):  # type: ignore[misc] # google-adk is not installed with us
        """One per session; ``turn`` is the turn being made."""

        def __init__(self, retry_options: Any, rate_limit_retries: RateLimitRetries) -> None:
            super().__init__(name="agent_eval_recorder")
            self.turn = Turn()
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

        async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> None:
            self.turn.tool_ended(tool_context)

        async def on_tool_error_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, error: Any) -> None:
            self.turn.tool_ended(tool_context)

    return RecorderPlugin


def _set_retries(request: Any, options: Any) -> None:
    from google.genai import types

    config = request.config = request.config or types.GenerateContentConfig()
    config.http_options = config.http_options or types.HttpOptions()
    config.http_options.retry_options = config.http_options.retry_options or options


def make_retry_options(timeout_s: float) -> Any:
    """Retries of what a server could not do (from 1 s, doubling), as many as fit in half a turn's time.

    Waiting longer would turn every outage into a timeout, which nobody retries. 429 is not among them: the
    plugin repeats those calls, of every client, at the rate that is let through; with ADK's own seven
    attempts from 5 s on all sessions would wait, and come back all at once.
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


def details_of(request: Any) -> dict[str, Any]:
    """Instructions and tool declarations of a model request, as JSON types."""
    config = getattr(request, "config", None)
    tools = [
        tool.model_dump(mode="json", exclude_none=True)
        if hasattr(tool, "model_dump")
        else {"name": getattr(tool, "__name__", type(tool).__name__)}
        for tool in getattr(config, "tools", None) or []
    ]
    return {"instructions": _text(getattr(config, "system_instruction", None)), "tools": tools}


def _text(instruction: Any) -> str:
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    parts = instruction if isinstance(instruction, (list, tuple)) else getattr(instruction, "parts", None)
    if parts:
        return "\n".join(filter(None, map(_text, parts)))
    return getattr(instruction, "text", None) or ""


def _tokens(usage: Any) -> tuple[int | None, int | None]:
    counts = [getattr(usage, f"{name}_token_count", None) for name in ("prompt", "candidates")]
    sent, received = (count if isinstance(count, int) else None for count in counts)
    return sent, received


def _has_own_retries(model: Any) -> bool:
    return getattr(model, "retry_options", None) is not None


def _model_of(callback_context: Any) -> Any:
    context: Any = getattr(callback_context, "_invocation_context", None)
    try:
        return context.agent.canonical_model
    except Exception:  # noqa: BLE001 - agents of other kinds have no model
        return None
