"""Call the user's metric functions, with whichever google-adk is installed; this process has no agent.

Frames in: ``{"op": "load", "s", "source"}``, ``{"op": "call", "s", "arguments"}``, where ``s`` is the function's path,
or names the ``evaluate`` of ``source``. Each frame gets one answer, in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib
import inspect
import itertools
import math
import os
import queue
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agent_eval_worker_errors import WorkerError, describe, whole_text
from agent_eval_worker_load import load_dotenv
from agent_eval_worker_protocol import Channel, flush_streams

MAX_TEXT = 2_000
MAX_TURNS = 10_000
MAX_TRIES = 5
MAX_SECONDS = 120.0
MAX_WAIT = 8.0
TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


def serve_metrics(channel: Channel, init: dict[str, Any]) -> None:
    """Serve until our starter is gone, which a thread notices while a function runs.

    Functions run one at a time, in the main thread, on one event loop: clients in async code are bound to it.
    """
    sys.path[:0] = [entry for entry in init["sys_path"] if entry not in sys.path]
    os.chdir(init["cwd"])
    load_dotenv(Path(init["folder"]), Path(init["workspace"]))
    functions = LoadedFunctions()
    channel.send({"ev": "ready", "exclusive": True})
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    frames: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(channel, frames), name="agent-eval-reader", daemon=True).start()
    while True:
        frame, modules = frames.get(), set(sys.modules)
        try:
            if frame["op"] == "load":
                functions.load(frame["s"], frame.get("source"))
                answer: dict[str, Any] = {"ev": "loaded"}
            else:
                called = functions.call(frame["s"], frame["arguments"])
                answer = {"ev": "returned", "value": loop.run_until_complete(called)}
        except BaseException as error:  # noqa: BLE001 - even sys.exit in a function is just a failed call
            answer = {"ev": "returned", "error": describe(error)}
        # A process that a function has damaged is replaced, so that no other function suffers.
        try:
            os.chdir(init["cwd"])
            damaged = loop.is_closed() or not modules <= set(sys.modules)
        except OSError:
            damaged = True
        channel.send({**answer, "s": frame["s"], "retired": damaged})


def _receive(channel: Channel, frames: queue.SimpleQueue[dict[str, Any]]) -> None:
    while True:
        frame = channel.receive()
        if frame is None or frame.get("op") == "stop":
            flush_streams()
            os._exit(0)
        frames.put(frame)


class LoadedFunctions:
    """The functions of this process, by name. Those from a source do not need google-adk."""

    def __init__(self) -> None:
        self._adk: Adk | BaseException
        try:
            self._adk = Adk()
        except BaseException as error:  # noqa: BLE001 - even of a broken package; raised when its types are needed
            self._adk = error
        self._of_source: dict[str, Any] = {}

    def load(self, name: str, source: str | None) -> None:
        """Import ``package.module.function``, or run ``source`` and keep its ``evaluate`` under this name."""
        if source is None:
            if isinstance(self._adk, BaseException):
                raise self._adk
            find_function(name)
        elif name not in self._of_source:
            namespace: dict[str, Any] = {}
            exec(compile(source, f"<{name}>", "exec"), namespace)  # noqa: S102 - the user's own metric, as agents-cli runs it
            if not callable(namespace.get("evaluate")):
                raise WorkerError("exception", "it defines no function `evaluate(instance)`")
            self._of_source[name] = namespace["evaluate"]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the scores that a function gives."""
        if name in self._of_source:
            return await _evaluate(self._of_source[name], arguments["instance"])
        function, adk = find_function(name), self._adk
        if isinstance(adk, BaseException):
            raise adk
        return adk.scores(await _call(function, fitting_arguments(function, adk.arguments(arguments))))


async def _evaluate(function: Any, instance: dict[str, Any]) -> dict[str, Any]:
    """Return ``score`` and ``explanation``. Retries transient errors, as agents-cli does."""
    started = time.monotonic()
    for tries in itertools.count(1):
        try:
            result = await _call(function, [copy.deepcopy(instance)])
            break
        except Exception as error:
            if tries == MAX_TRIES or time.monotonic() - started > MAX_SECONDS or not is_transient(error):
                raise
        await asyncio.sleep(random.uniform(0, min(MAX_WAIT, 2.0 ** (tries - 1))))  # noqa: S311 - jitter, not a secret
    message = getattr(result, "error_message", None)
    if message:
        raise WorkerError("exception", str(message))
    fields = result if isinstance(result, dict) else {"score": getattr(result, "score", result)}
    score = fields.get("score")
    if isinstance(score, bool):
        score = float(score)
    explanation = fields.get("explanation", getattr(result, "explanation", None))
    return {"score": _number(score), "explanation": whole_text(str(explanation or ""))[:MAX_TEXT]}


