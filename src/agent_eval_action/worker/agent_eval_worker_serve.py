"""The worker's main part: loads the agent, then opens sessions and makes turns as frames request."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import agent_eval_worker_load as loading
from agent_eval_worker_errors import MAX_TEXT, describe, whole_text
from agent_eval_worker_function import FunctionFactory, collect_spans, load_function, provide_tracers
from agent_eval_worker_protocol import Channel, encode, flush_streams
from agent_eval_worker_session import SessionFactory
from agent_eval_worker_turn import Conversation, RateLimitRetries, make_plugin_class, make_retry_options

# Import failures that no change of the code can mend. ``environment`` is the interpreter's.
NOT_OF_CODE = frozenset({"credentials", "environment", "rate_limited", "unavailable"})
TICK_S = 0.1


class Worker:
    """Loads the agent and serves sessions. Everything but ``_report_beats`` runs on the loop's thread."""

    def __init__(self, channel: Channel, init: dict[str, Any]) -> None:
        self._channel = channel
        self._init = init
        self._sessions: dict[str, Conversation] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._factory: Any = None  # a SessionFactory, once the agent is loaded
        self._stop = asyncio.Event()
        self._timeout = init["timeout_s"]
        self._last_tick = time.monotonic()
        self._asked_at: float | None = None  # when the heartbeat asked for a tick that has not come yet
        self._lagged = 0.0

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
        threading.Thread(target=self._report_beats, args=(loop,), name="agent-eval-heartbeat", daemon=True).start()
        # The worker survives an agent that cancels every task it can find.
        while not self._stop.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self._stop.wait()
        await self._clean_up(loaded)

    async def _load(self) -> loading.LoadedAgent:
        init, version = self._init, ""
        sys.path[:0] = [place for place in init["sys_path"] if place not in sys.path]
        if not init["function"]:
            version = loading.require_adk()
        loading.load_dotenv(Path(init["folder"]), Path(init["workspace"]))
        if init["function"]:
            collector = collect_spans()
            loaded = loading.LoadedAgent(load_function(init["function"]))
            if collector is not None:
                provide_tracers()
            self._factory = FunctionFactory(loaded.agent, init["frame_bytes"], collector)
        else:
            module = init["module"]
            loaded = await (
                loading.load_module(module, init["sub_agent"]) if module else loading.load(Path(init["folder"]))
            )
            plugin_class, retries = make_plugin_class(), make_retry_options(self._timeout)
            limited = RateLimitRetries(self._timeout / 2)

            def make_plugin(replay: Any) -> Any:
                return plugin_class(None, replay) if replay is not None else plugin_class(retries, limited)

            self._factory = SessionFactory(loaded, make_plugin, init["frame_bytes"])
        self._channel.send(
            {
                "ev": "ready",
                "python": platform.python_version(),
                "adk": version,
                "models": loading.models_of(loaded.agent) if version else [],
                "packages": loading.installed(),
                "exclusive": loaded.reset is not None,
            }
        )
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
        task.add_done_callback(self._tasks.discard)

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

    def _tick(self) -> None:
        """Charge the elapsed time to the turns, and cancel those over their limit.

        The lag during which the loop was blocked is charged to a turn only if it is the only one: otherwise another
        one's synchronous tool may have caused it.
        """
        now = time.monotonic()
        asked_at, self._asked_at = self._asked_at or now, None
        self._lagged += now - asked_at
        passed, self._last_tick = now - self._last_tick, now
        turns = [(name, session.turn) for name, session in self._sessions.items() if session.turn is not None]
        if len(turns) > 1:
            passed = max(0.0, passed - (now - asked_at))
        for name, turn in turns:
            turn.charged += 0.0 if turn.idle else min(passed, now - turn.started)
            if turn.timed_out_at is None:
                if turn.charged > self._timeout:
                    turn.time_out(now)
            elif not turn.answered and now - turn.timed_out_at > self._init["cancel_grace_s"]:
                turn.answered = True
                error = {"kind": "timeout", "message": "it was cancelled and goes on all the same", "traceback": ""}
                self._channel.send({"ev": "turn", "s": name, "error": error, "retired": True})

    def _report_beats(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the loop tick ten times a second, and report how long it did not.

        A report shows that the process is alive, and which stack blocks its loop. Runs on a thread of its own.
        """
        report_s, cpu = min(1.0, self._timeout / 4), time.process_time()
        task, since = None, time.monotonic()  # the loop has been in one and the same task
        reported = since
        while not loop.is_closed():
            time.sleep(TICK_S)
            now = time.monotonic()
            # Many tasks that are ready at once run one after the other before the loop ticks again: together they may
            # take long, and none of them blocks.
            current = asyncio.current_task(loop)
            if self._asked_at is None or current is not task:
                task, since = current, now
            if now - reported >= report_s:
                lag, spent = now - since, time.process_time()
                # Busy with computing, or with waiting in a synchronous call: either way no good place for more
                # sessions.
                busy = max(spent - cpu, self._lagged + lag) / (now - reported)
                cpu, self._lagged, reported = spent, 0.0, now
                blocked = self._stack() if lag > report_s else {}
                self._channel.send({"ev": "beat", "lag": lag, "busy": busy, **blocked})
            if self._asked_at is None:
                self._asked_at = now
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._tick)

    def _stack(self) -> dict[str, Any]:
        """Return the stack of the loop's thread, and the session whose code is on it, as far as its frames show."""
        frames = sys._current_frames()  # noqa: SLF001 - the one way to see another thread's stack
        frame = stack = frames.get(threading.main_thread().ident or 0)
        shown = whole_text("".join(traceback.format_stack(stack, limit=30))[-MAX_TEXT:]) if stack else ""
        sessions = dict(self._sessions)
        while frame is not None:
            values = frame.f_locals
            context = values.get("invocation_context", values.get("tool_context"))
            service = getattr(getattr(context, "_invocation_context", context), "session_service", None)
            for name, session in sessions.items():
                own = getattr(session.runner, "session_service", None)
                if values.get("self") is session or (service is not None and own is service):
                    return {"stack": shown, "s": name}
            frame = frame.f_back
        return {"stack": shown, "s": None}

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
