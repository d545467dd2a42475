"""The worker's main part: loads the agent, then opens sessions and makes turns as frames request."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import inspect
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import agent_eval_worker_load as loading
from agent_eval_worker_errors import MAX_TEXT, describe, whole_text
from agent_eval_worker_function import FunctionFactory, load_function
from agent_eval_worker_plugin import RateLimitRetries, make_plugin_class, make_retry_options
from agent_eval_worker_protocol import Channel, encode, flush_streams
from agent_eval_worker_session import SessionFactory
from agent_eval_worker_telemetry import collect_spans, provide_tracers
from agent_eval_worker_turn import Conversation, Turn

# Import failures that no change of the code can mend. ``environment`` is the interpreter's.
NOT_OF_CODE = frozenset({"credentials", "environment", "rate_limited", "unavailable"})
TICK_S = 0.1


def serve_agent(channel: Channel, init: dict[str, Any]) -> None:
    """Load the agent and serve sessions; does not return."""
    Worker(channel, init).run()


class Worker:
    """All of the worker's state. Everything but ``session_on_stack`` runs on the loop's thread."""

    def __init__(self, channel: Channel, init: dict[str, Any]) -> None:
        self._channel = channel
        self._init = init
        self._sessions: dict[str, Conversation] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._factory: Any = None  # a SessionFactory, once the agent is loaded
        self._stop = asyncio.Event()
        self._timeout = init["timeout_s"]
        self._last_tick = time.monotonic()

    def run(self) -> None:
        """Serve until a stop frame comes; does not return."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        code = 1
        try:
            run_forever(loop, self._main(loop))
            code = 0
        finally:
            # Not the interpreter's own exit, which waits for the agent's threads.
            with contextlib.suppress(BaseException):
                atexit._run_exitfuncs()  # noqa: SLF001 - agents register clean-ups there
            flush_streams()
            self._channel.flush(2.0)
            os._exit(code)

    async def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        threading.Thread(target=self._receive, args=(loop,), name="agent-eval-reader", daemon=True).start()
        os.chdir(self._init["cwd"])
        # Imports make a hundred thousand lasting objects: collecting garbage among them costs a seventh of the time.
        gc.disable()
        try:
            loaded = await self._load()
        except BaseException as error:  # noqa: BLE001 - whatever an import raises is reported
            found = describe(error)
            kind = found["kind"] if found["kind"] in NOT_OF_CODE else "import"
            self._channel.send({"ev": "failed", "error": {**found, "kind": kind}})
            return
        gc.freeze()
        gc.enable()
        Heartbeat(loop, self._channel, self, min(1.0, self._timeout / 4)).start()
        # The worker survives an agent that cancels every task it can find.
        while not self._stop.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self._stop.wait()
        await self._clean_up(loaded)

    async def _load(self) -> loading.LoadedAgent:
        folder = Path(self._init["folder"])
        sys.path[:0] = [place for place in self._init["sys_path"] if place not in sys.path]
        if self._init.get("function"):
            loading.load_dotenv(folder, Path(self._init["workspace"]))
            return self._load_function(self._init["function"])
        version = loading.require_adk()
        loading.load_dotenv(folder, Path(self._init["workspace"]))
        module = self._init.get("module")
        loaded = await (loading.load_module(module, self._init["sub_agent"]) if module else loading.load(folder))
        plugin_class, retries = make_plugin_class(), make_retry_options(self._timeout)
        limited = RateLimitRetries(self._timeout / 2)

        def make_plugin(replay: Any) -> Any:
            return plugin_class(None, replay) if replay is not None else plugin_class(retries, limited)

        self._factory = SessionFactory(loaded, make_plugin, self._init["frame_bytes"])
        self._channel.send(
            {
                "ev": "ready",
                "python": platform.python_version(),
                "adk": version,
                "models": loading.models_of(loaded.agent),
                "packages": loading.installed(),
                "exclusive": loaded.reset is not None,
            }
        )
        return loaded

    def _load_function(self, name: str) -> loading.LoadedAgent:
        collector = collect_spans()
        function = load_function(name)
        if collector is not None:
            provide_tracers()
        module = inspect.getmodule(function)
        self._factory = FunctionFactory(function, self._init["frame_bytes"], collector)
        ready = {"python": platform.python_version(), "adk": "", "models": [], "packages": loading.installed()}
        loaded = loading.LoadedAgent(function, module)
        self._channel.send({"ev": "ready", **ready, "exclusive": False})
        return loaded

    def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            frame = self._channel.receive()
            if frame is None:
                # The run is gone: nothing of the agent may outlive it.
                os.killpg(os.getpgrp(), signal.SIGKILL)
                return
            loop.call_soon_threadsafe(self._dispatch, frame)

    def _dispatch(self, frame: dict[str, Any]) -> None:
        if frame["op"] == "stop":
            self._stop.set()
            return
        task = asyncio.ensure_future(getattr(self, "_on_" + frame["op"])(frame))
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def _on_open(self, frame: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.chdir(self._init["cwd"])  # a tool of an earlier session may have left it
        answer = {"ev": "opened", "s": frame["s"]}
        try:
            self._sessions[frame["s"]] = await self._factory.open(frame)
        except BaseException as error:  # noqa: BLE001 - the case's error, not the worker's
            answer["error"] = describe(error)
        self._channel.send(answer)

    async def _on_turn(self, frame: dict[str, Any]) -> None:
        session = self._sessions[frame["s"]]
        session.on_event = (lambda event: self._report_calls(frame["s"], event)) if frame.get("tell") else None
        if answer := await session.make_turn(frame["content"]):
            self._channel.send(answer)

    def _report_calls(self, session: str, event: Any) -> None:
        if not event.partial:
            for call in event.get_function_calls():
                with contextlib.suppress(TypeError, ValueError):  # the turn's own report handles what JSON cannot hold
                    self._channel.send({"ev": "call", "s": session, "name": call.name, "args": call.args})

    async def _on_close(self, frame: dict[str, Any]) -> None:
        session = self._sessions.pop(frame["s"], None)
        answer = {"ev": "closed", "s": frame["s"], "state": {}}
        if session is not None and session.turn is not None and session.turn.task is not None:
            session.turn.task.cancel()  # its answer is no longer awaited
        try:
            if session is not None:
                answer["state"] = await session.state()
            body = encode(answer)
        except BaseException as error:  # noqa: BLE001 - the case's error, not the worker's
            body = encode({"ev": "closed", "s": frame["s"], "error": describe(error)})
        self._channel.send(body)

    def tick(self, lag: float) -> None:
        """Charge the elapsed time to the turns, and cancel those over their limit.

        The ``lag`` during which the loop was blocked is charged to a turn only if it is the only one: otherwise another
        one's synchronous tool may have caused it.
        """
        now = time.monotonic()
        passed, self._last_tick = now - self._last_tick, now
        turns = [(name, session.turn) for name, session in self._sessions.items() if session.turn is not None]
        if len(turns) > 1:
            passed = max(0.0, passed - lag)
        for name, turn in turns:
            turn.charged += 0.0 if turn.idle else min(passed, now - turn.started)
            if turn.timed_out_at is None and turn.charged > self._timeout:
                turn.time_out(now)
            elif turn.timed_out_at is not None and now - turn.timed_out_at > self._init["cancel_grace_s"]:
                self._give_up(name, turn)

    def _give_up(self, name: str, turn: Turn) -> None:
        if not turn.answered:
            turn.answered = True
            error = {"kind": "timeout", "message": "it was cancelled and goes on all the same", "traceback": ""}
            self._channel.send({"ev": "turn", "s": name, "error": error, "retired": True})

    def session_on_stack(self, frame: FrameType | None) -> str | None:
        """Return the session whose code is on a stack, as far as its frames show. Runs on the heartbeat's thread."""
        sessions = dict(self._sessions)
        while frame is not None:
            values = frame.f_locals
            if isinstance(values.get("self"), Conversation):
                return next((name for name, s in sessions.items() if s is values["self"]), None)
            for name in ("invocation_context", "tool_context"):
                found = values.get(name)
                context = getattr(found, "_invocation_context", found)
                service = getattr(context, "session_service", None)
                if service is not None:
                    return next(
                        (n for n, s in sessions.items() if getattr(s.runner, "session_service", None) is service), None
                    )
            frame = frame.f_back
        return None

    async def _clean_up(self, loaded: loading.LoadedAgent) -> None:
        for task in list(self._tasks):
            task.cancel()
        with contextlib.suppress(BaseException):
            cleanup = getattr(loaded.cleanup, "aclose", loaded.cleanup)
            done: Any = cleanup() if callable(cleanup) else None
            if hasattr(done, "__await__"):
                await done
        with contextlib.suppress(BaseException):
            # Toolsets and plugins are shared by all sessions, so they are closed once, here.
            if self._factory.last_runner is not None:
                await self._factory.last_runner.close()


def run_forever(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, None]) -> None:
    """Run ``main`` even if the agent stops the loop, or calls sys.exit in a task.

    SystemExit in a task is stored there and also raised out of the loop. The loop still works: the turn that awaits the
    task gets the exception, and other turns continue.
    """
    task = loop.create_task(main)
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue
        if not task.done():
            time.sleep(0.01)
    task.result()