def is_transient(error: BaseException | None) -> bool:
    """Whether an error or one of its causes is transient: a lost connection, a timeout, 408, 429 or 5xx."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        codes = [getattr(error, name, None) for name in ("code", "status_code")]
        codes.append(getattr(getattr(error, "response", None), "status_code", None))
        if isinstance(error, (ConnectionError, TimeoutError)) or any(code in TRANSIENT for code in codes if code):
            return True
        error = error.__cause__ or error.__context__
    return False


def find_function(path: str) -> Any:
    """Return the function at ``package.module.function``; raises what its import raises, or LookupError."""
    module_name, _, name = path.rpartition(".")
    module = importlib.import_module(module_name)
    function = getattr(module, name, None)
    if function is None:
        raise LookupError(f"module {module_name} ({getattr(module, '__file__', '?')}) has no {name}")
    if not callable(function):
        raise TypeError(f"{path} is a {type(function).__name__} and cannot be called")
    return function


def fitting_arguments(function: Any, arguments: list[Any]) -> list[Any]:
    """Return all four arguments, or the three that google-adk passed before it had conversation_scenario."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return arguments
    for chosen in (arguments, arguments[:-1]):
        with contextlib.suppress(TypeError):
            signature.bind(*chosen)
            return chosen
    wanted = "(eval_metric, actual_invocations, expected_invocations, conversation_scenario)"
    raise TypeError(f"it takes {signature}, and is called with {wanted}")


async def _call(function: Any, arguments: list[Any]) -> Any:
    """Return the function's result; synchronous ones are also called on the loop, as google-adk does."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


class Adk:
    """The classes of google-adk, in the version that the user has."""

    def __init__(self) -> None:
        try:
            import google.adk
            from google.adk.evaluation import eval_case, eval_metrics, evaluator
        except ImportError as error:
            text = f"{error} (custom_metrics need google-adk[eval] in the agent's environment)"
            raise WorkerError("exception", text) from error

        self.version = str(getattr(google.adk, "__version__", ""))
        self._case = eval_case
        self._metrics = eval_metrics
        self._result = evaluator.EvaluationResult

    def arguments(self, frame: dict[str, Any]) -> list[Any]:
        """Return ``[eval_metric, actual_invocations, expected_invocations, conversation_scenario]``."""
        expected = frame.get("expected")
        return [
            self._metric(frame["metric"]),
            [self._invocation(turn) for turn in frame["actual"]],
            None if expected is None else [self._invocation(turn) for turn in expected],
            self._scenario(frame.get("scenario")),
        ]

    def scores(self, result: Any) -> dict[str, Any]:
        """Return score and status, overall and per turn. The invocations in the result are ours and not sent back."""
        if not isinstance(result, self._result):
            text = f"it returned {_type_name(result)}, not an EvaluationResult of google.adk.evaluation"
            raise WorkerError("exception", text)
        turns = list(result.per_invocation_results or ())
        if len(turns) > MAX_TURNS:
            raise WorkerError("exception", f"it returned the scores of {len(turns)} turns")
        return {
            "score": _number(result.overall_score),
            "status": _status(result.overall_eval_status),
            "turns": [{"score": _number(turn.score), "status": _status(turn.eval_status)} for turn in turns],
        }

    def _metric(self, fields: dict[str, Any]) -> Any:
        criterion_class = getattr(self._metrics, "BaseCriterion", None)
        if criterion_class is None:  # google-adk 1.10 has only a threshold
            return self._metrics.EvalMetric(metric_name=fields["name"], threshold=fields["criterion"]["threshold"])
        criterion = criterion_class.model_validate(fields["criterion"])
        made = self._metrics.EvalMetric(metric_name=fields["name"], criterion=criterion)
        made.threshold = None
        if "custom_function_path" in type(made).model_fields:
            made.custom_function_path = fields.get("function")
        return made

    def _invocation(self, turn: dict[str, Any]) -> Any:
        kind = self._case.Invocation
        if not hasattr(self._case, "InvocationEvents"):
            turn = _without_events(turn)
        return kind.model_validate({key: value for key, value in turn.items() if key in kind.model_fields})

    def _scenario(self, fields: dict[str, Any] | None) -> Any:
        if fields is None:
            return None
        try:
            from google.adk.evaluation.conversation_scenarios import ConversationScenario
        except ImportError:
            raise WorkerError("exception", f"google-adk {self.version} has no conversation_scenario to pass") from None
        return ConversationScenario.model_validate(fields)


def _without_events(turn: dict[str, Any]) -> dict[str, Any]:
    """Return a turn for a google-adk without events: its calls and the intermediate texts."""
    data = turn.get("intermediate_data") or {}
    if "invocation_events" not in data:
        return turn
    calls, texts = [], []
    for event in data["invocation_events"]:
        parts = (event.get("content") or {}).get("parts") or ()
        calls += [part["function_call"] for part in parts if part.get("function_call")]
        spoken = [part for part in parts if part.get("text") and not part.get("thought")]
        if spoken:
            texts.append([event["author"], spoken])
    return {**turn, "intermediate_data": {"tool_uses": calls, "intermediate_responses": texts}}


def _number(value: Any) -> Any:
    """Return a finite float, None, or a text that describes any other value."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return _type_name(value)


def _status(value: Any) -> str:
    return whole_text(str(getattr(value, "name", value)))[:MAX_TEXT]


def _type_name(value: Any) -> str:
    if isinstance(value, float):
        return str(value)
    return "None" if value is None else f"a {type(value).__name__}"
