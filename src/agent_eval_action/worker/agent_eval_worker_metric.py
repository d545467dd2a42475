"""Calls the user's metric functions: ``python agent_eval_worker_metric.py READ_FD WRITE_FD``, no agent in the process.

Frames in: ``{"op": "load", "function"}``, ``{"op": "call", "function", "arguments"}``; one answer to each, in turn.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any


class MetricWorker:
    """One function at a time, in the main thread, inside one event loop for all (clients of async code live in it)."""

    def __init__(self, channel: Any, init: dict[str, Any], adk: Any, flush: Any) -> None:
        self._flush = flush
        self._channel = channel
        self._cwd = init["cwd"]
        self._adk = adk
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._functions: dict[str, Any] = {}
        self._todo: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def run(self) -> None:
        """Serve until our starter is gone, which a thread notices while a function runs."""
        threading.Thread(target=self._read, name="agent-eval-reader", daemon=True).start()
        while True:
            frame = self._todo.get()
            known = set(sys.modules)
            answer = self._answer(frame)
            # What a function broke must not be the next one's trouble: such a process is replaced.
            answer["broken"] = self._broken(known)
            self._channel.send(answer)

    def _read(self) -> None:
        while True:
            frame = self._channel.receive()
            if frame is None or frame.get("op") == "stop":
                self._flush()
                os._exit(0)
            self._todo.put(frame)

    def _answer(self, frame: dict[str, Any]) -> dict[str, Any]:
        try:
            if frame["op"] == "load":
                self._functions[frame["function"]] = find(frame["function"])
                return {"ev": "loaded"}
            function = self._functions[frame["function"]]
            arguments = self._adk.arguments(frame["arguments"])
            result = self._loop.run_until_complete(called(function, fitting(function, arguments)))
            return {"ev": "returned", "value": self._adk.scores(result)}
        except BaseException as error:  # noqa: BLE001 - sys.exit in a function too is one failed call
            return {"ev": "failed", "error": self._adk.describe(error)}

    def _broken(self, known: set[str]) -> bool:
        try:
            os.chdir(self._cwd)
        except OSError:
            return True
        return self._loop.is_closed() or not known <= set(sys.modules)


def find(path: str) -> Any:
    """The function at ``package.module.function``; raises what its import raises, or LookupError."""
    module_name, _, name = path.rpartition(".")
    module = importlib.import_module(module_name)
    function = getattr(module, name, None)
    if function is None:
        raise LookupError(f"module {module_name} ({getattr(module, '__file__', '?')}) has no {name}")
    if not callable(function):
        raise TypeError(f"{path} is a {type(function).__name__} and cannot be called")
    return function


def fitting(function: Any, arguments: list[Any]) -> list[Any]:
    """All four arguments, or the three that google-adk passed before it had conversation_scenario."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return arguments
    for some in (arguments, arguments[:-1]):
        try:
            signature.bind(*some)
        except TypeError:
            continue
        return some
    wanted = "(eval_metric, actual_invocations, expected_invocations, conversation_scenario)"
    raise TypeError(f"it takes {signature}, and is called with {wanted}")


async def called(function: Any, arguments: list[Any]) -> Any:
    """The function's result; synchronous ones are called inside the loop too, as google-adk does."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


def main() -> None:
    """Set up what must be there before the user's code is imported, then serve."""
    # Imported now, while our folder is on the path.
    import agent_eval_worker_results as results
    from agent_eval_worker_begin import begin
    from agent_eval_worker_load import load_dotenv
    from agent_eval_worker_pipe import flush_streams

    channel = begin()
    init = channel.receive()
    if init is None:
        return
    sys.path[:0] = [place for place in init["sys_path"] if place not in sys.path]
    os.chdir(init["cwd"])
    load_dotenv(Path(init["folder"]), Path(init["workspace"]))
    try:
        adk = results.Adk()
    except BaseException as error:  # noqa: BLE001 - said, and then this process has nothing to do
        channel.send({"ev": "failed", "error": results.describe(error)})
        channel.flush(2.0)
        return
    channel.send({"ev": "ready", "adk": adk.version})
    MetricWorker(channel, init, adk, flush_streams).run()


if __name__ == "__main__":
    # Guarded: multiprocessing imports this module again in a function's own children.
    main()