class Heartbeat(threading.Thread):
    """Makes the loop tick ten times a second, and reports every ``report_s`` seconds how long it did not.

    A report shows that the process is alive, and which stack blocks its loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: Channel, worker: Worker, report_s: float) -> None:
        super().__init__(name="agent-eval-heartbeat", daemon=True)
        self._loop = loop
        self._channel = channel
        self._worker = worker
        self._report_s = report_s
        self._asked_at: float | None = None
        self._task: asyncio.Task[Any] | None = None
        self._since = time.monotonic()  # the loop has been in one and the same task
        self._lagged = 0.0
        self._cpu = time.process_time()

    def run(self) -> None:
        reported = time.monotonic()
        while not self._loop.is_closed():
            time.sleep(TICK_S)
            now = time.monotonic()
            # Many tasks that are ready at once run one after the other before the loop ticks again: together they may
            # take long, and none of them blocks.
            task = asyncio.current_task(self._loop)
            if self._asked_at is None or task is not self._task:
                self._task, self._since = task, now
            if now - reported >= self._report_s:
                self._report(now - self._since, now - reported)
                reported = now
            if self._asked_at is None:
                self._asked_at = now
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._tick)

    def _report(self, lag: float, passed: float) -> None:
        cpu = time.process_time()
        # Busy with computing, or with waiting in a synchronous call: either way no good place for more sessions.
        busy = max(cpu - self._cpu, self._lagged + lag) / passed
        self._cpu, self._lagged = cpu, 0.0
        frame: dict[str, Any] = {"ev": "beat", "lag": lag, "busy": busy}
        if lag > self._report_s:
            frames = sys._current_frames()  # noqa: SLF001 - the one way to see another thread's stack
            stack = frames.get(threading.main_thread().ident or 0)
            frame["stack"] = whole_text("".join(traceback.format_stack(stack, limit=30))[-MAX_TEXT:]) if stack else ""
            frame["s"] = self._worker.session_on_stack(stack)
        self._channel.send(frame)

    def _tick(self) -> None:
        asked_at, self._asked_at = self._asked_at or 0.0, None
        lag = time.monotonic() - asked_at
        self._lagged += lag
        self._worker.tick(lag)
