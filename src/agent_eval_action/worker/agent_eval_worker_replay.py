"""Sessions in which a recording of google-adk answers instead of models: of `adk test`, or of `adk conformance`.

Nothing is sent to a model in such a turn: every class of models asks the recording. If that has no answer, the turn
ends and reports it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from agent_eval_worker_errors import WorkerError, chain, describe
from agent_eval_worker_protocol import encode

REPLAY_STATE = "_adk_replay_config"
_CURRENT: ContextVar[Any] = ContextVar("agent_eval_replay", default=None)
_ONE_AT_A_TIME = asyncio.Lock()  # random numbers and the concurrency of workflows belong to the process
_SEED = 42  # as in `adk test`
_SHOWN = 160
_PATCHED: list[Any] = []


class NotRecorded(Exception):  # noqa: N818 - its name is shown
    """A model was called, and the recording has no answer."""


class ModelReplay:
    """One recorded conversation. ``problem``: why the agent no longer matches it. ``plugins`` are for the runner."""

    plugins: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.problem = ""
        self._raw: list[Any] = []

    async def events(self, turn: Any, message: Any, run: Callable[..., Any]) -> AsyncGenerator[Any, None]:
        """Yield the events of a turn. An agent that no longer matches its recording ends the turn without an error."""
        with turn.wait():
            await _ONE_AT_A_TIME.acquire()
        token = _CURRENT.set(self)
        try:
            with self.conditions():
                if (options := self.options(message)) is None:
                    return
                try:
                    async with contextlib.aclosing(run(new_message=message, **options)) as stream:
                        async for event in stream:
                            self.notice(event)
                            if not event.partial:
                                self._raw.append(_raw(event))
                            yield event
                except Exception as error:
                    self.problem = self.problem or self.explain(error)
                    if not self.problem:
                        raise
        finally:
            with contextlib.suppress(ValueError):  # an abandoned turn is closed in another context
                _CURRENT.reset(token)
            _ONE_AT_A_TIME.release()

    async def start_call(self, turn: Any, agent: str, request: Any) -> None:
        """Note a model's request. It does not wait, and counts no call."""
        if agent not in turn.details:
            turn.requests[agent] = request

    def record_failure(self, turn: Any, agent: str, request: Any, error: BaseException) -> None:
        """Do nothing: the missing answer is already noted."""

    async def retry(self, turn: Any, agent: str, model: Any, request: Any, error: BaseException) -> Any:
        """Return None: a recording has no other answer."""

    def take_events(self) -> list[Any]:
        """Return the turn's whole events, followed by why the agent no longer matches the recording, if so."""
        events, self._raw = self._raw, []
        return [*events, {"replay_problem": self.problem}] if self.problem else events

    def conditions(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which to make a turn."""
        return contextlib.nullcontext()

    def options(self, message: Any) -> dict[str, Any] | None:
        """Set the ids of the calls that the message answers; return more runner arguments, or None to run nothing."""
        raise NotImplementedError

    def notice(self, event: Any) -> None:
        """Note an event of the turn."""
        raise NotImplementedError

    def answer(self, model: Any, request: Any) -> Any:
        """Return the model's answer; None to call the model, which replays by itself."""
        raise NotImplementedError

    def explain(self, error: BaseException) -> str:
        """Return why the agent no longer matches; "" if something outside of it may have failed.

        The recorded run raised nothing, so an agent that raises on the recorded answers has changed.
        """
        found = describe(error)
        return f"the agent raised {found['message']}" if found["kind"] == "exception" else ""


class FixtureReplay(ModelReplay):
    """A fixture of `adk test`: answers in one order, whichever agent asks; tools run."""

    def __init__(self, recorded: dict[str, Any], agent: Any) -> None:
        super().__init__()
        from google.adk.models.llm_response import LlmResponse
        from google.genai import types

        self._agent = agent
        self._answers = [
            LlmResponse(content=types.Content.model_validate_json(json.dumps(content)))
            for content in recorded["answers"]
        ]
        self._asked = 0
        self._recorded_ids, self._ids = iter(recorded["call_ids"]), dict[str, str]()
        self._numbers = {name: list(values) for name, values in recorded["mocks"].items()}
        self._random = random.Random(_SEED).getstate()  # noqa: S311 - a repeatable choice

    @contextlib.contextmanager
    def conditions(self) -> Iterator[None]:
        """Use the recorded random numbers, and run one node of a workflow at a time."""
        outside, functions = random.getstate(), (random.random, random.randint)
        random.setstate(self._random)
        for name, otherwise in (("random", lambda: 0.8), ("randint", lambda _, most: most)):
            if (numbers := self._numbers.get(f"random.{name}")) is not None:
                setattr(random, name, functools.partial(_draw, numbers, otherwise))
        widths = list(_make_sequential(self._agent, set()))
        try:
            yield
        finally:
            for owner, name, width in widths:
                setattr(owner, name, width)
            random.random, random.randint = functions
            self._random = random.getstate()
            random.setstate(outside)

    def options(self, message: Any) -> dict[str, Any] | None:
        for part in message.parts or ():
            if (response := part.function_response) is not None and response.id:
                if response.id not in self._ids:
                    return None  # it answers a call that was not made: `adk test` runs nothing either
                response.id = self._ids[response.id]
        return {}

    def notice(self, event: Any) -> None:
        for call in event.get_function_calls():
            if (recorded := next(self._recorded_ids, None)) is not None:
                self._ids[recorded] = call.id

    def answer(self, model: Any, request: Any) -> Any:
        del model, request
        self._asked += 1
        if self._asked > len(self._answers):
            self.problem = f"the agent asks a model for the {_ordinal(self._asked)} time; {len(self._answers)} recorded"
            raise NotRecorded(self.problem)
        return self._answers[self._asked - 1]


class ConformanceReplay(ModelReplay):
    """A test of `adk conformance`, replayed by google-adk's own plugin, which compares requests and calls."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        super().__init__()
        try:
            from google.adk.agents.run_config import RunConfig, StreamingMode
            from google.adk.cli.plugins.replay_plugin import ReplayPlugin
        except ImportError as error:
            message = f"the agent's google-adk replays no conformance recordings ({error}): it takes 2.x"
            raise WorkerError("environment", message) from None
        self.plugins = (ReplayPlugin(),)
        self._mode = "sse" if recorded["streamed"] else "none"
        self._run_config = RunConfig(streaming_mode=StreamingMode.SSE if recorded["streamed"] else StreamingMode.NONE)
        self._deltas = recorded["state_deltas"]
        self._turn = -1
        self._calls: dict[str | None, list[str | None]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="agent-eval-replay-")
        name = "generated-recordings-sse.yaml" if recorded["streamed"] else "generated-recordings.yaml"
        (Path(self._folder.name) / name).write_text(recorded["recordings"], encoding="utf-8")

    def options(self, message: Any) -> dict[str, Any] | None:
        self._turn += 1
        for part in message.parts or ():
            if (response := part.function_response) is not None:
                waiting = self._calls.get(response.name)
                if not waiting:
                    self.problem = f"the user answers a call of {response.name}, and none was made"
                    return None
                response.id = waiting.pop(0)
        place = {"dir": self._folder.name, "user_message_index": self._turn, "streaming_mode": self._mode}
        delta = self._deltas[self._turn] if self._turn < len(self._deltas) else {}
        return {"state_delta": {**delta, REPLAY_STATE: place}, "run_config": self._run_config}

    def notice(self, event: Any) -> None:
        for call in () if event.partial else event.get_function_calls():
            self._calls.setdefault(call.name, []).append(call.id)

    def answer(self, model: Any, request: Any) -> Any:
        if type(model).__name__ == "_ConformanceTestGemini":
            return None
        self.problem = f"{type(model).__name__} would be asked for {request.model}, which google-adk does not replay"
        raise NotRecorded(self.problem)

    def explain(self, error: BaseException) -> str:
        raised = {type(part).__name__: str(part) for part in chain(error)}
        if "ReplayConfigError" in raised:
            raise WorkerError("environment", f"google-adk cannot replay it: {raised['ReplayConfigError']}")
        different = raised.get("ReplayVerificationError")
        return _shortened(different) if different else super().explain(error)


def make_replay(recorded: dict[str, Any] | None, agent: Any) -> ModelReplay | None:
    """Return the replay with which a session was opened; from now on models are called through it."""
    if recorded is None:
        return None
    _patch_models()
    return ConformanceReplay(recorded) if recorded["kind"] == "conformance" else FixtureReplay(recorded, agent)


def _patch_models() -> None:
    """Make every class of models look for a replay first, including those imported later."""
    from google.adk.models.base_llm import BaseLlm

    if _PATCHED:
        return
    _PATCHED.append(BaseLlm)
    waiting = [BaseLlm]
    while waiting:
        model = waiting.pop()
        _patch(model)
        waiting += model.__subclasses__()

    def init_subclass(cls: Any, **options: Any) -> None:
        super(BaseLlm, cls).__init_subclass__(**options)
        _patch(cls)

    BaseLlm.__init_subclass__ = classmethod(init_subclass)


def _patch(model: Any) -> None:
    ask = vars(model).get("generate_content_async")
    if ask is None or hasattr(ask, "agent_eval_replays"):
        return

    @functools.wraps(ask)
    async def generate_content_async(self: Any, llm_request: Any, *args: Any, **options: Any) -> Any:
        replay = _CURRENT.get()
        answer = replay.answer(self, llm_request) if replay is not None else None
        if answer is not None:
            yield answer
            return
        async with contextlib.aclosing(ask(self, llm_request, *args, **options)) as answers:
            async for part in answers:
                yield part

    generate_content_async.agent_eval_replays = True  # type: ignore[attr-defined] # a mark
    model.generate_content_async = generate_content_async


def _make_sequential(node: Any, seen: set[int]) -> Iterator[tuple[Any, str, Any]]:
    """Limit every workflow below a node to one task at a time; yield the earlier limits."""
    try:
        from google.adk.workflow._parallel_worker import _ParallelWorker
        from google.adk.workflow._workflow import Workflow
    except ImportError:  # google-adk 1 has no workflows
        return
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, Workflow):
        yield node, "max_concurrency", node.max_concurrency
        node.max_concurrency = 1
        for inner in node.graph.nodes if node.graph and node.graph.nodes else ():
            yield from _make_sequential(inner, seen)
    elif isinstance(node, _ParallelWorker):
        yield node, "max_parallel_workers", node.max_parallel_workers
        node.max_parallel_workers = 1
        yield from _make_sequential(getattr(node, "_node", None), seen)


def _draw(numbers: list[Any], otherwise: Callable[..., Any], *bounds: Any) -> Any:
    return numbers.pop(0) if numbers else otherwise(*bounds)


def _raw(event: Any) -> Any:
    with contextlib.suppress(Exception):  # ``encode`` handles what pydantic refuses
        return event.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"id", "timestamp"})
    return json.loads(encode(event))


def _shortened(text: str) -> str:
    """Return google-adk's message with the texts after ``recorded:`` and ``current:`` cut to where they differ."""
    head, _, rest = text.partition("\nrecorded:")
    recorded, _, current = rest.partition("\ncurrent:")
    if not current:
        return text[: 3 * _SHOWN]
    pairs = enumerate(zip(recorded, current, strict=False))
    same = next((at for at, (then, now) in pairs if then != now), min(len(recorded), len(current)))
    start = max(0, same - _SHOWN // 4)
    shown = [("…" if start else "") + side[start : start + _SHOWN].strip() for side in (recorded, current)]
    return f"{head.rstrip(':')}: recorded {shown[0]}, now {shown[1]}"


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
