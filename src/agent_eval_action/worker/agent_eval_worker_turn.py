"""A turn in progress: what all kinds of agents have in common, and ADK's plugin that records models and tools."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

from agent_eval_worker_errors import describe, kind_of, last_lines, retry_after
from agent_eval_worker_protocol import encode, encode_model
from agent_eval_worker_rate import LONGEST_WAIT_S, RateEstimator, Start, backoff, seconds

MAX_INNER_BYTES = 16 << 20  # per turn; what follows is not recorded
MAX_SPANS = 500  # per turn, in the order in which they ended
SHORTEST_WAIT_S = 0.01
RATE_LIMITED = "rate_limited"
MAX_ATTEMPTS = 5
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0


class TurnSpan(NamedTuple):
    """A model call, a tool call or a wait for a model's rate limit. ``start``: in monotonic seconds.

    Tokens are None if the model did not report them.
    """

    kind: str
    name: str
    start: float
    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None


def union_seconds(intervals: list[tuple[float, float]]) -> float:
    """Return the seconds covered by (start, end) pairs, counting overlaps once."""
    total, counted_to = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > counted_to:
            total += end - max(start, counted_to)
            counted_to = end
    return total


class Turn:
    """A turn in progress: what its callbacks saw, and how much time is charged to it."""

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
        self.inner: list[bytes] = []
        self.inner_bytes = 0

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Note a wait for the model's rate limit, which is neither the model's time nor the turn's."""
        self.waiting += 1
        start = time.monotonic()
        try:
            yield
        finally:
            self.waiting -= 1
            if (waited := time.monotonic() - start) >= SHORTEST_WAIT_S:
                self.spans.append(TurnSpan("wait", "", start, waited))

    @property
    def idle(self) -> bool:
        """Whether the turn only waits for the model's rate limit: such time is not charged."""
        return self.waiting > 0 and not self.open_tool and not any(self.open_model.values())

    def time_out(self, now: float) -> None:
        """Cancel the turn. Notes first what it waits for, because the cancellation ends that."""
        self.timed_out_at = now
        self.timed_out_doing = f"under way: {doing}" if (doing := self.doing()) else ""
        if self.task is not None:
            self.task.cancel()

    def durations(self) -> tuple[float, float]:
        """Return the seconds (model, tool); a tool's time excludes the model calls made inside it."""
        model = [(span.start, span.start + span.seconds) for span in self.spans if span.kind == "model"]
        tool = [(span.start, span.start + span.seconds) for span in self.spans if span.kind == "tool"]
        in_models = union_seconds(model)
        return in_models, union_seconds(model + tool) - in_models

    def timeline(self) -> list[dict[str, Any]]:
        """Return the spans for the frame, with their starts in the turn and their durations in seconds."""
        return [
            span._replace(start=round(span.start - self.started, 4), seconds=round(span.seconds, 4))._asdict()
            for span in self.spans[:MAX_SPANS]
        ]

    def doing(self) -> str:
        """Return what is in progress, for the message of a turn that took too long."""
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
        """End a model call, unless the response is one of its chunks."""
        # Read only now: later callbacks change the request on its way to the model.
        request = self.requests.pop(agent, None)
        if request is not None:
            self.details[agent] = details_of(request)
        if not response.partial:
            self.model_ended(agent, _tokens(getattr(response, "usage_metadata", None)))

    def model_ended(self, agent: str, tokens: tuple[int | None, int | None] = (None, None)) -> Start | None:
        """Return the call's start. Concurrent calls of one agent may be paired crosswise: the union is the same."""
        start = starts.pop() if (starts := self.open_model.get(agent)) else None
        if start is not None:
            self.spans.append(TurnSpan("model", agent, start.time, time.monotonic() - start.time, *tokens))
        return start

    def tool_called(self, context: Any, name: str) -> None:
        self.open_tool[id(context)] = (time.monotonic(), name)

    def inner_event(self, event: Any, within: str | None) -> None:
        """Record an event of an agent that was called as a tool, in the call ``within``."""
        if event.content is not None and not event.partial and self.inner_bytes <= MAX_INNER_BYTES:
            fields = encode({"author": event.author or "agent", "within": within})[:-1]
            self.inner.append(fields + b', "content": ' + encode_model(event.content) + b"}")
            self.inner_bytes += len(self.inner[-1])

    def tool_ended(self, context: Any) -> None:
        if opened := self.open_tool.pop(id(context), None):
            self.spans.append(TurnSpan("tool", opened[1], opened[0], time.monotonic() - opened[0]))


class Conversation(ABC):
    """One session, which makes one turn at a time. ``runner``: ADK's, if it has one."""

    runner: Any = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.turn: Turn | None = None
        self.on_event: Callable[[Any], None] | None = None

    @abstractmethod
    async def run_turn(self, turn: Turn, content: dict[str, Any]) -> bytes:
        """Return the frame of a turn: its events and measurements. Whatever it raises is the turn's error."""

    @abstractmethod
    async def state(self) -> dict[str, Any]:
        """Return the session's state."""

    async def make_turn(self, content: dict[str, Any]) -> bytes | None:
        """Return the frame of a turn or of its error; None if the turn was given up and answered."""
        self.turn = turn = Turn(asyncio.current_task())
        failure = None
        try:
            frame = await self.run_turn(turn, content)
        except asyncio.CancelledError as error:
            kind, message = "timeout", turn.timed_out_doing
            if turn.timed_out_at is None:
                kind, message = "died", "the turn was cancelled from inside the agent's process"
            failure = {"kind": kind, "message": message, "traceback": last_lines(error)}
        except BaseException as error:  # noqa: BLE001 - whatever an agent raises is that case's error
            failure = describe(error)
        self.turn = None
        if failure is not None:
            frame = encode({"ev": "turn", "s": self.name, "error": failure})
        return None if turn.answered else frame


def details_of(request: Any) -> dict[str, Any]:
    """Return the instructions and tool declarations of a model request, as JSON types."""
    config = getattr(request, "config", None)
    tools = [
        tool.model_dump(mode="json", exclude_none=True)
        if hasattr(tool, "model_dump")
        else {"name": getattr(tool, "__name__", type(tool).__name__)}
        for tool in getattr(config, "tools", None) or []
    ]
    return {"instructions": _text(getattr(config, "system_instruction", None)), "tool_declarations": tools}


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
        while kind_of(error) == RATE_LIMITED:
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

    def __init__(self, retry_options: Any, rate_limit_retries: Any) -> None:
        super().__init__(name="agent_eval_recorder")  # type: ignore[call-arg] # of ADK's base class
        self.turn = Turn()
        self.session_id = ""
        self._inner_sessions: dict[str, str | None] = {}
        self._retry_options = retry_options
        self._rate_limit_retries = rate_limit_retries

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        await self._rate_limit_retries.start_call(self.turn, callback_context.agent_name, llm_request)
        if self._retry_options is not None and not _has_own_retries(_model_of(callback_context)):
            from google.genai import types

            config = llm_request.config = llm_request.config or types.GenerateContentConfig()
            config.http_options = config.http_options or types.HttpOptions()
            config.http_options.retry_options = config.http_options.retry_options or self._retry_options

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        self.turn.model_answered(callback_context.agent_name, llm_response)

    async def on_model_error_callback(self, *, callback_context: Any, llm_request: Any, error: Any) -> Any:
        agent, model = callback_context.agent_name, _model_of(callback_context)
        self._rate_limit_retries.record_failure(self.turn, agent, llm_request, error)
        if model is None or _has_own_retries(model):
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

    return type("RecorderPlugin", (Recorder, BasePlugin), {})


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
